"""Answers: the mixture that a state stands for, looked at afresh when that is worth a search of its own."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian import modes
from everlearn.gaussian.gaussian import Indices, log_sum_exp
from everlearn.gaussian.mixture import Mixture
from everlearn.linalg.backend_torch import TorchDevice, torch_device
from everlearn.linalg.chunked import has_gaps
from everlearn.mixture.blocks import Work, learn_rows
from everlearn.mixture.keep import schedule
from everlearn.mixture.keep.carry import copied
from everlearn.mixture.keep.reconsider import gathered_mixture, reconsider
from everlearn.mixture.kernels import density as kernels
from everlearn.mixture.kernels.density import Scorer
from everlearn.mixture.learn import (
    Progress,
    finish,
    opened,
    rows_seen,
    search_threads,
    update,
    with_own_components,
    with_pending_sampled,
    work_of,
    working_model,
)
from everlearn.mixture.state import Array, Fading, Frame, Model, Reservoir, Settings, State

# The broad Gaussian behind the components has four times the covariance of all rows.
BACKGROUND_SPREAD = 4.0
# Slices of a search that one question does, of about 0.3 ms or less.
SLICES = 2
# Searches of fewer rows are made at once: they take some milliseconds. From so many columns on they take up to seconds
# (1.5 s at 512), and are worked out in slices, too.
AT_ONCE, AT_ONCE_COLUMNS = 12, 128
# Rows, by weight, with which a component that was opened since the last search is shown.
FEW_ROWS = 3.0
# From this many columns on, matrix products score rows faster than one row after the other.
MANY_COLUMNS = 65
# Rows and columns from which on a device scores them faster than the processor.
DEVICE_ROWS, DEVICE_COLUMNS = 256, 32


@dataclass
class Look:
    """The model that answers, with what has been derived from it. It goes on learning while it is asked."""

    model: Model
    frame: Frame
    looked: int  # row of the search that it comes from
    sample: Reservoir  # rows of the stream
    fading: Fading
    references: dict[bytes, Any] = field(default_factory=dict)  # of p-values, by the pattern of gaps
    shrinkage: float | None = None  # of conditional answers; None before the first one
    cache: dict[str, Any] = field(default_factory=dict)
    work: Work | None = None  # of learning rows
    scorer: Any = None  # of the kernel that scores rows
    device: str | None = None  # of torch's, on which many rows are scored

    def __getstate__(self) -> dict[str, Any]:
        # References that compiled code holds cannot be copied; the next question makes them again.
        return vars(self) | {"work": None, "scorer": None}


class Rung(NamedTuple):
    """A search of the warm-up that questions work out in slices."""

    base: State  # what it works on
    search: Generator[None, None, Model]


@dataclass
class Asked:
    """What is remembered of the questions; never saved."""

    look: Look | None = None
    last: int = 0  # row of the last question
    rung: Rung | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A generator cannot be copied: in a copy or pickle, the search of the warm-up begins again.
        return vars(self) | {"rung": None}


def follow(asked: Asked, X: Array, weights: Array, settings: Settings, state: State) -> None:
    """Let the answers learn the rows that the state has just learned, while questions keep coming."""
    look = asked.look
    if look is None:
        return
    n, interval = rows_seen(state), settings.fading.interval
    # Nobody asks any more, or a search has replaced the components: the next question begins anew.
    if schedule.has_grown(n, asked.last, interval) or state.searched > look.looked:
        asked.look = asked.rung = None
        return
    if look.work is None:
        look.work = work_of(look.model, look.frame, settings)
    learn_rows(X, weights, look.work, np.empty((2, len(X))))
    look.cache.clear()


def answering_state(state: State, settings: Settings, progress: Progress, asked: Asked) -> Look:
    """What answers come from: a search of its own where 5 % more rows have come since the last search and question.

    Who asks after every row does not pay for that: the components learn on between the scheduled searches, and during
    the warm-up a search is begun whenever the rows have doubled, of which every question does a part.
    """
    n, look = rows_seen(state), asked.look
    working = working_model(state, settings, progress)
    searched, interval = max(state.searched, look.looked if look else 0), settings.fading.interval
    grown = schedule.has_grown(n, searched, interval) and schedule.has_grown(n, asked.last, interval)
    if grown or (working is None and look is None):
        look, asked.rung = _looked(state, working, settings), None
    elif working is not None and look is None:
        assert state.frame is not None
        look = Look(with_own_components(working), state.frame, state.searched, state.reservoir, settings.fading)
    elif working is None and look is not None:
        look = _climbed(state, settings, asked, look)
    assert look is not None
    asked.look, asked.last = look, n
    return look


def components_as_they_are(state: State, settings: Settings, progress: Progress) -> Look | None:
    """The model between searches, without a search for the question; None while warming up."""
    working = working_model(state, settings, progress)
    if working is None:
        return None
    assert state.frame is not None
    return Look(with_own_components(working), state.frame, state.searched, state.reservoir, settings.fading)


def _climbed(state: State, settings: Settings, asked: Asked, look: Look) -> Look:
    """The next slices of the warm-up's search; its result, or `look` while it is not done.

    Slices are counted and not timed, so that the answers depend on rows and questions only. What the very first rows
    say is soon wrong, and a search of them is short: it is made at once.
    """
    n, D = rows_seen(state), state.pending.rows.shape[1]
    if n < AT_ONCE and D < AT_ONCE_COLUMNS and n >= 1.25 * look.looked:
        return _looked(state, None, settings)
    if asked.rung is None and n >= 2 * look.looked:
        base = opened(state, n, settings)
        asked.rung = Rung(base, reconsider(base, settings))
    if asked.rung is None:
        return look
    base, search = asked.rung
    try:
        with search_threads(D):
            for _ in range(SLICES):
                next(search)
    except StopIteration as stop:
        asked.rung = None
        rows, weights, size = state.pending
        update(stop.value, base.frame, rows[base.n : size], weights[base.n : size], settings)
        assert base.frame is not None
        return Look(stop.value, base.frame, base.n, base.reservoir, settings.fading)
    return look


def _looked(state: State, working: Model | None, settings: Settings) -> Look:
    """A search on all rows at hand; nothing of `state` changes."""
    if working is None:
        whole = opened(state, state.pending.size, settings)
    else:
        whole = with_pending_sampled(state, settings)._replace(model=working)
    assert whole.frame is not None
    model = finish(reconsider(whole, settings), whole.pending.rows.shape[1])
    return Look(model, whole.frame, rows_seen(state), whole.reservoir, settings.fading)


# -- the mixture in the units of the data ------------------------------------------------------------


def components_mixture(look: Look) -> Mixture:
    """The components that are shown, in the units of the data: weights, means, covariances.

    A row far from all others opens a component, which the next search judges. Until then it is shown if it has
    FEW_ROWS: a lone outlier is no component. Densities know it nevertheless.
    """
    if "components" not in look.cache:
        shown = shown_components(look)
        weights, means, covariances = (values[shown] for values in _every_component(look))
        look.cache["components"] = Mixture(weights / weights.sum(), means, covariances)
    return look.cache["components"]  # type: ignore[no-any-return]


def shown_components(look: Look) -> Indices:
    """Numbers of the components that `components_mixture` shows."""
    mass = look.model.components.mass[: look.model.components.size[0]]
    return np.flatnonzero((np.arange(len(mass)) < look.model.known) | (mass >= FEW_ROWS))


def _every_component(look: Look) -> Mixture:
    if "every" not in look.cache:
        look.cache["every"] = _in_units(gathered_mixture(look.model), look)
    return look.cache["every"]  # type: ignore[no-any-return]


def modes_of_components(look: Look) -> Indices:
    """For each component that is shown, the mode of the density that its mean climbs to (`gaussian.modes`)."""
    if "modes" not in look.cache:
        own, inverse = components_mixture(look), look.frame.inverse
        square = inverse**2 if own.is_diagonal else inverse * inverse[:, None]
        scaled = Mixture(own.weights, own.means * inverse, own.covariances * square)
        look.cache["modes"] = modes.modes_of_components(scaled)
    return look.cache["modes"]  # type: ignore[no-any-return]


def whole_mixture(look: Look) -> Mixture:
    """The components and, as the last one, the broad Gaussian behind them, if any: what densities come from."""
    if "whole" not in look.cache:
        own, (components, shape, world, _, _) = _every_component(look), look.model
        broad = BACKGROUND_SPREAD * (world.covariance + np.diag(shape.ridge))
        behind = _in_units(Mixture(np.ones(1), world.background.centre[None], broad[None]), look)
        rows = world.background.rows
        # The background counts as rows among those of the components, which keeps its weight small and falling.
        weights = np.append(own.weights * components.mass[: components.size[0]].sum(), rows)
        parts = (np.concatenate(pair) for pair in zip(own[1:], behind[1:], strict=True))
        look.cache["whole"] = Mixture(weights / weights.sum(), *parts) if rows else own
    return look.cache["whole"]  # type: ignore[no-any-return]


def whole_whitening(look: Look) -> Any:
    """Whitening matrices of the whole mixture: for densities, not for conditional answers."""
    if "whitening" not in look.cache:
        look.cache["whitening"] = mixtures.whitenings(whole_mixture(look))
    return look.cache["whitening"]


def scaled_mixture(look: Look) -> tuple[Mixture, Array]:
    """The whole mixture with every column divided by its power of two, and these scales.

    Conditional distributions are worked out in it, so that columns of any unit have squares that are finite.
    """
    if "scaled" not in look.cache:
        whole, inverse = whole_mixture(look), look.frame.inverse
        square = inverse**2 if whole.is_diagonal else inverse * inverse[:, None]
        look.cache["scaled"] = Mixture(whole.weights, whole.means * inverse, whole.covariances * square)
    return look.cache["scaled"], 1.0 / look.frame.inverse


def _in_units(mixture: Mixture, look: Look) -> Mixture:
    frame, scale = look.frame, 1.0 / look.frame.inverse
    if look.model.shape.diagonal:
        covariances = mixture.covariances.diagonal(axis1=1, axis2=2) * scale**2
    else:
        covariances = mixture.covariances * scale * scale[:, None]
    return Mixture(mixture.weights, mixture.means * scale + frame.centre, covariances)


def device_for(look: Look, X: Array) -> TorchDevice | None:
    """The device on which rows are scored, if there is one and it pays: many of them, in many columns, without gaps."""
    if look.device is None or len(X) < DEVICE_ROWS or X.shape[1] < DEVICE_COLUMNS or has_gaps(X):
        return None
    return torch_device(look.device)


def log_density(look: Look, X: Array) -> Array:
    """Log-density of each row; of its observed part where it has gaps; 0 where nothing is observed."""
    device = device_for(look, X)
    if device is not None:
        whole = whole_mixture(look)
        return log_sum_exp(mixtures.log_joint_of_complete(X, whole, whole_whitening(look), device))
    if X.shape[1] >= MANY_COLUMNS or look.model.shape.diagonal:
        return mixtures.log_density(X, whole_mixture(look), whole_whitening(look))
    if len(X) > 1 and np.isnan(X).any(axis=1).all():  # not for the scorer, which is not compiled then
        return mixtures.log_density(X, whole_mixture(look), whole_whitening(look))
    if look.scorer is None:
        model, answers = look.model, copied(look.model.components)
        answers.size[0] = 0
        look.scorer = kernels.unpack(Scorer(model.components, answers, model.shape, model.world.background, look.frame))
    out = np.empty(len(X))
    if kernels.log_densities(X, look.scorer, out):
        gaps = np.flatnonzero(np.isnan(X).any(axis=1))
        mixture = whole_mixture(look)
        out[gaps] = mixtures.log_density(X[gaps], mixture, whole_whitening(look))
    return out


def responsibilities(look: Look, X: Array) -> Array:
    """Posterior probability of each component for each row, (n, K)."""
    shown, device = components_mixture(look), device_for(look, X)
    if "shown_whitening" not in look.cache:
        look.cache["shown_whitening"] = mixtures.whitenings(shown)
    whitening = look.cache["shown_whitening"]
    if device is None:
        return mixtures.responsibilities(X, shown, whitening)
    return mixtures.posterior_weights(mixtures.log_joint_of_complete(X, shown, whitening, device), shown.weights)
