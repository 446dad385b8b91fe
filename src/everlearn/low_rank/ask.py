"""Answers of a low-rank mixture: densities, p-values, any columns from any others; in the units of the data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr, ndtri

from everlearn.base.conditioning import to_scale
from everlearn.base.snapshot import copied
from everlearn.gaussian import factor_analysers as factors
from everlearn.gaussian.conditional import ConditionalMixture
from everlearn.gaussian.factor_analysers import FactorMixture
from everlearn.gaussian.gaussian import LOG_2PI, Indices, log_sum_exp, other_columns
from everlearn.gaussian.mixture import patterns, posterior_weights, spans
from everlearn.linalg.backend_torch import TorchDevice, torch_device
from everlearn.linalg.chunked import has_gaps
from everlearn.linalg.parallel import one_blas_thread
from everlearn.low_rank import learn
from everlearn.low_rank.device import SentRows, distances_of_data, sent_products
from everlearn.low_rank.keep.reconsider import factor_mixture, flushed, reconsider, sampled
from everlearn.low_rank.kernels.shape import KAPPA, PSI_FLOOR
from everlearn.low_rank.learn import FARTHEST, Progress, in_frame, rows_seen, started
from everlearn.low_rank.state import (
    Components,
    Frame,
    Readout,
    Reservoir,
    Settings,
    State,
    readout_of,
    squared_distances,
)
from everlearn.low_rank.subspace import Projected, Sketched, projected
from everlearn.typing import Array

# A question is worth a search of its own when there are so many times more rows than at the last one.
ASK_AGAIN = 1.05
# Numbers of a block of rows and their products.
BLOCK = 2**21
# p-values come from the sampled rows where there are so many; the Gaussian tail begins at so many from the end.
FEWEST_SAMPLED, TAIL_ROWS = 50, 20
# Axes of the subspace in which rows are scored a second time, and the noise in it in units of the mean noise.
AXES, LOUDNESS = 50, 4.0
# Weight of the p-value of the squared distance beside that of the subspace, of 0.05 to 0.5 on training rows of MNIST:
# digits 5 to 9 learned and 0 to 4 strange, ROC-AUC 0.874 with 0.05, 0.864 with 0.2 and 0.840 with 0.5; even digits and
# odd ones 0.790, 0.792 and 0.782. The smaller it is, the less is seen of what lies off the axes.
DISTANCE_WEIGHT = 0.2


@dataclass
class Asked:
    """What is remembered of the questions; never saved."""

    look: Look | None = None  # until the next row
    state: State | None = None  # the state with a structure of its own, which goes on learning while it is asked
    searched: int = 0  # row of its search
    last: int = 0  # row of the last question
    progress: Progress = field(default_factory=Progress)


def has_grown(n: int, since: int) -> bool:
    """Whether so many rows have come since row `since` that a question is worth a search of its own."""
    return since == 0 or (n - since > 1 and n >= ASK_AGAIN * since)


def may_search(reservoir: Reservoir, settings: Settings) -> bool:
    """Whether a question may be preceded by a search on the sampled rows.

    Where rows that still count were turned away, it refits most components from the sample and forgets what the others
    said. Classes are then told apart worse: 0.1 to 0.3 % of MNIST (54,000 rows learned, 2,000 a class kept). Densities
    gain or lose: 1.3 nats a row more on 6,000 digits of 256 columns, 3.9 less on 4,000 of 784, one order each.
    """
    return settings.reservoir > 0 and (not settings.asks_whole or sampled(reservoir, settings)[2] <= 1.0 + 1e-6)


def follow(
    asked: Asked, X: Array, weights: Array, settings: Settings, state: State, device: TorchDevice | None = None
) -> None:
    """Let the answers learn the rows that the state has just learned, while questions keep coming."""
    asked.look = None
    if asked.state is None:
        return
    if has_grown(rows_seen(state), asked.last) or state.searched > asked.searched:
        asked.state = None
        return
    # The reservoir is the state's own, which has been offered these rows.
    quiet = settings._replace(reservoir=0)
    asked.state, _ = learn.learn(asked.state, X, weights, quiet, asked.progress, search=False, device=device)


def answering(state: State, settings: Settings, asked: Asked, device: TorchDevice | None = None) -> Look:
    """What answers come from: a search of its own where 5 % more rows have come since the last search and question."""
    n = rows_seen(state)
    if asked.look is not None:
        return asked.look
    with one_blas_thread():
        searched = max(state.searched, asked.searched if asked.state is not None else 0)
        if state.model is None:
            if asked.state is None or has_grown(n, asked.searched):
                asked.state, asked.searched, asked.progress = started(copied(state), settings), n, Progress()
        elif has_grown(n, searched) and has_grown(n, asked.last) and may_search(state.model.reservoir, settings):
            asked.state, asked.searched, asked.progress = reconsider(state, settings, device), n, Progress()
        base = state if asked.state is None else asked.state
        asked.look, asked.last = look_of(base, settings, device), n
    return asked.look


def between_searches(state: State, settings: Settings) -> FactorMixture | None:
    """The mixture in the units of the data with all rows learned and no search; one component during the warm-up."""
    if state.model is None:
        if state.pending.size == 0:
            return None
        state = started(copied(state), settings._replace(fixed=1, most=1, reservoir=0))
    components = flushed(state, settings)
    assert state.frame is not None
    readout = readout_of(components, state.prior_noise, settings.isotropic)
    return in_units(factor_mixture(components, readout), state.frame)


def in_units(mixture: FactorMixture, frame: Frame) -> FactorMixture:
    """A mixture in the coordinates of a frame, in the units of the data."""
    weights, means, loadings, noise = mixture
    scale = 1.0 / frame.inverse
    return FactorMixture(weights, means * scale + frame.centre, loadings * scale, noise * scale**2)


def look_of(state: State, settings: Settings, device: TorchDevice | None = None) -> Look:
    """The components of a state that is past its warm-up, with all rows learned."""
    assert state.model is not None
    assert state.frame is not None
    components = flushed(state, settings)
    readout = readout_of(components, state.prior_noise, settings.isotropic)
    rows = sampled(state.model.reservoir, settings)[0]
    rows = rows[~np.isnan(rows).any(axis=1)]
    sent = None if device is None else SentRows(device, rows)
    space = projected(Sketched(components, readout, state.frame), AXES, LOUDNESS)
    roots, axis_roots = left_out_roots(components, readout, space, rows, sent)
    name = None if device is None else device.name
    joint = harmonic_mean(tail_of_sample(roots, np.sort(roots)), tail_of_sample(axis_roots, np.sort(axis_roots)))
    return Look(
        components, readout, state.frame, state.model.calibration.copy(), np.sort(roots), name, space,
        np.sort(axis_roots), np.sort(joint),
    )  # fmt: skip


def left_out_roots(
    c: Components, readout: Readout, space: Projected, rows: Array, sent: SentRows | None = None
) -> tuple[Array, Array]:
    """Cube roots of the squared distances of sampled rows, each left out of its own component; and in the subspace.

    Of all components the nearest counts. To first order the deviation of a row from its component without it is larger
    by 1 / (1 - leverage). Rows have no gaps; `sent` are the same on a device.
    """
    if len(rows) < FEWEST_SAMPLED:
        return np.empty(0), np.empty(0)
    d2 = squared_distances(rows, readout) if sent is None else sent.distances(readout)
    along = space.distances(rows)
    own = np.argmax(np.log(np.maximum(c.mass, 1e-300)) - 0.5 * (d2 + readout.log_det), axis=1)
    for k in np.unique(own):
        mine, rank = own == k, readout.rank[k]
        E = rows[mine] - c.mean[k]
        P = E @ c.directions[k, :rank].T
        leverage = 1.0 / c.n[k] + (P * P) @ (1.0 / c.scatter[k, :rank])
        grown = 1.0 / (1.0 - np.minimum(leverage, 0.5))
        d2[mine, k] = _distances_without(E * grown[:, None], c, readout, k)
        along[mine, k] *= grown**2
    return np.cbrt(d2.min(axis=1)), np.cbrt((along + space.heights).min(axis=1))


def _distances_without(E: Array, c: Components, readout: Readout, k: int) -> Array:
    """Squared distances of deviations from component k to a component whose noise each row has not contributed to.

    A row that alone shows something in a quiet column has made the noise there: without it, it is far out. The expected
    latent variables are those with the row, where the squared distance is least, so that it changes to second order
    with them only.
    """
    rank = readout.rank[k]
    W, inverse = np.sqrt(readout.loading[k, :rank])[:, None] * c.directions[k, :rank], readout.inverse_psi[k]
    scaled = W * inverse
    latent = np.linalg.solve(np.eye(rank) + scaled @ W.T, scaled @ E.T).T
    squares = (E - latent @ W) ** 2
    if readout.isotropic:  # to which one cell contributes next to nothing
        return np.asarray(squares @ inverse + (latent**2).sum(axis=1))
    rows = max(float(c.n[k] + c.borrowed[k]) - 1.0 - rank, 0.0) + KAPPA
    psi = np.maximum(rows / inverse - squares, KAPPA * readout.noise[k]) / max(rows - 1.0, 1.0)
    return np.asarray((squares / np.maximum(psi, PSI_FLOOR * readout.noise[k])).sum(axis=1) + (latent**2).sum(axis=1))


def harmonic_mean(distance: Array, subspace: Array) -> Array:
    """Weighted harmonic mean of two p-values, which cannot hide a very small one (Wilson, 2019)."""
    w = DISTANCE_WEIGHT
    return np.asarray(1.0 / (w / np.maximum(distance, 1e-300) + (1.0 - w) / np.maximum(subspace, 1e-300)))


def share_below(values: Array, sample: Array) -> Array:
    """Share of a law below each value, that of the ascending sample; in proportion below its first few."""
    first = min(TAIL_ROWS, len(sample) // 2) - 1
    shares = (np.arange(len(sample)) + 0.5) / len(sample)
    return np.interp(values, np.append(0.0, sample[first:]), np.append(0.0, shares[first:]))


def tail_of_sample(values: Array, sample: Array) -> Array:
    """Share of a law above each value: that of the ascending sample, and beyond it a Gaussian tail fitted there."""
    m = len(sample)
    if m == 0:
        return np.empty(0)
    # Each sampled row stands in the middle of its share of 1/m.
    above = 1.0 - (np.arange(m) + 0.5) / m
    out = np.interp(values, sample, above)
    at = m - min(TAIL_ROWS, m // 2)
    mean = sample.mean()
    # The spread at which a Gaussian has the same share above the row where the tail begins.
    spread = max((sample[at] - mean) / -ndtri(above[at]), 1e-12 * abs(mean), 1e-300)
    return np.where(values > sample[at], ndtr(-(values - mean) / spread), out)


@dataclass
class Look:
    """The model that answers."""

    components: Components
    readout: Readout
    frame: Frame
    calibration: Array
    roots: Array  # of the sampled rows, left out; empty where too few are kept
    device: str | None = None  # of torch's, on which many rows are scored
    space: Projected | None = None  # where rows are scored a second time
    axis_roots: Array = field(default_factory=lambda: np.empty(0))  # of the sampled rows there, with its heights
    joined: Array = field(default_factory=lambda: np.empty(0))  # harmonic means of the p-values of both
    cache: dict[str, Any] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        # What is on a device stays there; the next question sends it again.
        return vars(self) | {"cache": {name: value for name, value in self.cache.items() if name != "sent"}}

    @property
    def internal(self) -> FactorMixture:
        """The mixture in the coordinates of the frame."""
        if "internal" not in self.cache:
            self.cache["internal"] = factor_mixture(self.components, self.readout)
        return self.cache["internal"]  # type: ignore[no-any-return]

    @property
    def mixture(self) -> FactorMixture:
        """The mixture in the units of the data."""
        if "mixture" not in self.cache:
            self.cache["mixture"] = in_units(self.internal, self.frame)
        return self.cache["mixture"]  # type: ignore[no-any-return]

    @property
    def weights(self) -> Array:
        """Mixture weights."""
        return self.internal.weights.copy()

    @property
    def means(self) -> Array:
        """Means of the components."""
        return self.mixture.means.copy()

    @property
    def covariances(self) -> Array:
        """Covariances of the components."""
        return factors.covariances(self.mixture)

    @property
    def precisions(self) -> Array:
        """Inverses of the covariances."""
        return factors.precisions(self.mixture)

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.components.n)

    @property
    def n_parameters(self) -> float:
        """Free parameters of all components: mean, noise and directions."""
        K, D = self.components.mean.shape
        r = self.readout.rank.astype(np.float64)
        return float((2.0 * D + D * r - r * (r - 1.0) / 2.0).sum() + K - 1)

    def log_joint(self, X: Array) -> tuple[Array, Array]:
        """Log-density of each row and component in the coordinates of the frame, and its squared distance, (n, K)."""
        K, D = self.components.mean.shape
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.internal.weights)
        if self.device is not None and len(X) >= learn.DEVICE_ROWS and not has_gaps(X):
            distance = self._distances_on_device(X, torch_device(self.device))
            return log_weights - 0.5 * (distance + self.readout.log_det + D * LOG_2PI), distance
        Z = in_frame(X, self.frame)
        joint, distance = np.empty((len(Z), K)), np.empty((len(Z), K))
        for observed, rows in patterns(Z):
            if len(observed) < D:
                found = factors.posterior(self.internal, observed, Z[np.ix_(rows, observed)])
                joint[rows] = found.log_joint
                distance[rows] = self._distance(found.log_joint - log_weights, observed)
                continue
            # Rows in parts: the products of one row with all directions of all components are K Q numbers.
            for span in spans(len(rows), max(1, BLOCK // (K * self.components.directions.shape[1] + D))):
                some = rows[span]
                d2 = squared_distances(Z[some], self.readout)
                distance[some] = d2
                joint[some] = log_weights - 0.5 * (d2 + self.readout.log_det + D * LOG_2PI)
        return joint, distance

    def _distances_on_device(self, X: Array, device: TorchDevice) -> Array:
        """Squared distances of rows without gaps, (n, K); the components stay on the device for the next question."""
        if "sent" not in self.cache:
            self.cache["sent"] = sent_products(device, self.readout)
        return distances_of_data(device, X, self.frame, self.cache["sent"], FARTHEST)

    def _axis_root(self, X: Array, space: Projected) -> Array:
        """Cube root of -2 ln p of each row without gaps under its best component in the subspace, up to a constant."""
        out = np.empty(len(X))
        for span in spans(len(X), max(1, BLOCK // X.shape[1])):
            out[span] = (space.distances(in_frame(X[span], self.frame)) + space.heights).min(axis=1)
        return np.cbrt(out)

    def _distance(self, log_density: Array, observed: Indices) -> Array:
        """Squared distances of observed cells from their log-densities."""
        K, Q, _ = self.internal.loadings.shape
        log_det = np.empty(K)
        for k in range(K):
            W, psi = self.internal.loadings[k][:, observed], self.internal.noise[k, observed]
            log_det[k] = np.log(psi).sum() + np.linalg.slogdet(np.eye(Q) + (W / psi) @ W.T)[1]
        # ln p = -(d^2 + ln|Sigma_oo| + d ln 2 pi)/2, solved for d^2.
        return -2.0 * log_density - log_det - len(observed) * LOG_2PI

    def log_density(self, X: Array) -> Array:
        """Log-density of each row; of its observed part where it has gaps; 0 where nothing is observed."""
        joint, _ = self.log_joint(X)
        if not has_gaps(X):
            return log_sum_exp(joint) - self.frame.log_scale.sum()
        observed = ~np.isnan(X)
        some = observed.any(axis=1)
        out = np.zeros(len(X))
        out[some] = log_sum_exp(joint[some]) - observed[some] @ self.frame.log_scale
        return out

    def responsibilities(self, X: Array) -> Array:
        """Posterior probability of each component for each row, (n, K)."""
        joint, _ = self.log_joint(X)
        return posterior_weights(joint, self.internal.weights)

    def p_values(self, X: Array) -> Array:
        """How usual each row is: the tail of the cube root of its squared distance, beside those of sampled rows.

        Between the sampled rows, each left out, their own law speaks; beyond the last of them the Gaussian tail of cube
        roots goes on (Wilson and Hilferty, 1931). Rows without gaps have two p-values, and the rank of their harmonic
        mean among those of the sampled rows is told: that of the distance to the nearest component, in units of the
        noise of each column, which sees what is too much in a quiet column or off the axes; and that of the density in
        the subspace of the mixture's first axes, which sees rows between the components. Digits 5 to 9 of MNIST learned
        and 0 to 4 strange, training rows: ROC-AUC 0.727 by the first, 0.879 by the second, 0.864 by both; even digits
        learned and odd ones strange: 0.724, 0.778 and 0.792.
        """
        _, distance = self.log_joint(X)
        D = X.shape[1]
        observed = np.count_nonzero(~np.isnan(X), axis=1) if has_gaps(X) else np.full(len(X), D)
        d2 = np.maximum(distance.min(axis=1), 0.0)
        rows, mean, variance = self.calibration
        # A squared distance grows with the number of cells: scaled to a complete
        # row, whose law is the one that was sampled.
        root = np.cbrt(d2 * D / np.maximum(observed, 1))
        if len(self.roots):
            out = tail_of_sample(root, self.roots)
            whole = observed == D
            if self.space is not None and whole.any():
                along = tail_of_sample(self._axis_root(X[whole], self.space), self.axis_roots)
                out[whole] = share_below(harmonic_mean(out[whole], along), self.joined)
        elif rows < 2.0 or variance <= 0.0:
            out = chdtrc(np.maximum(observed, 1), d2)
        else:
            out = ndtr(-(root - mean) / np.sqrt(variance))
        return np.where(observed > 0, out, 1.0)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
        """Draw rows and the components that they came from."""
        return factors.sample(self.mixture, n, rng)

    def condition(self, rows: Array, columns: Indices) -> tuple[ConditionalMixture, Array]:
        """The mixture of some columns for each row, given what else is observed in it, and the scale of each column.

        It is about zero where the means of the columns are, so that their size does not matter.
        """
        others = other_columns(columns, rows.shape[1])
        mixture, scale = self.scaled_mixture()
        return factors.condition(mixture, others, to_scale(rows[:, others], scale[others]), columns), scale[columns]

    def scaled_mixture(self) -> tuple[FactorMixture, Array]:
        """The mixture of the columns divided by their scale, and the scale."""
        centre = self.frame.centre * self.frame.inverse
        return self.internal._replace(means=self.internal.means + centre), 1.0 / self.frame.inverse

    def expected_columns(self, rows: Array, columns: Indices) -> Array:
        """Expected values of some columns for each row, given what else is observed in it."""
        others = other_columns(columns, rows.shape[1])
        Z = in_frame(rows, self.frame)
        out = factors.expected_columns(self.internal, others, Z[:, others], columns)
        return out / self.frame.inverse[columns] + self.frame.centre[columns]

    def impute(self, rows: Array) -> tuple[Array, Array]:
        """The expectation of every missing value given its row, and its standard deviation, zero elsewhere."""
        filled, std = factors.impute(in_frame(rows, self.frame), self.internal)
        scale = 1.0 / self.frame.inverse
        return filled * scale + self.frame.centre, std * scale
