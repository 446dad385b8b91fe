"""Scoring rows and learning those that are usual, one after the other."""

import math

import numpy as np

from everlearn.anomaly.kernels.density import along_factor, atypicality, complete_square, is_low_rank, standardise
from everlearn.anomaly.kernels.far import count_far, far_log_p
from everlearn.anomaly.kernels.memory import log_p_value, place, rank_log_p, remember
from everlearn.anomaly.kernels.past import (
    BEYOND_DOUBT,
    FLOOR,
    SETTLED,
    advance,
    has_scale,
    learn_usual,
    past_statistics,
    predictability,
    refresh_precision,
    surprise_of_repeat,
)
from everlearn.anomaly.kernels.sample import column_rarity, coordinate, distances_to_mass
from everlearn.anomaly.kernels.season import visit
from everlearn.linalg.compile import inlined, inner, kernel
from everlearn.linalg.dense import copy_vector
from everlearn.linalg.handle import hold, lent
from everlearn.linalg.uniforms import uniform

NEIGHBOURS = 2  # place of the distance to the nearest rows of the sample
FIRST_DEPARTURE = 5  # place of the first statistic of level, drift and activity
ALWAYS_REMEMBERED = 32  # stride from which a statistic is remembered whether the row is held back or not
LEAK = 0.1  # how much a usual row takes off the pressure of those that are held back
FAR = 3.0  # nats beyond the level of the guard from which a row is never learned as usual
# Rows held back whose scores are remembered, as a share of the level of the guard,
# a quarter of what the fit of a tail leaves out.
FAR_RATE = 0.1
# Where rows depend on those before, strange ones come in clumps, and the budget of those that are remembered must last
# for one.
MOST_SPARED = 20.0
MOST_WEIGHT = 300.0  # by which a heavy tail raises the weight of a view
MISFIT, LEAST_WEIGHT = 1.25, 1e-3  # heaviness of the mixture's tail from which it does not fit; its least weight
# Values from which a rank says something; weight of the neighbours from which they are sure of groups; heaviness of the
# mixture's tail up to which it may be exponential, and from which it is not, as told from the 60 values of 600.
FEWEST_RANKED, SURE_OF_GROUPS = 500, 10.0
EXPONENTIAL, DOUBTED = 0.75, 1.0
# Chance that rows which are held back will stay, when they are nearly a new normal; and the most of it as a share of
# the rate of false alarms: at any rate, half of it is a 20th of the rate, and hides next to no alarm.
NEW_NORMAL, MOST_OF_RATE = 1e-4, 0.1
# Law of the score with those of the rows before, worth so many rows: log-logistic, with the median and mean that scores
# have on the clean streams in time of benchmarks/anomaly.py, and the shape that it has there.
PRIOR_ROWS, MEDIAN_SCORE, MEAN_SCORE, PRIOR_SHAPE = 2000.0, 1.1, 1.34, 7.0
MOST_BUDGET = 3.0  # suspicious rows that may be learned one after the other: with more, a lasting fault begins so


@kernel
def unpack(task):
    """A handle on a task, for as many rows as there will be: to unpack its 80 arrays takes longer than a row."""
    return hold(task)


@inlined
def statistics_of(x, state, settings, scratch):
    """All statistics of a row, into scratch.statistics; NaN for those that cannot be told."""
    out = scratch.statistics
    out[:] = np.nan
    if state.clock.next_units[0] == 0:
        return
    out[0] = atypicality(x, state.density, scratch)
    out[1] = column_rarity(x, state.sample)
    if not np.isnan(out[1]):
        out[2], out[3] = distances_to_mass(x, state.sample, scratch)
    past_statistics(x, state.past, state.season, state.clock, settings.time_scales, scratch)


