"""Forgetting that finds its factor: mixtures that remember differently long, weighed by how well they predict.

All members learn every row. The one whose predictions of the rows so far were best answers: weights follow Bayes' rule,
and a share of them flows back to the prior in each row (fixed-share mixing of experts, Herbster and Warmuth, 1998). A
longer memory that falls far behind a shorter one holds on to what is no longer true: it starts again as its copy.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np

from everlearn.mixture import learn
from everlearn.mixture.keep.forgetting import fading_of
from everlearn.mixture.learn import Progress
from everlearn.mixture.state import Fading, Reservoir, Settings, State
from everlearn.typing import Array

# Rows that the members remember in two columns; more columns need more, by the root of their number. The factors that
# are best in benchmarks/forgetting_mixture.py lie between.
CAPS = (33.0, 70.0, 150.0, 350.0, 1000.0, math.inf)
# Prior weight of the member that forgets nothing.
PRIOR_OF_THE_LONGEST = 0.9
# Share of the weights that flows back to the prior in each row.
SHARE = 1e-3
# One row cannot tell members apart by more nats than this: outliers are no evidence.
MOST_EVIDENCE = 4.0
# A longer memory that is so many nats behind starts again from the best; looked at every so many rows.
BEHIND, EVERY = 6.0, 10


class Bank(NamedTuple):
    """Mixtures that remember differently long."""

    members: list[State]
    log_weights: Annotated[Array, "J"]
    rows: int


def settings_of_members(settings: Settings, D: int) -> list[Settings]:
    """The settings of each member: they differ in what they forget."""
    size = math.sqrt((D + 1) / 3.0)
    factors = [1.0 - 1.0 / (cap * size) for cap in CAPS]
    return [settings._replace(fading=fading_of(factor, settings.warmup)) for factor in factors]


def init(state: State, settings: list[Settings]) -> Bank:
    """A bank whose members all know what `state` does; `state` forgets nothing, and is used up."""
    members = [with_fading(state, settings[-1].fading, one.fading) for one in settings]
    return Bank(members, log_prior(len(settings)), 0)


def log_prior(J: int) -> Array:
    """Prior weights of the members: most for the longest."""
    prior = np.full(J, (1.0 - PRIOR_OF_THE_LONGEST) / (J - 1))
    prior[-1] = PRIOR_OF_THE_LONGEST
    return np.asarray(np.log(prior))


def answering(bank: Bank) -> int:
    """The member that answers."""
    return int(np.argmax(bank.log_weights))


def learn_rows(
    bank: Bank, X: Array, weights: Array, settings: list[Settings], progress: list[Progress]
) -> tuple[Bank, Array]:
    """Learn rows in their order; what each row told, (2, n), is what the member said that answered before it."""
    told = np.empty((2, len(X)))
    at = 0
    while at < len(X):
        stop = min(len(X), at + EVERY - bank.rows % EVERY)
        learned = [
            learn.learn(state, X[at:stop], weights[at:stop], one, own)
            for state, one, own in zip(bank.members, settings, progress, strict=True)
        ]
        # Each density was taken before its row was learned, so that weights may follow after a few rows as well.
        densities = np.array([own[0] for _, own in learned])
        bank = bank._replace(members=[state for state, _ in learned])
        for t in range(stop - at):
            of = answering(bank)
            told[:, at + t] = learned[of][1][:, t]
            bank = bank._replace(log_weights=_reweighed(bank.log_weights, densities[:, t]), rows=bank.rows + 1)
        if bank.rows % EVERY == 0:
            _renew(bank, settings, progress)
        at = stop
    return bank, told


def _reweighed(log_weights: Array, densities: Array) -> Array:
    """Weights after a row, by Bayes' rule with fixed share; during the warm-up they stay."""
    if np.isnan(densities).any():
        return log_weights
    w = log_weights + np.maximum(densities - densities.max(), -MOST_EVIDENCE)
    w = np.exp(w - w.max())
    prior = np.exp(log_prior(len(w)))
    return np.asarray(np.log((1.0 - SHARE) * w / w.sum() + SHARE * prior))


def _renew(bank: Bank, settings: list[Settings], progress: list[Progress]) -> None:
    """Members with a longer memory than the best that are far behind become copies of it, in place."""
    best = answering(bank)
    if bank.members[best].model is None:
        return
    for j in range(best + 1, len(bank.members)):
        if bank.log_weights[j] < bank.log_weights[best] - BEHIND:
            whole = taken_in(bank.members[best], settings[best], progress[best])
            bank.members[j] = with_fading(whole, settings[best].fading, settings[j].fading)
            progress[j] = Progress()


def taken_in(state: State, settings: Settings, progress: Progress) -> State:
    """The state with its pending rows learned, as if a search had just been made; in arrays of its own."""
    if state.model is None:
        return state
    working = learn.working_model(state, settings, progress)
    assert working is not None
    whole = learn.with_pending_sampled(state, settings)
    empty = learn.no_rows(0, state.reservoir.rows.shape[1])
    return whole._replace(model=learn.with_own_components(working), searched=whole.n, pending=empty)


def with_fading(state: State, old: Fading, new: Fading) -> State:
    """A copy of the state that goes on forgetting by another factor: rows weigh now what they weighed."""
    sample = Reservoir._make(values.copy() for values in state.reservoir)
    more, size = (new.rate - old.rate) * max(int(sample.offered[0]) - 1, 0), sample.size[0]
    sample.level[:] += more
    sample.log_weights[:size] += more
    sample.keys[:size] += more
    pending = state.pending._replace(rows=state.pending.rows.copy(), weights=state.pending.weights.copy())
    model = None if state.model is None else learn.with_own_components(state.model)
    return state._replace(model=model, reservoir=sample, pending=pending)
