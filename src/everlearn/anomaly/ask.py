"""Answers of the detector: scores without learning, and what makes a row strange, column by column."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from everlearn.anomaly.kernels import past as past_kernels
from everlearn.anomaly.kernels import rows as kernels
from everlearn.anomaly.learn import Prepared, no_info, scratch_for
from everlearn.anomaly.state import STATISTICS, VIEWS, Density, Info, Settings, State
from everlearn.base.snapshot import copied
from everlearn.typing import Array

INTERVAL = (0.05, 0.95)
"""Quantiles of the interval in which a value was expected."""
FOLLOWED = 64
"""Rows that are followed up to the one that is explained: histories are of three rows, slow means of ten."""


class Explanation(NamedTuple):
    """What makes rows strange; arrays have a row for each row asked about and a column for each column."""

    p_value: Array  # (n,)
    views: dict[str, Array]  # name of a view -> -log p-value of each row, nats
    blame: Array  # (n, D), nats; the largest is the column to blame
    p_given_others: Array  # (n, D), two-sided, exact under the mixture
    expected: Array  # (n, D), mean given the other columns
    low: Array  # (n, D), 5 % quantile given the other columns
    high: Array  # (n, D), 95 % quantile
    predicted: Array  # (n, D), from the column's own past
    p_given_past: Array  # (n, D), two-sided, Gaussian errors
    values: Array  # (n, D), the rows themselves
    columns: list[str]

    def text(self, row: int = 0) -> str:
        """One line for a row: its p-value, the column to blame, its value and where it was expected."""
        return f"p = {self.p_value[row]:.2g}: {self.sentence(row)}"

    def sentence(self, row: int = 0, column: int | None = None) -> str:
        """The value of a column of a row, by default the one to blame, and where it was expected."""
        j = int(np.argmax(self.blame[row])) if column is None else column
        name, value = self.columns[j], self.values[row, j]
        if np.isnan(value):
            return f"{name} was not observed"
        given_others, given_past = self.p_given_others[row, j], self.p_given_past[row, j]
        # Comparisons with NaN are false: what is not known yet is not told.
        if given_past < given_others or (np.isnan(given_others) and not np.isnan(given_past)):
            return f"{name} {value:.4g}, expected about {self.predicted[row, j]:.4g} from its own past"
        if np.isnan(given_others):
            return f"{name} {value:.4g}; too few rows are learned to say what was expected"
        return f"{name} {value:.4g}, expected {self.low[row, j]:.4g} to {self.high[row, j]:.4g} from the others"


def score(state: State, X: Array, settings: Settings, prepared: Prepared) -> Info:
    """Score each row as if it were the next of the stream; nothing is learned."""
    info = no_info(len(X))
    kernels.ask_rows(X if X.flags.writeable else X.copy(), prepared.of(state, settings), info)
    return info


def view_parts(parts: Array) -> dict[str, Array]:
    """-log p-value of each view: that of the harmonic mean of the p-values of its statistics."""
    of = np.array(list(STATISTICS.values()))
    found = {}
    for view in VIEWS:
        own = parts[:, of == view]
        told = ~np.isnan(own)
        # The mean of 1/p, in logs.
        total = np.logaddexp.reduce(np.where(told, own, -np.inf), axis=1)
        found[view] = np.where(told.any(axis=1), total - np.log(np.maximum(told.sum(axis=1), 1)), 0.0)
    return found


def explain(state: State, X: Array, settings: Settings, columns: list[str], prepared: Prepared) -> Explanation:
    """What makes each row strange, as if it were the next of the stream."""
    X = X if X.flags.writeable else X.copy()
    info = score(state, X, settings, prepared)
    blame = np.zeros(X.shape)
    kernels.blame_rows(X, prepared.of(state, settings), blame)
    given = [given_others(state.density, x) for x in X]
    p, expected, low, high = (np.array(values).reshape(X.shape) for values in zip(*given, strict=True))
    blame = np.maximum(blame, -np.log(np.maximum(np.nan_to_num(p, nan=1.0), 1e-300)))
    predicted, p_past = given_past(state, X, scratch_for(state))
    p_value = np.exp(np.nan_to_num(info.log_p, nan=0.0))
    return Explanation(p_value, view_parts(info.parts), blame, p, expected, low, high, predicted, p_past, X, columns)


def explain_seen(state: State, row: int, settings: Settings, columns: list[str]) -> Explanation | None:
    """What makes a row strange that came a while ago, after the rows before it; None if it is older than the ring.

    Without going back its own past would be that of the latest row. Its model is the present one.
    """
    ring, now = state.season.ring, int(state.clock.rows[0])
    oldest, first = max(0, now - len(ring)), max(0, row - FOLLOWED)
    if not oldest <= first <= row < now:
        return None
    X = ring[np.arange(first, row + 1) % len(ring)]
    then = copied(state)
    then.clock.rows[0] = first
    # Rows that are followed and not learned: histories move on, and nothing else.
    settings, prepared, at = settings._replace(learning=0), Prepared(), 0
    while at < len(X) - 1:
        at += kernels.learn_rows(X[at:-1], prepared.of(then, settings), no_info(len(X) - 1 - at))
    return explain(then, X[-1:], settings, columns, prepared)


def given_past(state: State, X: Array, scratch: Any) -> tuple[Array, Array]:
    """Prediction of each column from its own past, and the two-sided p-value of its error."""
    past, units = state.past, state.past.units
    if state.clock.next_units[0] == 0:
        return np.full(X.shape, np.nan), np.full(X.shape, np.nan)
    past_kernels.predict(past, state.season, state.clock, scratch)
    u = np.arcsinh((X - units.centre) / units.scale)
    z = np.abs(u - scratch.predicted) / np.sqrt(past.variance)
    # Back from asinh units; sinh overflows beyond 710.
    predicted = np.sinh(np.clip(scratch.predicted, -300, 300)) * units.scale + units.centre
    return np.broadcast_to(predicted, X.shape).copy(), 2.0 * ndtr(-z)


def given_others(density: Density, x: Array) -> tuple[Array, Array, Array, Array]:
    """Of each column given the others under the mixture: two-sided p-value, mean, 5 and 95 % quantiles.

    For component k with precision P of the observed columns, column j given the rest is Gaussian with mean
    z_j - (P e)_j / P_jj and variance 1 / P_jj; its weight is that of the rest under the component.
    """
    D, K = len(x), len(density.heights)
    out = np.full((4, D), np.nan)
    z = (x - density.centre) / density.scale
    seen = np.flatnonzero(~np.isnan(z))
    if K == 0 or len(seen) == 0:
        return tuple(out)  # type: ignore[return-value]
    mean, sd, log_w = _conditionals(density, z, seen)
    standard = (z[seen] - mean) / sd
    # Both tails in logs: far out the distribution function rounds to 0 or 1, and the smaller tail would be lost.
    lower, upper = (np.logaddexp.reduce(log_w + log_ndtr(sign * standard), axis=0) for sign in (1.0, -1.0))
    out[0, seen] = np.minimum(2.0 * np.exp(np.minimum(lower, upper)), 1.0)
    w = np.exp(log_w)
    scale, centre = density.scale[seen], density.centre[seen]
    out[1, seen] = (w * mean).sum(axis=0) * scale + centre
    out[2:, seen] = _quantiles(np.array(INTERVAL), w, mean, sd) * scale + centre
    return tuple(out)  # type: ignore[return-value]


def _conditionals(density: Density, z: Array, seen: Any) -> tuple[Array, Array, Array]:
    """Means, standard deviations and log-weights (K, observed) of each column given the other observed ones."""
    e = z[seen] - density.means[:, seen]
    if density.precisions.shape[1] < len(z):
        diagonal, Pe, log_det = _precision_of_factors(density, e, seen)
        return _given_others(density, z[seen], e, Pe, diagonal, log_det)
    if len(seen) == len(z):
        P, log_det = density.precisions, density.log_weights - density.heights
    else:
        blocks = density.covariances[:, seen[:, None], seen]
        P, log_det = np.asarray(np.linalg.inv(blocks)), np.asarray(0.5 * np.linalg.slogdet(blocks)[1])
    # (P e)_j / sqrt(P_jj) is the exact z-value of column j given all others: no system is solved for each column.
    return _given_others(density, z[seen], e, np.einsum("kij,kj->ki", P, e), np.einsum("kii->ki", P), log_det)


def _precision_of_factors(density: Density, e: Array, seen: Any) -> tuple[Array, Array, Array]:
    """Of low-rank components: the diagonal of the precision P of observed columns, P e, and half a log-determinant."""
    W, inverse_psi = density.covariances[:, :, seen], density.factors[:, 0, seen]
    scaled = W * inverse_psi[:, None]
    L = np.linalg.cholesky(np.eye(W.shape[1]) + scaled @ W.swapaxes(1, 2))
    # Woodbury's identity: P = psi^-1 - B'B.
    B = np.linalg.inv(L) @ scaled
    v = np.einsum("kqj,kj->kq", B, e)
    log_det = np.log(np.einsum("kii->ki", L)).sum(axis=1) - 0.5 * np.log(inverse_psi).sum(axis=1)
    return inverse_psi - (B * B).sum(axis=1), inverse_psi * e - np.einsum("kqj,kq->kj", B, v), log_det


def _given_others(
    density: Density, z: Array, e: Array, Pe: Array, diagonal: Array, log_det: Array
) -> tuple[Array, Array, Array]:
    """Conditional means, standard deviations and log-weights from the precision of the observed columns."""
    sd = 1.0 / np.sqrt(diagonal)
    joint = density.log_weights - log_det - 0.5 * np.einsum("ki,ki->k", e, Pe)
    # The column's own term is taken out of the joint: what stays is the weight of the component given the others.
    log_w = joint[:, None] + 0.5 * Pe**2 / diagonal - 0.5 * np.log(diagonal)
    return z - Pe / diagonal, sd, log_w - np.logaddexp.reduce(log_w, axis=0)


def _quantiles(q: Array, w: Array, mean: Array, sd: Array) -> Array:
    """Quantiles (len(q), D) of univariate mixtures, one a column, by bisection between those of their components."""
    own = mean + sd * ndtri(q)[:, None, None]
    low, high = own.min(axis=1), own.max(axis=1)
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = (w * ndtr((middle[:, None] - mean) / sd)).sum(axis=1) < q[:, None]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
        if np.all(high - low <= 1e-12 * (np.abs(low) + np.abs(high))):
            break
    return 0.5 * (low + high)
