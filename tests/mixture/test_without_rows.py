"""reservoir=0: no row of the stream is stored once the warm-up has ended."""

import numpy as np
import pytest

import everlearn
from everlearn import IncrementalGaussianMixture

D, WARMUP = 8, 500


def groups(n, seed=0, K=5, spread=4.0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, spread, (K, D))
    label = rng.integers(K, size=n)
    return rng.normal(size=(n, D)) + centres[label], label


@pytest.fixture(scope="module")
def stream():
    return groups(4000)


@pytest.fixture(scope="module")
def model(stream):
    return IncrementalGaussianMixture(reservoir=0).partial_fit(stream[0])


def saved(model, folder):
    model.save(folder / "model.evl")
    return (folder / "model.evl").read_bytes()


def values_in(content):
    """All numbers of eight and four bytes that the file could hold, at any place."""
    found = [np.frombuffer(content[at : at + (len(content) - at) // 8 * 8], "<f8") for at in range(8)]
    return np.unique(np.concatenate(found))


def test_rows_are_kept_during_the_warm_up_only(stream):
    model = IncrementalGaussianMixture(reservoir=0).partial_fit(stream[0][: WARMUP - 1])
    assert model.keeps_rows_
    model.partial_fit(stream[0][WARMUP - 1 : WARMUP])
    assert not model.keeps_rows_


def test_no_row_is_in_the_file_and_it_is_small(model, stream, tmp_path):
    content = saved(model, tmp_path)
    assert len(content) < 20_000
    frame = model._state_.frame
    inside = (stream[0] - frame.centre) * frame.inverse
    held = values_in(content)
    for values in (stream[0], inside):
        assert not np.isin(values.ravel(), held).any()
        singles = values.astype(np.float32)
        assert not any(row.tobytes() in content for row in singles)
    # The same look finds the rows of a model that keeps them.
    keeps = IncrementalGaussianMixture(reservoir=50).partial_fit(stream[0][:1000])
    kept = keeps._state_.reservoir.rows[3]
    assert kept.tobytes() in saved(keeps, tmp_path)


@pytest.mark.slow
def test_groups_are_found_shuffled_and_sorted(model, stream):
    X, label = stream
    assert model.n_components_ == 5
    test = groups(2000)[0]
    in_order = IncrementalGaussianMixture(reservoir=0).partial_fit(X[np.argsort(label, kind="stable")])
    rows = IncrementalGaussianMixture().partial_fit(X)
    assert model.score(test) > rows.score(test) - 0.05
    assert in_order.score(test) > rows.score(test) - 0.25


@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 2, 8])
def test_one_gaussian_stays_one(columns):
    found = [
        IncrementalGaussianMixture(reservoir=0)
        .partial_fit(np.random.default_rng(seed).normal(size=(4000, columns)))
        .n_components_
        for seed in range(4)
    ]
    assert found == [1, 1, 1, 1]


@pytest.mark.slow
def test_two_groups_that_came_as_one_component_are_told_apart_later():
    """The warm-up sees one group; the second comes so slowly that no row opens a component."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(12000, 3))
    late = np.arange(12000) > 700
    shift = np.minimum(np.arange(12000) / 3000, 1.0) * 6.0
    X[:, 0] += np.where(late & (rng.random(12000) < 0.5), shift, 0.0)
    model = IncrementalGaussianMixture(reservoir=0).partial_fit(X)
    assert model.n_components_ >= 2
    means = np.sort(model.means_[model.weights_ > 0.1, 0])
    assert means[0] < 0.6
    assert means[-1] > 5.0


def test_any_split_of_the_stream_gives_the_same_model(stream):
    X = stream[0][np.argsort(stream[1], kind="stable")][:1500]
    whole = IncrementalGaussianMixture(reservoir=0).partial_fit(X)
    parts = IncrementalGaussianMixture(reservoir=0)
    for part in np.array_split(X, 9):
        parts.partial_fit(part)
    assert np.array_equal(whole.score_samples(X[:100]), parts.score_samples(X[:100]))


def test_a_loaded_model_goes_on_as_the_saved_one(model, stream, tmp_path):
    saved(model, tmp_path)
    loaded, copy = everlearn.load(tmp_path / "model.evl"), model.copy()
    assert not loaded.keeps_rows_
    for one in (loaded, copy):
        one.partial_fit(groups(4500, seed=0)[0][:4500])
    assert np.array_equal(loaded.score_samples(stream[0][:100]), copy.score_samples(stream[0][:100]))


def test_merged_models_hold_no_rows_and_know_what_all_knew(stream):
    X = stream[0]
    parts = [IncrementalGaussianMixture(reservoir=0).partial_fit(X[i::2]) for i in range(2)]
    merged = parts[0].merge(parts[1])
    assert not merged.keeps_rows_
    assert merged.n_components_ == 5
    assert merged.score(X) > max(part.score(X) for part in parts) - 0.02
    warm = [IncrementalGaussianMixture(reservoir=0).partial_fit(X[i * 100 : i * 100 + 100]) for i in range(2)]
    assert not warm[0].merge(warm[1], n_components=3).keeps_rows_


@pytest.mark.slow
def test_gaps_weights_and_forgetting_work(stream):
    X = stream[0].copy()
    complete = IncrementalGaussianMixture(reservoir=0).partial_fit(X).score(X)
    X[np.random.default_rng(2).random(X.shape) < 0.1] = np.nan
    gaps = IncrementalGaussianMixture(reservoir=0).partial_fit(X)
    assert gaps.score(stream[0]) > complete - 0.3
    assert np.isfinite(gaps.impute(X)).all()
    forgets = IncrementalGaussianMixture(reservoir=0, forgetting=0.998).partial_fit(stream[0])
    forgets.partial_fit(stream[0] + 30.0)
    assert forgets.score(stream[0] + 30.0) > forgets.score(stream[0]) + 20.0
    weighted = IncrementalGaussianMixture(reservoir=0).partial_fit(stream[0], sample_weight=np.full(4000, 0.5))
    assert weighted.effective_samples_ == pytest.approx(2000)
    p = weighted.p_value(groups(1000)[0])
    assert np.isfinite(p).all()
    assert 0.4 < p.mean() < 0.6


def test_single_rows_that_use_up_the_room_call_for_a_search_as_a_batch_does():
    """A search is due when the room for new components is used up, not only at row counts that double."""
    rng = np.random.default_rng(5)
    centres = np.repeat(rng.normal(0, 300, (40, 2)), 6, axis=0)
    X = np.concatenate([rng.normal(size=(700, 2)), rng.normal(size=centres.shape) + centres])
    whole, single = (IncrementalGaussianMixture(reservoir=0).partial_fit(X[:700]) for _ in range(2))
    whole.partial_fit(X[700:])
    for row in X[700:]:
        single.partial_fit(row[None])
    assert whole._state_.searched > 700
    assert single._state_.searched == whole._state_.searched
    assert np.array_equal(whole.score_samples(X[:100]), single.score_samples(X[:100]))


def test_outliers_are_not_forgotten():
    """Rare large values of a few columns: a search must not make the broad Gaussian of all rows narrower."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(5000, 10))
    X[:, 5:] = np.where(rng.random((5000, 5)) < 0.01, np.exp(rng.normal(3.0, 1.0, (5000, 5))), 0.1 * X[:, 5:])
    train, test = X[:4000], X[4000:]
    without, kept = (IncrementalGaussianMixture(reservoir=m).partial_fit(train) for m in (0, "auto"))
    assert without.score_samples(test).min() > kept.score_samples(test).min() - 20.0


def test_a_search_does_not_lose_what_the_warm_up_found():
    """Many groups of few rows, after little more than the warm-up."""
    X = groups(5600, seed=3, K=30, spread=1.5)[0]
    warm = IncrementalGaussianMixture(reservoir=0).partial_fit(X[:WARMUP])
    later = IncrementalGaussianMixture(reservoir=0).partial_fit(X[:600])
    assert later.score(X[600:]) > warm.score(X[600:])
