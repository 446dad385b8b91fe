"""The stages of the Makefile and of CI: `test` and `test-slow` are together every test, and CI runs both."""

import re

import pytest


@pytest.fixture(scope="module")
def makefile(repository):
    return (repository / "Makefile").read_text(encoding="utf-8")


def recipe(makefile, target):
    """The commands of a target, as one line."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    return found[1].strip()


def test_what_one_leaves_out_the_other_runs(makefile):
    assert recipe(makefile, "test") == '$(PYTEST) $(SPREAD) -m "not slow"'
    assert recipe(makefile, "test-slow") == "$(PYTEST) $(SPREAD) -m slow"


def test_ci_runs_both(repository, makefile):
    stages = re.search(r"^for name in (.*); do$", (repository / ".ci" / "run").read_text(), re.MULTILINE)[1].split()
    assert stages[:2] == ["test", "test-slow"]
    assert all(re.search(rf"^{stage}:", makefile, re.MULTILINE) for stage in stages)


def test_pytest_alone_leaves_nothing_out(pytestconfig):
    """A file that is named runs whole: the choice is the Makefile's, not the configuration's."""
    assert "-m" not in pytestconfig.getini("addopts")
