"""Laws of merging mixtures: order, bracketing, shares, gaps, units, and what the statistics of all rows give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everlearn
from everlearn.errors import InputError, MergeError
from everlearn.mixture import merge as merging
from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.mixture.keep.world import frame_of_spread
from examples import examples

seeds = st.integers(0, 10**6)


def groups(rng, n, D=2, spread=6.0):
    centres = spread * np.random.default_rng(7).normal(size=(4, D))
    return centres[rng.integers(4, size=n)] + rng.normal(size=(n, D))


def models_of(parts, **parameters):
    return [IncrementalGaussianMixture(**parameters).partial_fit(part) for part in parts]


@examples(4)
@given(seed=seeds, sizes=st.lists(st.integers(1, 500), min_size=2, max_size=4), weighted=st.booleans())
def test_order_makes_no_difference_and_arguments_stay(seed, sizes, weighted):
    rng = np.random.default_rng(seed)
    X = groups(rng, sum(sizes))
    models = models_of(np.split(X, np.cumsum(sizes)[:-1]))
    before = [everlearn.dumps(model) for model in models]
    order = rng.permutation(len(models))
    weights = rng.uniform(0.5, 2.0, len(models))
    a = everlearn.merge(models, weights=weights if weighted else None)
    b = everlearn.merge([models[i] for i in order], weights=weights[order] if weighted else None)
    assert everlearn.dumps(a) == everlearn.dumps(b)
    assert a.n_samples_seen_ == sum(sizes)
    a.partial_fit(X)
    assert [everlearn.dumps(model) for model in models] == before


@pytest.mark.slow
@examples(4)
@given(seed=seeds, n=st.sampled_from([400, 3500]))
def test_bracketing_makes_little_difference(seed, n):
    rng = np.random.default_rng(seed)
    a, b, c = models_of([groups(rng, n) for _ in range(3)])
    test = groups(rng, 2000)
    scores = [model.score(test) for model in ((a + b) + c, a + (b + c), (c + a) + b, everlearn.merge([a, b, c]))]
    assert max(scores) - min(scores) < 0.02


@pytest.mark.parametrize(
    ("shards", "rows"),
    [pytest.param(16, 300, marks=pytest.mark.slow), pytest.param(5, 4000, marks=pytest.mark.slow), (40, 100)],
)
def test_shards_merge_to_what_one_pass_finds(shards, rows):
    rng = np.random.default_rng(1)
    X, test = groups(rng, shards * rows, D=3), groups(rng, 3000, D=3)
    single = IncrementalGaussianMixture().partial_fit(X)
    merged = everlearn.merge(models_of(np.split(X, shards)))
    assert merged.score(test) == pytest.approx(single.score(test), rel=0.01)
    assert 4 <= merged.n_components_ <= single.n_components_ + 2
    assert merged.effective_samples_ == pytest.approx(len(X))


@pytest.mark.parametrize("grouped", [pytest.param(False, marks=pytest.mark.slow), True])
def test_sixteen_shards_that_keep_no_row_merge_to_what_one_pass_finds(grouped):
    """Statistics travel alone: shards that are alike, and shards that saw one group, or two, each."""
    rng = np.random.default_rng(3)
    X, test = groups(rng, 16 * 1000, D=3), groups(rng, 3000, D=3)
    if grouped:
        centres = 6.0 * np.random.default_rng(7).normal(size=(4, 3))
        X = X[np.argsort(((X[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1), kind="stable")]
    single = IncrementalGaussianMixture(reservoir=0).partial_fit(X)
    shards = models_of(np.split(X, 16), reservoir=0)
    assert not any(shard.keeps_rows_ for shard in shards)
    merged = everlearn.merge(shards)
    assert merged.score(test) == pytest.approx(single.score(test), rel=0.01)
    assert merged.n_components_ == single.n_components_ == 4


def test_shards_that_saw_one_group_each():
    rng = np.random.default_rng(2)
    parts = [centre + rng.normal(size=(1000, 2)) for centre in ([0.0, 0.0], [1e4, 0.0], [0.0, 500.0])]
    merged = everlearn.merge(models_of(parts))
    assert merged.n_components_ == 3
    np.testing.assert_allclose(np.sort(merged.weights_), 1 / 3, atol=0.01)
    nearest = [np.abs(merged.means_ - part.mean(axis=0)).max(axis=1).min() for part in parts]
    assert max(nearest) < 0.1


def test_statistics_of_all_rows_are_carried_over():
    """The mean of one Gaussian is that of all 12,000 rows, not of the 300 that are kept."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(12_000, 2))
    merged = everlearn.merge(models_of(np.split(X, 4), reservoir=300))
    assert merged.n_components_ == 1
    np.testing.assert_allclose(merged.means_[0], X.mean(axis=0), atol=2e-3)
    np.testing.assert_allclose(merged.covariances_[0], np.cov(X.T), atol=0.01)


