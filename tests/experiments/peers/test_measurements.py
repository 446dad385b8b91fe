"""Every column measures what it says, on cases whose answer is known."""

import importlib.util
import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from everlearn.experiments.peers import (
    adapter,
    anomaly,
    change,
    classification,
    conditional,
    data,
    density,
    measure,
    missing,
    pysad,
    regression,
    speed,
)
from everlearn.experiments.peers.adapter import Contender, gaussian_log_density
from everlearn.experiments.peers.anomaly_streams import Labelled
from everlearn.experiments.peers.data import Context
from everlearn.experiments.peers.table import Measure

QUICK = Context(rows=1000, seeds=1, quick=True)


def contender_of(model, package="everlearn"):
    return Contender("toy", package, lambda: model)


# -- anomalies -------------------------------------------------------------------------------------


def test_area_of_perfect_reversed_and_equal_scores():
    y = np.array([0.0, 0.0, 1.0, 0.0, 1.0])
    assert anomaly.roc_auc(y, y) == 1.0
    assert anomaly.roc_auc(y, -y) == 0.0
    assert anomaly.roc_auc(y, np.zeros(5)) == 0.5
    assert anomaly.roc_auc(y, np.where(y > 0, np.inf, 0.0)) == 1.0


def test_rows_without_a_score_count_as_usual_and_the_first_are_not_judged():
    y = np.zeros(1000)
    y[[100, 700, 800]] = 1.0
    scores = np.where(y > 0, 5.0, 1.0)
    scores[100], scores[:50], scores[700] = -9.0, np.nan, np.nan

    class Oracle:
        def score_then_learn(self, X):
            return scores

    # 700 ties with all usual rows, 800 is above them
    found = anomaly.judge(contender_of(Oracle()), Labelled("toy", np.zeros((1000, 1)), y))
    assert found.roc == pytest.approx(0.75)


def test_delays_are_those_of_faults_that_last():
    y, scores = np.zeros(1000), np.zeros(1000)
    y[[100, 200]] = 1.0  # missed, but no delay says so
    y[300:340], y[500:530] = 1.0, 1.0
    scores[312:340] = 1.0
    assert anomaly.delays(y, scores) == [12, 30]


def test_a_detector_that_fails_in_one_group_is_measured_in_the_others(monkeypatch):
    class NoGaps:
        def score_then_learn(self, X):
            if np.isnan(X).any():
                raise ValueError("X has gaps")
            return X[:, 0]

    y = np.zeros(1000)
    y[700:800] = 1.0
    X = y[:, None].copy()
    broken = np.where(np.arange(1000)[:, None] == 5, np.nan, X)
    groups = {"shuttle": [Labelled("one", X, y)], "nab": [Labelled("two", X, y), Labelled("three", broken, y)]}
    monkeypatch.setattr(anomaly, "GROUPS", {name: lambda _, s=streams: s for name, streams in groups.items()})
    row = anomaly.measure(contender_of(NoGaps()), QUICK)
    assert row.values["shuttle"] == 1.0
    assert row.values["nab"] == "failed"
    assert "X has gaps" in row.why


def test_a_mean_over_some_of_the_streams_is_not_compared(monkeypatch):
    class Column:
        def score_then_learn(self, X):
            return X[:, 0]

    y = np.zeros(1000)
    y[700:800] = 1.0
    streams = [Labelled("short", y[:, None], y), Labelled("long", np.tile(y[:, None], (2, 1)), np.tile(y, 2))]
    monkeypatch.setattr(anomaly, "GROUPS", {"nab": lambda _: streams})
    slow, quick = (anomaly.measure(contender_of(Column())._replace(most_rows=most), QUICK) for most in (1500, None))
    assert slow.values["nab"] == slow.values["nab_ap"] == "1.000 on 1 of 2"
    assert quick.values["nab"] == 1.0
    ours = next(measure for measure in anomaly.MEASURES if measure.key == "nab")
    assert quick.competes(ours)
    assert not slow.competes(ours)


def test_scores_of_pysad_are_the_same_in_every_run():
    pytest.importorskip("pysad")
    X = np.random.default_rng(0).normal(size=(300, 3))
    for contender in pysad.CONTENDERS["anomaly"]:
        first, again = (contender.make().score_then_learn(X) for _ in range(2))
        np.testing.assert_array_equal(first, again, err_msg=contender.name)


