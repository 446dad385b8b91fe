"""Online EM for probabilistic PCA: running means of the expected statistics, and the parameters that they give.

With gain g, y = x - m and z = M^-1 W'y, one row changes the statistics (Cappe and Moulines, 2009; centred after
Welford) by

    m += g y,  S0 += g((1-g)|y|^2 - S0),  S1 += g((1-g) y z' - S1),  S2 += g(sigma2 M^-1 + (1-g) z z' - S2),

and the parameters become mu = m, W = S1 S2^-1, sigma2 = (S0 - 2 tr(S1 W') + tr(S2 W'W))/d, or are held to a reference
(see `everlearn.ppca.keep`). A row with gaps gives the expectations under its observed part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.gaussian import ppca
from everlearn.gaussian.ppca import PPCA, Ready
from everlearn.monitoring import page_hinkley as change
from everlearn.ppca.keep import Every, NaturalConstraint, OnChange, Reference, no_reference
from everlearn.ppca.kernels import constraint as layout
from everlearn.ppca.kernels import online_em as kernels
from everlearn.ppca.schedules import PowerSchedule, as_schedule

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

EM_ROUNDS = 100
EM_TOLERANCE = 1e-4


class State(NamedTuple):
    """Statistics, parameters and M^-1; `scalars` as the kernel lays them out, `seen` the columns ever observed."""

    m: Array
    S1: Array
    S2: Array
    mu: Array
    W: Array
    M_inv: Array
    scalars: Array
    seen: Flags

    @property
    def k(self) -> int:
        """Rows learned."""
        return int(self.scalars[layout.K])

    @property
    def S0(self) -> float:
        """Mean square of a row about the mean."""
        return float(self.scalars[layout.S0])

    @property
    def sigma2(self) -> float:
        """Noise variance."""
        return float(self.scalars[layout.SIGMA2])

    @property
    def model(self) -> Ready:
        """The parameters, ready to answer; they share memory with the state."""
        return Ready(self.mu, self.W, self.sigma2, self.M_inv, float(self.scalars[layout.LOG_DET]))


class Settings(NamedTuple):
    """Constants of a stream, as the kernel takes them."""

    rates: Array
    options: NDArray[np.int64]
    detector: Array


class Info(NamedTuple):
    """What happened to a batch: how often the paper's constraint left its bounds, and when references were taken.

    `diverged` counts weights beta/F above one, noise variances that were not positive, and rows whose constraint
    overflowed and was left out.
    """

    diverged: NDArray[np.int64]
    taken: Flags


# -- settings --------------------------------------------------------------------------------------


def settings(
    gain: PowerSchedule, constraint: NaturalConstraint | None, *, mode: str = "robust", scale: float = 1.0
) -> Settings:
    """Constants of a stream whose rows are divided by `scale` before they are learned.

    The mode is "robust", "plain" (without parameter expansion) or "paper" (with the printed statistics).
    """
    options = np.zeros(kernels.OPTIONS, dtype=np.int64)
    options[[kernels.CENTRED, kernels.EXPAND]] = mode != "paper", mode == "robust"
    rates = np.zeros(layout.RATES)
    rates[[layout.GAIN, layout.GAIN_EXPONENT]] = gain.scale, gain.exponent
    detector = np.zeros(4)
    if constraint is not None:
        strength = as_schedule(constraint.strength, "constraint.strength")
        rates[[layout.STRENGTH, layout.STRENGTH_EXPONENT]] = strength.scale, strength.exponent
        body = constraint.fisher == "body"
        rates[[layout.UNIT_MU, layout.UNIT_W, layout.UNIT_SIGMA2]] = _units(scale, body)
        options[[kernels.PAPER, kernels.BODY, kernels.CLIP]] = constraint.form == "paper", body, constraint.clip
        options[[kernels.POLICY, kernels.PERIOD]] = _policy(constraint)
        if isinstance(constraint.reference, OnChange):
            detector[:] = change.settings(constraint.reference.detector)
    return Settings(rates, options, detector)


def _units(scale: float, body: bool) -> tuple[float, float, float]:
    """Units of 1/F for mu, W and sigma2, of which the paper's constraint is not independent."""
    square = scale * scale
    return (square * square, square, square) if body else (square, square, square * square)


def _policy(constraint: NaturalConstraint) -> tuple[int, int]:
    if isinstance(constraint.reference, Every):
        return kernels.EVERY, constraint.reference.n
    if isinstance(constraint.reference, OnChange):
        return kernels.CHANGE, 1
    return (kernels.STEP if constraint.reference == "step" else kernels.CLASS), 1


