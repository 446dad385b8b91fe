"""Models are values: what they are given, saved to, copied to or merged with is not tied to them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

from everlearn.base.estimator import StreamEstimator
from everlearn.checks.tools import answers, assert_finite, assert_same, equal, fresh, learn, make_stream
from everlearn.persistence.model_file import dumps, load


def check_input_is_left_alone(estimator: Any, random_state: int = 0) -> None:
    """Arrays given to a model are neither changed nor kept."""
    source = make_stream(estimator, 300, random_state)
    # Models keep rows of the warm-up and of a reservoir: each way to come in must copy.
    for sizes in ([300], [1] * 300, [1, 299]):
        given = source.copy()
        model = learn(fresh(estimator), given, sizes)
        answers(model.copy(), given.X)
        assert equal(given.X, source.X), "the model changed the rows that it was given."
        # A view that was kept would show this now.
        given.X[:] = 1e6
        if given.y is not None and source.y is not None:
            assert equal(given.y, source.y), "the model changed the targets that it was given."
            given.y[:] = given.y[0]
        what = "a model, and one whose input was overwritten after it was learned"
        assert_same(learn(fresh(estimator), source, sizes), model, source.X, what)


def check_read_only_input(estimator: Any, random_state: int = 0) -> None:
    """Rows that must not be written to can be learned and asked."""
    stream = make_stream(estimator, 300, random_state)
    locked = stream.copy()
    locked.X.flags.writeable = False
    assert_same(learn(fresh(estimator), stream), learn(fresh(estimator), locked), locked.X, "read-only rows")


def check_save_and_load(estimator: Any, random_state: int = 0) -> None:
    """A model read from its file answers, and goes on learning, bit for bit as the one that was saved."""
    stream = make_stream(estimator, 900, random_state)
    assert not vars(_through_a_file(fresh(estimator))).keys() - fresh(estimator).get_params(deep=False).keys()
    # After one row, after few and after many: a model that warms up has other fields in each.
    for n in (1, 50, 600):
        model = learn(fresh(estimator), stream.part(0, n))
        before = dumps(model)
        loaded = _through_a_file(model)
        assert dumps(model) == before, f"after {n} rows: saving changed the model."
        assert_same(model, loaded, stream.X[:50], f"after {n} rows, a model and its file")
        for further in (model, loaded):
            learn(further, stream.part(n, n + 300))
        assert_same(model, loaded, stream.X[:50], f"after {n} rows, a model and its file, both learning on")


def _through_a_file(model: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.evl")
        model.save(path)
        return load(path)


def check_copies_are_independent(estimator: Any, random_state: int = 0) -> None:
    """Learning by a copy leaves the original alone, and the other way round."""
    stream = make_stream(estimator, 900, random_state)
    for n in (1, 50, 600):
        model = learn(fresh(estimator), stream.part(0, n))
        before = dumps(model)
        twin = model.copy()
        assert dumps(twin) == before, f"after {n} rows: a copy differs from its original."
        learn(twin, stream.part(n, n + 300))
        assert dumps(model) == before, f"after {n} rows: the original changed when its copy learned."
        learned = dumps(twin)
        learn(model, stream.part(n, n + 200))
        assert dumps(twin) == learned, f"after {n} rows: the copy changed when its original learned."


def check_merge(estimator: Any, random_state: int = 0) -> None:
    """A merge changes neither of its models, and its result answers and learns."""
    # The base class only refuses: a model that cannot be merged has nothing to check.
    if type(estimator)._merge is StreamEstimator._merge:
        return
    stream = make_stream(estimator, 900, random_state)
    one, two = learn(fresh(estimator), stream.part(0, 400)), learn(fresh(estimator), stream.part(400, 800))
    before = dumps(one), dumps(two)
    merged = one.merge(two)
    assert_finite(merged, stream.X[:50], "a merged model")
    assert_same(merged, one + two, stream.X[:50], "merge and +")
    learn(merged, stream.part(800, 900))
    assert_finite(merged, stream.X[:50], "a merged model that learned on")
    assert (dumps(one), dumps(two)) == before, "merging, or learning by the merged model, changed what was merged."


CHECKS: tuple[Callable[..., None], ...] = (
    check_input_is_left_alone,
    check_read_only_input,
    check_save_and_load,
    check_copies_are_independent,
    check_merge,
)