def test_streams_that_are_not_there_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("EVERLEARN_DATA", str(tmp_path))
    row = anomaly.measure(anomaly.BASELINES[0], QUICK)
    assert row.values["nab"] == "no data"
    assert "EVERLEARN_DATA" in row.why


def test_windows_of_nab(shared_data, monkeypatch):
    monkeypatch.setenv("EVERLEARN_DATA", str(shared_data))
    streams = list(data.nab(QUICK._replace(quick=False)))
    assert sum(len(X) for X, _ in streams) == 69_561
    assert len(streams[0][0]) == 1882
    assert all(0.02 < y.mean() < 0.2 for _, y in streams)  # NAB's windows hold a tenth of a stream


def test_shuttle_has_its_anomalies():
    pytest.importorskip("river")
    (X, y), *_ = data.shuttle(Context())
    assert X.shape == (49_097, 9)
    assert y.sum() == 3511


# -- changes ---------------------------------------------------------------------------------------


def test_delays_and_false_alarms():
    alarms = [5, 107, 150, 799, 900]
    assert change.delays(alarms, [100, 500, 899], horizon=100) == [7, 100, 1]
    assert change.false_alarms(alarms, [100, 500, 899], horizon=100) == [5, 799]


def test_baselines():
    always, never = (change.measure(baseline, QUICK).values for baseline in change.BASELINES)
    assert always["delay"] == 0
    assert always["false"] == 1000
    assert never["delay"] == change.HORIZON
    assert never["false"] == 0


def test_a_detector_that_knows_the_changes():
    class Oracle:
        def alarms(self, X):
            return [n + 7 for n in (800, 1600)]

    row = change.measure(contender_of(Oracle()), Context(seeds=2))
    assert row.values["delay"] == 7
    assert row.values["false"] == pytest.approx(1000 * 2 * 2 / (2 * (3 * 1600 + 2400)))  # those where nothing changes
    mean, false = (m for m in change.MEASURES if m.key in ("mean", "false"))
    assert row.competes(mean)
    assert not change.measure(change.BASELINES[1], QUICK)._replace(contender=row.contender).competes(mean)
    assert row.competes(false)


@pytest.mark.parametrize("kind", data.KINDS)
def test_streams_change_in_what_they_say(kind):
    X, changes = data.changing(kind, 0, 5000)
    before, after = X[:5000], X[5000:10_000]
    found = {
        "mean": after[:, 0].mean() - before[:, 0].mean(),
        "spread": after[:, 0].std() / before[:, 0].std() - 1,
        "correlation": np.corrcoef(after.T)[0, 1] - np.corrcoef(before.T)[0, 1],
    }
    assert changes == ([] if kind == "none" else [5000, 10_000])
    for what, size in {"mean": 1.0, "spread": 1.0, "correlation": 0.9}.items():
        assert found[what] == pytest.approx(size if what == kind else 0.0, abs=0.07)


# -- conditional prediction ------------------------------------------------------------------------


def test_coverage_and_error_of_the_true_conditional():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    y = X @ [1.0, -2.0] + 0.5 * rng.normal(size=20_000)

    class Truth:
        def fit(self, X, y):
            pass

        def predict(self, X):
            half = 1.6448536 * 0.5
            return X @ [1.0, -2.0], X @ [1.0, -2.0] - half, X @ [1.0, -2.0] + half

    error, inside = conditional.prediction(contender_of(Truth()), X, y)
    assert error == pytest.approx(0.5, rel=0.03)
    assert inside == pytest.approx(90, abs=1.0)


def test_no_interval_is_a_word():
    pytest.importorskip("river")
    from everlearn.experiments.peers import river

    row = conditional.measure(river.CONTENDERS["conditional"][1], QUICK)
    assert row.values["coverage"] == "no interval"
    assert row.values["error"] < 1.0


# -- likelihood, gaps ------------------------------------------------------------------------------


