# Everything runs in .venv, made on first use. `make PYTHON=/path/to/python3.12 ...` picks the interpreter.

PYTHON ?= python3
WORKERS ?= auto
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest -q
# A worker takes a stretch of the tests, and at the end some of another's: kernels are compiled and fixtures made once.
SPREAD := -n $(WORKERS) --maxprocesses 8 --dist worksteal

.PHONY: help run test test-slow nightly test-nojit test-torch test-spark test-site lint types house docs results mutants fuzz soak wheel ci clean
.DELETE_ON_ERROR:

help:
	@echo "make run    learn the demonstration stream and show what was learned"
	@echo "make test   run the tests, but for those that take long by nature"
	@echo "make test-slow  run those: brokers, browsers, clusters, documentation, reproductions, quality over many seeds"
	@echo "make nightly  the tests of laws with 1,000 random examples each"
	@echo "make results  run the benchmarks and the reproduction, each writes its page (ARGS=--resume: those out of date)"
	@echo "make mutants  break each promise on purpose and see that the tests notice"
	@echo "make fuzz SECONDS=600   attack all that reads with hostile inputs"
	@echo "make soak MINUTES=30    learn and serve under kills, full disks and a lost broker, and count every row"
	@echo "make house  figures of the source: sizes, parameters, comments, frames to a kernel, import circles"
	@echo "make lint | types | docs | wheel | test-nojit | test-torch | test-spark | test-site | ci | clean"

run: .venv/.installed
	$(BIN)/everlearn learn --demo --model-file demo.evl --report demo.html

test: .venv/.test
	$(PYTEST) $(SPREAD) -m "not slow"

# What takes long by nature, marked `slow`: with `make test` it is every test there is.
test-slow: .venv/.test
	$(PYTEST) $(SPREAD) -m slow

# The kernels as plain Python: numba can neither hide nor add a fault.
test-nojit: .venv/.test
	NUMBA_DISABLE_JIT=1 $(PYTEST) $(SPREAD) tests/linalg $$(find tests -type d -name kernels)

# The laws with other random examples in every run, 1,000 each; hours of one core.
nightly: .venv/.test
	$(PYTEST) $(SPREAD) --hypothesis-profile=thorough $$(grep -rl --include='test_*.py' hypothesis tests)

test-torch: .venv/.test
	$(PIP) torch==2.13.0
	$(PYTEST) -m torch $$(grep -rl --include='test_*.py' 'mark\.torch' tests)

# Spark is 400 MB, a minute to install: a stage of its own, where there is Java.
test-spark: .venv/.test
	@command -v java > /dev/null || echo "there is no Java: the tests of Spark are skipped"
	! command -v java > /dev/null || $(PIP) -e '.[spark]'
	$(PYTEST) tests/distributed/test_spark.py

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: .venv/.test
	$(BIN)/mypy

mutants: .venv/.test
	$(BIN)/python tools/mutants.py $(ARGS)

SECONDS ?= 600
fuzz: .venv/.test
	$(BIN)/python tools/fuzz.py --seconds $(SECONDS) $(ARGS)

MINUTES ?= 30
soak: .venv/.test
	$(BIN)/python tools/soak.py --minutes $(MINUTES) $(ARGS)

house: .venv/.test
	$(BIN)/python tools/house.py

docs: .venv/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -j $(WORKERS) -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Every page of the built site in a browser without a network, and its links.
test-site: .venv/.test
	EVERLEARN_SITE=docs/_build/html $(PYTEST) tests/site

# Figures of README and docs: make results ARGS="--only rates", ARGS=--resume, ARGS=--quick, ARGS=--stale, ARGS=--list
results: .venv/.test
	@$(BIN)/python benchmarks $(ARGS)

wheel: .venv/.test
	$(BIN)/python .ci/check_wheel.py

ci:
	.ci/run

clean:
	rm -rf .venv build dist docs/_build docs/generated docs/gallery docs/results .pytest_cache .mypy_cache .ruff_cache .hypothesis demo.evl demo.html

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || { \
	  echo "everlearn needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)."; \
	  echo "Name another one: make PYTHON=/path/to/python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.installed: .venv/.made pyproject.toml
	@echo "installing into .venv; the first time takes a minute or two"
	$(PIP) -e '.[plot]'
	@touch $@

.venv/.test: .venv/.made pyproject.toml
	@echo "installing into .venv with what the tests need; the first time takes a minute or two"
	$(PIP) -e '.[test]'
	@touch $@ .venv/.installed

.venv/.docs: .venv/.made pyproject.toml
	@echo "installing into .venv with what the documentation needs"
	$(PIP) -e '.[docs]'
	@touch $@ .venv/.installed
