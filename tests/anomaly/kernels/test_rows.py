"""Scores of rows, and which of them are learned, held back or remembered."""

import numpy as np
import pytest
from scipy.stats import kstest, norm

from detectors import SETTINGS, frozen_density, low_rank_density, prepared_state, state_with_sample, task_of
from everlearn.anomaly.kernels.density import atypicality
from everlearn.anomaly.kernels.memory import log_p_value, remember
from everlearn.anomaly.kernels.rows import (
    as_it_fits,
    as_usual_as_others,
    ask_rows,
    blame_rows,
    combined_score,
    judge_tails,
    learn_rows,
    log_p_beside_others,
    log_p_if_it_may_stay,
    part_of,
    sample_row,
    surprise_given_others,
    surprise_of_z,
)  # fmt: skip
from everlearn.anomaly.learn import init, no_info, scratch_for
from everlearn.anomaly.merge import _copied
from everlearn.anomaly.state import STATIC, VIEWS, Among
from everlearn.linalg.compile import kernel
from naive import anomaly as naive


@kernel
def score_of_parts(parts, heaviness, gate, settings, sums):
    return combined_score(parts, heaviness, gate, settings, sums)


@kernel
def fitting(part, value, memory, i, gate, usual):
    return as_it_fits(part, value, memory, i, gate, usual)


@kernel
def surprise(z):
    return surprise_of_z(z)


def arrays_of(value):
    return [leaf for part in value for leaf in arrays_of(part)] if isinstance(value, tuple) else [value]


def assert_unchanged(state, before):
    for array, copy in zip(arrays_of(state), arrays_of(before), strict=True):
        np.testing.assert_array_equal(array, copy)


def test_the_combined_score_is_a_mean_of_inverse_p_values():
    rng = np.random.default_rng(0)
    V, sums = len(SETTINGS.views), np.zeros((len(VIEWS), 3))
    for gate in (0.0, 0.4, 1.0):
        parts, heaviness = rng.exponential(2.0, size=V), rng.exponential(1.0, size=V)
        parts[rng.random(V) < 0.3] = np.nan
        found = score_of_parts(parts, heaviness, gate, SETTINGS, sums)
        assert found == pytest.approx(naive.combined_score(parts, heaviness, gate, SETTINGS))
    # Statistics that agree are told as they are, whatever the weights; where none is told, there is no score.
    assert score_of_parts(np.full(V, 3.7), heaviness, 0.4, SETTINGS, sums) == pytest.approx(3.7)
    assert np.isnan(score_of_parts(np.full(V, np.nan), heaviness, 0.4, SETTINGS, sums))


