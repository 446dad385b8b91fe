"""Page and Hinkley's test: its twin, and what it must and must not signal."""

import numpy as np
import pytest
import scipy.signal
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.errors import InputError
from everlearn.monitoring import page_hinkley as change
from everlearn.monitoring.page_hinkley import ChangeState, PageHinkley


@given(
    seed=st.integers(0, 10**6),
    jump=st.sampled_from([0.0, -1.0, -3.0]),
    drift=st.sampled_from([0.0, 0.25, 0.5]),
    denominator=st.sampled_from([[1.0], [1.0, -0.6], [1.0, 0.4], [1.0, -0.5, -0.3]]),
)
def test_equals_its_twin(seed, jump, drift, denominator):
    rng = np.random.default_rng(seed)
    values = scipy.signal.lfilter([1.0], denominator, rng.standard_t(3, size=250))
    values[100:] += jump
    detector = PageHinkley(drift=drift, threshold=3.0, min_rows=20, limit=3.0)
    _, fired = change.detect(detector, ChangeState(), values)
    assert list(np.flatnonzero(fired)) == naive.page_hinkley(values, drift, 3.0, 20, 3.0)


@pytest.mark.parametrize("seed", range(3))
def test_equals_its_twin_where_all_stages_and_the_local_variance_are_in_use(seed):
    """A moving average whose spread changes slowly, long enough for both to be estimated."""
    rng = np.random.default_rng(seed)
    spread = np.exp(0.8 * scipy.signal.lfilter([0.3], [1.0, -0.95], rng.normal(size=900)))
    values = scipy.signal.lfilter([1.0, 0.9], [1.0], rng.normal(size=900) * spread)
    values[800:] -= 3.0
    state, _ = change.detect(PageHinkley(), ChangeState(), values[:800])
    assert state.order > 2.0
    assert state.recent_cross**2 > 12.0 * state.recent_square * state.excess / state.n
    _, fired = change.detect(PageHinkley(threshold=5.0), ChangeState(), values)
    assert fired.any()
    assert list(np.flatnonzero(fired)) == naive.page_hinkley(values, 0.5, 5.0, 30, 2.5)


HARD = {
    "moving average": lambda rng, n: scipy.signal.lfilter([1.0, 0.6], [1.0], rng.normal(size=n)),
    "slow and noise": lambda rng, n: scipy.signal.lfilter([0.6], [1.0, -0.7], rng.normal(size=n)) + rng.normal(size=n),
    "volatile": lambda rng, n: (
        rng.normal(size=n) * np.exp(scipy.signal.lfilter([0.06], [1.0, -0.97], rng.normal(size=n)))
    ),
    "log-densities of slow rows": lambda rng, n: (
        -0.5 * (scipy.signal.lfilter([1.0], [1.0, -0.5], rng.normal(size=(6, n))) ** 2).sum(axis=0)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HARD)
def test_streams_that_one_coefficient_does_not_whiten_signal_about_as_seldom(name):
    """With two coefficients and one variance it was about two to three times in 10,000 rows."""
    n_streams, signals = 60, 0
    for seed in range(n_streams):
        values = HARD[name](np.random.default_rng(seed), 10_000)
        signals += change.detect(PageHinkley(), ChangeState(), values)[1].sum()
    assert signals <= 1.5 * n_streams


@given(cut=st.integers(0, 300))
def test_any_split_gives_the_same_signals(cut):
    values = np.random.default_rng(1).normal(size=300)
    values[150:] -= 2.0
    detector = PageHinkley()
    whole, fired = change.detect(detector, ChangeState(), values)
    state, first = change.detect(detector, ChangeState(), values[:cut])
    state, second = change.detect(detector, state, values[cut:])
    assert state == whole
    np.testing.assert_array_equal(np.concatenate([first, second]), fired)


def test_one_by_one_equals_a_batch():
    values = np.random.default_rng(2).normal(size=120)
    values[60:] -= 3.0
    state, one_by_one = ChangeState(), []
    for value in values:
        state, fired = change.step(PageHinkley(), state, value)
        one_by_one.append(fired)
    whole, batch = change.detect(PageHinkley(), ChangeState(), values)
    assert state == whole
    np.testing.assert_array_equal(one_by_one, batch)


SCORES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "two columns": lambda rng, n: -rng.exponential(size=n),
    "eight columns": lambda rng, n: -0.5 * rng.chisquare(8, size=n),
    "heavy tails": lambda rng, n: -2.0 * np.log1p(rng.standard_t(3, size=n) ** 2 / 3.0),
}


@pytest.mark.parametrize("name", SCORES)
def test_a_stationary_stream_signals_at_most_once_in_ten_thousand_rows(name):
    n_streams, signals = 40, 0
    for seed in range(n_streams):
        values = SCORES[name](np.random.default_rng(seed), 10_000)
        _, fired = change.detect(PageHinkley(), ChangeState(), values)
        signals += fired.sum()
    assert signals <= n_streams


@pytest.mark.parametrize("correlation", [0.3, 0.6])
def test_values_that_depend_on_those_before_signal_no_more_often(correlation):
    """Page's test with the same threshold signals 5 and 30 times in 10,000 rows of those correlated by 0.3 and 0.6."""
    n_streams, signals = 100, 0
    for seed in range(n_streams):
        noise = np.random.default_rng(seed).normal(size=10_000)
        values = scipy.signal.lfilter([1.0], [1.0, -correlation], noise)
        signals += change.detect(PageHinkley(), ChangeState(), values)[1].sum()
    assert signals <= n_streams


