"""Answers: the mixture that a state stands for, looked at afresh when that is worth a search of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import chdtrc

from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.mixture import Mixture
from everlearn.mixture import learn as learning
from everlearn.mixture.keep import schedule
from everlearn.mixture.keep.carry import copied
from everlearn.mixture.keep.reconsider import mixture_of, reconsider
from everlearn.mixture.kernels.rows import refresh_all
from everlearn.mixture.learn import Progress, finish, learn_by, opened, rows_seen, working_components
from everlearn.mixture.state import Array, Settings, State

# The broad Gaussian behind the components counts for half a row, and has four times the covariance of all rows.
BACKGROUND_ROWS, BACKGROUND_SPREAD = 0.5, 4.0


@dataclass
class Look:
    """A search made for an answer, and what has been derived from it. It goes on learning while it is asked."""

    state: State
    looked: int  # row of the search
    cache: dict[str, Any] = field(default_factory=dict)


@dataclass
class Asked:
    """What is remembered of the questions; never saved."""

    look: Look | None = None
    last: int = 0  # row of the last question


def follow(asked: Asked, X: Array, weights: Array, settings: Settings, state: State) -> None:
    """Let the answers learn the rows that the state has just learned, while questions keep coming."""
    look = asked.look
    if look is None:
        return
    if rows_seen(state) >= schedule.ASK_AGAIN * asked.last or state.searched > look.looked:
        asked.look = None
        return
    look.state, _ = learn_by(look.state, X, weights, settings)
    look.cache.clear()


def answering_state(state: State, settings: Settings, progress: Progress, asked: Asked) -> Look:
    """What answers come from: a search of its own where 5 % more rows have come since the last search and question.

    Who asks after every row does not pay for that: the components learn on between the scheduled searches, and during
    the warm-up a search is made whenever the rows have doubled.
    """
    n, look = rows_seen(state), asked.look
    searched = max(state.searched, look.looked if look else 0)
    again = n >= schedule.ASK_AGAIN * asked.last or (state.components is None and n >= 2 * searched)
    if n >= schedule.ASK_AGAIN * searched and again:
        look = Look(_looked(state, settings, progress), n)
    elif look is None:
        components = copied(working_components(state, settings, progress))
        look = Look(state._replace(components=components), state.searched)
    asked.look, asked.last = look, n
    return look


def _looked(state: State, settings: Settings, progress: Progress) -> State:
    """The state with a search on all rows at hand; nothing of `state` changes."""
    if state.components is None:
        whole = opened(state, state.pending.size, settings)
    else:
        components = copied(working_components(state, settings, progress))
        whole = learning.with_pending_sampled(state, settings)._replace(components=components)
    found = finish(reconsider(whole, settings, asked=True))
    return whole._replace(
        components=found.components, shape=found.shape, world=found.world, fine=found.fine, known=found.known
    )


# -- the mixture in the units of the data ------------------------------------------------------------


def components_mixture(look: Look) -> Mixture:
    """The components in the units of the data: weights, means, covariances."""
    if "components" not in look.cache:
        state = look.state
        components = copied(state.components)
        refresh_all(components, state.shape)
        look.cache["refreshed"] = components
        look.cache["components"] = _in_units(mixture_of(components, state.shape), state)
    return look.cache["components"]  # type: ignore[no-any-return]


def whole_mixture(look: Look) -> Mixture:
    """The components and, as the last one, the broad Gaussian behind them: what densities come from."""
    if "whole" not in look.cache:
        own, state = components_mixture(look), look.state
        world = state.world
        broad = world.covariance + np.diag(state.shape.ridge)
        behind = _in_units(Mixture(np.ones(1), world.centre[None], BACKGROUND_SPREAD * broad[None]), state)
        mass = state.components.mass[: state.components.size].sum()
        weights = np.append(own.weights * mass, BACKGROUND_ROWS)
        look.cache["whole"] = Mixture(
            weights / weights.sum(), *(np.concatenate(pair) for pair in zip(own[1:], behind[1:], strict=True))
        )
        look.cache["whitening"] = mixtures.whitenings(look.cache["whole"])
    return look.cache["whole"]  # type: ignore[no-any-return]


def _in_units(mixture: Mixture, state: State) -> Mixture:
    scale = 1.0 / state.frame.inverse
    return Mixture(
        mixture.weights, mixture.means * scale + state.frame.centre, mixture.covariances * scale * scale[:, None]
    )


def log_density(look: Look, X: Array) -> Array:
    """Log-density of each row; of its observed part where it has gaps; 0 where nothing is observed."""
    mixture = whole_mixture(look)
    return mixtures.log_density(X, mixture, look.cache["whitening"])


def responsibilities(look: Look, X: Array) -> Array:
    """Posterior probability of each component for each row, (n, K)."""
    return mixtures.responsibilities(X, components_mixture(look))


def p_values(look: Look, X: Array) -> Array:
    """Probability that a row of its nearest component lies farther from it than each row does."""
    mixture = components_mixture(look)
    out = np.ones(len(X))
    for observed, rows in mixtures.patterns(X):
        if len(observed):
            part = mixtures.marginal(mixture, observed)
            d2 = mixtures.squared_distances(X[np.ix_(rows, observed)], part.means, mixtures.whitenings(part))
            out[rows] = chdtrc(len(observed), d2.min(axis=1))
    return out
