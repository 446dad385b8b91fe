"""The structure search: EM with split and merge moves on a sample of rows, judged leave-one-out.

Every function that works for long is a generator: it yields between slices of work, so that the rows of a stream need
not wait for a whole search, and returns its result at last.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import numpy as np

from everlearn.mixture.keep import moves
from everlearn.mixture.keep.em import (
    FIRST_TAU,
    MOST_TAU,
    MOST_TAU_TOGETHER,
    Slices,
    Soft,
    expect,
    first_tau,
    fitted,
    has_few_rows,
    judged,
    least_tau,
    most_tau,
    shaped,
)
from everlearn.mixture.keep.evidence import Fit
from everlearn.mixture.keep.problem import Problem
from everlearn.mixture.keep.world import ridge_of
from everlearn.mixture.kernels import fitting as kernels
from everlearn.mixture.kernels.em import Moments
from everlearn.mixture.kernels.near import inherit
from everlearn.mixture.state import Array, Shape

# Rows of prior shape that are tried.
TAUS = tuple(MOST_TAU_TOGETHER / 2.0**p for p in range(15, -1, -1))
# The same for a single component, finer: a factor of two of tau is one of four in what the correlations lose.
TAUS_OF_ONE = tuple(MOST_TAU / 2.0 ** (0.5 * p) for p in range(20, -25, -1))
# Factors of the ridge on smooth columns that are tried, and the gain in nats a row that a smaller one must bring.
FINE = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5)
FINE_GAIN = 0.002
# EM steps after a split, after a merge, on all rows at last.
SPLIT_STEPS, MERGE_STEPS, FINAL_STEPS = 12, 6, 16
# A move that loses this share of a component's price, by the rows that it touches, is not tried: EM with all rows may
# gain that much, hardly more.
HOPE = 0.5
# A move must gain so many nats, and a round of moves so many, to go on.
MOVE_GAIN, ROUND_GAIN, ROUNDS = 0.2, 0.5, 8
# A component is as it was if its count, and its mean in standard deviations, changed by less than this share.
UNCHANGED = 0.02
# k-means++ seeds of a start, at most.
CROWD = 48
# Seeds of one more start where rows a column are so few that the others have at most FEW.
MORE, FEW = 8, 3
# Such starts, at most, and the rows and numbers that they may have together, if not one; samples of fewer rows than
# the last have one.
CROWDS, CROWDED_ROWS, CROWDED_NUMBERS, CROWDS_FROM = 2, 2000, 24_000, 64
# A search ends its rounds after so many multiplications.
BUDGET = 2e9


def search(problem: Problem, start: Array | None, shape: Shape | None, *, crowd: bool, credit: float = 0.0) -> Slices:
    """Best fit from responsibilities `start` (or from one component) and, with `crowd`, from k-means++ seeds.

    A crowd of seeds, which moves then merge, avoids most local optima; with few rows, where a search costs little,
    several crowds do. What comes from `start` has `credit`, in nats of value, over what comes from seeds.
    """
    m, D = problem.rows.Z.shape
    tau = FIRST_TAU if shape is None else shape.tau
    fixed = problem.settings.fixed
    if fixed:
        return (yield from _search_fixed(problem, start, tau))
    start = np.ones((m, 1)) if start is None else start
    climbs = [(yield from _begun(problem, start, tau))]
    # Also where the start has more components than there are seeds: on the wall robot's readings, sorted, leaving the
    # second start out then costs 3 nats a row (benchmarks/mixture_quality.py).
    if crowd:
        # Twice the components that the next round would come to if it adds as large a share as the first.
        size = climbs[0].fit.size
        most = 2 * size * max(size, start.shape[1]) // start.shape[1] + 6
        K = int(np.clip(m // (4 * D + 8), 2, min(CROWD, most, problem.settings.most)))
        tau = first_tau(problem, K) if K <= MORE else FIRST_TAU
        affordable = min(CROWDS, CROWDED_ROWS // m, CROWDED_NUMBERS // (m * D)) if m >= CROWDS_FROM else 1
        for _ in range(max(1, affordable)):
            climbs.append((yield from _begun(problem, (yield from _seeded(problem, K)), tau)))
        more = min(MORE, m // D, most, problem.settings.most)
        if K <= FEW and K < more and m >= CROWDS_FROM and has_few_rows(problem, more):
            climbs.append((yield from _begun(problem, (yield from _seeded(problem, more)), first_tau(problem, more))))
    credits = [credit] + [0.0] * (len(climbs) - 1)
    # The best so far goes on first, to the end: most of the others then cannot come near it any more.
    ranked = sorted(zip(climbs, credits, strict=True), key=lambda each: -(each[0].fit.value + each[1]))
    best, most = ranked[0][0].fit, -np.inf
    for climb, own in ranked:
        fit = yield from _climbed(problem, climb, most - own)
        if fit.value + own > most:
            best, most = fit, fit.value + own
    return best


def polish(problem: Problem, fit: Fit) -> Slices:
    """EM from a fit until it converges, and the merges that it then asks for."""
    R = np.zeros((len(problem.rows.Z), fit.size))
    yield from expect(problem.rows, fit.moments, fit.shape, R)
    moments = kernels.moments_of(problem.rows, R)
    yield
    final = yield from fitted(problem, R, FINAL_STEPS, shaped(problem, moments, fit.shape.tau))
    final = yield from _tuned(problem, final)
    return final if problem.settings.fixed else (yield from _try_merges(problem, final, moves.SLACK))


def choose_fine(problem: Problem, fit: Fit, fine: float) -> Generator[None, None, float]:
    """Ridge of the smooth columns by leave-one-out likelihood; columns with ties keep theirs."""
    world = problem.world
    if not world.smooth.any():
        return fine
    best, top = fine, -np.inf
    # The present ridge comes first: another one must gain FINE_GAIN over it to be taken.
    for f in sorted(FINE, key=lambda f: f != fine):
        shape = fit.shape._replace(ridge=ridge_of(world.variance, world.smooth, f))
        value = (yield from judged(problem, Soft(fit.R, fit.near, fit.moments), shape)).log_density
        if value > top + FINE_GAIN * problem.rows.weights.sum():
            best, top = f, value
    return best


def _tuned(problem: Problem, fit: Fit) -> Slices:
    """The weight of the common shape that leaves rows out best, given R: uphill on a grid.

    Of a single component it says how far the correlations are shrunk (`evidence.kept_correlations`).
    """
    D, least, best = problem.varying, least_tau(problem, fit.size), fit
    soft = Soft(fit.R, fit.near, fit.moments)
    if fit.size == 1:
        grid = [tau for tau in TAUS_OF_ONE if tau <= most_tau(problem, 1)]
        if fit.shape.tau < least:
            other = yield from judged(problem, soft, shaped(problem, fit.moments, least))
            best = other if other.value > best.value else best
    else:
        most = min(max(4.0, 4.0 * D, 2.0 * least, D * D), most_tau(problem, fit.size))
        grid = [tau for tau in TAUS if least <= tau <= most]
    at = int(np.argmin([abs(np.log(tau / best.shape.tau)) for tau in grid]))
    before = best
    for direction in (1, -1):
        i = at + direction
        while 0 <= i < len(grid):
            shape = fit.shape._replace(tau=grid[i]) if fit.size > 1 else shaped(problem, fit.moments, grid[i])
            other = yield from judged(problem, soft, shape)
            if other.value <= best.value:
                break
            best = other
            i += direction
        if best is not before:
            break
    return best


# -- moves ------------------------------------------------------------------------------------------


class Climb(NamedTuple):
    """A fit on its way uphill, by rounds of splits and merges."""

    fit: Fit
    gain: float  # of the last round
    rounds: int
    work: float  # multiplications of the rounds
    seen: Seen


def _begun(problem: Problem, R: Array, tau: float) -> Generator[None, None, Climb]:
    """EM from R, and a first round."""
    moments = kernels.moments_of(problem.rows, R)
    fit = yield from fitted(problem, R, SPLIT_STEPS, shaped(problem, moments, tau))
    fit = yield from _tuned(problem, fit)
    return (yield from _round(problem, Climb(fit, np.inf, 0, 0.0, Seen([], [], []))))


def _climbed(problem: Problem, climb: Climb, least: float) -> Slices:
    """The fit after rounds until they gain little, or will not come to the value `least`.

    Gains halve from one round to the next, about: those to come add up to the last one.
    """
    while (
        climb.gain >= ROUND_GAIN
        and climb.fit.value + climb.gain >= least
        and climb.work <= BUDGET
        and climb.rounds < ROUNDS
    ):
        climb = yield from _round(problem, climb)
    return climb.fit


def _round(problem: Problem, climb: Climb) -> Generator[None, None, Climb]:
    """Merges, then splits: of a crowd of seeds, those that are left are looked at for splits."""
    fit, _, rounds, work, seen = climb
    m, D = problem.rows.Z.shape
    fit = yield from _try_merges(problem, fit)
    fit = yield from _try_splits(problem, fit, seen)
    fit = yield from _tuned(problem, fit)
    # Multiplications, not seconds: a search has the same result on any machine. Of a row and the components near it
    # only, where steps of EM leave out the others.
    shares = m * fit.size if fit.near is None else int(fit.near.bounds[-1])
    work += 2.0 * SPLIT_STEPS * shares * D * D
    return Climb(fit, fit.value - climb.fit.value, rounds + 1, work, seen)


class Seen(NamedTuple):
    """Components for which splits were looked for, and what was found: while they stay as they were, it is so still."""

    counts: list[float]
    means: list[Array]
    splits: list[moves.Split | None]

    def place(self, moments: Moments, k: int) -> int:
        """Number of component k, or -1: its count and mean changed by hardly more than EM's last steps."""
        # EM may leave a component without rows (0/0): it has no spread, and is unchanged only where its mean is.
        spread = np.sqrt(moments.scatters[k].diagonal() / max(moments.counts[k], 1e-300)) + 1e-300
        counts = np.array(self.counts)
        like = np.flatnonzero(np.abs(counts - moments.counts[k]) < UNCHANGED * counts)
        if not len(like):
            return -1
        moved = np.abs(np.array([self.means[i] for i in like]) - moments.means[k])
        same = like[(moved < UNCHANGED * spread).all(axis=1)]
        return int(same[0]) if len(same) else -1

    def add(self, moments: Moments, k: int, split: moves.Split | None) -> None:
        """Remember component k."""
        self.counts.append(float(moments.counts[k]))
        self.means.append(moments.means[k].copy())
        self.splits.append(split)