def test_shares_count_rows():
    rng = np.random.default_rng(4)
    a, b = models_of([rng.normal(0, 1, (1000, 1)), rng.normal(50, 1, (1000, 1))])
    merged = everlearn.merge([a, b], weights=[3.0, 1.0])
    order = np.argsort(merged.means_[:, 0])
    np.testing.assert_allclose(merged.weights_[order], [0.75, 0.25], atol=0.01)
    assert merged.effective_samples_ == pytest.approx(2000)


def test_sample_is_in_proportion_to_the_rows():
    """Inclusion of a row of weight 1 is the same whichever model it came from."""
    rng = np.random.default_rng(5)
    a, b = models_of([rng.normal(0, 1, (30_000, 1)), rng.normal(100, 1, (10_000, 1))], reservoir=1000)
    merged = a + b
    sample = merged._state_.reservoir
    rows = sample.rows[: sample.size[0], 0] / merged._state_.frame.inverse + merged._state_.frame.centre
    assert sample.size[0] == 1000
    # Standard error 0.0137; four of them.
    assert abs((rows > 50).mean() - 0.25) < 0.055
    assert np.exp(sample.level[0]) == pytest.approx(40, rel=0.15)


@pytest.mark.slow
def test_gaps_survive():
    rng = np.random.default_rng(6)
    X = groups(rng, 2000)
    X[rng.random(X.shape) < 0.3] = np.nan
    single = IncrementalGaussianMixture().partial_fit(X)
    merged = everlearn.merge(models_of(np.split(X, 4)))
    test = groups(rng, 1000)
    assert merged.score(test) == pytest.approx(single.score(test), abs=0.15)
    assert np.isnan(merged._state_.reservoir.rows[:500]).any()


@given(centre=st.floats(-1e6, 1e6), power=st.integers(-20, 20), other=st.integers(-20, 20))
def test_change_of_frame_is_that_of_the_rows(centre, power, other):
    old = frame_of_spread(np.array([centre]), np.array([2.0**power]))
    new = frame_of_spread(np.array([1.0]), np.array([2.0**other]))
    x = np.array([centre + 0.75 * 2.0**power])
    ratio, offset = merging.change_of_frame(old, new)
    z = (x - old.centre) * old.inverse
    np.testing.assert_allclose(z * ratio + offset, (x - new.centre) * new.inverse, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [60, 900])
def test_fewer_components_on_request(n):
    models = models_of([groups(np.random.default_rng(seed), n) for seed in range(3)])
    assert everlearn.merge(models, n_components=2).n_components_ <= 2
    assert models[0].merge(n_components=1).n_components_ == 1
    with pytest.raises(InputError, match="n_components"):
        everlearn.merge(models, n_components=0)


def test_mean_is_the_average_of_the_densities():
    rng = np.random.default_rng(8)
    a, b = models_of([rng.normal(0, 1, (2000, 2)), rng.normal(20, 1, (2000, 2))])
    x = np.concatenate([rng.normal(0, 1, (50, 2)), rng.normal(20, 1, (50, 2))])
    average = np.logaddexp(a.score_samples(x), b.score_samples(x)) - np.log(2)
    # Not exact: a question to one of them is preceded by a search of its own.
    assert np.abs(a.merge(b, method="mean").score_samples(x) - average).mean() < 0.05


