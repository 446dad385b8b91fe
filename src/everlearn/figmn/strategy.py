"""Ways to learn a run of rows, with the same answers: one by one or in blocks, all components or near ones only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.figmn import bounds as screen
from everlearn.figmn import shared_pattern as marginals
from everlearn.figmn.blocks import Rows, learn_block
from everlearn.figmn.bounds import Screen
from everlearn.figmn.cost_model import LARGE, Method, choose, leg, marginal_pays
from everlearn.figmn.kernels import diagonal as mixture_diagonal
from everlearn.figmn.kernels import rows as kernels
from everlearn.linalg import backend_float32 as single
from everlearn.linalg import parallel as threads
from everlearn.linalg.backend import HOST, Device
from everlearn.linalg.chunked import has_gaps

if TYPE_CHECKING:
    from everlearn.figmn.learn import MixtureState, Settings

Array = NDArray[np.float64]

# Fewer rows than this are learned one by one.
MIN_ROWS = 16
# Rows learned without a screen once it has been found not to pay; twice as many each time that it does not.
HOLD = 4096
# Rows of the first set of bounds, and at least of a block; the next are twice as long.
FIRST_ROWS = 16
# The first block has this share of the rows that a block may have.
FIRST_SHARE = 0.25
# Rows that share one set of bounds at most, when they are learned one by one.
NEAR_ROWS = 256
# Rows learned one by one after a row that no block could take.
CAREFUL = 16
# Why a run may end before its stop, beside the statuses of the kernels.
REFUSED = -1  # the next row is not one for a block
TOO_DEAR = -2  # the screen lets too many components through to pay


class Outlook(NamedTuple):
    """What is known of the rows to come.

    They have the same gaps, or none, in the stretches from `starts` to `stops`; blocks and screens may be tried from
    certain rows on, and if the screen fails to pay again it will not be tried for `hold` rows.
    """

    starts: NDArray[np.intp]
    stops: NDArray[np.intp]
    blocks_from: int
    near_from: int
    hold: int


class Outcome(NamedTuple):
    """How a run ended: the next row, why, and how many updates were skipped."""

    row: int
    status: int
    skipped: int


def learn_some(
    state: MixtureState, rows: Rows, row: int, stop: int, settings: Settings, thresholds: Array, device: Device,
    view: Outlook | None,
) -> tuple[MixtureState, Outcome, Outlook | None]:  # fmt: skip
    """Learn rows from `row` on, up to `stop` at most, in the way that promises to be the cheapest."""
    D, K = rows.X.shape[1], state.n_components
    if stop - row < MIN_ROWS or settings.paper or state.precisions.ndim == 2:
        return *learn_singly(state, rows, row, stop, settings, thresholds), view
    if choose(D, K) == Method.ROWS:
        return *learn_singly(state, rows, row, min(stop, row + leg(D, K)), settings, thresholds), view
    view = outlook(rows, row) if view is None else view
    method, stop = _method(view, rows, row, stop, K, device)
    if method == Method.ROWS:
        state, outcome = learn_singly(state, rows, row, stop, settings, thresholds)
    else:
        with threads.one_blas_thread():
            state, outcome = _learn_by(method, state, rows, row, stop, settings, thresholds, device)
    return state, outcome, _revised(view, outcome)


def _learn_by(
    method: Method, state: MixtureState, rows: Rows, row: int, stop: int, settings: Settings, thresholds: Array,
    device: Device,
) -> tuple[MixtureState, Outcome]:  # fmt: skip
    if method == Method.MARGINAL:
        return learn_in_marginal(state, rows, row, stop, settings, thresholds, device)
    if method == Method.NEAR_ROWS:
        return learn_near(state, rows, row, stop, settings, thresholds)
    return learn_in_blocks(state, rows, row, stop, settings, float(thresholds[rows.X.shape[1]]), device, method)


def outlook(rows: Rows, row: int) -> Outlook:
    """The stretches of rows with the same gaps that are long enough for a block."""
    n = len(rows.X)
    if not has_gaps(rows.X[row:]):
        return unbroken(row, n)
    gaps = np.isnan(rows.X[row:])
    changes = row + 1 + np.flatnonzero((gaps[1:] != gaps[:-1]).any(axis=1))
    ends = np.concatenate([[row], changes, [n]])
    long = np.diff(ends) >= MIN_ROWS
    return Outlook(ends[:-1][long], ends[1:][long], row, row, HOLD)


def unbroken(start: int, stop: int) -> Outlook:
    """The outlook on rows without gaps."""
    return Outlook(np.array([start]), np.array([stop]), start, start, HOLD)


def _method(view: Outlook, rows: Rows, row: int, stop: int, K: int, device: Device) -> tuple[Method, int]:
    """How to learn, and up to which row."""
    i = int(np.searchsorted(view.stops, row, side="right"))
    start = max(view.blocks_from, int(view.starts[i]) if i < len(view.starts) else stop)
    if row < start:
        return Method.ROWS, min(stop, start)
    stop, D = min(stop, int(view.stops[i])), rows.X.shape[1]
    observed = D - int(np.isnan(rows.X[row]).sum())
    if observed < D:
        pays = observed > 0 and marginal_pays(D, K, D - observed, stop - row)
        return Method.MARGINAL if pays else Method.ROWS, stop
    near = row >= view.near_from
    if device.screens and not near:
        stop = min(stop, view.near_from)
    near = near and device.screens
    return choose(D, K, None if near else 1.0, near=near), stop


def _revised(view: Outlook, outcome: Outcome) -> Outlook:
    if outcome.status == REFUSED:
        return view._replace(blocks_from=outcome.row + CAREFUL)
    if outcome.status == TOO_DEAR:
        return view._replace(near_from=outcome.row + view.hold, hold=2 * view.hold)
    return view


def learn_singly(
    state: MixtureState, rows: Rows, row: int, stop: int, settings: Settings, thresholds: Array
) -> tuple[MixtureState, Outcome]:
    """Learn one row at a time: any rows, any settings."""
    loops = mixture_diagonal if state.precisions.ndim == 2 else kernels
    after, K, status, skipped = loops.learn_rows(
        rows.X, rows.weights, row, stop, *state[:5], state.n_components,
        settings.centre, settings.initial_variance, thresholds, settings.paper, settings.forgetting,
        settings.min_age, settings.min_count, rows.log_density, rows.distance,
    )  # fmt: skip
    learned = type(state)(*state[:5], K, state.n_rows + after - row, state.compacted_at)  # quicker than _replace
    return learned, Outcome(after, status, skipped)


def learn_in_marginal(
    state: MixtureState, rows: Rows, row: int, stop: int, settings: Settings, thresholds: Array, device: Device
) -> tuple[MixtureState, Outcome]:
    """Learn rows with the same gaps as complete rows of a marginal; a row that needs more than that ends the run."""
    observed = np.flatnonzero(~np.isnan(rows.X[row]))
    part = marginals.marginal(state, observed)
    if part is None or not marginals.can_learn(part, settings):
        return learn_singly(state, rows, row, stop, settings, thresholds)
    seen = rows.part(row, stop)
    seen = seen._replace(X=np.ascontiguousarray(seen.X[:, observed]))
    narrow = marginals.marginal_settings(settings, thresholds, observed)
    learned, view, outcome = part.state, None, Outcome(0, kernels.DONE, 0)
    while outcome.row < len(seen.X) and outcome.status in (kernels.DONE, REFUSED, TOO_DEAR):
        learned, outcome, view = learn_some(
            learned, seen, outcome.row, len(seen.X), narrow, narrow.thresholds, device, view
        )
    status = REFUSED if outcome.status == kernels.FULL else outcome.status
    return marginals.absorbed(state, part, learned), Outcome(row + outcome.row, status, 0)


def learn_near(
    state: MixtureState, rows: Rows, row: int, stop: int, settings: Settings, thresholds: Array
) -> tuple[MixtureState, Outcome]:
    """Learn one row at a time, evaluating only components that may matter: complete rows, exact update."""
    bounds, length, status = _screen_of(state, state.precisions), FIRST_ROWS, kernels.DONE
    while row < stop and status == kernels.DONE:
        length = min(2 * length, NEAR_ROWS)
        K, end = state.n_components, min(stop, row + length)
        changed = np.zeros(len(state.counts), dtype=bool)
        after, n, status, evaluations = kernels.learn_near_rows(
            rows.X, rows.weights, row, end, *state[:5], K, settings.centre, settings.initial_variance, thresholds,
            settings.forgetting, settings.min_age, settings.min_count, rows.log_density, rows.distance,
            screen.lower_bounds(bounds, rows.X[row:end], K), changed,
        )  # fmt: skip
        changed[K:] = True
        screen.renew(bounds, np.flatnonzero(changed[:n]))
        share = evaluations / (K * max(after - row, 1))
        state, row = state._replace(n_components=n, n_rows=state.n_rows + after - row), after
        if status == kernels.DONE and not choose(rows.X.shape[1], n, share).is_near:
            status = TOO_DEAR
    return state, Outcome(row, status, 0)


def learn_in_blocks(
    state: MixtureState, rows: Rows, row: int, stop: int, settings: Settings, threshold: float, device: Device,
    method: Method,
) -> tuple[MixtureState, Outcome]:  # fmt: skip
    """Learn blocks of rows, with a screen or without: complete rows, exact update.

    Single precision is put on trial with a copy of the state. What a trial has learned counts if the components were
    sound before and are sound after it; else the rows are learned in double precision.
    """
    if not isinstance(device, single.SingleHost):
        return _learn_blocks(state, rows, row, stop, settings, threshold, device, method)
    D = rows.X.shape[1]
    many = method == Method.BLOCKS and D >= LARGE and stop - row >= single.MIN_TRIAL * D
    if many and single.is_sound(state):
        stop = min(stop, row + single.MAX_TRIAL * D)
        copy = state._replace(**{name: getattr(state, name).copy() for name in state._fields[:5]})
        learned, outcome = _learn_blocks(copy, rows, row, stop, settings, threshold, device, method)
        if single.is_sound(learned):
            return learned, outcome
    return _learn_blocks(state, rows, row, stop, settings, threshold, HOST, method)


def _learn_blocks(
    state: MixtureState, rows: Rows, row: int, stop: int, settings: Settings, threshold: float, device: Device,
    method: Method,
) -> tuple[MixtureState, Outcome]:  # fmt: skip
    D, matrices = rows.X.shape[1], device.adopt(state.precisions)
    bounds = _screen_of(state, device.upper(matrices)) if method.is_near else None
    start, on_device = row, device.rows(rows.X[row:stop])
    longest, status = device.block_rows(D, state.n_components, screened=method.is_near), kernels.DONE
    length = max(FIRST_ROWS, int(FIRST_SHARE * longest))
    while row < stop and status == kernels.DONE:
        end = row + _even(stop - row, length)
        part, sent = rows.part(row, end), on_device.part(row - start, end - start)
        state, progress = learn_block(state, device, matrices, part, sent, settings, threshold, bounds)
        row += progress.rows
        length = min(2 * length, longest) if row == end else max(progress.rows, FIRST_ROWS)
        if progress.rows == 0:
            status = REFUSED
        elif bounds is not None:
            screen.renew(bounds, np.flatnonzero(progress.changed))
            status = kernels.DONE if choose(D, state.n_components, progress.met).is_near else TOO_DEAR
    device.release(matrices, state.n_components)
    return state, Outcome(row, status, 0)


def _even(rows: int, most: int) -> int:
    """Rows in the first of so few blocks as `most` rows in each allow, which are about as long as each other."""
    return -(-rows // -(-rows // most))


def _screen_of(state: MixtureState, upper: Array) -> Screen:
    """A screen for all components, centred where most of the rows have been."""
    K = state.n_components
    counts = state.counts[:K]
    return screen.screen_of(counts @ state.means[:K] / counts.sum(), state.means, upper, K)