def _find_splits(problem: Problem, fit: Fit, seen: Seen) -> Generator[None, None, dict[int, moves.Split]]:
    """Splits of components that may gain value, by the component; where nothing changed, those of the round before.

    What the rows of a component say of its split is what EM with all rows makes of it where that had converged; else
    EM gains more: a split is hopeful that loses less than HOPE of the price.
    """
    found: dict[int, moves.Split] = {}
    for k in range(fit.size):
        place = seen.place(fit.moments, k)
        if place < 0:
            split = yield from moves.propose_split(problem, fit, k)
            # Of a single component its own shape says little of the split: that is the shape of the whole.
            hopeful = split is not None and (fit.size == 1 or split.value > -HOPE * problem.price)
            seen.add(fit.moments, k, split if hopeful else None)
        known = seen.splits[place]
        if known is not None:
            found[k] = known
    return found


def _try_splits(problem: Problem, fit: Fit, seen: Seen) -> Slices:
    """All splits at once that gain by the rows of their component; else the better half of them; else the best."""
    splits = yield from _find_splits(problem, fit, seen)
    order = sorted(splits, key=lambda k: (-splits[k].value, k))[: max(0, problem.settings.most - fit.size)]
    good = [k for k in order if splits[k].value > 0.0]
    for chosen in _fewer(good or order[:1]):
        R = moves.split_responsibilities(fit, {k: splits[k] for k in chosen})
        near = inherit(fit.near, moves.parents_of_halves(fit.size, chosen))
        if fit.size == 1:
            trial = yield from _tuned(problem, (yield from _fitted_anew(problem, R)))
        else:
            trial = yield from fitted(problem, R, SPLIT_STEPS, fit.shape, fit.value, near)
        if trial.value > fit.value + MOVE_GAIN:
            return trial
    # The last one that was tried is the best, by itself: not to be tried again.
    for k in order[:1]:
        seen.splits[seen.place(fit.moments, k)] = None
    return fit