def test_merged_model_goes_on_learning_as_its_copy_from_a_file():
    rng = np.random.default_rng(9)
    merged = everlearn.merge(models_of([groups(rng, 700) for _ in range(3)]))
    loaded = everlearn.loads(everlearn.dumps(merged))
    more = groups(rng, 3000)
    assert everlearn.dumps(merged.partial_fit(more)) == everlearn.dumps(loaded.partial_fit(more))


def test_what_cannot_be_merged_is_refused():
    rng = np.random.default_rng(10)
    a, b = models_of([rng.normal(size=(500, 2)), rng.normal(size=(500, 2)) * [1.0, 1e5]])
    with pytest.raises(MergeError, match="Column 1 spreads"):
        a + b
    with pytest.raises(MergeError, match="method='bayes' does not apply"):
        a.merge(a, method="bayes")


def test_the_sample_of_many_models_is_of_all_of_them_and_of_all_their_rows():
    """Models of one seed keep rows of the same numbers: the sample of all must not be one number of the first."""
    n, rows = 40, 150
    numbers = np.arange(rows, dtype=float)
    parts = [np.column_stack([np.full(rows, float(device)), numbers]) for device in range(n)]
    models = models_of([part + 0.01 * np.random.default_rng(0).normal(size=part.shape) for part in parts], reservoir=60)
    sample = everlearn.merge(models)._state_.reservoir
    assert sample.size[0] == 60
    frame = everlearn.merge(models)._state_.frame
    device, number = (sample.rows[:60] / frame.inverse + frame.centre).round().T
    # 60 draws of 40 devices and of 150 numbers: 31 and 50 distinct ones on average.
    assert len(np.unique(device)) > 20
    assert len(np.unique(number)) > 35
    assert abs(device.mean() - (n - 1) / 2) < 4.5 * (n / 12**0.5) / 60**0.5


def bent(rng, n):
    """A sine in three columns, which a few rows cannot tell from a line."""
    t = rng.uniform(-6.0, 6.0, n)
    return np.column_stack([t, 3.0 * np.sin(t), np.cos(2.0 * t)]) + 0.1 * rng.normal(size=(n, 3))


@pytest.mark.slow
def test_parts_that_hold_all_their_rows_are_learned_anew():
    """As good as one pass where each part saw too little, and the same however they are merged."""
    rng = np.random.default_rng(3)
    X, test = bent(rng, 2400), bent(rng, 3000)
    parts = models_of(np.split(X, 8))
    merged = everlearn.merge(parts)
    single = IncrementalGaussianMixture().partial_fit(X)
    assert merged.score(test) > single.score(test) - 0.05
    assert merged.n_samples_seen_ == 2400
    again = everlearn.merge([everlearn.merge(parts[5:]), *parts[:5]])
    assert again.score(test) == pytest.approx(merged.score(test), abs=1e-3)


def test_parts_that_hold_all_their_rows_are_one_pass_over_them_in_another_order(monkeypatch):
    """So merging loses nothing but what another order of the rows does."""
    rng, taken, all_rows = np.random.default_rng(4), [], merging._all_rows
    monkeypatch.setattr(merging, "_all_rows", lambda *given: taken.append(all_rows(*given)) or taken[-1])
    X, test = bent(rng, 600), bent(rng, 500)
    merged = everlearn.merge(models_of(np.split(X, 4)))
    (rows, weights), *_ = taken
    np.testing.assert_allclose(np.sort(rows, axis=0), np.sort(X, axis=0), atol=1e-5)
    np.testing.assert_allclose(weights, 1.0, rtol=1e-6)
    single = IncrementalGaussianMixture().partial_fit(rows)
    assert merged.score(test) == pytest.approx(single.score(test), rel=1e-9)


def test_rows_that_are_gone_or_many_are_not_learned_anew(monkeypatch):
    monkeypatch.setattr(merging, "_relearned", lambda *_: pytest.fail("it was learned anew"))
    few, many = models_of([groups(np.random.default_rng(4), n) for n in (300, 900)], reservoir=500)
    everlearn.merge([few, many])
    everlearn.merge([few.copy() for _ in range(20)])
    for parameters, method in (({"reservoir": 0}, "auto"), ({"forgetting": 0.99}, "auto"), ({}, "mean")):
        (model,) = models_of([groups(np.random.default_rng(5), 520)], **parameters)
        everlearn.merge([model, model.copy()], method=method)
