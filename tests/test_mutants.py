"""The list of mutants: every patch applies, and every test that must notice it is there."""

import importlib.util

import pytest


@pytest.fixture(scope="module")
def mutants(repository):
    spec = importlib.util.spec_from_file_location("mutants", repository / "tools" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MUTANTS


def test_every_patch_applies_once_and_changes_something(mutants, repository):
    wrong = []
    for name, mutant in mutants.items():
        path = repository / "src" / "everlearn" / mutant.file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text.count(mutant.old) != 1 or mutant.old == mutant.new:
            wrong.append(name)
    assert wrong == []


def test_every_mutant_names_tests_that_are_there(mutants, repository):
    for name, mutant in mutants.items():
        files = [part for part in mutant.tests if part.startswith("tests/")]
        assert files, name
        for file in files:
            assert (repository / file).exists(), (name, file)
        if "-k" in mutant.tests:
            words = mutant.tests[mutant.tests.index("-k") + 1].replace("(", " ").replace(")", " ").split(" or ")
            text = "".join((repository / file).read_text(encoding="utf-8") for file in files)
            assert any(word.strip() in text for word in words), name
