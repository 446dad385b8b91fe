"""Order is the only thing that matters, memory is bounded, and any finite table can be learned."""

from __future__ import annotations

import gc
import inspect
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from everlearn.base.estimator import StreamEstimator
from everlearn.checks.tools import (
    TOLERANCE,
    Stream,
    assert_finite,
    assert_same,
    fresh,
    learn,
    make_stream,
    make_targets,
)
from everlearn.persistence.model_file import dumps, loads

# Memory may waver with the number of components; growth with the stream would double it.
_MEMORY_ROWS = 8000
_MEMORY_FACTOR = 1.25
_MEMORY_SLACK = 16_384


def check_batches_do_not_matter(estimator: Any, random_state: int = 0) -> None:
    """Any split of a stream into batches gives the same model."""
    rng = np.random.default_rng(random_state)
    probe = make_stream(estimator, 50, random_state + 1).X
    # Short and long streams: models that warm up have another state in each.
    for n in (7, 150, 600):
        stream = make_stream(estimator, n, random_state)
        # Row by row is the definition of a stream: every other split is compared with it.
        single = learn(fresh(estimator), stream, [1] * n)
        cuts = np.unique(rng.integers(1, n, size=5))
        splits = {
            "one batch": [n],
            "a row and the rest": [1, n - 1],
            "unequal batches": np.diff([0, *cuts, n]),
        }
        for name, sizes in splits.items():
            split = learn(fresh(estimator), stream, sizes)
            assert_same(single, split, probe, f"{n} rows one at a time, and as {name}", TOLERANCE)


def check_fit_forgets(estimator: Any, random_state: int = 0) -> None:
    """`fit` starts anew, whatever was learned before."""
    before, stream = make_stream(estimator, 300, random_state), make_stream(estimator, 300, random_state + 1)
    once, again = fresh(estimator), learn(fresh(estimator), before)
    for model in (once, again):
        model.fit(stream.X) if stream.y is None else model.fit(stream.X, stream.y)
    assert_same(once, again, stream.X[:50], "fit after partial_fit, and fit alone")


def check_weights_of_one(estimator: Any, random_state: int = 0) -> None:
    """Weights of one change nothing."""
    if "sample_weight" not in inspect.signature(estimator.partial_fit).parameters:
        return
    stream = make_stream(estimator, 300, random_state)
    weighted = fresh(estimator).partial_fit(stream.X, stream.y, sample_weight=np.ones(300))
    assert_same(learn(fresh(estimator), stream), weighted, stream.X[:50], "weights of one, and none", TOLERANCE)


def check_weights_of_zero(estimator: Any, random_state: int = 0) -> None:
    """A row of weight zero counts as if it were not there."""
    if "sample_weight" not in inspect.signature(estimator.partial_fit).parameters:
        return
    stream = make_stream(estimator, 300, random_state)
    weights = np.ones(300)
    # The first and the last row too, at which models begin and end their blocks.
    weights[[0, 7, 8, 299]] = 0.0
    kept = Stream(stream.X[weights > 0.0], None if stream.y is None else stream.y[weights > 0.0])
    weighted = fresh(estimator).partial_fit(stream.X, stream.y, sample_weight=weights)
    what = "rows left out, and rows of weight zero"
    assert_same(learn(fresh(estimator), kept), weighted, stream.X[:50], what, TOLERANCE)


def check_memory_is_bounded(estimator: Any, random_state: int = 0) -> None:
    """A longer stream takes no more memory."""
    stream = make_stream(estimator, _MEMORY_ROWS, random_state)
    learn(fresh(estimator), stream.part(0, 1000))
    # What is loaded or compiled on first use is not the model's: some kernels are needed only after many rows, so that
    # what grew is measured again when they are there. A model that grows does so both times.
    grown = _memory_growth(estimator, stream) and _memory_growth(estimator, stream)
    assert not grown, grown


