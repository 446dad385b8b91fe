"""The demonstration stream is what it says, and a model can be told from the truth by its report."""

import numpy as np
import pytest

import everlearn
from everlearn.datasets.demo import COLUMNS, FAULTS, REGIMES, DemoBatch, demo_stream
from everlearn.errors import InputError
from everlearn.gaussian.conditional import impute
from everlearn.gaussian.mixture import Mixture
from everlearn.reporting.demo_report import DemoReport, blamed_columns, find_faults, find_regimes
from everlearn.streams.prequential import PrequentialResult
from everlearn.streams.store.records import Event

pytestmark = pytest.mark.slow


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
        self.mixture = Mixture(np.ones(1), rows.mean(axis=0)[None], np.cov(rows.T)[None])

    def impute(self, X):
        return impute(X, self.mixture).mean


def reported(alarm):
    report, row = DemoReport(), 0
    for batch in demo_stream(8000, batch_rows=250):
        events = [Event(row + int(i), "novelty", 0.0) for i in np.flatnonzero(alarm(batch))]
        report.add(batch, PrequentialResult(row, -batch.regime.astype(float), events))
        row += 250
    return report


def starts(values):
    """Rows at which a new value begins."""
    return np.flatnonzero(np.diff(values, prepend=values[0]))


def test_perfect_alarms(stream):
    report = reported(lambda batch: batch.fault > 0)
    rows = starts(stream.fault)
    counts = np.bincount(stream.fault[rows[rows >= 1000]], minlength=len(FAULTS))
    assert [(fault.n_faults, fault.n_found) for fault in report.faults()] == [(n, n) for n in counts[1:]]
    assert counts[1:].min() > 0
    assert sum(report.alarms()) == 0


def test_no_alarms():
    report = reported(lambda batch: np.zeros(len(batch.X), dtype=bool))
    assert [fault.n_found for fault in report.faults()] == [0, 0, 0]


def test_constant_alarms(stream):
    """Alarms without a fault add up to the rows without one, and each has its reason."""
    alarms = reported(lambda batch: np.ones(len(batch.X), dtype=bool)).alarms()
    assert sum(alarms) == (stream.fault[1000:] == 0).sum()
    assert 250 < alarms.new_regime <= 300 * len(REGIMES)
    assert 25 * 20 < alarms.after_switch <= 25 * len(starts(stream.regime))


class Knows:
    """A model that knows the regimes, gives rows of faults a group of their own, and is late by some rows."""

    def __init__(self, stream, late=0):
        self.labels = np.where(stream.fault > 0, 7, np.roll(stream.regime, late))
        self.labels[:late] = 0
        groups = [stream.complete[stream.regime == k] for k in range(len(REGIMES))]
        self.means_ = np.array([rows.mean(axis=0) for rows in groups])
        self.covariances_ = np.array([np.cov(rows.T) for rows in groups])
        # Components 4 to 7 are those of no row, and of the faults.
        self.means_ = np.vstack([self.means_, np.tile(stream.complete[stream.fault > 0].mean(axis=0), (4, 1))])
        self.covariances_ = np.concatenate([self.covariances_, np.tile(np.cov(stream.complete.T), (4, 1, 1))])
        self.weights_ = np.full(8, 1 / 8)

    def predict(self, X, by="component"):
        return self.labels


@pytest.mark.parametrize(("late", "seen"), [(0, True), (20, True), (30, False)])
def test_regimes_beside_the_truth(stream, late, seen):
    switches = starts(stream.regime)
    found, stays, n, n_seen, n_other, _ = find_regimes(Knows(stream, late), stream)
    assert [regime.name for regime in found] == [
        REGIMES[r] for r in np.argsort(-np.bincount(stream.regime, minlength=4)) if (stream.regime == r).any()
    ]
    assert (n, n_seen, n_other) == (len(switches), *((len(switches), 0) if seen else (0, len(switches))))
    if not late:
        assert [stay.first for stay in stays] == [0, *switches]
        assert [regime.agree for regime in found] == [1.0] * len(found)
        assert sum(regime.share for regime in found) == pytest.approx(1.0)
        rows = stream.X[stream.regime == REGIMES.index(found[0].name)]
        np.testing.assert_array_equal(found[0].medians, np.nanmedian(rows, axis=0))


def test_the_column_to_blame_is_the_one_without_which_a_row_is_usual():
    class Usual:
        def p_value(self, X):
            return np.exp(-np.nansum(X**2, axis=1))

    X = np.array([[0.0, 9.0, 1.0], [5.0, np.nan, 1.0], [np.nan, 1.0, -3.0]])
    assert blamed_columns(Usual(), X) == [(1,), (0,), (2,)]


@pytest.mark.parametrize("seed", [11, 12])
def test_faults_are_found_though_the_mixture_has_learned_them(seed):
    """Looking back: on streams that nothing was chosen on, nearly all faults, with the sensor that they are in."""
    stream = whole(8000, seed=seed)
    model = everlearn.IncrementalGaussianMixture(random_state=0).fit(stream.X)
    results, n_false = find_faults(stream, find_regimes(model, stream).usual)
    rows = starts(stream.fault)
    counts = np.bincount(stream.fault[rows[rows >= 1000]], minlength=len(FAULTS))
    assert [fault.n_faults for fault in results] == counts[1:].tolist()
    found = sum(fault.n_found for fault in results)
    assert found >= 0.8 * counts[1:].sum()
    assert [fault.blamed for fault in results] == ["temperature", "vibration", "power and current"]
    assert sum(fault.n_blamed for fault in results) >= 0.8 * found
    assert n_false <= 0.002 * len(stream.X)


def test_without_regimes_no_fault_is_found(stream):
    results, n_false = find_faults(stream, None)
    assert [fault.n_found for fault in results] == [0, 0, 0]
    assert n_false == 0


def test_gaps_are_filled_against_the_truth(stream):
    """A Gaussian that knows the columns' covariance fills power far better than its mean does."""
    results = {gap.column: gap for gap in reported(lambda batch: batch.fault > 0).gaps(Truthful(stream.complete))}
    latest = np.isnan(stream.X[-2000:]) & (stream.fault[-2000:] == 0)[:, None]
    assert [gap.n_gaps for gap in results.values()] == latest.sum(axis=0).tolist()
    assert results["power"].error < 0.3 * results["power"].error_of_mean


def test_two_sensors_that_fail_together_are_both_to_blame():
    """Four columns follow one factor: where two of them leave it together, neither alone explains the row."""
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(1000, 1))
    model = everlearn.IncrementalGaussianMixture(1).fit(np.hstack([factor + 0.1 * rng.normal(size=(1000, 5)), factor]))
    both, one, gap = np.zeros((3, 6))
    both[2:4] = 2.0
    one[5] = 3.0
    gap[2:4], gap[0] = 2.0, np.nan
    assert blamed_columns(model, np.array([both, one, gap])) == [(2, 3), (5,), (2, 3)]