@pytest.mark.parametrize(("correlation", "river"), [(0.0, 13.5), (0.3, 23.5), (0.6, 45.5)])
def test_a_drop_by_one_standard_deviation_is_found_about_as_soon_as_by_a_test_that_is_told(correlation, river):
    """River's Page-Hinkley test with the variance, tolerance and threshold for the stream: benchmarks/changes.py."""
    delays = []
    for seed in range(400):
        noise = np.random.default_rng(seed).normal(size=1700)
        values = scipy.signal.lfilter([np.sqrt(1.0 - correlation**2)], [1.0, -correlation], noise)[200:]
        values[1000:] -= 1.0
        fired = change.detect(PageHinkley(), ChangeState(), values)[1]
        if not fired[900:1000].any():
            delays.append(np.argmax(fired[1000:]) if fired[1000:].any() else 500)
    # Less a tenth for what is not told, and two standard errors.
    assert np.mean(delays) <= 1.1 * river + 2.0 * np.std(delays) / np.sqrt(len(delays))


def test_the_state_of_an_earlier_file_starts_again():
    for n in (7, 19):
        np.testing.assert_array_equal(change.current_memory(np.ones(n)), np.array(ChangeState()))
    now = np.arange(float(len(ChangeState._fields)))
    assert change.current_memory(now) is now


def test_a_drop_does_not_count_as_dependence():
    """Values that dropped resemble each other: that must not raise the threshold which they are to cross."""
    values = np.random.default_rng(0).normal(size=400)
    values[200:] -= 1.0
    _, fired = change.detect(PageHinkley(), ChangeState(), values)
    assert 200 <= np.flatnonzero(fired)[0] <= 240


@pytest.mark.parametrize("outliers", [0, 1])
@pytest.mark.parametrize("name", SCORES)
def test_a_drop_by_one_standard_deviation_is_found_in_time_whatever_the_burn_in_saw(name, outliers):
    """An extreme score among the first thirty must not widen the scale by which later drops are measured."""
    delays = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        values = SCORES[name](rng, 1500)
        values[1000:] -= np.std(values[:1000])
        values[rng.integers(30, size=outliers)] = -1e6
        _, fired = change.detect(PageHinkley(), ChangeState(), values)
        rows = np.flatnonzero(fired[1000:])
        delays.append(rows[0] if len(rows) else 500)
    assert np.median(delays) <= 20  # river's best detector at that rate: benchmarks/changes.py
    assert np.quantile(delays, 0.9) <= 40


def test_the_statistic_of_a_signal_is_the_drop_that_crossed_the_threshold():
    values = np.random.default_rng(4).normal(size=300)
    values[200:] -= 3.0
    _, drops = change.statistics(PageHinkley(), ChangeState(), values)
    signals = drops[drops > 0.0]
    assert len(signals) == 1
    # A martingale: the ratio that signals is about the rows between false signals, here of 12,800 and in the beginning.
    assert np.log(12_800) - 1.0 < signals[0] <= np.log(12_800) + 2.5


def test_a_rise_and_a_single_outlier_are_no_change():
    values = np.random.default_rng(3).normal(size=400)
    values[200] = -1e6
    values[300:] += 3.0
    _, fired = change.detect(PageHinkley(), ChangeState(), values)
    assert not fired.any()


@pytest.mark.parametrize("seed", range(5, 13))
def test_an_outlier_that_signals_does_not_hide_what_comes_later(seed):
    """Outliers are taken for a change; the real one afterwards must be found as soon as without them."""
    values = np.random.default_rng(seed).normal(size=600)
    state, _ = change.detect(PageHinkley(), ChangeState(), values[:200])
    n_outliers, fired = 0, False
    while not fired:
        n_outliers += 1
        state, fired = change.step(PageHinkley(), state, -5000.0)
        assert n_outliers <= 12
    assert n_outliers >= 5
    values[400:] -= 3.0
    _, fired = change.detect(PageHinkley(), state, values[200:])
    assert not fired[:200].any()
    assert fired[200:220].any()


def test_constant_values_are_no_change_until_they_drop():
    values = np.concatenate([np.ones(100), -np.ones(100)])
    _, fired = change.detect(PageHinkley(), ChangeState(), values)
    assert not fired[:100].any()


@pytest.mark.parametrize(
    "bad", [{"drift": -1.0}, {"threshold": 0.0}, {"min_rows": 4}, {"limit": np.inf}, {"threshold": np.nan}]
)
def test_numbers_out_of_range_are_refused_by_name(bad):
    with pytest.raises(InputError, match="detector needs drift"):
        change.check(PageHinkley(**bad), "detector")


def test_a_machine_with_regimes_does_not_make_it_deaf():
    """Log-densities that are lower in one regime than in the other, 150 rows each, and then lower still."""
    rng = np.random.default_rng(0)
    values = np.where(np.arange(4000) // 150 % 2, 0.0, -4.0) + rng.normal(size=4000)
    values[3000:] = -12.0 + rng.normal(size=1000)
    fired = np.flatnonzero(change.detect(PageHinkley(), ChangeState(), values)[1])
    later = fired[fired >= 3000]
    assert len(later)
    assert later[0] < 3030
