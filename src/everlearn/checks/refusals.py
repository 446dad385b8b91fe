"""Gaps are learned or refused as the tags say; bad input is refused and changes nothing."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.utils import get_tags

from everlearn.checks.tools import ANSWERS, assert_finite, assert_same, fresh, learn, make_stream
from everlearn.persistence.model_file import dumps


def check_gaps(estimator: Any, random_state: int = 0) -> None:
    """NaN means "not observed" where the tags allow it, and is refused elsewhere."""
    stream = make_stream(estimator, 600, random_state)
    holes = stream.copy()
    holes.X[np.random.default_rng(random_state).random(holes.X.shape) < 0.2] = np.nan
    if not get_tags(estimator).input_tags.allow_nan:
        assert_refused(learn(fresh(estimator), stream), "NaN", "partial_fit", holes.X, holes.y)
        return
    # A first row without a value, one in the middle, and a column that is unknown for the first thirty rows.
    holes.X[0] = holes.X[300] = holes.X[1:30, 1] = np.nan
    model = fresh(estimator)
    for start, stop in ((0, 40), (40, 600)):
        learn(model, holes.part(start, stop))
        assert_finite(model, stream.X[:50], f"{stop} rows with gaps learned, asked without gaps")
        assert_finite(model, holes.X[:50], f"{stop} rows with gaps learned, asked with gaps")


def check_bad_rows(estimator: Any, random_state: int = 0) -> None:
    """Rows that make no sense are refused by everything that takes rows."""
    stream = make_stream(estimator, 300, random_state)
    X, y = stream.X[:5], None if stream.y is None else stream.y[:5]
    model = learn(fresh(estimator), stream)
    for what, bad in _bad_tables(X).items():
        assert_refused(model, what, "partial_fit", bad, y)
        for method in ANSWERS:
            if hasattr(estimator, method):
                assert_refused(model, what, method, bad)


def check_bad_weights_and_targets(estimator: Any, random_state: int = 0) -> None:
    """Weights that are negative or no numbers, and targets that do not fit the rows, are refused."""
    stream = make_stream(estimator, 300, random_state)
    X, y = stream.X[:5], None if stream.y is None else stream.y[:5]
    model = learn(fresh(estimator), stream)
    if y is not None:
        for bad_y in (None, y[:-1], np.array([y, y]).T):
            assert_refused(model, f"y={bad_y}", "partial_fit", X, bad_y)
    if "sample_weight" in inspect.signature(estimator.partial_fit).parameters:
        for weights in _bad_weights():
            assert_refused(model, f"sample_weight={weights}", "partial_fit", X, y, sample_weight=weights)


def check_failure_changes_nothing(estimator: Any, random_state: int = 0) -> None:
    """A batch that fails, or is interrupted, leaves the model as it was."""
    stream = make_stream(estimator, 900, random_state)
    # On an unfitted model, after few rows and after many: each has another state to restore.
    for start in (0, 30, 600):
        model = learn(fresh(estimator), stream.part(0, start)) if start else fresh(estimator)
        before, part = dumps(model), stream.part(start, start + 300)
        # One that is no Exception, and one that is: a handler for either alone lets the other through.
        for error in (KeyboardInterrupt, MemoryError):
            with _failing(type(model), error), contextlib.suppress(error):
                learn(model, part)
                raise AssertionError(f"{error.__name__} within partial_fit was lost.")
            assert dumps(model) == before, f"{error.__name__} after {start} rows: the model changed."
        learn(model, part)
        again = learn(fresh(estimator), stream.part(0, start + 300), [start, 300] if start else None)
        assert_same(model, again, stream.X[:50], f"{start} rows, a failure, and 300 more rows")


@contextlib.contextmanager
def _failing(cls: type, error: type[BaseException]) -> Iterator[None]:
    """Let a class of models fail at the worst moment: when all was learned, and nothing told to the caller."""
    learn_rows: Any = cls._learn  # type: ignore[attr-defined]

    def fail(self: Any, *args: Any) -> Any:
        learn_rows(self, *args)
        raise error

    cls._learn = fail  # type: ignore[attr-defined]
    try:
        yield
    finally:
        cls._learn = learn_rows  # type: ignore[attr-defined]


def _bad_tables(X: np.ndarray) -> dict[str, Any]:
    infinite, negative, text = X.copy(), X.copy(), X.astype(object)
    infinite[3, 2], negative[0, 0], text[2, 1] = np.inf, -np.inf, "high"
    return {
        "infinity": infinite,
        "negative infinity": negative,
        "text": text,
        "complex numbers": X * 1j,
        "a column too few": X[:, 1:],
        "a column too many": np.hstack([X, X[:, :1]]),
        "no rows": X[:0],
        "a vector": X[0],
        "a single number": 3.0,
        "three dimensions": X[None],
    }


def _bad_weights() -> list[Any]:
    ones = [1.0] * 5
    return [[*ones[:2], -1.0, *ones[3:]], [np.nan] * 5, [np.inf] * 5, ones[:4], ["a"] * 5, [1j] * 5]


def assert_refused(model: Any, what: str, method: str, *args: Any, **kwargs: Any) -> None:
    """The call raises ValueError, and nothing of the model changes: it can be asked again."""
    before, refusal = dumps(model), None
    try:
        getattr(model, method)(*args, **kwargs)
    except Exception as error:
        refusal = error
    assert refusal is not None, f"{method} accepted {what} without an error."
    assert isinstance(refusal, ValueError), f"{method} refused {what} with {refusal!r} instead of a ValueError."
    assert str(refusal), f"{method} refused {what} without a word."
    # By the bytes of its file, which hold all of its state: attributes that no method shows are compared, too.
    assert dumps(model) == before, f"{method} refused {what}, but the model changed."


CHECKS: tuple[Callable[..., None], ...] = (
    check_gaps,
    check_bad_rows,
    check_bad_weights_and_targets,
    check_failure_changes_nothing,
)
