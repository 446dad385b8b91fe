"""What a state that came from a file must look like before a kernel may see it."""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.anomaly.state import WIDE, Density, State
from everlearn.errors import ModelFileError


def check_state(state: State, fresh: State) -> None:
    """Refuse a state whose arrays are not those of a fresh one, or whose counters point outside of them."""
    for name, part, wanted in zip(State._fields, state, fresh, strict=True):
        if name != "density":
            _check_like(name, part, wanted)
    _check_density(state.density, len(fresh.past.mean))
    _check_counters(state)


def with_diagonal_errors(state: State) -> State:
    """A state of many columns from a file that has the whole matrix of their prediction errors, with its diagonal."""
    past = state.past
    D = len(past.mean)
    if D <= WIDE or np.shape(past.covariance) != (D, D) or np.shape(past.precision) != (D, D):
        return state
    covariance, precision = (np.diagonal(matrix).reshape(D, 1).copy() for matrix in (past.covariance, past.precision))
    return state._replace(past=past._replace(covariance=covariance, precision=precision))


def with_least_independent(state: State, fresh: State) -> State:
    """A state from a file whose memories do not say how many independent values they have at least, with that."""
    names = ("memory", "combined", "lasting")
    # What is no memory is left as it is, for the check that follows to refuse.
    old = {name: getattr(state, name) for name in names if getattr(getattr(state, name), "least", 0) is None}
    return state._replace(**{name: memory._replace(least=getattr(fresh, name).least) for name, memory in old.items()})


def sample_room(state: State, most: int) -> int:
    """Rows that the sample of a state from a file has room for, if they are at most `most`."""
    rows = getattr(state.sample, "rows", None)
    return min(len(rows), most) if isinstance(rows, np.ndarray) and rows.ndim == 2 and len(rows) else most


def check_events(log: Any, fresh: Any) -> None:
    """Refuse a log of events whose arrays are not those of a fresh one, or that has counted no number of them."""
    for field in fresh._fields[:-1]:
        _check_like(f"events.{field}", getattr(log, field), getattr(fresh, field))
    if type(log.size) is not int or not 0 <= log.size < 2**62:
        raise ModelFileError(f"the detector's events.size is {log.size!r}, not a number of events.")


def _check_like(name: str, value: Any, wanted: Any) -> None:
    """Same classes, shapes and types; finite or NaN, as rows may have gaps."""
    if hasattr(wanted, "_fields"):
        if type(value) is not type(wanted):
            raise ModelFileError(f"the detector's {name} is a {type(value).__name__}, not a {type(wanted).__name__}.")
        for field, part, like in zip(wanted._fields, value, wanted, strict=True):
            _check_like(f"{name}.{field}", part, like)
    elif not isinstance(value, np.ndarray) or value.dtype != wanted.dtype or value.shape != wanted.shape:
        raise ModelFileError(f"the detector's {name} must be {wanted.dtype} of shape {wanted.shape}.")


def _check_density(density: Any, D: int) -> None:
    if not isinstance(density, Density):
        raise ModelFileError("the detector's density is missing.")
    K = np.shape(density.log_weights)[:1] or (0,)
    # Of low-rank components, fewer factors than columns.
    Q = np.shape(density.precisions)[-1] if np.ndim(density.precisions) == 3 else D
    matrices = ((*K, D, D),) * 3 if Q >= D else ((*K, Q, D), (*K, Q + 1, D), (*K, Q, Q))
    shapes = ((D,), (D,), K, (*K, D), *matrices[:2], K, matrices[2])
    for field, value, shape in zip(Density._fields, density, shapes, strict=True):
        if not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.shape != shape:
            raise ModelFileError(f"the detector's density.{field} must be float64 of shape {shape}.")


def _check_counters(state: State) -> None:
    """Kernels index by these without asking."""
    assert state.far is not None  # _check_like has seen both
    assert state.among is not None
    clock, limits = state.clock, []
    limits += [(f"clock.{name}", value, 2**62) for name, value in zip(clock._fields, clock, strict=True)]
    limits += [("clock.period", clock.period, len(state.season.visits))]
    limits += [("sample.size", state.sample.size, len(state.sample.rows))]
    limits += [("sample.observed", state.sample.observed, len(state.sample.rows))]
    limits += [("among.size", state.among.size, state.among.ordered.shape[1])]
    limits += [
        ("pending.size", state.pending.size, len(state.pending.rows) - 1),
        ("guard.held", state.guard.held, 2**62),
    ]
    for name in ("memory", "combined", "lasting"):
        memory = getattr(state, name)
        room = memory.ring.shape[1]
        limits += [(f"{name}.size", memory.size, room), (f"{name}.head", memory.head, room - 1)]
        limits += [(f"{name}.since", memory.since, 2**62)]
    limits += [("far.size", state.far.size, 2**62), ("far.rows", state.far.rows, 2**62)]
    for name, values, most in limits:
        if (values < 0).any() or (values > most).any():
            raise ModelFileError(f"the detector's {name} must lie between 0 and {most}.")