@inner
def heavy_tail_weight(heaviness, usual):
    """Factor of a statistic's weight where its tail is heavier than on Gaussian rows, 1 to 300.

    A statistic that sets some rows far apart from the bulk finds groups of them; one that does not, adds noise. Where
    a group is one row in fourteen, as on Shuttle, its p-values cannot be small, and at 100 the first rows of every
    other view stand before it.
    """
    if usual == 0.0 or heaviness <= usual:
        return 1.0
    ratio = heaviness / usual
    return min(ratio * ratio * ratio * ratio * ratio, MOST_WEIGHT)


@inner
def misfit_weight(heaviness):
    """Factor of the mixture's weight where it does not fit the rows, 1/1000 to 1.

    Its statistic is a -log p-value: where it fits, the tail is exponential and the heaviness 1 / (ln 10 - ln 2) = 0.62.
    From twice that on, rows lie thousands of nats out that are usual all the same, and other views know better.
    """
    return max(MISFIT / max(heaviness, MISFIT), LEAST_WEIGHT)


@inner
def groups_weight(memory, usual):
    """Factor of what mixture and columns say beyond their ranks where neighbours set groups far apart, 1/900 to 1.

    It is one up to ten times the usual weight of the neighbours, which broken correlations do not reach: of these the
    mixture alone knows. And it is one where the tail of the mixture is exponential, whatever the groups are.
    """
    weight = heavy_tail_weight(memory.heaviness[NEIGHBOURS], usual[NEIGHBOURS])
    doubt = min(max((memory.heaviness[0] - EXPONENTIAL) / (DOUBTED - EXPONENTIAL), 0.0), 1.0)
    return (SURE_OF_GROUPS / max(weight, SURE_OF_GROUPS)) ** (2.0 * doubt)


@inner
def as_it_fits(part, value, memory, i, gate, usual):
    """-log p-value of statistic i, of mixture or columns: `part`, or near the rank of `value` where its law is doubted.

    The law of the tail does not hold where the mixture does not fit. Usual rows that lie far out keep coming, and by
    that law they would stand before all that other views find: on Shuttle 72 rows have 8 nats and more, where 5 are
    expected. It stands while the memory is not full, as of few values the rank says little; for a value beyond all
    that are remembered, which never came; and where time decides. But where neighbours set groups far apart, neither
    tail says much even then: single readings of thousands of units that are usual were before all anomalies of Shuttle.
    """
    m = memory.size[i]
    if m < FEWEST_RANKED:
        return part
    groups, most = groups_weight(memory, usual) ** (1.0 - gate), memory.ordered[i, m - 1]
    # Beyond all that are remembered as if the tail were a Pareto law with shape 1, as far as it is believed.
    beyond = np.log(m + 1.0) + groups * np.log(value / most) if value > most > 0.0 else 0.0
    ranked = beyond if beyond > 0.0 else -rank_log_p(memory, i, value)
    if not part > ranked:
        return part
    factor = groups
    if i == 0 and m == memory.ring.shape[1] and value <= most:
        factor = min(factor, misfit_weight(memory.heaviness[0]) ** (1.0 - gate))
    return ranked + factor * (part - ranked)


@inner
def judge_tails(parts, statistics, memory, gate, settings):
    """`as_it_fits` of mixture and columns, in place."""
    for i in range(NEIGHBOURS):
        parts[i] = as_it_fits(parts[i], statistics[i], memory, i, gate, settings.usual_heaviness)


@inner
def combined_score(parts, heaviness, gate, settings, sums):
    """Log of a weighted mean of 1/p over the views: the harmonic mean of p-values, which cannot hide a small one.

    Within a view the statistics are averaged in the same way. The weights of views in time follow the gate; where
    the past says nothing, statistics with heavy tails weigh more, in their view and with it, and a mixture that does
    not fit weighs less.
    """
    sums[:] = 0.0
    sums[:, 2] = 1.0
    for i in range(parts.shape[0]):
        if parts[i] == parts[i]:
            v = settings.views[i]
            # Where the gate is open, time decides, and heavy tails in the other views count no more than usual.
            own = heavy_tail_weight(heaviness[i], settings.usual_heaviness[i]) ** (1.0 - gate)
            sums[v, 0] += own * np.exp(settings.sharpness * parts[i])
            sums[v, 1] += own
            sums[v, 2] = max(sums[v, 2], own)
    sums[settings.views[0], 2] = misfit_weight(heaviness[0]) ** (1.0 - gate)
    total, weight = 0.0, 0.0
    for v in range(sums.shape[0]):
        if sums[v, 1] > 0.0:
            w = settings.weights[v, 0] + gate * (settings.weights[v, 1] - settings.weights[v, 0])
            w *= sums[v, 2]
            total += w * sums[v, 0] / sums[v, 1]
            weight += w
    return np.log(total / weight) / settings.sharpness if weight > 0.0 else np.nan