# -- starting --------------------------------------------------------------------------------------


def init(model: PPCA, k: int, seen: Flags | None = None) -> State:
    """State with statistics that agree with a model of k rows: S0 = |W|^2 + d sigma2, S1 = W, S2 = I, m = mu."""
    d, q = model.W.shape
    ready = ppca.ready(model)
    seen = np.ones(d, dtype=np.bool_) if seen is None else seen
    S0 = float(np.sum(model.W**2)) + d * model.sigma2
    scalars = np.array([k, S0, model.sigma2, ready.log_det, d - np.count_nonzero(seen)], dtype=np.float64)
    return State(
        ready.mu.copy(), ready.W.copy(), np.eye(q), ready.mu.copy(), ready.W.copy(), ready.M_inv, scalars, seen.copy()
    )


def init_paper(d: int, q: int, rng: np.random.Generator, scale: float = 1.0) -> State:
    """The paper's start for rows divided by `scale`: orthonormal W, mu = 0, sigma2 = 1, and statistics of zero."""
    unit = min(max(1.0 / scale, 2.0**-90), 2.0**90)
    W = np.linalg.qr(rng.standard_normal((d, q)))[0]
    state = init(PPCA(np.zeros(d), W * unit, unit * unit), 0)
    state.S1[:] = 0.0
    state.S2[:] = 0.0
    state.scalars[layout.S0] = 0.0
    return state


def fit_rows(X: Array, q: int) -> PPCA:
    """Maximum likelihood from a few rows: in closed form, or by EM where they have gaps."""
    n = len(X)
    if not np.isnan(X).any():
        return _pad(ppca.maximum_likelihood(X, min(q, max(n - 2, 0))), q)
    return _pad(_em(X, min(q, max(n - 2, 0))), q)


def _pad(model: PPCA, q: int) -> PPCA:
    """The model with q axes, the further ones of no length."""
    d, kept = model.W.shape
    return model._replace(W=np.hstack([model.W, np.zeros((d, q - kept))]))


def _em(X: Array, q: int) -> PPCA:
    """EM from rows with gaps, begun at their means."""
    seen = ~np.isnan(X)
    mean = np.where(seen, X, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    model = ppca.maximum_likelihood(np.where(seen, X, mean), q)
    for _ in range(EM_ROUNDS):
        last, model = model, em_step(model, X)
        if abs(model.sigma2 - last.sigma2) <= EM_TOLERANCE * last.sigma2:
            break
    return model


def em_step(model: PPCA, X: Array) -> PPCA:
    """One round of batch EM over rows with gaps; the likelihood of the observed cells does not fall."""
    d, q = model.W.shape
    n = len(X)
    y, z, S1, S2 = np.zeros(d), np.zeros(q), np.zeros((d, q)), np.zeros((q, q))
    S0 = kernels.sum_rows(X, *ppca.ready(model)[:4], y, z, S1, S2) / n
    y, z, S1, S2 = y / n, z / n, S1 / n, S2 / n
    S1 -= np.outer(y, z)
    S2 -= np.outer(z, z)
    W: Array = np.ascontiguousarray(np.linalg.solve(S2, S1.T).T)
    mu = model.mu + y - W @ z
    mean_variance = (S0 - float(y @ y)) / d
    sigma2 = mean_variance - float(np.sum(S1 * W)) / d
    return PPCA(mu, W, max(sigma2, ppca.noise_floor(mean_variance, mu)))


# -- learning --------------------------------------------------------------------------------------


def learn(
    state: State,
    X: Array,
    settings: Settings,
    reference: Reference | None = None,
    marks: Flags | None = None,
    memory: Array | None = None,
    room: Array | None = None,
) -> tuple[State, Info]:
    """Learn the rows of X in order; the arrays of `state`, `reference` and `memory` are changed in place.

    `marks` says before which rows a class ended, `memory` is the change detector's, and `room` is space for another S1,
    with which the returned state may have exchanged its own.
    """
    taken = np.zeros(len(X), dtype=np.bool_)
    marks = np.zeros(len(X), dtype=np.bool_) if marks is None else marks
    reference = no_reference(0, 0) if reference is None else reference
    memory = np.zeros(4) if memory is None else memory
    room = np.empty_like(state.S1) if room is None else room
    counts = np.zeros(layout.COUNTS, dtype=np.int64)
    swapped = kernels.learn_rows(
        X, marks, *state, *reference, settings.rates, settings.options, memory, settings.detector, counts, taken, room
    )
    return (state._replace(S1=room) if swapped else state), Info(counts, taken)
