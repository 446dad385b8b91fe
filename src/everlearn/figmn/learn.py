"""Learning rows: one by one, screened, or in blocks, whichever is cheapest; the answers are the same up to rounding.

The rule is the incremental Gaussian mixture network in precision form (FIGMN, Pinto and Engel), with the exact update
Sigma = (1-w) Sigma + w(1-w) e e' in place of the printed one (docs/errata.md). Coordinates are those of the caller;
the estimator hands in columns of about unit spread.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.figmn import bounds, cost_model
from everlearn.figmn.blocks import learn_block
from everlearn.figmn.bounds import Bounds
from everlearn.figmn.cost_model import Method
from everlearn.figmn.keep import make_room, widen
from everlearn.figmn.kernels import diagonal
from everlearn.figmn.kernels import rows as kernels
from everlearn.figmn.state import Info, Rows, Settings, State, from_components, is_diagonal, mixture_of
from everlearn.gaussian.gaussian import regression
from everlearn.gaussian.mixture import log_joint
from everlearn.linalg import parallel
from everlearn.linalg.backend import HOST, Backend
from everlearn.typing import Array

# Fewer rows than this are learned one by one: a block or a set of bounds costs more to set up.
MIN_ROWS = 16
# Back-off: rows learned without a screen once it has been found not to pay; twice as many each time that it does not.
SCREEN_BACKOFF_ROWS = 4096
# Rows of the first set of bounds, and at least of a block; the next are twice as long.
FIRST_ROWS = 16
# The first block has this share of the rows that a block may have.
FIRST_SHARE = 0.25
# Rows that share one set of bounds at most, when they are learned one by one.
BOUNDED_ROWS = 256
# Rows learned one by one after a row that no block could take.
ROWS_AFTER_REFUSAL = 16
# Why a run may end before its stop, beside the statuses of the kernels.
REFUSED = -1  # the next row is not one for a block
TOO_DEAR = -2  # the screen lets too many components through to pay


class Plan(NamedTuple):
    """What is known of the rows of a batch: where values are missing, and from which rows on methods may be tried."""

    missing: bool  # whether values may be
    starts: NDArray[np.intp] | None  # stretches of complete rows long enough for a block; None until they are needed
    stops: NDArray[np.intp] | None
    blocks_from: int
    screen_from: int
    backoff: int  # rows without a screen, if it fails to pay again


_NO_PLAN = tuple(Plan(missing, None, None, 0, 0, SCREEN_BACKOFF_ROWS) for missing in (False, True))


class RunResult(NamedTuple):
    """How a run ended: the next row, why, and how many updates were skipped."""

    row: int
    status: int
    skipped: int


def learn(
    state: State, X: Array, weights: Array, settings: Settings, backend: Backend = HOST, *, gaps: bool = True
) -> tuple[State, Info]:
    """Learn the rows of X in order; `gaps` is whether values may be missing.

    `state` is consumed: its arrays are updated in place; use the returned state.
    """
    n = len(X)
    rows = Rows(X, weights, np.empty(n), np.empty(n))
    plan = _NO_PLAN[bool(gaps)]  # numpy.bool_ without the JIT
    # Blocks and screens rest on the exact update of full matrices: the printed rule may skip updates, which the
    # recursion of a block has no form for, and diagonals have no D x D work to save.
    skipped, row, sequential = 0, 0, settings.paper or is_diagonal(state)
    while row < n:
        stop, current = _next_stretch(state, settings, row, n)
        if sequential or stop - row < MIN_ROWS:
            state, result = learn_one_by_one(state, rows, row, stop, plan.missing, current)
        else:
            state, result, plan = learn_stretch(state, rows, row, stop, current, backend, plan)
        row, status = result.row, result.status
        skipped += result.skipped
        # What the loops cannot do in place: more memory, or a factorisation.
        if status == kernels.FULL:
            state = make_room(state, settings)
        elif status == kernels.UNSAFE:
            state = learn_in_covariance_form(state, X[row], float(weights[row]), settings)
            row += 1
        elif status == kernels.THIN:
            state = widen(state, settings)
    return state, Info(rows.log_density, rows.distance, skipped)


def _next_stretch(state: State, settings: Settings, row: int, n: int) -> tuple[int, Settings]:
    """Rows that can be learned in one go, and their settings: where one component is all, nothing is novel to it."""
    if settings.max_components > 1 or state.n_components == 0:
        return n, settings
    stop = n if settings.min_age == np.inf else row + 1  # any row may make room by pruning
    return stop, settings._replace(thresholds=np.full_like(settings.thresholds, np.inf))


def learn_stretch(
    state: State, rows: Rows, row: int, stop: int, settings: Settings, backend: Backend, plan: Plan
) -> tuple[State, RunResult, Plan]:
    """Learn rows from `row` on, up to `stop` at most, by the cheapest method: full covariances, exact update."""
    D, K = rows.X.shape[1], state.n_components
    if cost_model.choose(D, K) == Method.ROWS:
        stop = min(stop, row + cost_model.rows_until_reconsidered(D, K))
        return *learn_one_by_one(state, rows, row, stop, plan.missing, settings), plan
    plan = _find_complete(plan, rows, row) if plan.starts is None else plan
    method, stop = choose_method(plan, row, stop, (D, K), backend)
    # Threads are given whole components; the BLAS must not start more of its own.
    with parallel.one_blas_thread():
        if method == Method.ROWS:
            state, result = learn_one_by_one(state, rows, row, stop, plan.missing, settings)
        elif method == Method.SCREENED_ROWS:
            state, result = learn_screened(state, rows, row, stop, settings)
        else:
            state, result = learn_blocks(state, rows, row, stop, settings, backend, screened=method.is_screened)
    if result.status == REFUSED:
        plan = plan._replace(blocks_from=result.row + ROWS_AFTER_REFUSAL)
    elif result.status == TOO_DEAR:
        plan = plan._replace(screen_from=result.row + plan.backoff, backoff=2 * plan.backoff)
    return state, result, plan


def _find_complete(plan: Plan, rows: Rows, row: int) -> Plan:
    """The stretches of complete rows that are long enough for a block."""
    n = len(rows.X)
    if not plan.missing:
        return plan._replace(starts=np.array([row]), stops=np.array([n]))
    complete = np.concatenate([[False], ~np.isnan(rows.X[row:]).any(axis=1), [False]])
    ends = row + np.flatnonzero(complete[1:] != complete[:-1])
    starts, stops = ends[::2], ends[1::2]
    long = stops - starts >= MIN_ROWS
    return plan._replace(starts=starts[long], stops=stops[long])


def choose_method(plan: Plan, row: int, stop: int, size: tuple[int, int], backend: Backend) -> tuple[Method, int]:
    """How to learn the rows from `row` on, and up to which: blocks and screens are for complete rows."""
    assert plan.starts is not None
    assert plan.stops is not None
    # The first complete stretch that ends after `row`; where there is none, the rest goes row by row.
    i = int(np.searchsorted(plan.stops, row, side="right"))
    start = max(plan.blocks_from, int(plan.starts[i]) if i < len(plan.starts) else stop)
    if row < start:
        return Method.ROWS, min(stop, start)
    stop = min(stop, int(plan.stops[i]))
    screening = row >= plan.screen_from
    # Stop where the back-off ends, so that a screen is tried again there.
    if not backend.batched and not screening:
        stop = min(stop, plan.screen_from)
    # A batched backend takes all components in one product; a screen would have it take each by itself.
    screening = screening and not backend.batched
    return cost_model.choose(*size, None if screening else 1.0, screening=screening), stop


def learn_one_by_one(
    state: State, rows: Rows, row: int, stop: int, missing: bool, settings: Settings
) -> tuple[State, RunResult]:
    """Learn one row at a time: any rows, any settings."""
    learn_rows = diagonal.learn_rows if is_diagonal(state) else kernels.learn_rows
    after, K, status, skipped, _ = learn_rows(rows, row, stop, missing, state, settings)
    # A new tuple is quicker than _replace, which counts where batches are single rows.
    return State(*state[:5], K, state.n_rows + after - row), RunResult(after, status, skipped)


def learn_screened(state: State, rows: Rows, row: int, stop: int, settings: Settings) -> tuple[State, RunResult]:
    """Learn one row at a time, evaluating only components that may matter: complete rows, exact update."""
    known, length, status = _bounds_of(state, state.precisions), FIRST_ROWS, kernels.DONE
    while row < stop and status == kernels.DONE:
        # Few rows first: whether the screen pays is known only after it has been used.
        length = min(2 * length, BOUNDED_ROWS)
        K, end = state.n_components, min(stop, row + length)
        changed = np.zeros(len(state.counts), dtype=bool)
        screen = kernels.Screen(bounds.lower_bounds(known, rows.X[row:end], K), changed)
        after, n, status, _, evaluations = kernels.learn_screened_rows(rows, row, end, state, settings, screen)
        # The bounds were made before these components existed.
        changed[K:] = True
        bounds.renew(known, np.flatnonzero(changed[:n]))
        # Evaluated pairs over all pairs: what decides whether bounds cost less than they save.
        share = evaluations / (K * max(after - row, 1))
        state, row = state._replace(n_components=n, n_rows=state.n_rows + after - row), after
        if status == kernels.DONE and not cost_model.choose(rows.X.shape[1], n, share).is_screened:
            status = TOO_DEAR
    return state, RunResult(row, status, 0)


def learn_blocks(
    state: State, rows: Rows, row: int, stop: int, settings: Settings, backend: Backend, *, screened: bool
) -> tuple[State, RunResult]:
    """Learn blocks of rows, with a screen or without: complete rows, exact update."""
    D, matrices = rows.X.shape[1], backend.matrices(state.precisions)
    known = _bounds_of(state, matrices.upper()) if screened else None
    start, on_backend = row, backend.rows(rows.X[row:stop])
    longest, status = cost_model.block_rows(D, state.n_components, screened=screened), kernels.DONE
    length = max(FIRST_ROWS, int(FIRST_SHARE * longest))
    while row < stop and status == kernels.DONE:
        end = row + _equal_length(stop - row, length)
        part, sent = rows.part(row, end), on_backend.part(row - start, end - start)
        state, progress = learn_block(state, backend, matrices, part, sent, settings, known)
        row += progress.rows
        # A block that was cut short has paid for products of rows that it did not learn: the
        # next is no longer than what was learned.
        length = min(2 * length, longest) if row == end else max(progress.rows, FIRST_ROWS)
        if progress.rows == 0:
            status = REFUSED
        elif known is not None:
            bounds.renew(known, np.flatnonzero(progress.changed))
            pays = cost_model.choose(D, state.n_components, progress.share).is_screened
            status = kernels.DONE if pays else TOO_DEAR
    matrices.release(state.n_components)
    return state, RunResult(row, status, 0)


def _equal_length(rows: int, most: int) -> int:
    """Rows in the first of the fewest blocks of at most `most` rows, all of about the same length."""
    return -(-rows // -(-rows // most))


def _bounds_of(state: State, upper: Array) -> Bounds:
    """Bounds for all components, centred where most of the rows have been."""
    K = state.n_components
    counts = state.counts[:K]
    return bounds.bounds_of(counts @ state.means[:K] / counts.sum(), state.means, upper, K)


def learn_in_covariance_form(state: State, x: Array, weight: float, settings: Settings) -> State:
    """Learn one row with covariances instead of precisions, in O(K D^3).

    For the rare row that would divide an eigenvalue of a precision by more than 1e8, and so cost it half of its
    digits. The covariance is made positive definite in relative terms before it is inverted.
    """
    mixture = mixture_of(state)
    # E-step, eq. 2 and 3 in log space: far from every component all densities underflow to zero.
    joint = log_joint(x[None], mixture)[0]
    posterior = np.exp(joint - joint.max())
    posterior *= weight / posterior.sum()
    covariances = mixture.covariances.copy()
    # M-step, eq. 6 to 9 with the corrected eq. 11. The printed coefficient is negative for w > 0.382; at zero
    # the covariance only shrinks by 1 - w and stays definite. A filled gap has no spread of its own: its
    # conditional covariance is added, as in EM.
    for j in np.flatnonzero(posterior > 0):
        w = float(kernels.gain(state.counts[j], posterior[j], settings.forgetting))
        c = max(float(kernels.spread_coefficient(w, settings.paper)), 0.0)
        e, gap_covariance = _deviation(x, state.means[j], covariances[j])
        covariances[j] = (1.0 - w) * covariances[j] + c * np.outer(e, e) + w * gap_covariance
        state.means[j] += w * e
    K = state.n_components
    counts = settings.forgetting * state.counts[:K] + posterior
    learned = from_components(counts, state.means[:K], covariances, state.ages[:K] + 1.0, capacity=len(state.counts))
    return learned._replace(n_rows=state.n_rows + 1)


def _deviation(x: Array, mean: Array, covariance: Array) -> tuple[Array, Array]:
    """x - mu with conditional means in the gaps, and the gaps' conditional covariance embedded in D x D."""
    e, extra = x - mean, np.zeros_like(covariance)
    missing = np.isnan(x)
    if missing.any():
        given, gaps = np.flatnonzero(~missing), np.flatnonzero(missing)
        # E[x_m - mu_m | x_o] = Sigma_mo Sigma_oo^-1 e_o.
        rule = regression(covariance, given, gaps)
        e[gaps] = rule.gain @ e[given]
        extra[np.ix_(gaps, gaps)] = rule.covariance
    return e, extra