@inner
def with_rows_before(score, gate, recent, settings):
    """Score of a row and of those before it: where time counts, strange rows follow each other."""
    return score + settings.persistence * gate * recent


@inner
def next_recent(recent, score, settings):
    """The exponential mean of the rows' scores with one more; a row without a score changes nothing."""
    if score != score:
        return recent
    # Clipped: one row far out is no fault that lasts.
    return recent + (min(max(score, 0.0), settings.most_persistent) - recent) / settings.persistence_rows


@inner
def lasting_share(value, gate, lasting, settings):
    """Share of the rows that are not suspicious whose score, with those before, is at least `value`; NaN while few.

    The posterior mean under a Dirichlet process: by rank alone a stream that has just begun, or a long fault that is
    among the rows remembered, would make strange stretches look usual. Scores are made of p-values, so that their law
    is much the same on all clean streams.
    """
    share, m = np.exp(log_p_value(lasting, 0, value)), lasting.size[0]
    median = MEDIAN_SCORE + settings.persistence * gate * MEAN_SCORE
    prior = 1.0 / (1.0 + (max(value, 0.0) / median) ** PRIOR_SHAPE)
    return (m * share + PRIOR_ROWS * prior) / (m + PRIOR_ROWS)


@inner
def log_p_if_it_may_stay(log_p, pressure, settings):
    """Log p-value of a suspicious row after others that are held back; others keep theirs.

    The chance that these will stay grows with the square of their share of `patience`; the row is then one of a new
    normal, of which the mean p-value is 1/2. A row that comes alone keeps its p-value, and nearly every row that
    is an alarm alone is one after others, too: a fault may begin while the rows of another one are held back.
    """
    if not log_p < np.log(settings.guard_level):
        return log_p
    share = min(pressure / settings.patience, 1.0)
    chance = min(NEW_NORMAL, MOST_OF_RATE * settings.false_alarm_rate) * share * share
    return np.log((1.0 - chance) * np.exp(log_p) + 0.5 * chance) if chance > 0.0 else log_p


@inner
def log_p_beside_others(log_p, score, gate, state, settings):
    """Log p-value of a row beside those before it, from that of its score alone.

    Far rows by the far rows before. Rows that are not suspicious, p >= q with q the level of the guard, by the share r
    of such rows whose score with the rows before is as high: q + (1 - q) r has the same uniform law, and where the
    stream has time it ranks the usual-looking rows of a lasting fault before others. Suspicious rows keep their
    p-value, and no row becomes suspicious by those before it: after a fault that is over it would be an alarm for
    dozens of rows, and on streams that wander a hundred times the alarms asked for (benchmarks/anomaly.py). While
    scores are too few for a rank, minus the score is told: the log of a harmonic mean of p-values, itself nearly one.
    """
    q = settings.guard_level
    if log_p != log_p:
        return -max(score, 0.0) if score == score else log_p
    if log_p < np.log(q):
        return far_log_p(state.far, log_p)
    value = with_rows_before(score, gate, state.recent[0], settings)
    share = lasting_share(value, gate, state.lasting, settings)
    if share != share:
        return log_p
    return log_p + gate * (np.log(q + (1.0 - q) * share) - log_p)


