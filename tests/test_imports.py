"""Importing everlearn is quick, loads nothing optional, and a missing extra says its name."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from everlearn.errors import MissingExtraError, require

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
USER_EXTRAS = sorted(set(EXTRAS) - {"all", "test", "docs"})
MODULES = {"confluent-kafka": "confluent_kafka"}


def package(requirement):
    return re.match(r"[\w-]+", requirement)[0]


def optional_modules():
    named = {package(item) for extra in USER_EXTRAS for item in EXTRAS[extra]}
    return {MODULES.get(name, name) for name in named} | {"distributed", "pandas", "polars"}


def interpreter(code):
    return subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout


def cpu_seconds(statement):
    return float(interpreter(f"import time; s = time.process_time(); {statement}; print(time.process_time() - s)"))


def test_import_costs_half_a_second_at_most():
    base, *ours = "import sklearn.base", "import everlearn", "from everlearn import IncrementalGaussianMixture"
    # The least of several runs: what is left when nothing else on the machine gets in the way.
    rounds = [[cpu_seconds(statement) for statement in (base, *ours)] for _ in range(3)]
    least, *costs = (min(column) for column in zip(*rounds, strict=True))
    assert max(costs) <= least + 0.5, dict(zip(ours, costs, strict=True)) | {base: least}


def test_import_loads_nothing_optional():
    touch_all = "import everlearn; [getattr(everlearn, name) for name in everlearn.__all__]"
    show = "import json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    loaded = json.loads(interpreter(f"{touch_all}; {show}"))
    assert "everlearn" in loaded
    assert optional_modules() & set(loaded) == set()


def test_missing_extra_is_named():
    with pytest.raises(MissingExtraError, match=r"'no_such_package'.*pip install 'everlearn\[plot\]'"):
        require("no_such_package.part", extra="plot")


def test_present_module_is_returned():
    assert require("json.decoder", extra="plot") is sys.modules["json.decoder"]


def requirements():
    """Every call of `require` in the source: where it stands, the module and the extra that it names."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "require":
                values = [*node.args, *(keyword.value for keyword in node.keywords)]
                yield (f"{path.name}:{node.lineno}", *(value.value for value in values))


def test_every_named_extra_brings_the_module():
    for place, module, extra in requirements():
        assert extra in USER_EXTRAS, f"{place} names an extra that pyproject.toml does not have"
        brought = {MODULES.get(package(item), package(item)) for item in EXTRAS[extra]} | {"distributed"}
        assert module.partition(".")[0] in brought, f"{place}: the extra {extra!r} does not install {module!r}"


def test_all_holds_every_user_extra():
    (everything,) = EXTRAS["all"]
    assert sorted(everything.removeprefix("everlearn[").removesuffix("]").split(",")) == USER_EXTRAS
