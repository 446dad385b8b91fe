"""Tests mirror the tree: src/everlearn/mixture/learn.py has tests/mixture/test_learn.py."""

from pathlib import PurePosixPath

import pytest

FOLDERS = [
    "anomaly",
    "base",
    "figmn",
    "forgetting",
    "gaussian",
    "linalg",
    "low_rank",
    "mixture",
    "monitoring",
    "persistence",
    "ppca",
    "variational",
]

# Modules whose tests stand under another name still. The list can only shrink: an entry that has its file, or names no
# module, fails.
MISSING = """
low_rank/ask.py
low_rank/core.py
low_rank/loading.py
low_rank/merge.py
mixture/answers.py
mixture/ask.py
mixture/core.py
mixture/interchange.py
mixture/learn.py
mixture/state.py
monitoring/kernels/page_hinkley.py
"""


def modules_of(source, folder):
    """Modules of a folder of the source, as paths below it."""
    return {path.relative_to(source).as_posix() for path in (source / folder).rglob("*.py") if path.stem != "__init__"}


def file_of_tests(module):
    """Where the tests of a module are, below tests/."""
    path = PurePosixPath(module)
    return str(path.with_name(f"test_{path.name}"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_module_has_its_test_file(repository, folder):
    modules = modules_of(repository / "src" / "everlearn", folder)
    assert modules, f"no folder src/everlearn/{folder}: FOLDERS names it"
    without = {module for module in modules if not (repository / "tests" / file_of_tests(module)).is_file()}
    known = {module for module in MISSING.split() if module.startswith(f"{folder}/")}
    new, stale = sorted(without - known), sorted(known - without)
    assert not new, f"write tests/{file_of_tests(new[0])}: these modules have no tests of their own: {new}"
    assert not stale, f"take these out of MISSING: they have their tests, or are no modules: {stale}"


def test_missing_modules_are_in_the_folders():
    assert {module.split("/")[0] for module in MISSING.split()} <= set(FOLDERS)
