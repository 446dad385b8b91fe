"""More models than memory has room for: the rest lies on the disk, and nothing of it is lost."""

import gc
import time
import tracemalloc

import numpy as np
import pytest

import everlearn
from everlearn import IncrementalGaussianMixture
from everlearn.gaussian import mixture as mixtures
from everlearn.mixture import ask
from everlearn.service.repository import ModelRepository
from everlearn.service.settings import Limits
from everlearn.streams.store.store import Store

COLUMNS = ["u", "v"]


@pytest.fixture
def repository(state):
    found = ModelRepository(Store(state), Limits(models_in_memory=4))
    found.start()
    yield found
    found.stop()


def add_models(repository, names):
    model = IncrementalGaussianMixture()
    for name in names:
        repository.store.commit(name, model, 0, position={"inbox": {"columns": COLUMNS}})


def teach(repository, names, seed):
    """Put a row of its own into each model, and wait until all are learned."""
    rows = np.random.default_rng(seed).normal(size=(len(names), 1, 2))
    for done in [repository.put(name, X, None) for name, X in zip(names, rows, strict=True)]:
        done.result()
    end = time.monotonic() + 60
    while repository.waiting_values:
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.slow
def test_models_beyond_memory_keep_learning(repository):
    names = [f"m{i:02d}" for i in range(8)]
    add_models(repository, names)
    for seed in range(2):
        teach(repository, names, seed)
    assert [entry.n_rows for entry in repository.store.models()] == [2] * 8
    assert all(repository.model(name).n_samples_seen_ == 2 for name in names)
    assert len(repository.learning._sessions) <= 4
    assert len(repository._cache) <= 4


@pytest.mark.slow
def test_memory_for_a_model_on_the_disk(repository):
    # With 10,000 models each may cost a name and a few numbers, not its components or its sample of rows.
    groups = [[f"{group}{i:03d}" for i in range(30)] for group in "ab"]
    for group in groups:
        add_models(repository, group)
    tracemalloc.start()
    try:
        teach(repository, groups[0], 0)
        [repository.model(name) for name in groups[0]]
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        teach(repository, groups[1], 1)
        [repository.model(name) for name in groups[1]]
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 30 * 2000


def test_models_in_memory_are_bounded_by_size(state):
    repository = ModelRepository(Store(state), Limits(models_in_memory=100, memory_bytes=2))
    add_models(repository, ["a", "b"])
    repository.model("a")
    repository.model("b")
    assert len(repository._cache) == 1
    repository.store.close()


def test_listing_in_pages(open_client, state):
    with Store(state) as store:
        model = IncrementalGaussianMixture()
        for i in range(5):
            store.commit(f"m{i}", model, 0)
    client = open_client()
    first = client.get("/models?limit=2").json()
    assert ([m["name"] for m in first["models"]], first["n_models"], first["next"]) == (["m0", "m1"], 5, "m1")
    rest = client.get("/models", params={"after": first["next"], "limit": 3}).json()
    assert ([m["name"] for m in rest["models"]], rest["next"]) == (["m2", "m3", "m4"], None)
    assert client.get("/models?limit=0").status_code == 422


def test_metrics_of_many_models_are_sums(open_client, state):
    with Store(state) as store:
        model = IncrementalGaussianMixture()
        for i in range(3):
            store.commit(f"m{i}", model, 0, more={"rows": 10 + i})
    few, many = open_client(limits=Limits(metrics_models=2)), open_client(limits=Limits(metrics_models=3))
    for client, labelled in ((few, False), (many, True)):
        text = client.get("/metrics").text
        assert "everlearn_models 3.0" in text
        assert "everlearn_service_rows_learned_total 33.0" in text
        assert ('model="m1"' in text) == labelled


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mixture", "regressor", "classifier"])
def test_quick_answers_are_those_between_searches(state, kind, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3)) + 6.0 * rng.integers(3, size=(600, 1))
    if kind == "mixture":
        model = IncrementalGaussianMixture().partial_fit(X)
    elif kind == "regressor":
        model = everlearn.IncrementalGaussianMixtureRegressor().partial_fit(X, X[:, 0])
    else:
        model = everlearn.IncrementalGaussianMixtureClassifier().partial_fit(X, X[:, 0] > 6.0)
    with Store(state) as store:
        store.commit("m", model, 0)
    searches = []
    monkeypatch.setattr(ask, "_looked", lambda *args, own=ask._looked: searches.append(1) or own(*args))
    for quick in (True, False):
        repository = ModelRepository(Store(state), Limits(), quick_answers=quick)
        try:
            found = repository.model("m")
            if kind == "mixture":
                answer, between = found.score_samples(X[:20]), found.mixture_between_searches()
                assert quick == np.allclose(answer, mixtures.log_density(X[:20], between), rtol=1e-9)
            else:
                found.predict(X[:20])
        finally:
            repository.store.close()
        assert bool(searches) == (not quick)
