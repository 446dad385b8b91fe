"""A mixture that answers, beside the one that learns.

The learning mixture keeps many fine components. Now and then a sturdier copy with fewer of them is made
(`figmn.consolidate`); it answers, and learns every row too, until the next copy is made. It opens a component only
for a row that is out of reach of all it has. When to copy is counted in rows of the stream, so that any split of it
gives the same answers; the time that copying takes is a bounded multiple of that of learning, and in the long run
nothing beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.figmn import consolidate as readout
from everlearn.figmn import learn as incremental
from everlearn.figmn.learn import MixtureState, novelty_thresholds
from everlearn.figmn.state import Info, Settings, is_diagonal
from everlearn.linalg.backend import HOST, Backend

Array = NDArray[np.float64]

FIRST_COPY = 50
# A copy takes about as long as learning K D/2 rows (K/2 with diagonal covariances); the next is at least a quarter of
# that away.
COPY_SHARE = 1 / 8
NOVELTY_LEVEL = 0.01


class Pair(NamedTuple):
    """The mixture that learns; the one that answers, or None where that is the same; and the row of the next copy.

    `primed` is whether the components that learn still hold the variance that they were created with.
    """

    learning: MixtureState
    answering: MixtureState | None
    next_copy: int
    primed: bool


class PairSettings(NamedTuple):
    """The constants of both mixtures, and the variance of each column; `copying` is whether there are to be two."""

    learning: Settings
    answering: Settings
    variance: Array
    copying: bool


def settings_for(settings: Settings, variance: Array, *, copying: bool) -> PairSettings:
    """The constants of both mixtures from those of the first.

    With forgetting or the printed update components do not hold their creation prior: then there is one mixture only,
    as there is where there can be no second component.
    """
    calm = np.maximum(settings.thresholds, novelty_thresholds(NOVELTY_LEVEL, len(variance)))
    single = settings.max_components == 1 or np.isinf(settings.thresholds[-1])
    copying = copying and not single and incremental.creation_priors(1, settings) is not None
    return PairSettings(settings, settings._replace(thresholds=calm), variance, copying)


def init(state: MixtureState, *, primed: bool = True) -> Pair:
    """A pair that answers from `state` until it is time for a copy."""
    return Pair(state, None, _next_copy(state), primed)


def opening_order(X: Array, n: int) -> NDArray[np.intp] | None:
    """Order in which to learn the first n rows of a stream: those with fewer gaps come first.

    Gaps are filled by what a component knows, and what it knows at first is only how it was created; with every row
    that it fills so, that stays. None where the rows are in order.
    """
    gaps = np.isnan(X[:n]).sum(axis=1)
    return np.argsort(gaps, kind="stable") if np.any(gaps[1:] < gaps[:-1]) else None


def rearranged(values: Array, order: NDArray[np.intp]) -> Array:
    """A copy of the values, the first of them in another order."""
    moved = values.copy()
    moved[: len(order)] = values[order]
    return moved


def copied(pair: Pair) -> Pair:
    """An independent copy."""
    answer = None if pair.answering is None else incremental.copied(pair.answering)
    return pair._replace(learning=incremental.copied(pair.learning), answering=answer)


def _next_copy(state: MixtureState) -> int:
    K, D, n = state.n_components, state.means.shape[1], state.n_rows
    return n + max(FIRST_COPY, n // 4, int(COPY_SHARE * K * (1 if is_diagonal(state) else D)))


def renewed(pair: Pair, settings: PairSettings) -> Pair:
    """The pair with a fresh copy; without one where it would be the same."""
    state = pair.learning
    copy = None
    if settings.copying and state.n_components > 1:
        copy = readout.merged_copy(state, settings.learning, settings.variance, primed=pair.primed)
        copy = copy if pair.primed or copy.n_components < state.n_components else None
    return Pair(state, copy, _next_copy(state), pair.primed)


def learn(
    pair: Pair, X: Array, weights: Array, settings: PairSettings, device: Backend = HOST, *, gaps: bool = True
) -> tuple[Pair, Info]:
    """Learn the rows of X, which may have gaps, in order. The pair is used up.

    `Info` is what the rows were to the mixture that answers.
    """
    if not settings.copying:
        state, info = incremental.learn(pair.learning, X, weights, settings.learning, device, gaps=gaps)
        return pair._replace(learning=state), info
    if len(X) < pair.next_copy - pair.learning.n_rows:
        return _learn_both(pair, X, weights, settings, device, gaps)
    parts = []
    row = 0
    while row < len(X):
        stop = min(len(X), row + max(1, pair.next_copy - pair.learning.n_rows))
        pair, info = _learn_both(pair, X[row:stop], weights[row:stop], settings, device, gaps)
        parts.append(info)
        if pair.learning.n_rows >= pair.next_copy:
            pair = renewed(pair, settings)
        row = stop
    return pair, parts[0] if len(parts) == 1 else _joined(parts)


def _learn_both(
    pair: Pair, X: Array, weights: Array, settings: PairSettings, device: Backend, gaps: bool
) -> tuple[Pair, Info]:
    state, info = incremental.learn(pair.learning, X, weights, settings.learning, device, gaps=gaps)
    copy = pair.answering
    if copy is not None:
        copy, info = incremental.learn(copy, X, weights, settings.answering, device, gaps=gaps)
    return Pair(state, copy, pair.next_copy, pair.primed), info


def _joined(parts: list[Info]) -> Info:
    densities, distances = ([part[i] for part in parts] for i in range(2))
    return Info(np.concatenate([*densities, []]), np.concatenate([*distances, []]), sum(part[2] for part in parts))