@inner
def tell_row(t, score, gate, state, settings, out):
    """Score and p-values of row t, into `out`; returns the log p-value of its score alone."""
    log_p = log_p_value(state.combined, 0, score)
    out.score[t] = score
    out.undiscounted[t] = log_p_beside_others(log_p, score, gate, state, settings)
    out.log_p[t] = log_p_if_it_may_stay(out.undiscounted[t], state.guard.pressure[0], settings)
    return log_p


@inner
def part_of(value, memory, i):
    """-log p-value of statistic i, which is `value`, among those remembered; NaN while they are few.

    The last statistic, the surprise of repeats, is itself a -log p-value: its tail has a scale of at least one nat.
    Where values hardly ever repeat nearly all of its values are zero, and a tail fitted to them has no scale: by it,
    two equal values of a sensor with four decimals were 300 nats (seed 602214 of benchmarks/pump.py).
    """
    part = -log_p_value(memory, i, value)
    if i == memory.size.shape[0] - 1 and value > memory.threshold[i]:
        most = value - memory.threshold[i] - memory.share[i]
        part = most if part > most else part  # not `min`: NaN stays
    if i < FIRST_DEPARTURE and part > 0.0:
        part = as_often_as_remembered(part, value, memory, i)
    return BEYOND_DOUBT if part > BEYOND_DOUBT else part


@inner
def as_often_as_remembered(part, value, memory, i):
    """-log p-value `part`, or less: by how many of the remembered values are as large, less two standard errors.

    The largest values do not count in the fit of a tail, as they may be anomalies. But a switch that one row in a
    hundred has on is usual: once its rows lay beyond the tail, all of them were held back, none was remembered any
    more, and each was an alarm. Rows that were held back are not among the values: they stay as strange as they are.
    """
    m = memory.size[i]
    c = m - place(memory.ordered[i], m, value)
    least = c - 2.0 * np.sqrt(c)
    return min(part, np.log(m / least)) if least > 0.0 else part


@inner
def as_usual_as_others(parts, statistics, among):
    """-log p-values of the first statistics, or less: by the rows of the sample that are as strange; in place.

    The memory holds what statistics were when their rows came. Where a stream has a cycle or regimes, the sample's
    share of each changes, and with it what the present model says of rows that are usual all the same: it may be beyond
    all that are remembered, and yet what it says of a third of the sample. With c of S rows as strange the p-value is
    c / S, less three standard errors: the statistics of rows that the model has learned are those without them to first
    order only, and of few rows in many columns too large (with two, docs/tutorials/first_alarm.md loses two alarms).
    """
    for i in range(among.size.shape[0]):
        size = among.size[i]
        c = size - place(among.ordered[i], size, statistics[i])
        least = c - 3.0 * np.sqrt(c)
        if least > 0.0 and parts[i] == parts[i]:
            parts[i] = min(parts[i], np.log(size / least))


@inlined
def score_row(x, state, settings, scratch):
    """Combined score of a row as the next of the stream, and how much time counts; parts go into the scratch."""
    statistics_of(x, state, settings, scratch)
    for i in range(scratch.parts.shape[0]):
        scratch.parts[i] = part_of(scratch.statistics[i], state.memory, i)
    gate = predictability(state.past, state.clock)
    judge_tails(scratch.parts, scratch.statistics, state.memory, gate, settings)
    as_usual_as_others(scratch.parts, scratch.statistics, state.among)
    return combined_score(scratch.parts, state.memory.heaviness, gate, settings, scratch.sums), gate


@inner
def surprise_of_z(z):
    """-log of the probability that a standard Gaussian is farther from 0 than z."""
    z = abs(z)
    # erfc underflows to zero beyond 38 standard deviations; from 30 on its asymptotic form goes on.
    if z < 30.0:
        return -np.log(math.erfc(z / np.sqrt(2.0)))
    return 0.5 * z * z + np.log(z) + 0.5 * np.log(0.5 * np.pi)


