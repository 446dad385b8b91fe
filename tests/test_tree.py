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
    without = sorted(module for module in modules if not (repository / "tests" / file_of_tests(module)).is_file())
    assert not without, f"write tests/{file_of_tests(without[0])}: these modules have no tests of their own: {without}"
