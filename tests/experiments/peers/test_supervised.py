"""Classification and regression beside the peers: what is learned, in which order, and what is counted."""

import math

import numpy as np
import pytest

from everlearn.experiments.peers import classification, regression, supervised
from everlearn.experiments.peers.adapter import Contender, Supervised
from everlearn.experiments.peers.data import Context

QUICK = Context(rows=1000, seeds=1, quick=True)
FULL = Context(rows=1000, seeds=1)


class Recorder(Supervised):
    """Keeps the targets that it is taught, and answers by a fixed rule."""

    taught = ()

    def __init__(self, log):
        self.log = log

    def learn(self, piece, y):
        assert len(piece) == len(y)
        self.taught = y
        self.log.append(y)


class Sure(Recorder):
    """Gives nine tenths to a class."""

    def probabilities(self, X):
        found = np.full((len(X), self.taught.max() + 1), 0.1 / self.taught.max())
        found[:, 0] = 0.9
        return found


class Mean(Recorder):
    """Predicts the mean of what it was taught, between the limits of all that it was taught."""

    def predict(self, X):
        ones = np.ones(len(X))
        return self.taught.mean() * ones, self.taught.min() * ones, self.taught.max() * ones


def contender_of(kind, log, **more):
    return Contender("toy", "everlearn", lambda: kind(log), **more)


# -- sets, folds, orders ---------------------------------------------------------------------------


@pytest.mark.parametrize("column", [classification, regression])
def test_sets_are_complete_and_there_are_six_at_least(column):
    sets = column.problems(FULL)
    assert len({problem.name for problem in sets}) >= 6
    for problem in sets:
        assert np.isfinite(problem.X).all(), problem.name
        assert np.isfinite(problem.y).all(), problem.name
        assert len(problem.X) == len(problem.y) >= 150, problem.name


def test_folds_test_every_row_once_and_share_the_classes():
    (iris,) = supervised.classifications(["iris"])
    folds = iris.folds()
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in folds])), np.arange(150))
    for train, test in folds:
        assert set(train).isdisjoint(test)
        assert len(train) + len(test) == 150
        assert np.ptp(np.bincount(iris.y[test])) <= 2
        assert (np.diff(iris.y[train]) < 0).any(), "rows come in the order of a shuffle"


def test_columns_are_standardised_on_the_rows_to_learn():
    for problem, train, test in supervised.prepared(classification.problems(QUICK), QUICK):
        np.testing.assert_allclose(problem.X[train].mean(axis=0), 0.0, atol=1e-9)
        np.testing.assert_allclose(problem.X[train].std(axis=0), 1.0)
        assert len(train) + len(test) <= supervised.MOST_ROWS_QUICK


@pytest.mark.parametrize(("column", "kind"), [(classification, Sure), (regression, Mean)])
def test_the_same_rows_come_shuffled_and_in_order(column, kind):
    log = []
    assert "failed" not in column.measure(contender_of(kind, log), QUICK).values.values()
    assert len(log) == 2 * len(column.problems(QUICK))
    for shuffled, ordered in zip(log[::2], log[1::2], strict=True):
        np.testing.assert_array_equal(np.sort(shuffled), ordered)
        assert not np.array_equal(shuffled, ordered)


@pytest.mark.parametrize(("column", "kind"), [(classification, Sure), (regression, Mean)])
def test_a_batch_model_is_fitted_once_a_fold_and_its_figures_hold_for_any_order(column, kind):
    log = []
    values = column.measure(contender_of(kind, log, batch=True), QUICK).values
    assert len(log) == len(column.problems(QUICK))
    for key in values:
        if key.endswith("sorted"):
            assert values[key] == values[key.replace("sorted", "shuffled")]


# -- figures ---------------------------------------------------------------------------------------


def test_accuracy_and_log_loss_of_a_known_answer():
    given = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    y = np.array([0, 1, 1])
    assert classification.accuracy(given, y) == pytest.approx(2 / 3)
    assert classification.log_loss(given, y) == pytest.approx(-math.log(0.9 * 0.8 * 0.4) / 3)


def test_a_probability_of_zero_counts_as_the_least_and_one_that_is_no_number_is_an_error():
    y = np.array([0])
    assert classification.log_loss(np.array([[0.0, 1.0]]), y) == pytest.approx(-math.log(classification.LEAST))
    with pytest.raises(ValueError, match="no number"):
        classification.log_loss(np.array([[math.nan, 1.0]]), y)


def test_the_first_class_every_time_is_right_as_often_as_it_comes():
    values = classification.measure(contender_of(Sure, []), QUICK).values
    shares = [np.mean(p.y[test] == 0) for p, _, test in supervised.prepared(classification.problems(QUICK), QUICK)]
    assert values["accuracy shuffled"] == values["accuracy sorted"] == pytest.approx(100 * np.mean(shares))


def test_the_mean_has_an_error_of_one_standard_deviation():
    values = regression.measure(contender_of(Mean, []), FULL).values
    assert values["error shuffled"] == values["error sorted"] == pytest.approx(1.0, abs=0.02)
    assert values["inside shuffled"] > 99.0


def test_an_answer_that_is_no_number_is_a_failure():
    class Lost(Mean):
        def predict(self, X):
            return (np.full(len(X), np.nan),) * 3

    row = regression.measure(contender_of(Lost, []), QUICK)
    assert row.values == {"error shuffled": "failed"}
    assert "its error is nan" in row.why


def test_the_rate_counts_learning_and_the_first_question(monkeypatch):
    clock = iter(np.arange(0.0, 1e6, 0.5))
    monkeypatch.setattr(supervised.time, "process_time", lambda: next(clock))
    asked = []

    class Asked(Sure):
        def probabilities(self, X):
            asked.append(len(X))
            return super().probabilities(X)

    log = []
    values = classification.measure(contender_of(Asked, log, batch=True), QUICK).values
    # the clock is read before a fold is learned and after its first question: half a second a fold
    assert values["rate"] == pytest.approx(sum(map(len, log)) / (0.5 * len(log)))
    assert asked[::2] == [1] * len(log)
    assert min(asked[1::2]) > 1