@inner
def column_departure(scratch, past, i, j, T):
    """Squared z-value of column j in statistic i of level, drift or activity."""
    if not has_scale(past, j):
        return 0.0
    kind, k = i // T, i % T
    value = scratch.means[kind, k, j]
    if kind == 0:
        return (value - past.level_moments[0, k, j]) ** 2 / max(past.level_moments[1, k, j], 1e-4)
    if kind == 1:
        return (value - past.drift_moments[0, k, j]) ** 2 / max(past.drift_moments[1, k, j], 1e-4)
    moments = past.own_moments if kind == 2 else past.joint_moments
    return (np.log(value + FLOOR) - moments[0, k, j]) ** 2 / max(moments[1, k, j], 1e-4)


@kernel
def low_rank_given_others(density, k, scratch):
    """z-value of each column of the row in scratch.z given all others under component k, into scratch.given_others.

    It is (P e)_j / sqrt(P_jj) with the precision P = psi^-1 - B'B of a low-rank component; returns the P_jj.
    """
    D, out, e = scratch.z.shape[0], scratch.given_others, scratch.e
    complete_square(density, k, scratch.z, e)
    diagonal = density.factors[k, 0].copy()
    for j in range(D):
        out[j] = e[j] * diagonal[j]
    for q in range(density.precisions.shape[1]):
        row, v = density.factors[k, 1 + q], along_factor(density, k, q, e)
        for j in range(D):
            out[j] -= row[j] * v
            diagonal[j] -= row[j] * row[j]
    for j in range(D):
        diagonal[j] = max(diagonal[j], 1e-300)
        out[j] /= np.sqrt(diagonal[j])
    return diagonal


@kernel
def surprise_given_others(x, density, scratch):
    """-log of the two-sided p-value of each observed column given the other ones, under the mixture.

    Given the others, a column is a mixture of Gaussians with the z-values (P e)_j / sqrt(P_jj), P the precision of the
    observed columns, and the weights that the other columns leave: the column's own factor is taken out of the joint
    density, otherwise a value far out would choose the component that likes it best. Nothing is told of rows with gaps
    under low-rank components, whose matrices of hundreds of columns are not made.
    """
    D, K, out = x.shape[0], density.heights.shape[0], np.zeros(x.shape[0])
    m = standardise(x, density, scratch)
    if K == 0 or m == 0:
        return out
    low_rank = is_low_rank(density)
    if low_rank and m < D:
        return out
    seen, e, room = scratch.places[:m], scratch.e, 0 if low_rank else m
    log_w, z, P = np.empty((K, m)), np.empty((K, m)), np.empty((room, room))
    for k in range(K):
        if low_rank:
            diagonal = low_rank_given_others(density, k, scratch)
            z[k] = scratch.given_others
            log_w[k] = scratch.joint[k] + 0.5 * (z[k] ** 2 - np.log(diagonal))
            continue
        for i in range(m):
            e[i] = scratch.z[seen[i]] - density.means[k, seen[i]]
            for j in range(m):
                # Of a row with gaps the covariance of what is observed, inverted below.
                P[i, j] = density.precisions[k, i, j] if m == D else density.covariances[k, seen[i], seen[j]]
        if m < D:
            P = np.linalg.inv(P)
        for i in range(m):
            y = 0.0
            for j in range(m):
                y += P[i, j] * e[j]
            z[k, i] = y / np.sqrt(P[i, i])
        # Weight times density of all columns is known from `atypicality`.
        log_w[k] = scratch.joint[k] + 0.5 * (z[k] ** 2 - np.log(np.diag(P)))
    for i in range(m):
        top, total, part = log_w[:, i].max(), 0.0, -np.inf
        for k in range(K):
            total += np.exp(log_w[k, i] - top)
            part = np.logaddexp(part, log_w[k, i] - top - surprise_of_z(z[k, i]))
        out[seen[i]] = np.log(total) - part
    return out