def _fitted_anew(problem: Problem, R: Array) -> Slices:
    """EM with a shape of its own: that of one component is no shape for two, nor the other way round."""
    moments = kernels.moments_of(problem.rows, R)
    tau = first_tau(problem, len(moments.counts))
    return (yield from fitted(problem, R, SPLIT_STEPS, shaped(problem, moments, tau)))


def _try_merges(problem: Problem, fit: Fit, slack: float = 0.0) -> Slices:
    """Disjoint pairs whose merging gains evidence (or loses less than `slack`) and, by their rows, value: all at once.

    Else the better half of them, else the best; leave-one-out likelihood of all rows decides. Up to three times.
    """
    for _ in range(3):
        if fit.size < 2:
            return fit
        values = yield from _hopeful_merges(problem, fit, slack)
        order = sorted(values, key=lambda pair: -values[pair])
        good = [pair for pair in order if values[pair] > 0.0]
        before = fit
        for chosen in _fewer(good or order[:1]):
            R = moves.merge_responsibilities(fit, chosen)
            near = inherit(fit.near, moves.parents_of_unions(fit.size, chosen))
            if R.shape[1] == 1:
                trial = yield from _tuned(problem, (yield from _fitted_anew(problem, R)))
            else:
                trial = yield from fitted(problem, R, MERGE_STEPS, fit.shape, fit.value, near)
            if trial.value >= fit.value:
                fit = trial
                break
        if fit is before:
            return fit
    return fit


