"""Questions of the program to a model: columns together and one by one."""

import math

import numpy as np
import pytest

from everlearn import IncrementalGaussianMixture
from everlearn.reporting import queries


@pytest.fixture(scope="module")
def model():
    """A mixture of two groups in 70 columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 70)) + 5.0 * rng.integers(2, size=(300, 1))
    return IncrementalGaussianMixture(n_components=2).fit(X)


def test_columns_asked_together_have_the_numbers_of_each_by_itself(model):
    names = [str(name) for name in queries.column_names(model)]
    given = {names[0]: 4.0}
    found = queries.summaries(model, given, names[1:], coverage=0.8)
    assert [summary.column for summary in found] == names[1:]
    for summary in (found[0], found[40], found[-1]):
        alone = queries.curve(model, given, summary.column, coverage=0.8)
        assert summary[1:] == pytest.approx((alone.mean, alone.std, alone.low, alone.high), rel=1e-9)


def test_many_columns_take_few_questions(model, monkeypatch):
    asked = []
    one_by_one = queries.condition
    monkeypatch.setattr(queries, "condition", lambda *question: asked.append(question) or one_by_one(*question))
    names = [str(name) for name in queries.column_names(model)]
    assert len(queries.summaries(model, {}, names)) == len(names)
    assert len(asked) == math.ceil(len(names) / queries._TOGETHER)
