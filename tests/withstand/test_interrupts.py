"""Ctrl-C, and time limits, at any line of `partial_fit`: rows are learned whole, or not at all."""

import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils import get_tags

import everlearn
from everlearn.base import interrupts
from everlearn.persistence.model_file import dumps

SOURCE = str(Path(everlearn.__file__).parent)
X = np.random.default_rng(0).normal(size=(30_000, 3))
MODELS = [
    everlearn.IncrementalGaussianMixture(),
    everlearn.IncrementalGaussianMixture(forgetting="adaptive"),
    everlearn.IncrementalGaussianMixture(reservoir=0),
    everlearn.OnlinePPCA(1),
    everlearn.VariationalPPCA(1),
    everlearn.FIGMN(),
    everlearn.IncrementalGaussianMixtureClassifier(),
    everlearn.FIGMNClassifier(),
    everlearn.IncrementalGaussianMixtureRegressor(),
    everlearn.AnomalyDetector(),
]
# Rows learned before, and in the batch: one row, the few in which a mixture finishes its first search, many.
ONE, SEARCH, MANY = (600, 1), (240, 20), (300, 260)
CASES = [(model, *size) for model in MODELS for size in (ONE, SEARCH)]
CASES += [(model, *MANY) for model in (MODELS[0], MODELS[3], MODELS[6])]


class TimeLimit(Exception):
    """Raised by the handler of a signal other than Ctrl-C."""


def name(value):
    return str(value) if isinstance(value, int) else type(value).__name__


def targets(model, part):
    return (np.arange(len(X))[part] % 2,) if get_tags(model).target_tags.required else ()


def learn(model, part):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.partial_fit(X[part], *targets(model, part))


class AtLine:
    """Call something at a line of everlearn, counted from the first one that is run."""

    def __init__(self, at, call):
        self.at, self.call = at, call
        self.lines, self.last_held = 0, 0

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *exception):
        sys.settrace(self.before)

    def trace(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        if event == "line":
            self.lines += 1
            if interrupts._OUTERMOST:
                self.last_held = self.lines
            if self.lines == self.at:
                self.call()
        return self.trace


@pytest.fixture
def quiet(monkeypatch):
    """Nothing that waits is delivered by itself."""
    monkeypatch.setattr(interrupts, "_deliver", lambda: None)


@pytest.fixture
def limit():
    """A handler for a time limit."""

    def stop(number, frame):
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.signal(signal.SIGALRM, before)


def outcomes(model, part, number, error, n_places):
    """For some lines: whether the call raised, and what the model is then: what it was before, or has learned all."""
    before = dumps(model)
    whole = model.copy()
    learn(whole, part)
    after = dumps(whole)
    with AtLine(-1, None) as counted:
        learn(model.copy(), part)
    for at in np.unique(np.linspace(1, counted.lines, n_places).astype(int)):
        attacked, raised = model.copy(), False
        try:
            with AtLine(at, lambda: signal.raise_signal(number)) as place:
                learn(attacked, part)
        except error:
            raised = True
        if place.lines < at:
            continue  # searches are cut by time, so that the number of lines varies a little
        assert interrupts._OUTERMOST == []
        waits = interrupts._claim() == number
        assert raised != waits, f"line {at} of {counted.lines}: the signal was lost"
        found = dumps(attacked)
        assert found in (before, after), f"line {at} of {counted.lines}: half-learned"
        yield at <= counted.last_held, raised, found == after


@pytest.mark.parametrize(("model", "start", "rows"), CASES, ids=name)
def test_an_interrupt_while_rows_are_learned_changes_nothing_or_waits(model, start, rows, quiet):
    model = model.copy()
    learn(model, slice(0, start))
    for held, raised, learned in outcomes(model, slice(start, start + rows), signal.SIGINT, KeyboardInterrupt, 7):
        assert not (held and raised and learned)


@pytest.mark.parametrize("model", MODELS[:1] + MODELS[3:4] + MODELS[6:7], ids=name)
@pytest.mark.parametrize("rows", [1, 260])
def test_a_time_limit_is_heard_within_the_call(model, rows, quiet, limit):
    """It is meant for this call: heard later, it would end a program that has left its `try` behind."""
    model = model.copy()
    learn(model, slice(0, 600))
    for held, raised, learned in outcomes(model, slice(600, 600 + rows), signal.SIGALRM, TimeLimit, 7):
        assert raised
        assert not (held and learned)


def test_classes_that_are_announced_are_part_of_the_call(quiet):
    """Rows are learned and classes opened, or neither."""
    part = slice(600, 601)
    for start in (0, 600):
        model = everlearn.IncrementalGaussianMixtureClassifier()
        if start:
            learn(model, slice(0, start))
        before = dumps(model)
        for at in range(1, 400, 40):
            attacked = model.copy()
            try:
                with AtLine(at, lambda: signal.raise_signal(signal.SIGINT)) as place:
                    attacked.partial_fit(X[part], *targets(model, part), classes=[0, 1, 7])
            except KeyboardInterrupt:
                pass
            interrupts._claim()
            assert dumps(attacked) == before or list(attacked.classes_) == [0, 1, 7], f"line {at} of {place.lines}"