def _hopeful_merges(problem: Problem, fit: Fit, slack: float) -> Generator[None, None, dict[tuple[int, int], float]]:
    """Disjoint pairs that may gain, and what they gain by their rows: the best by evidence; with few rows, by value.

    With few rows a column the common shape counts for many, in the evidence for two at most: that prefers wrong pairs.
    """
    gains = moves.merge_gains(problem, fit) + slack
    yield
    few = fit.size <= MORE and has_few_rows(problem, fit.size)
    values = {}
    for pair in [(int(i), int(j)) for i, j in np.argwhere(gains > 0.0)] if few else _best_pairs(gains):
        values[pair] = moves.merge_value(problem, fit, pair)
        gains[pair] = values[pair] + HOPE * problem.price
        yield
    return {pair: values[pair] for pair in (_best_pairs(gains) if few else values) if gains[pair] > 0.0}


def _fewer(ordered: list[Any]) -> Iterator[list[Any]]:
    """All moves, the better half of them, the best; each if that is not the same as before."""
    for n in sorted({len(ordered), len(ordered) // 2, min(len(ordered), 1)} - {0}, reverse=True):
        yield ordered[:n]


def _best_pairs(gains: Array) -> list[tuple[int, int]]:
    """Disjoint pairs of positive gain, best first, at most a third of the components."""
    K = len(gains)
    pairs: list[tuple[int, int]] = []
    used: set[int] = set()
    for flat in np.argsort(-gains, axis=None, kind="stable"):
        i, j = divmod(int(flat), K)
        if gains[i, j] <= 0.0 or len(pairs) >= max(1, K // 3):
            break
        if not used & {i, j}:
            used |= {i, j}
            pairs.append((i, j))
    return pairs


def _seeded(problem: Problem, K: int) -> Generator[None, None, Array]:
    """Responsibilities of k-means++ seeds: most of a row goes to the nearest."""
    scale = np.sqrt(np.diag(problem.world.typical) + problem.ridge)
    Z, weights, rng = problem.rows.Z / scale, problem.rows.weights, problem.rng
    nearest, seeds = np.full(len(Z), np.inf), np.zeros(len(Z), dtype=np.intp)
    for k in range(K):
        p = nearest * weights if k else weights
        p = p if p.sum() > 0.0 else weights
        at = rng.choice(len(Z), p=p / p.sum())
        distance = ((Z - Z[at]) ** 2).sum(axis=1)
        seeds[distance < nearest] = k
        nearest = np.minimum(nearest, distance)
        yield
    # Soft shares: EM cannot move a row whose responsibility is zero.
    R = np.full((len(Z), K), 0.1 / K)
    R[np.arange(len(Z)), seeds] += 0.9
    return R


# -- a given number of components -------------------------------------------------------------------


def _search_fixed(problem: Problem, start: Array | None, tau: float) -> Slices:
    """Best fit with exactly the number of components asked for: from `start`, and from three sets of seeds."""
    K = min(problem.settings.fixed, len(problem.rows.Z))
    starts = [start] if start is not None and start.shape[1] == K else []
    if K == 1:  # which has one start
        starts = [np.ones((len(problem.rows.Z), 1))]
    else:
        for _ in range(3):
            starts.append((yield from _seeded(problem, K)))
    best = None
    for R in starts:
        moments = kernels.moments_of(problem.rows, R)
        fit = yield from fitted(problem, R, 3 * SPLIT_STEPS, shaped(problem, moments, tau))
        best = fit if best is None or fit.value > best.value else best
    assert best is not None
    return (yield from _tuned(problem, best))
