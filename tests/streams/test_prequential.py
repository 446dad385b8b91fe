"""What a model predicted of a stream: the same whatever the batches, and the same after a pause."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn import (
    IncrementalGaussianMixture,
    IncrementalGaussianMixtureClassifier,
    IncrementalGaussianMixtureRegressor,
    OnlinePPCA,
    VariationalPPCA,
)
from everlearn.monitoring import page_hinkley as change
from everlearn.monitoring.event_log import events
from everlearn.streams import prequential as monitors
from everlearn.streams.prequential import SCORED_ROWS, PrequentialMonitor
from everlearn.typing import CalibratedModel, PrequentialModel

rng = np.random.default_rng(0)
STREAM = rng.normal(size=(1500, 3))
STREAM[900] += 60.0
STREAM[1000:] += 15.0


class Scripted:
    """A model that reads log-densities from the first column and p-values from the second, and learns nothing."""

    n_samples_seen_ = 0
    novelty_level = 1e-3

    def _is_started(self):
        return self.n_samples_seen_ > 0

    def score_samples(self, X):
        return X[:, 0].copy()

    def p_value(self, X):
        return X[:, 1].copy()

    def partial_fit(self, X, y=None):
        self.n_samples_seen_ += len(X)


def test_a_novelty_is_a_row_whose_p_value_is_below_the_level_of_the_model():
    monitor = PrequentialMonitor(Scripted())
    rows = np.full((SCORED_ROWS, 2), [-50.0, 1e-9])
    assert np.isnan(monitor.score_then_learn(rows).log_density).all()  # nothing learned yet to score with
    assert np.isnan(monitor.mean_log_likelihood)
    assert monitor.n_novel == 0
    result = monitor.score_then_learn(np.array([[-1e6, 1.1e-3], [-3.0, 0.9e-3], [-5.0, np.nan]]))
    assert result.novel.tolist() == [False, True, False]
    assert [event[:3] for event in result.events] == [(SCORED_ROWS + 1, "novelty", 0.9e-3)]
    assert (monitor.n_rows, monitor.n_novel, monitor.n_gaps.tolist()) == (SCORED_ROWS + 3, 1, [0, 1])
    assert monitor.mean_log_likelihood == pytest.approx((-1e6 - 3.0 - 5.0) / 3)


@pytest.mark.slow
def test_the_program_and_python_agree_on_novelties():
    """Events of a run are those of the model, and `novelty_level` sets how many there are."""
    counts = {}
    for level in (1e-12, 1e-4, 0.05):
        model = IncrementalGaussianMixture(novelty_level=level)
        monitor = PrequentialMonitor(model)
        events = [event for part in np.array_split(STREAM, 7) for event in monitor.score_then_learn(part).events]
        assert [tuple(event)[:3] for event in events] == [tuple(event) for event in model.events_]
        counts[level] = monitor.n_novel
    assert counts[1e-12] <= counts[1e-4] < counts[0.05]


def test_events_that_were_given_out_are_not_listed_again(monkeypatch):
    listed = []
    monkeypatch.setattr(monitors.event_log, "events", lambda log, since=0: listed.append(since) or events(log, since))
    monitor = PrequentialMonitor(IncrementalGaussianMixture())
    found = [len(monitor.score_then_learn(STREAM[start : start + 100]).events) for start in range(0, 1500, 100)]
    assert listed[-1] == sum(found[:-1]) > 0


def test_no_event_of_a_large_batch_is_lost():
    """The model keeps its latest 1000 events only."""
    far = np.random.default_rng(1).normal(size=(3000, 3)) * np.geomspace(10.0, 1e9, 3000)[:, None]
    monitor = PrequentialMonitor(IncrementalGaussianMixture(novelty_level=0.999))
    monitor.score_then_learn(STREAM[:500])
    result = monitor.score_then_learn(far)
    assert len(result.events) > 1000
    assert len({(event.row, event.kind) for event in result.events}) == len(result.events)
    assert result.novel.sum() > 1000


def models():
    return [
        IncrementalGaussianMixture(),
        OnlinePPCA(2),
        VariationalPPCA(2),
        IncrementalGaussianMixtureRegressor(),
        IncrementalGaussianMixtureClassifier(),
    ]


def targets(model):
    if isinstance(model, IncrementalGaussianMixtureRegressor):
        return STREAM[:, 0] ** 2
    return (STREAM[:, 0] > 0).astype(float) if isinstance(model, IncrementalGaussianMixtureClassifier) else None


def watched(model, splits, pause=False):
    """Everything that a monitor says of the stream, cut at these rows."""
    monitor, y = PrequentialMonitor(model), targets(model)
    density, novel, changes = [], [], []
    for start, stop in zip([0, *splits], [*splits, len(STREAM)], strict=True):
        seen = monitor.score_then_learn(STREAM[start:stop], None if y is None else y[start:stop])
        density.append(seen.log_density)
        novel.append(seen.novel)
        changes += seen.changes
        if pause:
            memory, monitor = json.loads(json.dumps(monitor.memory())), PrequentialMonitor(monitor.model)
            monitor.restore(memory)
    return np.concatenate(density), np.concatenate(novel), changes, monitor


@pytest.mark.slow
@pytest.mark.parametrize("model", models(), ids=lambda model: type(model).__name__)
def test_faults_and_changes_are_seen_in_any_batches_and_after_pauses(model):
    density, novel, changes, monitor = watched(model.copy(), [])
    assert novel[900] == isinstance(model, PrequentialModel | CalibratedModel)
    assert novel[:900].sum() < 10
    assert any(1000 <= row < 1100 for row in changes)
    assert (monitor.n_rows, monitor.n_novel, monitor.n_changes) == (len(STREAM), novel.sum(), len(changes))
    splits = [1, 230, 256, 701, 1002] if isinstance(model, PrequentialModel) else [256, 768, 1024]
    other = watched(model.copy(), splits, pause=True)
    np.testing.assert_array_equal(other[1], novel)
    assert other[2] == changes
    assert other[3].mean_log_likelihood == pytest.approx(monitor.mean_log_likelihood)
    np.testing.assert_allclose(other[0], density, rtol=1e-8)


def test_changes_come_from_the_model_where_it_notices_them():
    model = IncrementalGaussianMixture()
    changes = watched(model, [300])[2]
    assert changes == [event.row for event in model.events_ if event.kind == "change"]
    model = VariationalPPCA(2)
    assert watched(model, [300])[2] == model.changes_.tolist()


def test_changes_of_other_models_are_page_hinkleys():
    density, _, changes, _ = watched(OnlinePPCA(2), [])
    scored = np.flatnonzero(~np.isnan(density))
    fired = change.detect(change.PageHinkley(), change.ChangeState(), density[scored])[1]
    assert changes == scored[fired].tolist()


def test_the_score_of_a_target():
    X, y = STREAM[:, :2], np.where(STREAM[:, 0] > 0, "up", "down")
    model = IncrementalGaussianMixtureClassifier().fit(X, y)
    found = monitors.scores(model, X[:3], np.array([y[0], "unknown", y[2]]))
    assert found[0] == model.predict_log_proba(X[:1])[0, list(model.classes_).index(y[0])]
    assert np.isnan(found[1])
    regressor = IncrementalGaussianMixtureRegressor().fit(X, STREAM[:, 2])
    np.testing.assert_array_equal(
        monitors.scores(regressor, X[:3], STREAM[:3, 2]), regressor.condition(X[:3]).log_density(STREAM[:3, 2])
    )


@given(st.integers(0, 5000), st.integers(0, 2000))
def test_pieces_cover_all_rows_and_end_at_blocks(n_before, n):
    pieces = monitors._parts(n_before, n, SCORED_ROWS)
    assert [i for piece in pieces for i in range(piece.start, piece.stop)] == list(range(n))
    assert all((n_before + piece.stop) % SCORED_ROWS == 0 for piece in pieces[:-1])