def test_gaussian_log_density_is_scipys():
    rng = np.random.default_rng(1)
    A, mean, X = rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=(20, 3))
    covariance = A @ A.T + np.eye(3)
    ours = gaussian_log_density(X, mean, np.linalg.inv(covariance))
    np.testing.assert_allclose(ours, multivariate_normal(mean, covariance).logpdf(X))
    with pytest.raises(ValueError, match="positive definite"):
        gaussian_log_density(X, mean, -np.eye(3))


@pytest.mark.parametrize("name", ["EmpiricalPrecision", "IncrementalPCA", "GaussianMixture"])
def test_models_of_one_gaussian_find_it(name):
    pytest.importorskip("river")
    from everlearn.experiments.peers import river, scikit_learn

    known = {c.name: c for family in (river, scikit_learn) for c in family.CONTENDERS["density"]}
    rng = np.random.default_rng(2)
    A = rng.normal(size=(3, 3))
    X = rng.normal(size=(6000, 3)) @ A + 3.0
    truth = multivariate_normal(np.full(3, 3.0), A.T @ A).logpdf(X[4000:]).mean()
    assert density.held_out(known[name], X[:4000], X[4000:]) == pytest.approx(truth, abs=0.02)


def test_orders_hold_the_same_rows():
    shuffled, ordered = (density.prepared(QUICK, order) for order in ("shuffled", "sorted"))
    for (a, test_a), (b, test_b) in zip(shuffled, ordered, strict=True):
        np.testing.assert_array_equal(test_a, test_b)
        np.testing.assert_array_equal(a[np.lexsort(a.T)], b[np.lexsort(b.T)])
        assert not np.array_equal(a, b)


def test_filling_error_of_the_truth_and_of_means():
    rng = np.random.default_rng(3)
    train, test = rng.normal(size=(500, 3)), rng.normal(size=(20_000, 3))

    class Filled:
        def __init__(self, values):
            self.values = values

        def fit(self, X):
            assert 0.25 < np.isnan(X).mean() < 0.35

        def impute(self, X):
            return np.where(np.isnan(X), self.values, X)

    assert missing.filling_error(contender_of(Filled(test)), train, test) == 0.0
    assert missing.filling_error(contender_of(Filled(0.0)), train, test) == pytest.approx(1.0, abs=0.02)


# -- speed -----------------------------------------------------------------------------------------


def test_rate_counts_rows_over_cpu_time(monkeypatch):
    clock = iter(np.arange(0.0, 100.0, 0.2))
    monkeypatch.setattr(speed.time, "process_time", lambda: next(clock))
    learned = []
    # 0 at the start, then 0.2, 0.4, 0.6 after pieces, of which the third is over the limit; 0.8 at the end
    assert speed.rate(learned.append, list(range(9)), lambda piece: 40) == pytest.approx(3 * 40 / 0.8)
    assert learned == [0, 1, 2]


# -- words instead of figures ----------------------------------------------------------------------


MEASURES = [Measure("a", "a", "high"), Measure("b", "b", "low")]


def test_a_peer_that_is_not_installed_is_named():
    row = measure.measured(contender_of(None, package="no_such_package"), MEASURES, lambda: {"a": 1.0})
    assert row.values == {"a": "not installed"}
    assert "pip install no_such_package" in row.why
    assert not row.competes(MEASURES[0])


def test_a_failure_is_told_with_its_message():
    def fail():
        raise TypeError("no rows, please\nsecond line")

    row = measure.measured(contender_of(None), MEASURES, fail)
    assert row.values == {"a": "failed"}
    assert row.why == "failed with TypeError: no rows, please"


def test_without_river_nothing_fails(monkeypatch):
    real = importlib.util.find_spec
    hide = lambda name, *rest: None if name == "river" else real(name, *rest)  # noqa: E731
    monkeypatch.setattr(adapter.importlib.util, "find_spec", hide)
    from everlearn.experiments.peers import river

    for column in (speed, classification, regression, density, missing, conditional, anomaly, change):
        for peer in river.CONTENDERS[column.NAME]:
            row = column.measure(peer, QUICK)
            assert "not installed" in row.values.values()
            assert "everlearn[peers]" in row.why
    with pytest.raises(data.Absent, match="comes with river"):
        data.shuttle(QUICK)


def test_what_was_not_measured_is_empty():
    assert MEASURES[0].show(math.nan) == ""
    assert MEASURES[0].show("batch only") == "batch only"