def _memory_growth(estimator: Any, stream: Any) -> str:
    """What grew from the first half of a stream to the second; nothing if all was bounded."""
    step, model = 200, fresh(estimator)
    sizes: list[tuple[int, int]] = []
    gc.freeze()  # collections look at what is new only
    tracemalloc.start()
    try:
        for start in range(0, _MEMORY_ROWS, step):
            learn(model, stream.part(start, start + step))
            # What is only waiting to be collected is not memory that the model holds.
            gc.collect()
            sizes.append((tracemalloc.get_traced_memory()[0], _array_bytes(vars(model))))
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    quarter = len(sizes) // 4
    for name, size in zip(("traced memory", "arrays of the model"), zip(*sizes, strict=True), strict=True):
        # Work that is spread over some rows, such as a search, takes memory while it lasts, for as many rows as the
        # machine is slow: what stays is the least of a window that is longer than such work. Of the first window the
        # middle, as a model may also be without its redo log for a moment.
        early, late = sorted(size[quarter : 2 * quarter])[quarter // 2], min(size[-quarter // 2 :])
        if late > _MEMORY_FACTOR * early + _MEMORY_SLACK:
            half = _MEMORY_ROWS // 2
            return f"{name}: {early} bytes within {half} rows, {late} within {2 * half}: it grows with the stream."
    return ""


def _array_bytes(value: Any) -> int:
    """Memory of all arrays inside a value; arrays that compiled code makes are not traced otherwise."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, StreamEstimator):
        return _array_bytes(vars(value))
    if isinstance(value, dict):
        return _array_bytes(list(value.values()))
    return sum(map(_array_bytes, value)) if isinstance(value, list | tuple) else 0


def _constant_columns(rng: np.random.Generator) -> np.ndarray:
    return np.column_stack([rng.normal(size=300), np.full(300, 7.0), np.zeros(300), rng.normal(size=300)])


def _mixed_scales(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(300, 5)) * np.array([1e-150, 1e-10, 1.0, 1e10, 1e150])


def _outlier(rng: np.random.Generator) -> np.ndarray:
    X = rng.normal(size=(300, 4))
    X[250] = 1e150
    return X


TABLES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "constant_columns": _constant_columns,
    "all_columns_constant": lambda rng: np.full((300, 4), 3.0),
    "all_zero": lambda rng: np.zeros((300, 4)),
    "repeated_rows": lambda rng: np.repeat(rng.normal(size=(3, 4)), 100, axis=0),
    "one_row": lambda rng: rng.normal(size=(1, 4)),
    "two_rows": lambda rng: rng.normal(size=(2, 4)),
    "tiny_scale": lambda rng: 1e-150 * rng.normal(size=(300, 4)),
    "huge_scale": lambda rng: 1e150 * rng.normal(size=(300, 4)),
    "mixed_scales": _mixed_scales,
    "far_from_zero": lambda rng: 1e9 + rng.normal(size=(300, 4)),
    "outlier": _outlier,
    "single_column": lambda rng: rng.normal(size=(300, 1)),
    # More than any width at which a model changes its method.
    "300_columns": lambda rng: rng.normal(size=(4, 300)),
}


def check_table(estimator: Any, random_state: int = 0, *, table: str) -> None:
    """A finite table, however degenerate, is learned and saved, and what the model says is finite."""
    X = TABLES[table](np.random.default_rng(random_state))
    n, number = len(X), np.arange(len(X))
    stream = Stream(X, make_targets(estimator, np.sin(number), number % 3))
    model, half = fresh(estimator, X.shape[1]), (n + 1) // 2
    with np.errstate(all="ignore"):
        for start, stop in ((0, half), (half, n)):
            if stop > start:
                learn(model, stream.part(start, stop))
                what = f"{table.replace('_', ' ')}, {stop} rows learned"
                assert_finite(model, X[:50], what)
                assert_finite(loads(dumps(model)), X[:50], f"{what}, saved and loaded")


CHECKS: tuple[Callable[..., None], ...] = (
    check_batches_do_not_matter,
    check_fit_forgets,
    check_weights_of_one,
    check_weights_of_zero,
    check_memory_is_bounded,
)
