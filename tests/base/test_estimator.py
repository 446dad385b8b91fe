"""Weights of zero, masks, and learning that is all or nothing."""

import functools
import os
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import get_tags

import everlearn
from everlearn.base.estimator import as_rows
from everlearn.base.redo_log import LOG_ROWS, UNDO_ROWS
from everlearn.errors import InputError
from everlearn.persistence.model_file import dumps, loads
from toys import RunningNormal

X = np.random.default_rng(0).normal(size=(20_000, 6))


def test_zero_weights_leave_rows_out():
    weights = np.ones(300)
    weights[::3] = 0.0
    weighted = RunningNormal().partial_fit(X[:300], sample_weight=weights)
    assert dumps(weighted) == dumps(RunningNormal().partial_fit(X[:300][weights > 0], sample_weight=np.ones(200)))


def test_a_batch_without_weight_changes_nothing():
    model = RunningNormal()
    model.partial_fit(X[:5], sample_weight=np.zeros(5))
    assert not model._is_started()
    before = dumps(model.partial_fit(X[:5]))
    assert dumps(model.partial_fit(X[5:9], sample_weight=0.0)) == before
    with pytest.raises(InputError, match="zero for every row"):
        RunningNormal().fit(X[:5], sample_weight=np.zeros(5))


def test_prequential_says_nothing_of_rows_left_out():
    model = everlearn.IncrementalGaussianMixture().fit(X[:400])
    weights = np.ones(10)
    weights[[2, 9]] = 0.0
    told = model.prequential(X[400:410], sample_weight=weights)
    assert np.isnan(told[[2, 9]]).all()
    assert np.isfinite(np.delete(told, [2, 9])).all()


def test_masks_are_gaps():
    masked = np.ma.MaskedArray(X[:5].copy(), mask=np.zeros((5, 6), dtype=bool))
    masked[2, 3] = np.ma.masked
    rows = as_rows(masked)
    assert np.isnan(rows[2, 3])
    assert np.isfinite(np.delete(rows.ravel(), 15)).all()
    with pytest.raises(InputError, match="NaN at row 2, column 3"):
        RunningNormal().partial_fit(masked)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[1.0, 10**400]], r"row 0, column 1, which is not a number"),
        ([[1.0, 10**5000]], r"row 0, column 1, which is not a number"),
        (np.array([["2020-01-01", "2020-01-02"]], dtype="datetime64[D]"), "datetime64"),
        (pd.DataFrame({"a": [1.0], "t": pd.to_datetime(["2020-01-01"])}), "datetime64.* in column 't'"),
    ],
)
def test_numbers_that_are_none(table, message):
    with pytest.raises(InputError, match=message):
        RunningNormal().partial_fit(table)


MODELS = [
    everlearn.IncrementalGaussianMixture,
    everlearn.OnlinePPCA,
    everlearn.VariationalPPCA,
    everlearn.IncrementalGaussianMixtureClassifier,
    everlearn.IncrementalGaussianMixtureRegressor,
]


def targets(model, n):
    """Labels or values, for the models that need them."""
    return (np.arange(n) % 3,) if get_tags(model).target_tags.required else ()


@functools.cache
def with_500_rows(kind):
    """A file of a model that has learned 500 rows."""
    return dumps(kind().partial_fit(X[:500], *targets(kind(), 500)))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("seconds", [0.002, 0.02, 0.1])
def test_interrupted_learning_is_undone(kind, seconds):
    """Ctrl-C at any moment of a long batch: the model answers, and goes on, as before the call."""
    before = with_500_rows(kind)
    learned, again = loads(before), loads(before)
    killer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    try:
        killer.start()
        learned.partial_fit(X, *targets(learned, len(X)))
        time.sleep(1.0)
    except KeyboardInterrupt:
        killer.join()
    if learned.n_samples_seen_ == 500:
        assert dumps(learned) == before
        more = X[:300], *targets(learned, 300)
        assert dumps(learned.partial_fit(*more)) == dumps(again.partial_fit(*more))
    else:  # the batch was done before the interrupt came
        assert learned.n_samples_seen_ == 500 + len(X)


def test_single_rows_are_learned_whole():
    """Ctrl-C while single rows are learned comes out between two rows; the count tells how far the model is."""
    model, rows = everlearn.OnlinePPCA().partial_fit(X[:500]), iter(X[500:, None])
    done = 500
    killer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    try:
        killer.start()
        while True:
            row = next(rows)
            model.partial_fit(row)
            done += 1
    except KeyboardInterrupt:
        killer.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert done <= model.n_samples_seen_ <= done + 1
    again = everlearn.OnlinePPCA().partial_fit(X[:500])
    for row in X[500 : model.n_samples_seen_, None]:
        again.partial_fit(row)
    assert dumps(again) == dumps(model)


def test_one_row_takes_the_short_way():
    """A plain row of a fitted model is not converted by scikit-learn, nor is the state copied."""
    model = RunningNormal().partial_fit(X[:50])
    row = np.ascontiguousarray(X[:1])
    assert model._check_X(row) is row


def test_states_are_copied_for_long_batches_and_seldom_for_short_ones(monkeypatch):
    model, copies = RunningNormal().partial_fit(X[:50]), []
    monkeypatch.setattr(RunningNormal, "_snapshot", lambda self: copies.append(1) or dict(vars(self)))
    for row in X[:LOG_ROWS, None]:
        model.partial_fit(row)
    assert copies == [1]
    model.partial_fit(X[:1])
    assert copies == [1, 1]
    model.partial_fit(X[:UNDO_ROWS])
    assert copies == [1, 1, 1]
