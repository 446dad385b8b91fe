"""Running protocols: the matrix R, interference, prequential scores, results to read."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB

from everlearn import FIGMN, IncrementalGaussianMixture
from everlearn.continual import Results, Task, class_by_class, disjoint, interference, prequential, run, running_mean
from everlearn.errors import InputError


class Diary:
    """A model whose score on a task tells what it has learned: one for each task so far, ten for this one."""

    def __init__(self):
        self.tasks = []

    def partial_fit(self, X, y=None):
        self.tasks.append(X[0, 0])
        return self

    def score(self, X, y=None):
        return len(self.tasks) + 10.0 * self.tasks.count(X[0, 0])


def diary_tasks(n=3):
    return [Task(f"t{i}", np.full((1, 1), i), None, np.full((1, 1), i), None) for i in range(n)]


def test_scores_after_each_task():
    model = Diary()
    results = run(model, diary_tasks(), untrained=0.5, with_interference=True)
    np.testing.assert_array_equal(results.R, [[11, 1, 1], [12, 12, 2], [13, 13, 13]])
    np.testing.assert_array_equal(results.untrained, [0.5, 0.5, 0.5])
    # Learning j after i scores 2 + 10, alone 1 + 10; twice the same task, 2 + 20.
    np.testing.assert_array_equal(results.interference, np.ones((3, 3)) + 10 * np.eye(3))
    assert model.tasks == []
    assert results.summary() == {"ACC": 13.0, "BWT": 1.5, "FWT": 1.0, "forgetting": -0.5 - 0.5, "anytime": 12.0}


def test_own_ways_to_learn_and_score():
    learned = []
    results = run(
        Diary(),
        diary_tasks(2),
        learn=lambda model, task: learned.append(task.name),
        score=lambda model, task: len(learned),
    )
    np.testing.assert_array_equal(results.R, [[1, 1], [2, 2]])


@pytest.mark.filterwarnings("ignore::RuntimeWarning:sklearn")
def test_a_model_of_each_class_keeps_what_a_linear_model_forgets():
    X, y = load_iris(return_X_y=True)
    tasks = list(class_by_class(X, y))
    linear = run(SGDClassifier(random_state=0), tasks, untrained=1 / 3).summary()
    bayes = run(GaussianNB(), tasks, untrained=1 / 3).summary()
    assert linear["forgetting"] > 0.9
    assert bayes["forgetting"] < 0.2
    assert bayes["ACC"] > linear["ACC"] + 0.3


def test_densities_are_scored_without_labels():
    X, y = load_iris(return_X_y=True)
    model = IncrementalGaussianMixture(scale=X.std(axis=0))
    kept = run(model, class_by_class(X, y))
    fading = run(model.set_params(forgetting=0.8), class_by_class(X, y))
    assert fading.summary()["forgetting"] > kept.summary()["forgetting"] + 1.0


def test_interference_is_that_of_two_models():
    X, y = load_iris(return_X_y=True)
    tasks = list(disjoint(X, y, groups=[[0], [1, 2]]))
    model = IncrementalGaussianMixture(scale=X.std(axis=0))
    I = interference(model, tasks)  # noqa: E741
    both = model.copy().partial_fit(tasks[0].X).partial_fit(tasks[1].X).score(tasks[1].X_test)
    alone = model.copy().partial_fit(tasks[1].X).score(tasks[1].X_test)
    assert I[0, 1] == pytest.approx(both - alone)
    assert not hasattr(model, "n_features_in_")


@pytest.mark.filterwarnings("ignore::RuntimeWarning:sklearn")
@pytest.mark.parametrize("batch", [1, 7])
def test_prequential_scores_come_before_learning(batch):
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(150)
    X, y = X[order], y[order]
    scores = prequential(GaussianNB(), X, y, batch=batch)
    twin, expected = GaussianNB(), []
    for start in range(0, 150, batch):
        if start:
            expected += list(twin.predict(X[start : start + batch]) == y[start : start + batch])
        twin.partial_fit(X[start : start + batch], y[start : start + batch], classes=[0, 1, 2])
    assert np.isnan(scores[:batch]).all()
    np.testing.assert_array_equal(scores[batch:], expected)
    assert running_mean(scores)[-1] > 0.85


def test_prequential_densities():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = FIGMN(scale=[1.0, 1.0])  # learns from its first row, so that both have a score for each later one
    scores = prequential(model, X)
    np.testing.assert_allclose(scores[1:], FIGMN(scale=[1.0, 1.0]).prequential(X)[1:], rtol=1e-9)
    assert model.n_samples_seen_ == 60


def test_a_table_of_what_happened():
    results = Results(("a", "b"), np.array([[0.9, 0.1], [0.5, 0.8]]), np.array([0.1, np.nan]))
    lines = str(results).splitlines()
    assert lines[0].split() == ["after", "a", "b"]
    assert lines[2].split() == ["b", "0.500", "0.800"]
    assert lines[4].split() == ["ACC", "BWT", "FWT", "forgetting", "anytime"]
    assert lines[5].split() == ["0.650", "-0.400", "-", "0.400", "0.775"]
    assert repr(results) == str(results)


def test_pictures():
    results = run(Diary(), diary_tasks(), with_interference=True)
    for figure, values in ((results.plot(), results.R), (results.plot_interference(), results.interference)):
        np.testing.assert_array_equal(np.array(figure.data[0].z), values)
        assert list(figure.data[0].x) == ["t0", "t1", "t2"]
    with pytest.raises(InputError, match="with_interference=True"):
        run(Diary(), diary_tasks()).plot_interference()


def test_refusals_teach():
    with pytest.raises(InputError, match="tasks is empty"):
        run(Diary(), [])
    with pytest.raises(InputError, match="score must return a number"):
        run(Diary(), diary_tasks(), score=lambda model, task: "good")
    with pytest.raises(InputError, match="batch must be"):
        prequential(Diary(), [[0.0]], batch=0)