@pytest.mark.parametrize("heaviness", [(0.6, 0.5), (2.0, 0.5), (50.0, 0.7), (0.8, 0.9), (0.6, 1.5), (3.0, 1.2)])
@pytest.mark.parametrize("gate", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("i", [0, 1])
def test_the_tails_of_mixture_and_columns_are_believed_as_far_as_they_fit(i, heaviness, gate):
    """A line between the tail's nats and those of the rank, for memories of any size, as neighbours and misfit move it.

    What lies beyond all remembered values keeps the tail's nats, but where neighbours set groups far apart.
    """
    memory, usual = init(2, SETTINGS).memory, SETTINGS.usual_heaviness
    M = memory.ring.shape[1]
    remembered = np.random.default_rng(9).exponential(2.0, size=M)
    sure, misfits = heaviness[0] > 0.75 and heaviness[1] > 0.8, i == 0 and heaviness[0] > 1.25
    at = 0
    for n in (499, 500, M - 1, M):
        for value in remembered[at:n]:
            remember(memory, i, value)
        memory.heaviness[[0, 2]], at = heaviness, n
        largest = remembered[:n].max()
        for value, part in ((1.0, 0.4), (largest - 0.5, 25.0), (largest, 30.0), (largest + 0.1, 31.0), (80.0, 40.0)):
            found = fitting(part, value, memory, i, gate, usual)
            twin = naive.as_it_fits(part, value, remembered[:n], n == M and i == 0, heaviness, gate)
            assert found == pytest.approx(twin, abs=2e-2)
            full = n == M and misfits and value <= largest
            assert (found == part) == (value == 1.0 or gate == 1.0 or n < 500 or not (sure or full))
    assert np.isnan(fitting(np.nan, np.nan, memory, i, gate, usual))


@kernel
def judged(parts, statistics, memory, gate, settings):
    judge_tails(parts, statistics, memory, gate, settings)


def test_single_far_readings_count_by_rank_beside_groups_that_keep_coming():
    """Of mixture and columns; what neighbours say of groups, and what time says, stays."""
    memory, rng = init(2, SETTINGS).memory, np.random.default_rng(3)
    for value in rng.exponential(size=1000):
        for i in range(3):
            remember(memory, i, value)
    parts, statistics = np.full(len(SETTINGS.views), 40.0), np.full(len(SETTINGS.views), 90.0)
    memory.heaviness[[0, 2]] = 20.0, 1.5
    judged(parts, statistics, memory, 0.0, SETTINGS)
    assert (parts[:2] < np.log(1001.0) + 1.0).all()
    assert (parts[2:] == 40.0).all()


@kernel
def among_others(parts, statistics, among):
    as_usual_as_others(parts, statistics, among)


def test_what_a_share_of_the_sample_is_as_strange_as_is_no_stranger_than_that_share():
    rng = np.random.default_rng(12)
    sampled = [rng.exponential(size=n) for n in (400, 60, 3, 0)]
    among = Among(np.zeros((STATIC, 400)), np.array([len(values) for values in sampled]))
    for ordered, values in zip(among.ordered, sampled, strict=True):
        ordered[: len(values)] = np.sort(values)
    for value in (0.0, 0.7, 2.0, 20.0):
        parts = np.array([14.0, 0.5, 14.0, 14.0, 9.0])
        expected = [naive.as_usual_as_others(part, value, v) for part, v in zip(parts, sampled, strict=False)]
        among_others(parts, np.full(5, value), among)
        np.testing.assert_allclose(parts, [*expected, 9.0])
    assert expected == [14.0, 0.5, 14.0, 14.0]  # beyond the sample nothing is taken off
    gap = np.full(5, np.nan)
    among_others(gap, np.full(5, np.nan), among)
    assert np.isnan(gap).all()


def told_of_rows_before(recent, gate, log_p=-1.2, score=0.8):
    """The log p-value that is told of a row after rows with the mean score `recent`, and the twin's."""
    state = init(2, SETTINGS)
    remembered = np.random.default_rng(8).exponential(4.0, size=500)
    for value in remembered:
        remember(state.lasting, 0, value)
    state.recent[0] = recent
    total = score + SETTINGS.persistence * gate * recent
    twin = naive.log_p_with_rows_before(log_p, total, remembered, gate, SETTINGS)
    return log_p_beside_others(log_p, score, gate, state, SETTINGS), twin


def test_rows_after_strange_ones_are_stranger_but_never_suspicious():
    for recent, gate in ((0.2, 1.0), (1.0, 0.6), (1.5, 1.0)):  # below the tail, as the twin wants it
        assert np.subtract(*told_of_rows_before(recent, gate)) == pytest.approx(0.0, abs=5e-3)
    told = [told_of_rows_before(recent, 1.0)[0] for recent in (0.0, 1.0, 5.0, 1000.0)]
    assert (np.diff(told) < 0.0).all()
    assert told[-1] >= np.log(SETTINGS.guard_level)
    # Where time counts for nothing, and of a suspicious row, the p-value is that of the row alone.
    assert told_of_rows_before(5.0, 0.0)[0] == pytest.approx(-1.2)
    for log_p in (-4.7, -9.0):
        alone, after = (told_of_rows_before(recent, 1.0, log_p)[0] for recent in (0.0, 5.0))
        assert after == alone < np.log(SETTINGS.guard_level)


def test_without_rows_remembered_the_p_value_is_that_of_the_row_alone():
    assert log_p_beside_others(-1.2, 0.8, 1.0, init(2, SETTINGS), SETTINGS) == -1.2


def test_while_scores_are_too_few_for_a_rank_the_mean_of_p_values_is_told():
    state = init(2, SETTINGS)
    assert log_p_beside_others(np.nan, 3.5, 1.0, state, SETTINGS) == -3.5
    assert log_p_beside_others(np.nan, -0.1, 1.0, state, SETTINGS) == 0.0
    assert np.isnan(log_p_beside_others(np.nan, np.nan, 1.0, state, SETTINGS))


def test_the_longer_suspicious_rows_last_the_more_they_may_be_a_new_normal():
    settings, log_p = SETTINGS._replace(false_alarm_rate=1e-3), np.array([-12.0, -60.0, -500.0])
    shares = np.array([0.0, 0.1, 0.5, 1.0, 2.0])
    told = np.array([[log_p_if_it_may_stay(p, s * settings.patience, settings) for p in log_p] for s in shares])
    chance = 1e-4 * np.minimum(shares, 1.0)[:, None] ** 2
    np.testing.assert_allclose(np.exp(told), (1.0 - chance) * np.exp(log_p) + 0.5 * chance, rtol=1e-10)
    np.testing.assert_array_equal(told[0], log_p)
    # No alarm at one in 10,000 is lost to it, and of two rows the stranger one stays so.
    assert np.max(told) < np.log(1e-4)
    assert (np.diff(told) <= 0.0).all()
    # Rows that are not suspicious are not discounted.
    usual = np.log(settings.guard_level) + 0.1
    assert log_p_if_it_may_stay(usual, settings.patience, settings) == usual


@pytest.mark.parametrize("rate", [1e-3, 1e-5, 1e-7])
def test_the_chance_that_rows_stay_hides_no_row_that_is_clearly_an_alarm_at_any_rate(rate):
    settings = SETTINGS._replace(false_alarm_rate=rate)
    assert log_p_if_it_may_stay(np.log(0.9 * rate), settings.patience, settings) < np.log(rate)


def test_the_discounted_p_value_and_the_other_are_both_told():
    rng = np.random.default_rng(3)
    state, X = prepared_state(rng), rows_and_faults(rng)[:1]
    state.clock.learned[0], state.guard.pressure[0] = 200, 0.5 * SETTINGS.patience
    info = no_info(1)
    ask_rows(X, task_of(state)[1], info)
    assert info.undiscounted[0] < info.log_p[0]
    assert info.log_p[0] == log_p_if_it_may_stay(info.undiscounted[0], state.guard.pressure[0], SETTINGS)


def test_a_value_that_comes_twice_is_no_stranger_than_such_repeats_are_rare():
    """Nearly all surprises of repeats are zero: a tail fitted to them has no scale, and told 300 nats."""
    state = init(2, SETTINGS)
    last = len(SETTINGS.views) - 1
    for t in range(1500):
        for i in (0, last):
            remember(state.memory, i, 5.0 if t % 400 == 399 else 0.0)
    for surprise_of_run in (0.3, 5.0, 7.5, 200.0, 1e4):
        # One of ten rows lies beyond the top tenth, and the excess over it is exponential with scale one.
        by_its_law = surprise_of_run - np.log(150.5 / 1501)
        assert part_of(surprise_of_run, state.memory, last) == pytest.approx(min(by_its_law, 300.0), abs=5e-3)
    # The other statistics are no p-values, and values that have a rank keep it.
    assert part_of(7.5, state.memory, 0) == 300.0
    assert part_of(0.0, state.memory, last) == -log_p_value(state.memory, last, 0.0)
    # So does a tail that is heavier than that.
    for value in np.random.default_rng(9).exponential(4.0, size=2000):
        remember(state.memory, last, value)
    assert part_of(40.0, state.memory, last) == -log_p_value(state.memory, last, 40.0) < 15.0
    assert np.isnan(part_of(7.5, init(2, SETTINGS).memory, last))


def test_what_is_remembered_often_is_no_rarer_than_that():
    lowered = []
    for often in (3, 5, 8, 20):
        state, values = init(2, SETTINGS), np.random.default_rng(often).exponential(0.5, size=2000)
        values[:: 2000 // often] = 9.0
        for value in values:
            for i in (0, 4, 5):
                remember(state.memory, i, value)
        for value in (0.2, 2.0, 9.0, 9.5):
            by_the_tail = -log_p_value(state.memory, 4, value)
            for i in (0, 4):
                expected = naive.as_often_as_remembered(by_the_tail, value, values)
                assert part_of(value, state.memory, i) == pytest.approx(expected, rel=1e-9)
            lowered.append(by_the_tail - expected)
            # Means over many rows have few independent values, so that their share says little.
            assert part_of(value, state.memory, 5) == pytest.approx(-log_p_value(state.memory, 5, value), rel=1e-9)
    # Eight equal values, the largest of the top tenth, are what the fit of the tail leaves out.
    assert max(lowered) > 2.0


def test_a_mixture_that_does_not_fit_weighs_less_but_hides_no_small_p_value():
    V, sums = len(SETTINGS.views), np.zeros((len(VIEWS), 3))
    parts, heaviness = np.full(V, 1.0), np.full(V, 0.4)
    parts[0], scores = 18.0, []
    for heaviness[0] in (0.62, 1.2, 12.5, 1e6, 1e21):
        scores.append(score_of_parts(parts, heaviness, 0.0, SETTINGS, sums))
    assert scores[0] == scores[1] > scores[2] > scores[3] == scores[4] > 9.0
    # Where time counts, nothing changes.
    heaviness[0] = 0.62
    fitting = score_of_parts(parts, heaviness, 1.0, SETTINGS, sums)
    heaviness[0] = 1e6
    assert score_of_parts(parts, heaviness, 1.0, SETTINGS, sums) == fitting


def test_the_surprise_of_a_z_value_agrees_with_scipy_also_beyond_the_range_of_numbers():
    for z in (0.0, -1.0, 5.0, 29.9, -30.1, 40.0, 1e3):
        assert surprise(z) == pytest.approx(-np.log(2.0) - norm.logsf(abs(z)), rel=2e-5, abs=1e-12)


def test_the_sample_is_uniform_and_in_asinh_units():
    """Of 4,000 rows 1,200 stay, and each row is as likely to be among them."""
    state = state_with_sample(np.random.default_rng(1).normal(size=(60, 1)))
    sample = state.sample
    with np.errstate(over="ignore"):  # NumPy warns of the products modulo 2^64 of the hash, where nothing is compiled
        for number in range(4000):
            sample_row(np.array([(number + 0.5) / 4000]), sample, number, 7)
    kept = sample.rows[:, 0]
    assert len(np.unique(kept)) == 1200
    assert kstest(kept, "uniform").pvalue > 0.01
    np.testing.assert_allclose(np.sinh(sample.coordinates[0]) * sample.units.scale[0] + sample.units.centre[0], kept)


def test_asking_changes_nothing_and_blames_the_column_that_was_moved():
    rng = np.random.default_rng(2)
    state = prepared_state(rng)
    before, X = _copied(state), np.zeros((3, 3))
    X[1, 2], X[2, 0] = 40.0, np.nan
    info, blame = no_info(3), np.zeros((3, 3))
    _, handle = task_of(state)
    ask_rows(X, handle, info)
    blame_rows(X, handle, blame)
    assert_unchanged(state, before)
    assert info.score[1] > info.score[0] + 2.0
    assert info.log_p[1] < info.log_p[0]
    assert blame[1].argmax() == 2
    assert blame[2, 0] == 0.0


def test_the_surprise_of_a_column_given_the_others_is_that_of_the_partitioned_mixture():
    """Rows with gaps by what they have; a value far out does not choose its own component."""
    rng = np.random.default_rng(5)
    density, mixture = frozen_density(rng)
    scratch = scratch_for(init(4, SETTINGS)._replace(density=density))
    for i in range(6):
        x = 3 * rng.normal(size=4)
        x[i % 4] = np.nan if i > 2 else x[i % 4]
        atypicality(x, density, scratch)  # weights times densities of the components
        np.testing.assert_allclose(
            surprise_given_others(x, density, scratch), naive.surprise_given_others(x, *mixture), rtol=1e-5
        )


def test_a_column_that_keeps_its_value_is_blamed():
    """The other column departs as well, by three standard deviations."""
    rng = np.random.default_rng(6)
    state = prepared_state(rng, D=2)
    _, handle = task_of(state)
    stuck, blame = np.array([[0.0, 0.7]]), np.zeros((1, 2))
    state.past.last[:], state.past.repeats[:] = [0.5, 0.7], [0, 9]
    stuck[0, 0] = 3.0
    blame_rows(stuck, handle, blame)
    assert blame[0].argmax() == 1


def rows_and_faults(rng, n=40):
    """Rows near zero, every fifth of them far out."""
    X = 0.1 * rng.normal(size=(n, 3))
    X[::5, 1] += 50.0
    return X


def test_strange_rows_are_held_back_and_the_others_learned():
    rng = np.random.default_rng(3)
    state, X = prepared_state(rng), rows_and_faults(rng)
    state.clock.learned[0] = 200
    info = no_info(len(X))
    assert learn_rows(X, task_of(state)[1], info) == 40
    held = np.flatnonzero(info.held)
    assert set(held) >= set(range(0, 40, 5))
    assert (info.blamed[::5] == 1).all()
    assert state.guard.held[0] == len(held)
    np.testing.assert_array_equal(state.guard.rows[: len(held)], X[held])
    np.testing.assert_array_equal(state.guard.numbers[: len(held)], held)
    np.testing.assert_array_equal(state.pending.rows[: state.pending.size[0]], X[~info.held])
    assert state.clock.learned[0] == 200 + (~info.held).sum()
    np.testing.assert_array_equal(state.season.ring[:40], X)


def test_every_split_of_the_rows_gives_the_same_state():
    rng = np.random.default_rng(4)
    whole, X = prepared_state(rng), rows_and_faults(rng)
    whole.clock.learned[0] = 200
    parts = _copied(whole)
    learn_rows(X, task_of(whole)[1], no_info(40))
    handle = task_of(parts)[1]
    for start, stop in ((0, 1), (1, 17), (17, 40)):
        learn_rows(X[start:stop], handle, no_info(stop - start))
    assert_unchanged(parts, whole)


@pytest.mark.parametrize(("learning", "held"), [(0, 40), (2, 0)], ids=["never", "always"])
def test_never_holds_every_row_back_and_always_none(learning, held):
    rng = np.random.default_rng(5)
    state, X, info = prepared_state(rng), rows_and_faults(rng), no_info(40)
    state.clock.learned[0] = 200
    memory = _copied(state.memory)
    learn_rows(X, task_of(state, SETTINGS._replace(learning=learning))[1], info)
    assert info.held.sum() == held
    assert state.guard.held[0] == 0
    assert state.pending.size[0] == 40 - held
    if learning == 0:
        assert_unchanged(state.memory, memory)


def test_the_loop_returns_when_something_is_due():
    """After 10 rows the sample, after `patience` held rows a new normal."""
    rng = np.random.default_rng(6)
    state = prepared_state(rng)
    state.clock.learned[0], state.clock.next_sample[0] = 200, 210
    assert learn_rows(0.1 * rng.normal(size=(40, 3)), task_of(state)[1], no_info(40)) >= 10
    assert state.clock.learned[0] == 210
    state = prepared_state(rng)
    state.clock.learned[0] = 200
    far = np.full((100, 3), 80.0) + rng.normal(size=(100, 3))
    assert learn_rows(far, task_of(state)[1], no_info(100)) == SETTINGS.patience


def test_columns_are_blamed_alike_by_factors_and_by_their_matrices():
    rng = np.random.default_rng(9)
    state, X = prepared_state(rng), rng.normal(size=(5, 3))
    found = []
    for density in low_rank_density(rng, D=3, Q=1):
        blame = np.zeros((5, 3))
        blame_rows(X, task_of(state._replace(density=density))[1], blame)
        found.append(blame)
    np.testing.assert_allclose(*found, rtol=1e-6)
