"""A call that learns a few rows and fails has changed nothing."""

import copy
import gc
import os
import pickle
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils import get_tags

import everlearn
from everlearn.base import redo_log
from everlearn.persistence.model_file import dumps
from toys import RunningNormal

# Not a name that occurs in a path: a checkout may be called everlearn, and hold the environment with all libraries.
PACKAGE = f"{Path(everlearn.__file__).parent}{os.sep}"
X = np.random.default_rng(0).normal(size=(3000, 4)) + 6.0 * (np.arange(3000) % 2)[:, None]
MODELS = [
    everlearn.IncrementalGaussianMixture(),
    everlearn.IncrementalGaussianMixture(reservoir=0, forgetting="adaptive"),
    everlearn.IncrementalGaussianMixture(covariance_type="low_rank"),
    everlearn.FIGMN(),
    everlearn.OnlinePPCA(2),
    everlearn.VariationalPPCA(2),
    everlearn.AnomalyDetector(),
    everlearn.IncrementalGaussianMixtureClassifier(),
    everlearn.IncrementalGaussianMixtureRegressor(),
]


class FailureError(Exception):
    """What goes wrong in these tests."""


class FailAt:
    """Tracing that raises at the n-th line of learning: of `_learn`, what it calls, and the writing of the log."""

    def __init__(self, n):
        self.left, self.depth = n, 0

    def __call__(self, frame, event, arg):
        name, path = frame.f_code.co_name, frame.f_code.co_filename
        if event == "call":
            learns = name == "_learn" or (name == "add" and path.endswith("redo_log.py"))
            return self if path.startswith(PACKAGE) and (learns or frame.f_back.f_trace is self) else None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise FailureError
        return self


def part(model, start, stop):
    """Rows, and targets for the models that need them."""
    y = (np.arange(start, stop) % 3).astype(float)
    return (X[start:stop], y) if get_tags(model).target_tags.required else (X[start:stop],)


def learn_failing(model, n, start, stop):
    """Learn with a failure at the n-th line; whether there was one."""
    tracer = sys.gettrace()
    sys.settrace(FailAt(n))
    try:
        model.partial_fit(*part(model, start, stop))
    except FailureError:
        return True
    finally:
        sys.settrace(tracer)
    return False


@pytest.mark.parametrize(
    "model", [*MODELS[:-2], *(pytest.param(m, marks=pytest.mark.slow) for m in MODELS[-2:])], ids=str
)
def test_a_failure_at_any_line_changes_nothing(model):
    """Single rows and small batches, before and after warm-up; the model answers and goes on as if nothing had been."""
    for known in (5, 700):
        learned = model.copy().partial_fit(*part(model, 0, known))
        for at in range(known, known + 30, 3):
            learned.partial_fit(*part(model, at, at + 3))
        before, twin = dumps(learned), learned.copy()
        failures = 0
        for n in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377):
            failures += learn_failing(learned, n, known + 30, known + 32)
            if learned.n_samples_seen_ > twin.n_samples_seen_:
                break  # all lines were run
            assert dumps(learned) == before, f"line {n}"
        assert failures >= 5
        learned = learned if learned.n_samples_seen_ == twin.n_samples_seen_ else twin.copy()
        for model_ in (learned, twin):
            model_.partial_fit(*part(model_, known + 30, known + 100))
        assert dumps(learned) == dumps(twin)


def test_weights_and_gaps_are_learned_again():
    model = everlearn.IncrementalGaussianMixture().partial_fit(X[:500])
    rows, weights = X[500:510].copy(), np.linspace(0.0, 2.0, 10)
    rows[::3, 1] = np.nan
    model.partial_fit(rows, sample_weight=weights)
    before = dumps(model)
    rows[:], weights[:] = 99.0, 7.0  # the caller's own arrays, used again
    assert learn_failing(model, 20, 510, 511)
    assert dumps(model) == before


def test_a_parameter_set_since_is_kept():
    model = everlearn.IncrementalGaussianMixture().partial_fit(X[:500])
    model.partial_fit(X[500:501])
    model.set_params(novelty_level=0.01)
    model.partial_fit(X[501:502])
    before = dumps(model)
    assert learn_failing(model, 20, 502, 503)
    assert dumps(model) == before
    assert model.novelty_level == 0.01


def test_a_parameter_assigned_since_is_kept_and_said(monkeypatch):
    model = RunningNormal().partial_fit(X[:50])
    model.partial_fit(X[50:51])
    name = next(iter(model.get_params()))
    value = object()
    setattr(model, name, value)
    monkeypatch.setattr(RunningNormal, "_learn", fails_once(RunningNormal._learn))
    with pytest.raises(FailureError) as caught:
        model.partial_fit(X[51:52])
    assert name in caught.value.__notes__[0]
    assert getattr(model, name) is value


def test_what_changes_a_model_otherwise_is_not_undone():
    detector = everlearn.AnomalyDetector(patience=10_000).fit(X[:1000])
    detector.partial_fit(X[1000:1001])
    for _ in range(40):
        detector.partial_fit(np.full((1, 4), 60.0))
    assert detector.n_held_
    for change in (detector.discard_held, detector.accept_held):
        change()
        before = dumps(detector)
        assert learn_failing(detector, 10, 1001, 1002)
        assert dumps(detector) == before
        detector.partial_fit(np.full((20, 4), 60.0))


def fails_once(learn):
    """The method, which fails after its first call is done."""
    calls = []

    def failing(self, *args):
        result = learn(self, *args)
        calls.append(1)
        if len(calls) == 1:
            raise FailureError
        return result

    return failing


def test_what_fails_again_leaves_a_whole_model(monkeypatch):
    """The copy of some rows before is what is left, and the exception says so."""
    model = RunningNormal().partial_fit(X[:50])
    checkpoint = dumps(model)
    model.partial_fit(X[50:57])

    def fails(self, *args):
        raise FailureError

    monkeypatch.setattr(RunningNormal, "_learn", fails)
    with pytest.raises(FailureError) as caught:
        model.partial_fit(X[57:58])
    assert dumps(model) == checkpoint
    assert "7 rows" in caught.value.__notes__[0]


def test_logs_are_bounded_and_beside_the_model():
    """A log ends with its model, and is in no copy, pickle or file of it."""
    model = RunningNormal().partial_fit(X[:50])
    sizes = len(pickle.dumps(model)), len(dumps(model))
    for row in X[:1500, None]:
        model.partial_fit(row)
        assert redo_log._LOGS[model].n_rows <= redo_log.LOG_ROWS
    assert abs(len(pickle.dumps(model)) - sizes[0]) < 50
    assert abs(len(dumps(model)) - sizes[1]) < 50
    assert copy.deepcopy(model) not in redo_log._LOGS
    log = weakref.ref(model)
    gc.collect()  # models of other tests end here, and not between the two counts
    n = len(redo_log._LOGS)
    del model
    gc.collect()
    assert log() is None
    assert len(redo_log._LOGS) == n - 1