@kernel
def blame_columns(x, state, scratch):
    """How strange each column is, in nats, into scratch.blame: to be called after `score_row`.

    The largest of: given the other columns, given its own past and the errors of the others, its departures in level
    and activity, and how long it has kept its value. A gap is blamed for nothing.
    """
    D, T, past = x.shape[0], scratch.means.shape[1], state.past
    given_others = surprise_given_others(x, state.density, scratch)
    for j in range(D):
        scratch.blame[j] = 0.0
        if np.isnan(x[j]):
            continue
        most = given_others[j]
        if state.clock.predicted[0] > SETTLED:
            most = max(most, surprise_of_z(scratch.joint_residual[j]))
            # By its own law, not by its rank: of values that were never repeated a run has no rank.
            most = max(most, surprise_of_repeat(x, past, j))
        for i in range(4 * T):
            part = -log_p_value(state.memory, FIRST_DEPARTURE + i, column_departure(scratch, past, i, j, T))
            most = max(most, part) if part == part else most
        scratch.blame[j] = most


@inner
def ask_rows(X, handle, out):
    """Score each row as if it were the next of the stream; nothing is learned. `handle` is of a `Task`."""
    state, settings, scratch = lent(handle)
    for t in range(len(X)):
        score, gate = score_row(X[t], state, settings, scratch)
        tell_row(t, score, gate, state, settings, out)
        copy_vector(scratch.parts, out.parts[t])


@inner
def blame_rows(X, handle, out):
    """How strange each column of each row is, in nats, into `out` (n, D); nothing is learned."""
    state, settings, scratch = lent(handle)
    for t in range(len(X)):
        score_row(X[t], state, settings, scratch)
        blame_columns(X[t], state, scratch)
        copy_vector(scratch.blame, out[t])


@inner
def sample_row(x, sample, learned, seed):
    """Offer a learned row to the uniform sample, in place (reservoir sampling)."""
    S = sample.rows.shape[0]
    # Algorithm R: row n + 1 takes a random place among n + 1, and is kept if that place is in the sample.
    slot = learned if learned < S else int(uniform(seed, learned) * (learned + 1))
    if slot >= S:
        return
    sample.size[0] = max(sample.size[0], slot + 1)
    copy_vector(x, sample.rows[slot])
    for j in range(x.shape[0]):
        sample.coordinates[j, slot] = coordinate(x[j], sample, j)


