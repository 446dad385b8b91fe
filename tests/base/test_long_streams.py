"""What holds after millions of rows: memory, definiteness, accuracy."""

import gc
import resource
import sys
import tracemalloc

import numpy as np
import pytest

from everlearn import IncrementalGaussianMixture, dumps
from everlearn.figmn import learn as incremental
from everlearn.figmn import state as states

pytestmark = pytest.mark.slow


def resident_mib():
    """Peak resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def held_bytes():
    """Memory that Python objects hold; a collection empties the interpreter's own stores of freed tuples first."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_memory_does_not_grow_over_a_million_rows():
    rng = np.random.default_rng(0)
    batch = rng.normal(size=(20_000, 2)) + rng.integers(3, size=(20_000, 1)) * 6.0
    model = IncrementalGaussianMixture(max_components=8)
    for _ in range(10):
        model.partial_fit(batch)
    model.score_samples(batch[:1000])
    resident, length = resident_mib(), len(dumps(model))
    tracemalloc.start()
    for step in range(40):
        model.partial_fit(batch)
        if step == 10:
            held = held_bytes()
    grown = held_bytes() - held
    tracemalloc.stop()
    assert model.n_samples_seen_ == 1_000_000
    assert grown < 2**16
    assert resident_mib() - resident < 16
    # The sample of rows and the components are all that there is, and both were full before.
    assert len(dumps(model)) < 1.1 * length


def test_a_million_updates_at_condition_a_million_stay_accurate():
    rng = np.random.default_rng(1)
    D, n = 8, 1_000_000
    basis = np.linalg.qr(rng.normal(size=(D, D)))[0]
    spread = np.geomspace(1.0, 1e-3, D)
    X = rng.normal(size=(n, D)) * spread @ basis.T
    settings = states.Settings(
        centre=np.zeros(D),
        initial_variance=np.full(D, 1e-3),
        thresholds=np.full(D + 1, np.inf),
        paper=False,
        forgetting=1.0,
        min_age=np.inf,
        min_count=0.0,
        max_components=1,
        log_scale=np.zeros(D),
    )
    state, _ = incremental.learn(states.empty(D), X, np.ones(n), settings)
    covariance = (np.diag(settings.initial_variance) + (X - X.mean(axis=0)).T @ (X - X.mean(axis=0))) / n
    assert np.linalg.cond(covariance) > 5e5
    np.linalg.cholesky(state.precisions[0])
    E = X[:200] - X.mean(axis=0)
    fresh = np.einsum("nd,nd->n", E, np.linalg.solve(covariance, E.T).T)
    kept = np.einsum("nd,de,ne->n", E, state.precisions[0], E)
    np.testing.assert_allclose(kept, fresh, rtol=1e-8)
