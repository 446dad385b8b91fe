"""The demonstration stream is what it says, and a model can be told from the truth by its report."""

import numpy as np
import pytest

from everlearn.errors import InputError
from everlearn.streams.demo import COLUMNS, FAULTS, REGIMES, DemoBatch, demo_stream
from everlearn.streams.demo_report import DemoReport
from everlearn.streams.monitor import Foresight, Monitor


def whole(*arguments, **options):
    batches = list(demo_stream(*arguments, **options))
    return DemoBatch(*(np.concatenate(field) for field in zip(*batches, strict=True)))


@pytest.fixture(scope="module")
def stream():
    return whole(8000)


def test_length_and_shape():
    sizes = [len(batch.X) for batch in demo_stream(1234, batch_rows=500)]
    assert sizes == [500, 500, 234]
    assert whole(1234).X.shape == (1234, len(COLUMNS))


def test_the_seed_is_all():
    for a, b in zip(whole(2000, seed=3), whole(2000, seed=3), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(whole(2000, seed=3).complete, whole(2000, seed=4).complete)


def test_batches_do_not_matter():
    for a, b in zip(whole(2000, batch_rows=7), whole(2000, batch_rows=1999), strict=True):
        np.testing.assert_array_equal(a, b)


def test_gaps_hide_the_truth_and_nothing_else(stream):
    gaps = np.isnan(stream.X)
    assert 0.01 < gaps.mean() < 0.05
    assert np.isfinite(stream.complete).all()
    np.testing.assert_array_equal(stream.X[~gaps], stream.complete[~gaps])


def test_wear_is_new_in_the_last_third(stream):
    worn = stream.regime == REGIMES.index("worn")
    assert not worn[:5600].any()
    assert worn[5600:].sum() > 200
    assert set(stream.regime[:5600]) == {0, 1, 2}


def test_physics(stream):
    """Power is speed times torque unless the belt slips; vibration shows wear."""
    rpm, torque, power, current, _, vibration = stream.complete.T
    slips = stream.fault == FAULTS.index("belt slips")
    ratio = power / (rpm * torque * 2 * np.pi / 60_000)
    assert np.abs(ratio[~slips] - 1).max() < 0.1
    assert ratio[slips].max() < 0.75
    assert np.abs(current - 1 - 1.6 * power)[stream.fault == 0].max() < 1
    healthy = stream.fault == 0
    worn = stream.regime == REGIMES.index("worn")
    assert vibration[worn & healthy].min() > vibration[(stream.regime == 1) & healthy].max()


def test_each_value_of_a_slipping_belt_is_usual(stream):
    slips, healthy = stream.fault == FAULTS.index("belt slips"), stream.fault == 0
    assert slips.sum() > 5
    assert (stream.complete[slips] <= stream.complete[healthy].max(axis=0)).all()


@pytest.mark.parametrize("option", ["n_rows", "batch_rows"])
def test_sizes_are_positive(option):
    with pytest.raises(InputError, match=f"{option} must be at least 1; got 0"):
        next(demo_stream(**{option: 0}))


# -- the report ------------------------------------------------------------------------------------


class Truthful:
    """A mixture of one component that knows the mean and covariance of the complete rows."""

    def __init__(self, rows):
        self.weights_, self.means_ = np.ones(1), rows.mean(axis=0)[None]
        self.covariances_ = np.cov(rows.T)[None]


def reported(alarm):
    report = DemoReport()
    for batch in demo_stream(8000, batch_rows=250):
        novel = alarm(batch)
        report.add(batch, Foresight(-batch.regime.astype(float), novel))
    return report


def test_perfect_alarms(stream):
    report = reported(lambda batch: batch.fault > 0)
    rows = np.bincount(stream.fault[1000:], minlength=len(FAULTS))
    assert [(fault.n_rows, fault.n_found) for fault in report.faults()] == [(n, n) for n in rows[1:]]
    assert sum(report.other_alarms()) == 0


def test_constant_alarms(stream):
    """Alarms without a fault add up to the rows without one, and each has its reason."""
    other = reported(lambda batch: np.ones(len(batch.X), dtype=bool)).other_alarms()
    assert sum(other) == (stream.fault[1000:] == 0).sum()
    worn = stream.regime == REGIMES.index("worn")
    assert 250 < other.new_regime <= 300 * len(REGIMES)
    assert other.after_switch > 25 * 30
    assert worn.any()


def test_regimes_are_described(stream):
    results = reported(lambda batch: batch.fault > 0).regimes()
    for r, result in enumerate(results):
        rows = np.flatnonzero(stream.regime == r)
        assert (result.n_rows, result.first_row) == (len(rows), rows[0])
        assert result.first == result.last == -r


def test_gaps_are_filled_against_the_truth(stream):
    """A Gaussian that knows the columns' covariance fills power far better than its mean does."""
    results = {gap.column: gap for gap in reported(lambda batch: batch.fault > 0).gaps(Truthful(stream.complete))}
    latest = np.isnan(stream.X[-2000:]) & (stream.fault[-2000:] == 0)[:, None]
    assert [gap.n_gaps for gap in results.values()] == latest.sum(axis=0).tolist()
    assert results["power"].error < 0.3 * results["power"].error_of_mean


# -- the monitor -----------------------------------------------------------------------------------


class Scripted:
    """A model that reads its log-densities from the first column."""

    def __init__(self):
        self.learned = []

    def score_samples(self, X):
        assert self.learned, "asked before anything was learned"
        return X[:, 0].copy()

    def partial_fit(self, X):
        self.learned.append(len(X))


def test_monitor_scores_before_it_learns():
    monitor = Monitor(Scripted(), drop=8.0, window=100, min_rows=50)
    rows = np.full((60, 2), -1.0)
    rows[3, 1] = np.nan
    first = monitor.learn(rows)
    assert np.isnan(first.log_density).all()
    assert not first.novel.any()
    assert np.isnan(monitor.mean_log_likelihood)
    assert not monitor.learn(np.full((60, 2), [-50.0, 0.0])).novel.any()  # nothing to compare with yet
    seen = monitor.learn(np.array([[-57.9, 0.0], [-58.1, 0.0]]))
    assert seen.novel.tolist() == [False, True]
    assert (monitor.n_rows, monitor.n_novel, monitor.n_gaps.tolist()) == (122, 1, [0, 1])
    assert monitor.mean_log_likelihood == pytest.approx((60 * -50 - 57.9 - 58.1) / 62)


def test_monitor_forgets_what_is_long_ago():
    monitor = Monitor(Scripted(), window=100, min_rows=50)
    for level in (0.0, 0.0, -100.0, -100.0):
        monitor.learn(np.full((100, 1), level))
    assert monitor.mean_log_likelihood == -100.0
    assert not monitor.learn(np.full((1, 1), -105.0)).novel.any()
