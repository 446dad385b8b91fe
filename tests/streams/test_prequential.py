"""What a model foresaw of a stream: the same whatever the batches, and the same after a pause."""

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
from everlearn.monitoring.event_log import Event
from everlearn.streams import prequential as monitors
from everlearn.streams.prequential import BLOCK, Monitor

rng = np.random.default_rng(0)
STREAM = rng.normal(size=(1500, 3))
STREAM[900] += 60.0
STREAM[1000:] += 15.0


class Scripted:
    """A model that reads its log-densities from the first column, and learns nothing."""

    n_samples_seen_ = 0

    def _is_started(self):
        return self.n_samples_seen_ > 0

    def score_samples(self, X):
        return X[:, 0].copy()

    def partial_fit(self, X, y=None):
        self.n_samples_seen_ += len(X)


def test_novel_is_what_lies_far_below_the_median():
    monitor = Monitor(Scripted(), drop=8.0, window=300, min_rows=200)
    rows = np.full((BLOCK, 2), [-50.0, np.nan])
    assert np.isnan(monitor.learn(rows).log_density).all()  # nothing learned yet to score with
    assert np.isnan(monitor.mean_log_likelihood)
    assert not monitor.learn(rows - 100.0).novel.any()  # nothing to compare with yet
    seen = monitor.learn(np.array([[-157.9, 0.0], [-158.1, 0.0]]))
    assert seen.novel.tolist() == [False, True]
    assert (monitor.n_rows, monitor.n_novel, monitor.n_gaps.tolist()) == (2 * BLOCK + 2, 1, [0, 2 * BLOCK])
    assert monitor.mean_log_likelihood == pytest.approx((BLOCK * -150 - 157.9 - 158.1) / (BLOCK + 2))


def test_what_is_usual_is_forgotten():
    monitor = Monitor(Scripted(), window=BLOCK, min_rows=200)
    for level in (0.0, 0.0, -100.0, -100.0):
        monitor.learn(np.full((BLOCK, 1), level))
    assert monitor.mean_log_likelihood == -100.0
    assert not monitor.learn(np.full((1, 1), -105.0)).novel.any()


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
    monitor, y = Monitor(model), targets(model)
    density, novel, changes = [], [], []
    for start, stop in zip([0, *splits], [*splits, len(STREAM)], strict=True):
        seen = monitor.learn(STREAM[start:stop], None if y is None else y[start:stop])
        density.append(seen.log_density)
        novel.append(seen.novel)
        changes += seen.changes
        if pause:
            memory, monitor = json.loads(json.dumps(monitor.memory())), Monitor(monitor.model)
            monitor.restore(memory)
    return np.concatenate(density), np.concatenate(novel), changes, monitor


@pytest.mark.parametrize("model", models(), ids=lambda model: type(model).__name__)
def test_faults_and_changes_are_seen_in_any_batches_and_after_pauses(model):
    density, novel, changes, monitor = watched(model.copy(), [])
    assert novel[900] or isinstance(model, IncrementalGaussianMixtureClassifier)  # whose target is as usual
    assert novel[:900].sum() < 10
    assert any(1000 <= row < 1100 for row in changes)
    assert (monitor.n_rows, monitor.n_novel, monitor.n_changes) == (len(STREAM), novel.sum(), len(changes))
    splits = [1, 230, 256, 701, 1002] if hasattr(model, "prequential") else [256, 768, 1024]
    other = watched(model.copy(), splits, pause=True)
    np.testing.assert_array_equal(other[1], novel)
    assert other[2] == changes
    assert other[3].mean_log_likelihood == pytest.approx(monitor.mean_log_likelihood)
    np.testing.assert_allclose(other[0], density, rtol=1e-8)


def test_changes_come_from_the_model_where_it_notices_them():
    model = IncrementalGaussianMixture()
    changes = watched(model, [300])[2]
    assert changes == [event.row for event in model.events_ if event.kind == "change"]
    assert isinstance(model.events_[0], Event)
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
    pieces = monitors._pieces(n_before, n)
    assert [i for piece in pieces for i in range(piece.start, piece.stop)] == list(range(n))
    assert all((n_before + piece.stop) % BLOCK == 0 for piece in pieces[:-1])
