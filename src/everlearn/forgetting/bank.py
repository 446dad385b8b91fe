"""Forgetting: a fixed factor, or a bank of memories that finds out how much of the past still holds.

A bank runs several copies of one model that differ only in how many samples they remember. Each is weighed by how well
it predicted the stream, the heaviest one answers, longer memories that fell behind start again from it, and a row that
ignorance would have predicted better begins a trial: a new bank against the old one, change against outlier. The longer
nothing has changed, the more evidence a change takes; a row that the old bank does not take for an outlier, it learns.

The bank knows nothing of the model. It drives whatever offers the functions of :class:`Hooks`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError
from everlearn.forgetting.kernels import bank as rules

Array = NDArray[np.float64]
Model = TypeVar("Model")

CAPS = (5.0, 10.0, 30.0, 100.0, 300.0, math.inf)
PRIOR_OF_THE_LONGEST = 0.9
MAX_CHANGES = 1000


class Hooks(NamedTuple, Generic[Model]):
    """What the bank needs to know of a model.

    `learn` and `reset` may change the model they are given or return a new one: the bank keeps what they return, and
    never uses one model in two places.
    """

    learn: Callable[[Model, Any, float], Model]  # (model, x, lambda): weigh the past by lambda, then learn x
    score: Callable[[Model, Any, float], float]  # (model, x, lambda): log predictive density of x; changes nothing
    reset: Callable[[Model, float], Model]  # (model, lambda): weigh the past by lambda, a number near zero
    copy: Callable[[Model], Model]  # an independent copy
    background: Callable[[Model, Any], float]  # (trusted model, x): log density of x if the past meant nothing


class BankState(NamedTuple):
    """The bank without its models: all that the decisions depend on. The arrays are changed in place."""

    caps: Array  # (J,) samples each member may remember
    log_prior: Array  # (J,)
    log_weights: Array  # (2, J)
    n_eff: Array  # (2, J) effective samples of each member
    control: NDArray[np.int64]
    evidence: Array  # (1,)
    changes: NDArray[np.int64]  # ring of rows


class Info(NamedTuple):
    """What happened in a step."""

    forgetting: float  # lambda of the member that answers; 0 when it was reset
    memory: float  # its cap
    suspected: bool  # a trial began with this row


def init(n_eff: float, caps: Sequence[float] | Array = CAPS, max_changes: int = MAX_CHANGES) -> BankState:
    """A bank whose members all remember the same `n_eff` samples so far.

    Parameters
    ----------
    n_eff : float
        Effective samples in the model that the members start from.
    caps : sequence of float
        The most samples that each member remembers, rising; the last may be infinite.
    max_changes : int
        How many accepted changes are kept on record.
    """
    sizes = np.array(caps, dtype=np.float64)
    if len(sizes) == 0 or not (sizes > 1.0).all() or not (np.diff(sizes) > 0).all():
        raise InputError(f"caps={caps!r} must be numbers above 1 in rising order, such as {CAPS}.")
    J = len(sizes)
    prior = np.full(J, (1.0 - PRIOR_OF_THE_LONGEST) / max(J - 1, 1))
    prior[-1] = PRIOR_OF_THE_LONGEST if J > 1 else 1.0
    log_prior = np.log(prior)
    return BankState(
        caps=sizes,
        log_prior=log_prior,
        log_weights=np.array([log_prior, log_prior]),
        n_eff=np.full((2, J), float(n_eff)),
        control=np.zeros(rules.CONTROL_SIZE, dtype=np.int64),
        evidence=np.zeros(1),
        changes=np.zeros(max_changes, dtype=np.int64),
    )


def start(model: Model, state: BankState, hooks: Hooks[Model]) -> tuple[list[Model], list[Model]]:
    """The models of a new bank: copies of `model` in the active slot, and an empty slot for a stash."""
    return [hooks.copy(model) for _ in state.caps], []


def step(
    state: BankState,
    models: tuple[list[Model], list[Model]],
    x: Any,
    hooks: Hooks[Model],
    *,
    size: float = 1.0,
    weight: float = 1.0,
) -> Info:
    """Learn one row; `state` and `models` are changed in place.

    Parameters
    ----------
    state : BankState
        The bank's own state.
    models : tuple of two lists
        Its members, from :func:`start`.
    x : object
        The row, handed to the hooks as it is.
    hooks : Hooks
        The model's functions.
    size : float
        Factor on every cap, for models that need more samples the larger they are.
    weight : float
        What the row counts for among the effective samples.
    """
    factors = rules.forgetting_factors(state.n_eff, state.caps, size, weight)
    old = int(state.control[rules.ACTIVE])
    scores = np.full(state.n_eff.shape, -np.inf)
    for slot in (old, 1 - old) if state.control[rules.TRIAL] else (old,):
        for j, model in enumerate(models[slot]):
            scores[slot, j] = hooks.score(model, x, float(factors[slot, j]))
    settled = int(rules.settled(state.control))
    background = hooks.background(models[settled][int(rules.best(state.log_weights[settled]))], x)
    k = int(rules.best(state.log_weights[old]))
    actions = rules.decide(
        state.control, state.evidence, state.changes, state.log_prior, state.log_weights, scores, background
    )
    if actions & rules.CHANGE:
        _reset(state, models, old, k, hooks)
        factors[1 - old] = 1.0
    a = int(state.control[rules.ACTIVE])
    for bit, slot in ((rules.LEARN, a), (rules.LEARN_STASH, 1 - a)):
        if actions & bit:
            _learn(state, models[slot], slot, x, hooks, factors[slot], weight)
    if not state.control[rules.TRIAL]:
        models[1 - a].clear()
    slot, k = answer(state)
    suspected = bool(actions & rules.CHANGE)
    return Info(0.0 if suspected else float(factors[slot, k]), float(state.caps[k] * size), suspected)


def answer(state: BankState) -> tuple[int, int]:
    """Slot and index of the member that answers."""
    slot, k = rules.answering(state.control, state.evidence, state.log_weights)
    return int(slot), int(k)


def accepted_changes(state: BankState) -> NDArray[np.int64]:
    """Rows of the accepted changes on record, in their order; rows are counted from the start of the bank."""
    n, size = int(state.control[rules.CHANGES]), len(state.changes)
    if n <= size:
        return state.changes[:n].copy()
    return np.roll(state.changes, -(n % size))


def _reset(state: BankState, models: tuple[list[Model], list[Model]], old: int, k: int, hooks: Hooks[Model]) -> None:
    """Fill the new slot with copies of the best member that keep its shape and little of its certainty."""
    lam = min(1.0, rules.RESET_SAMPLES / state.n_eff[old, k])
    models[1 - old][:] = [hooks.reset(hooks.copy(models[old][k]), lam) for _ in state.caps]
    state.n_eff[1 - old] = lam * state.n_eff[old, k]


def _learn(
    state: BankState, members: list[Model], slot: int, x: Any, hooks: Hooks[Model], factors: Array, weight: float
) -> None:
    """Every member of a slot learns x; those far behind the best become copies of it."""
    successors = np.zeros(len(members), dtype=np.bool_)
    k = int(rules.reseed(state.log_weights[slot], state.caps, successors))
    for j in np.flatnonzero(~successors).tolist():
        members[j] = hooks.learn(members[j], x, float(factors[j]))
        state.n_eff[slot, j] = factors[j] * state.n_eff[slot, j] + weight
    for j in np.flatnonzero(successors).tolist():
        members[j] = hooks.copy(members[k])
        state.n_eff[slot, j] = state.n_eff[slot, k]
