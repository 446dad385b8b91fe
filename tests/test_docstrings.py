"""Every example in a docstring runs and shows what it says."""

import doctest
import importlib
import pkgutil

import pytest

import everlearn
from everlearn.errors import MissingExtraError

MODULES = sorted(module.name for module in pkgutil.walk_packages(everlearn.__path__, "everlearn."))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name)
    except MissingExtraError as error:
        pytest.skip(str(error))
    result = doctest.testmod(module)
    assert result.failed == 0


def test_some_module_has_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    model = everlearn.IncrementalGaussianMixture
    assert any(test.examples for test in finder.find(model, globs={}))
