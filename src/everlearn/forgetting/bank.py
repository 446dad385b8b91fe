"""Adaptive forgetting: a bank of models with different horizons that finds out how much of the past still holds.

A bank runs several copies of one model that differ only in their horizon, the effective number of samples that they
remember. Each is weighed by how well it predicted the stream, the heaviest one answers, and longer horizons that fell
behind start again from it. A row that the background density would have predicted better begins a trial: a restarted
bank against the previous one, change against outlier. The longer nothing has changed, the more evidence a change takes;
the previous bank learns a row of the trial unless it takes it for an outlier.

The bank knows nothing of the model. It drives whatever offers the functions of :class:`Hooks`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError
from everlearn.forgetting.kernels import bank as rules
from everlearn.typing import Array

Counts = NDArray[np.int64]
Model = TypeVar("Model")

# Horizons about a factor of three apart: between two of them the cost of the wrong one is small.
HORIZONS = (5.0, 10.0, 30.0, 100.0, 300.0, math.inf)
# Most streams are stationary for long: nothing is forgotten unless the evidence asks for it.
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
    """The bank without its models: all that the decisions depend on. The arrays are updated in place."""

    horizons: Annotated[Array, "any J"]  # effective samples that each member may remember
    log_prior: Annotated[Array, "any J"]  # of the members
    log_weights: Annotated[Array, "any 2 J"]  # of the members, in both slots
    n_eff: Annotated[Array, "positive 2 J"]  # effective samples of each member
    active: Annotated[Counts, "int64 1"]  # the slot that learns every row
    trial_rows: Annotated[Counts, "int64 1"]  # rows left until a suspected change is decided, 0 without one
    hold_rows: Annotated[Counts, "int64 1"]  # rows left without a test
    suspect_row: Annotated[Counts, "int64 1"]  # row of the suspected change
    n_rows: Annotated[Counts, "int64 1"]  # rows of the stream
    n_changes: Annotated[Counts, "int64 1"]  # accepted changes
    log_odds: Annotated[Array, "any 1"]  # of the previous bank against the new one, since the suspected change
    changes: Annotated[Counts, "int64 R"]  # ring of the rows of accepted changes


class Info(NamedTuple):
    """What happened in a step."""

    forgetting: float  # lambda of the member that answers; 0 when it was restarted
    horizon: float  # its horizon
    suspected: bool  # a trial began with this row


def init(n_eff: float, horizons: Sequence[float] | Array = HORIZONS, max_changes: int = MAX_CHANGES) -> BankState:
    """A bank whose members all remember the same `n_eff` samples so far.

    Parameters
    ----------
    n_eff : float
        Effective samples in the model that the members start from.
    horizons : sequence of float
        Effective samples that each member remembers at most, rising; the last may be infinite.
    max_changes : int
        How many accepted changes are kept on record.
    """
    sizes = np.array(horizons, dtype=np.float64)
    if len(sizes) == 0 or not (sizes > 1.0).all() or not (np.diff(sizes) > 0).all():
        raise InputError(f"horizons={horizons!r} must be numbers above 1 in rising order, such as {HORIZONS}.")
    J = len(sizes)
    # The shorter horizons share what is left; the sum is one.
    prior = np.full(J, (1.0 - PRIOR_OF_THE_LONGEST) / max(J - 1, 1))
    prior[-1] = PRIOR_OF_THE_LONGEST if J > 1 else 1.0
    log_prior = np.log(prior)

    def zero() -> Counts:
        return np.zeros(1, dtype=np.int64)

    return BankState(
        horizons=sizes,
        log_prior=log_prior,
        log_weights=np.array([log_prior, log_prior]),
        n_eff=np.full((2, J), float(n_eff)),
        active=zero(),
        trial_rows=zero(),
        hold_rows=zero(),
        suspect_row=zero(),
        n_rows=zero(),
        n_changes=zero(),
        log_odds=np.zeros(1),
        changes=np.zeros(max_changes, dtype=np.int64),
    )


def start(model: Model, state: BankState, hooks: Hooks[Model]) -> tuple[list[Model], list[Model]]:
    """The models of a new bank: copies of `model` in the active slot, and an empty slot for a trial."""
    return [hooks.copy(model) for _ in state.horizons], []


def step(
    state: BankState,
    models: tuple[list[Model], list[Model]],
    x: Any,
    hooks: Hooks[Model],
    *,
    size: float = 1.0,
    weight: float = 1.0,
) -> tuple[BankState, Info]:
    """Learn one row, updating `state` and `models` in place.

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
        Factor on every horizon, for models that need more samples the larger they are.
    weight : float
        What the row counts for among the effective samples.
    """
    factors = rules.forgetting_factors(state.n_eff, state.horizons, size, weight)
    old = int(state.active[0])
    scores = np.full(state.n_eff.shape, -np.inf)
    # Outside a trial the other slot is empty and its scores stay at -inf.
    for slot in (old, 1 - old) if state.trial_rows[0] else (old,):
        for j, model in enumerate(models[slot]):
            scores[slot, j] = hooks.score(model, x, float(factors[slot, j]))
    trusted = int(rules.trusted_slot(state))
    background = hooks.background(models[trusted][int(rules.best(state.log_weights[trusted]))], x)
    # Before `decide`, which may make the other slot the active one.
    k = int(rules.best(state.log_weights[old]))
    actions = rules.decide(state, scores, background)
    if actions & rules.CHANGE:
        # Copies of the best member that keep its shape and little of its certainty.
        lam = min(1.0, rules.RESET_SAMPLES / state.n_eff[old, k])
        models[1 - old][:] = [hooks.reset(hooks.copy(models[old][k]), lam) for _ in state.horizons]
        state.n_eff[1 - old] = lam * state.n_eff[old, k]
        # It has been weakened already: forgetting once more would take the little that is left.
        factors[1 - old] = 1.0
    a = int(state.active[0])
    for bit, slot in ((rules.LEARN, a), (rules.LEARN_PREVIOUS, 1 - a)):
        if actions & bit:
            _learn(state, models[slot], slot, x, hooks, factors[slot], weight)
    # Memory of the slot that lost is given back at once.
    if not state.trial_rows[0]:
        models[1 - a].clear()
    slot, k = best_member(state)
    suspected = bool(actions & rules.CHANGE)
    return state, Info(0.0 if suspected else float(factors[slot, k]), float(state.horizons[k] * size), suspected)


def best_member(state: BankState) -> tuple[int, int]:
    """Slot and index of the member that answers."""
    slot, k = rules.best_member(state)
    return int(slot), int(k)


def accepted_changes(state: BankState) -> Counts:
    """Rows of the accepted changes on record, in their order; rows are counted from the start of the bank."""
    n, size = int(state.n_changes[0]), len(state.changes)
    if n <= size:
        return state.changes[:n].copy()
    # The next entry to be overwritten is the oldest.
    return np.roll(state.changes, -(n % size))


def is_consistent(state: BankState) -> bool:
    """Whether a bank that came from a file has counts that a kernel can index with."""
    counts = np.concatenate([state.active, state.trial_rows, state.hold_rows, state.suspect_row, state.n_changes])
    return bool(
        (counts >= 0).all()
        and 0 <= state.n_rows[0] < 2**62
        and state.active[0] < 2
        and state.trial_rows[0] <= rules.TRIAL_ROWS
        and state.n_changes[0] < 2**62
        and len(state.changes) > 0
        and (state.horizons > 1.0).all()
    )


def _learn(
    state: BankState, members: list[Model], slot: int, x: Any, hooks: Hooks[Model], factors: Array, weight: float
) -> None:
    """Every member of a slot learns x; those far behind the best become copies of it. In place."""
    successors = np.zeros(len(members), dtype=np.bool_)
    k = int(rules.reseed(state.log_weights[slot], state.horizons, successors))
    for j in np.flatnonzero(~successors).tolist():
        members[j] = hooks.learn(members[j], x, float(factors[j]))
        state.n_eff[slot, j] = factors[j] * state.n_eff[slot, j] + weight
    # After the others: the best member has learned x by now, and its copies with it.
    for j in np.flatnonzero(successors).tolist():
        members[j] = hooks.copy(members[k])
        state.n_eff[slot, j] = state.n_eff[slot, k]
