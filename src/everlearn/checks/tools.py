"""What the checks share: streams, fresh models, and the comparison of two models."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import get_tags

from everlearn.base.estimator import StreamEstimator

ANSWERS = ("score_samples", "predict", "predict_proba", "decision_function", "transform")
COLUMNS = 4
# Relative, for sums that are taken in another order; all that is no float has to agree exactly.
TOLERANCE = 1e-10


@dataclasses.dataclass(frozen=True)
class Stream:
    """Rows, and targets where the estimator takes them."""

    X: np.ndarray
    y: np.ndarray | None

    def part(self, start: int, stop: int) -> Stream:
        """Some of the rows, with their targets."""
        return Stream(self.X[start:stop], None if self.y is None else self.y[start:stop])

    def copy(self) -> Stream:
        """The same numbers in other arrays."""
        return Stream(self.X.copy(), None if self.y is None else self.y.copy())


def make_stream(estimator: Any, n_rows: int, random_state: int = 0) -> Stream:
    """Rows around three centres in random order, with the targets that the estimator's tags ask for."""
    rng = np.random.default_rng(random_state)
    group = rng.integers(3, size=n_rows)
    # Groups that can be told apart, in correlated columns: independent ones would hide a mistake in a covariance.
    centres, mixing = 6 * rng.normal(size=(3, COLUMNS)), rng.normal(size=(COLUMNS, COLUMNS))
    X = centres[group] + rng.normal(size=(n_rows, COLUMNS)) @ mixing
    return Stream(X, make_targets(estimator, np.tanh(X[:, 0]), group))


def make_targets(estimator: Any, value: np.ndarray, group: np.ndarray) -> np.ndarray | None:
    """Labels of the groups for a classifier, values for a regressor, None for the others."""
    kind = get_tags(estimator).estimator_type
    if kind == "classifier":
        return np.array(["low", "middle", "high"])[group]
    return value + group if kind == "regressor" else None


def fresh(estimator: Any, n_columns: int = COLUMNS) -> Any:
    """An unfitted clone, with fewer components than columns where it counts them."""
    model = clone(estimator)
    wanted = model.get_params(deep=False).get("n_components")
    if isinstance(wanted, int) and wanted >= n_columns:
        model.set_params(n_components=max(1, n_columns - 1))
    return model


def learn(model: Any, stream: Stream, sizes: Any = None) -> Any:
    """Learn a stream, in one call or in batches of the given sizes."""
    edges = [0, len(stream.X)] if sizes is None else np.cumsum([0, *sizes])
    for start, stop in itertools.pairwise(edges):
        part = stream.part(start, stop)
        model.partial_fit(part.X) if part.y is None else model.partial_fit(part.X, part.y)
    return model


def answers(model: Any, X: np.ndarray) -> dict[str, np.ndarray]:
    """What the model says about X, by method, and its public fitted attributes; those of a model inside it as well."""
    found = {name: np.asarray(getattr(model, name)(X)) for name in ANSWERS if hasattr(model, name)}
    # Fitted attributes may be properties of the class, which vars() does not list.
    for name in sorted({*vars(model), *dir(type(model))}):
        if name.endswith("_") and not name.startswith("_"):
            with contextlib.suppress(AttributeError):
                value = getattr(model, name)
                if isinstance(value, StreamEstimator):
                    # Two models are never equal as objects: what they say is compared, once they can say something.
                    inside = answers(value, X) if value._is_started() else {}
                    found.update({f"{name}.{key}": values for key, values in inside.items()})
                else:
                    found[name] = np.asarray(value)
    return found


def equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are equal bit for bit, NaN included."""
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f")


def assert_same(model: Any, other: Any, X: np.ndarray, what: str, tolerance: float = 0.0) -> None:
    """Two models answer alike: floats within the tolerance, relative to the largest, all else exactly."""
    mine, theirs = answers(model, X), answers(other, X)
    assert mine.keys() == theirs.keys(), f"{what}: only one model has {sorted(mine.keys() ^ theirs.keys())}."
    for name, a in mine.items():
        b = theirs[name]
        assert a.shape == b.shape, f"{what}: {name} has shape {b.shape} instead of {a.shape}."
        if tolerance and a.dtype.kind == "f":
            error = np.max(np.abs(a - b), initial=0.0) / max(1.0, np.max(np.abs(a), initial=0.0))
            assert error <= tolerance, f"{what}: {name} differs by {error:.1e} of its largest value."
        else:
            assert equal(a, b), f"{what}: {name} differs, {first_difference(a, b)}."


def first_difference(a: np.ndarray, b: np.ndarray) -> str:
    """The first value in which two arrays of one shape differ."""
    where = int(np.argmax((a != b).ravel()))
    return f"{b.ravel()[where]!r} instead of {a.ravel()[where]!r}"


def assert_finite(model: Any, X: np.ndarray, what: str) -> None:
    """Every number that the model gives is finite."""
    for name, values in answers(model, X).items():
        if values.dtype.kind == "f":
            bad = int(np.sum(~np.isfinite(values)))
            assert bad == 0, f"{what}: {name} has {bad} of {values.size} values that are not finite."


@contextlib.contextmanager
def works(what: str) -> Iterator[None]:
    """Report any exception as a broken promise."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