@inner
def learn_row(x, state, settings, scratch):
    """Take a row as usual: sample, regression, moments, season, and the rows that the mixture will learn; in place."""
    clock, pending = state.clock, state.pending
    sample_row(x, state.sample, clock.learned[0], settings.seed)
    if clock.next_units[0] > 0:
        learn_usual(x, state.past, clock, scratch)
        if clock.period[0] > 0:
            visit(state.season, clock.rows[0] % clock.period[0], scratch.trusted)
        clock.predicted[0] += 1
        if clock.predicted[0] >= clock.next_inverse[0]:
            refresh_precision(state.past, clock.predicted[0])
            clock.next_inverse[0] = clock.predicted[0] + max(1, min(clock.predicted[0] // 20, 50))
    copy_vector(x, pending.rows[pending.size[0]])
    pending.size[0] += 1
    clock.learned[0] += 1


@inner
def remember_row(score, statistics, state, settings, held):
    """Remember score and statistics of a row, slow ones every few rows only: what lasts says the same again.

    Of rows that are held back only the slowest statistics are remembered: usual excursions of these last so long that
    leaving them out would cut their tails.
    """
    for i in range(statistics.shape[0]):
        stride = settings.strides[i]
        if held and stride < ALWAYS_REMEMBERED:
            continue
        if statistics[i] == statistics[i] and state.clock.rows[0] % stride == 0:
            remember(state.memory, i, statistics[i])
    if not held and score == score:
        remember(state.combined, 0, score)


@inner
def is_held(log_p, state, settings):
    """Whether a row is held back.

    Rows just beyond the level, at the rate that usual rows have, are learned all the same: holding all of them back
    would cut the tails of what is usual, so that more and more rows would seem strange.
    """
    guard = state.guard
    guard.budget[0] = min(guard.budget[0] + 2.0 * settings.guard_level, MOST_BUDGET)
    if settings.learning == 2 or not log_p < np.log(settings.guard_level):
        return False
    if guard.budget[0] >= 1.0 and log_p > np.log(settings.guard_level) - FAR:
        guard.budget[0] -= 1.0
        return False
    return True


@inner
def any_observed(x):
    """Whether a row has any value."""
    for j in range(x.shape[0]):
        if x[j] == x[j]:
            return True
    return False


@inner
def hold_row(x, state, scratch):
    """Keep a suspicious row and its statistics, in the place of the oldest; in place."""
    guard = state.guard
    # A ring: of a long fault the latest rows are what would become the new normal.
    slot = guard.held[0] % guard.rows.shape[0]
    copy_vector(x, guard.rows[slot])
    copy_vector(scratch.statistics, guard.statistics[slot])
    guard.numbers[slot] = state.clock.rows[0]
    guard.held[0] += 1
    guard.pressure[0] += 1.0


@inner
def learn_rows(X, handle, out):
    """Score and learn rows until the mixture or the units are due, or held rows are a new normal; returns how many."""
    state, settings, scratch = lent(handle)
    clock, guard = state.clock, state.guard
    # Rows until something outside of this loop is to be done; the caller does it between two calls.
    due = min(clock.next_sample[0] - clock.learned[0], state.pending.rows.shape[0] - state.pending.size[0])
    for t in range(len(X)):
        x = X[t]
        # Everything about the row is told before anything learns it.
        score, gate = score_row(x, state, settings, scratch)
        log_p = tell_row(t, score, gate, state, settings, out)
        copy_vector(scratch.parts, out.parts[t])
        if out.log_p[t] < np.log(settings.false_alarm_rate):
            blame_columns(x, state, scratch)
            out.blamed[t] = np.argmax(scratch.blame)
        observed = any_observed(x)
        asleep = settings.learning == 0
        held = asleep or (clock.learned[0] >= settings.grace and is_held(log_p, state, settings))
        out.held[t] = held
        if observed and not asleep:
            # In heavy tails some usual rows lie far out. Their scores are remembered at the rate that such rows have,
            # although the rows are held back: otherwise the tails would be cut and alarms too many.
            spared = held and guard.budget[1] >= 1.0
            guard.budget[1] = min(guard.budget[1] + FAR_RATE * settings.guard_level, MOST_SPARED) - spared
            remember_row(score, scratch.statistics, state, settings, held and not spared)
            if score == score and not log_p < np.log(settings.guard_level):
                remember(state.lasting, 0, with_rows_before(score, gate, state.recent[0], settings))
            if clock.learned[0] >= settings.grace:
                count_far(state.far, log_p, guard.pressure[0])
        if held and not asleep:
            hold_row(x, state, scratch)
        elif observed and not asleep:
            learn_row(x, state, settings, scratch)
            guard.pressure[0] = max(guard.pressure[0] - LEAK, 0.0)
            due -= 1
        # Histories move on with rows that are held back, too: the next row still comes after this one.
        if observed:
            state.recent[0] = next_recent(state.recent[0], score, settings)
        if clock.next_units[0] > 0:
            advance(x, state.past, state.season, clock, scratch)
        copy_vector(x, state.season.ring[clock.rows[0] % state.season.ring.shape[0]])
        clock.rows[0] += 1
        if due == 0 or guard.pressure[0] >= settings.patience or clock.rows[0] == clock.next_period[0]:
            return t + 1
    return len(X)


@inner
def replay(X, handle):
    """Let the past learn rows anew after a change of its units; in place."""
    state, settings, scratch = lent(handle)
    for t in range(len(X)):
        past_statistics(X[t], state.past, state.season, state.clock, settings.time_scales, scratch)
        learn_usual(X[t], state.past, state.clock, scratch)
        advance(X[t], state.past, state.season, state.clock, scratch)
        state.clock.predicted[0] += 1
        if state.clock.predicted[0] >= state.clock.next_inverse[0]:
            refresh_precision(state.past, state.clock.predicted[0])
            state.clock.next_inverse[0] = state.clock.predicted[0] + max(1, min(state.clock.predicted[0] // 20, 50))
