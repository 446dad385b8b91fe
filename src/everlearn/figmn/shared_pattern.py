"""Rows with the same gaps: complete rows of the marginal mixture of the columns that they observe.

With observed columns o and missing ones m, the marginal has the precision Lambda_oo - Lambda_om Lambda_mm^-1 Lambda_mo.
The EM answer to a row with gaps updates this marginal as a complete row would, and leaves Lambda_mm, Lambda_mo and so
the regression of the gaps on the rest as they are: a whole stretch of rows can be learned in the marginal alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.figmn.kernels.rows import FLOOR
from everlearn.gaussian.gaussian import other_columns

if TYPE_CHECKING:
    from everlearn.figmn.learn import MixtureState, Settings

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Share of the largest precision of a column that its gaps may explain, for the guard against thin components to see
# the same in the marginal as in the whole.
NEGLIGIBLE_SHARE = 1e-6


class Marginal(NamedTuple):
    """A state in the columns that are observed, and how the missing ones hang on them."""

    state: MixtureState
    observed: Indices
    missing: Indices
    gain: Array  # (K, m, o): conditional means of the gaps are gain (x_o - mu_o) + mu_m
    explained: Array  # (K, o, o): Lambda_om Lambda_mm^-1 Lambda_mo
    gap_log_dets: Array  # (K,): log|Lambda_mm|, by which log|Sigma_oo| exceeds log|Sigma|


def marginal(state: MixtureState, observed: Indices) -> Marginal | None:
    """The marginal of some columns, with no room for more components; None if a precision is not definite."""
    K = state.n_components
    missing = other_columns(observed, state.means.shape[1])
    precisions = state.precisions[:K]
    across = precisions[:, missing[:, None], observed]
    try:
        L = np.linalg.cholesky(precisions[:, missing[:, None], missing])
    except np.linalg.LinAlgError:
        return None
    C = np.linalg.solve(L, across)
    explained = np.swapaxes(C, 1, 2) @ C
    explained = 0.5 * (explained + np.swapaxes(explained, 1, 2))
    gap_log_dets = 2.0 * np.log(np.einsum("jii->ji", L)).sum(axis=1)
    part = state._replace(
        means=np.ascontiguousarray(state.means[:K, observed]),
        precisions=np.ascontiguousarray(precisions[:, observed[:, None], observed] - explained),
        log_dets=state.log_dets[:K] + gap_log_dets,
        counts=state.counts[:K].copy(),
        ages=state.ages[:K].copy(),
    )
    gain = -np.linalg.solve(np.swapaxes(L, 1, 2), C)
    return Marginal(part, observed, missing, gain, explained, gap_log_dets)


def marginal_settings(settings: Settings, thresholds: Array, observed: Indices) -> Settings:
    """The constants of a stream of which some columns are observed."""
    return settings._replace(
        centre=settings.centre[observed],
        initial_variance=settings.initial_variance[observed],
        thresholds=thresholds[: len(observed) + 1],
    )


def can_learn(part: Marginal, settings: Settings) -> bool:
    """Whether the marginal alone takes the same decisions as the whole: pruning and thin components need the latter."""
    explained = np.einsum("jii->ji", part.explained) * settings.initial_variance[part.observed]
    return settings.min_age == np.inf and bool(np.all(explained * FLOOR < NEGLIGIBLE_SHARE))


def absorbed(state: MixtureState, part: Marginal, learned: MixtureState) -> MixtureState:
    """The whole state once its marginal has learned some rows; its arrays are used up."""
    K, observed = state.n_components, part.observed
    shift = learned.means - state.means[:K, observed]
    state.means[:K, part.missing] += np.einsum("jmo,jo->jm", part.gain, shift)
    state.means[:K, observed] = learned.means
    state.precisions[:K, observed[:, None], observed] = learned.precisions + part.explained
    state.log_dets[:K] = learned.log_dets - part.gap_log_dets
    state.counts[:K] = learned.counts
    state.ages[:K] = learned.ages
    return state._replace(n_rows=learned.n_rows)
