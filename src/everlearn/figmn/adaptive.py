"""An incremental mixture with adaptive forgetting: a bank of mixtures that remember differently long.

The policy is `everlearn.forgetting.bank`; this file tells it how a mixture learns, scores and starts again.
"""

from __future__ import annotations

from math import lgamma
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.figmn import learn as incremental
from everlearn.figmn.learn import MixtureState
from everlearn.figmn.state import Info, Settings
from everlearn.forgetting import bank as forgetting

Array = NDArray[np.float64]

CAPS = forgetting.HORIZONS
FIRST_ROWS = 10
BACKGROUND_DEGREES = 3.0


class AdaptiveState(NamedTuple):
    """The bank's own state and its mixtures: the active ones, and those stashed while a change is on trial."""

    bank: forgetting.BankState
    active: list[MixtureState]
    stash: list[MixtureState]


class Row(NamedTuple):
    """A row (1, D) and its weight (1,), as the learning loop takes them."""

    x: Array
    weight: Array


def init(state: MixtureState) -> AdaptiveState:
    """A bank whose members all start from `state`."""
    bank = forgetting.init(float(state.counts[: state.n_components].sum()), CAPS)
    members: tuple[list[MixtureState], list[MixtureState]] = ([copied(state) for _ in CAPS], [])
    return AdaptiveState(bank, *members)


def answering(state: AdaptiveState) -> MixtureState:
    """The mixture that answers."""
    slot, k = forgetting.best_member(state.bank)
    return (state.active, state.stash)[slot][k]


def learn(state: AdaptiveState, X: Array, weights: Array, settings: Settings) -> tuple[AdaptiveState, Info]:
    """Learn the rows of X in order; the members of `state` are used up."""
    hooks = hooks_for(settings)
    members = (state.active, state.stash)
    info = Info(np.empty(len(X)), np.empty(len(X)), 0)
    for t in range(len(X)):
        answer = answering(state)
        info.log_density[t], info.distance[t] = incremental.log_density_and_distance(answer, X[t])
        row = Row(X[t : t + 1], weights[t : t + 1])
        if answer.n_rows < FIRST_ROWS or answer.n_components == 0:
            _learn_alike(state, row, hooks)
        else:
            forgetting.step(state.bank, members, row, hooks, size=memory_size(answer), weight=float(weights[t]))
    return state, info


def _learn_alike(state: AdaptiveState, row: Row, hooks: forgetting.Hooks[MixtureState]) -> None:
    """The first rows: too few to tell memories apart."""
    state.active[:] = [hooks.learn(member, row, 1.0) for member in state.active]
    state.bank.n_eff[:] += row.weight


def memory_size(state: MixtureState) -> float:
    """Factor on the caps: the root of K(D + 1), with K the effective number of components.

    The root, because a mixture that lags behind a drift has more components, and must not remember longer for that.
    """
    counts = state.counts[: state.n_components]
    if len(counts) == 0:
        return 1.0
    p = counts / counts.sum()
    K = float(np.exp(-(p * np.log(np.maximum(p, 1e-300))).sum()))
    return float(max(1.0, np.sqrt(K * (state.means.shape[1] + 1))))


def hooks_for(settings: Settings) -> forgetting.Hooks[MixtureState]:
    """A mixture's functions for the bank."""

    def learn_one(state: MixtureState, row: Row, factor: float) -> MixtureState:
        return incremental.learn(state, row.x, row.weight, settings._replace(forgetting=factor))[0]

    def score(state: MixtureState, row: Row, factor: float) -> float:
        return float(incremental.log_density_and_distance(state, row.x[0])[0])

    return forgetting.Hooks(learn_one, score, faded, copied, lambda state, row: background(row.x[0], settings))


def faded(state: MixtureState, factor: float) -> MixtureState:
    """The same shape, known with less certainty."""
    return state._replace(counts=state.counts * factor)


def copied(state: MixtureState) -> MixtureState:
    """An independent copy."""
    return incremental.with_arrays(state, np.copy)


def background(x: Array, settings: Settings) -> float:
    """Log-density of a row if the past meant nothing: a Student distribution over the columns' first range."""
    seen = ~np.isnan(x)
    d, nu = int(seen.sum()), BACKGROUND_DEGREES
    variance = settings.initial_variance[seen]
    q = float((((x - settings.centre)[seen]) ** 2 / variance).sum())
    constant = lgamma((nu + d) / 2) - lgamma(nu / 2) - 0.5 * d * np.log(nu * np.pi) - 0.5 * np.log(variance).sum()
    return float(constant - 0.5 * (nu + d) * np.log1p(q / nu))
