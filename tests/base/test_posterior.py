"""Posterior becomes prior: against the posterior of all data, derived in another way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

import everlearn
from everlearn import StreamingPosterior
from everlearn.errors import InputError, MergeError

NOISE = 0.7


class Beta:
    """Beta(a, b) with the natural parameters (a - 1, b - 1)."""

    def __init__(self, natural):
        self.natural = np.asarray(natural, dtype=float)

    def log_prob(self, p):
        return stats.beta(*(self.natural + 1)).logpdf(p)


class Gamma:
    """Gamma(shape a, rate b) with the natural parameters (a - 1, -b)."""

    def __init__(self, natural):
        self.natural = np.asarray(natural, dtype=float)

    def log_prob(self, rate):
        return stats.gamma(self.natural[0] + 1, scale=-1 / self.natural[1]).logpdf(rate)


def regression(n=40, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ np.arange(1.0, d + 1) + np.sqrt(NOISE) * rng.normal(size=n)


def evidence(X, y):
    """Maximum and curvature of the likelihood of a batch, which may have fewer rows than columns."""
    return np.linalg.lstsq(X, y, rcond=None)[0], X.T @ X / NOISE


def function_space_posterior(X, y, mean, covariance):
    """The same posterior by conditioning the joint Gaussian of weights and targets (no precision is formed)."""
    S = X @ covariance @ X.T + NOISE * np.eye(len(X))
    gain = covariance @ X.T @ np.linalg.inv(S)
    return mean + gain @ (y - X @ mean), covariance - gain @ X @ covariance


@given(cuts=st.lists(st.integers(0, 40), max_size=6).map(sorted))
def test_any_split_into_batches_gives_the_posterior_of_all_rows(cuts):
    X, y = regression()
    prior = np.array([5.0, 0.0, -1.0]), np.diag([0.5, 1.0, 2.0])
    weights = StreamingPosterior(prior)
    for start, stop in zip([0, *cuts], [*cuts, 40], strict=True):
        weights.update(evidence(X[start:stop], y[start:stop]))
    mean, covariance = function_space_posterior(X, y, prior[0], np.linalg.inv(prior[1]))
    assert np.allclose(weights.mean, mean, rtol=1e-9)
    assert np.allclose(weights.covariance, covariance, rtol=1e-9, atol=1e-14)
    assert weights.n_updates == len(cuts) + 1


def test_three_coins_by_integration():
    """Beta-Bernoulli beside the posterior that quadrature gives."""
    flips = [np.array([1, 1, 0]), np.array([0]), np.array([1, 0, 1, 1])]
    belief = StreamingPosterior(Beta([1.0, 2.0]))
    for batch in flips:
        belief.update([batch.sum(), len(batch) - batch.sum()])
    every = np.concatenate(flips)

    def unnormalised(p):
        return stats.beta(2, 3).pdf(p) * np.prod(p**every * (1 - p) ** (1 - every))

    evidence = integrate.quad(unnormalised, 0, 1)[0]
    for p in (0.1, 0.5, 0.93):
        assert belief.log_prob(p) == pytest.approx(np.log(unnormalised(p) / evidence), abs=1e-9)


def test_posterior_is_the_prior_of_the_next():
    counts = np.random.default_rng(1).poisson(3.0, 30)
    whole = StreamingPosterior(Gamma([1.0, -0.5])).update([counts.sum(), -30])
    first = StreamingPosterior(Gamma([1.0, -0.5])).update([counts[:12].sum(), -12])
    second = StreamingPosterior(first.posterior).update([counts[12:].sum(), -18])
    assert np.array_equal(second.posterior.natural, whole.posterior.natural)
    assert second.log_prob(3.0) == whole.log_prob(3.0)


@pytest.mark.parametrize("as_iterator", [False, True])
def test_merge_counts_every_batch_and_the_prior_once(as_iterator):
    X, y = regression()
    prior = np.array([5.0, 0.0, -1.0]), 0.5
    parts = [StreamingPosterior(prior).update(evidence(X[i::4], y[i::4])) for i in range(4)]
    merged = everlearn.merge(iter(parts) if as_iterator else parts, method="auto" if as_iterator else "bayes")
    mean, covariance = function_space_posterior(X, y, prior[0], np.eye(3) / 0.5)
    assert np.allclose(merged.mean, mean, rtol=1e-9)
    assert np.allclose(merged.covariance, covariance, rtol=1e-9, atol=1e-14)
    assert merged.n_updates == 4
    assert np.allclose((parts[0] + parts[1] + parts[2] + parts[3]).mean, mean)
    assert all(part.n_updates == 1 for part in parts)


def test_more_posteriors_than_a_tree_has_branches():
    parts = [StreamingPosterior(Beta([0.0, 0.0])).update([1, 0]) for _ in range(600)]
    for models in (parts, tuple(parts), iter(parts)):
        assert everlearn.merge(models).posterior.natural.tolist() == [600, 0]


def test_mode_is_the_log_linear_pool_and_mean_the_mixtures_moments():
    rng = np.random.default_rng(2)
    parts = []
    for _ in range(3):
        A = rng.normal(size=(2, 2))
        parts.append(StreamingPosterior((np.zeros(2), 0.1)).update((rng.normal(size=2), A @ A.T)))
    a = np.array([0.2, 0.5, 0.3])
    pool = everlearn.merge(parts, method="mode", weights=10 * a)
    points = rng.normal(size=(5, 2))
    total = sum(w * part.log_prob(points) for w, part in zip(a, parts, strict=True))
    difference = pool.log_prob(points) - total  # equal up to the normalising constant
    assert np.ptp(difference) < 1e-9
    drawn = np.vstack(
        [rng.multivariate_normal(p.mean, p.covariance, int(w * 200_000)) for w, p in zip(a, parts, strict=True)]
    )
    moments = everlearn.merge(parts, method="mean", weights=a)
    assert np.allclose(moments.mean, drawn.mean(axis=0), atol=0.05)
    assert np.allclose(moments.covariance, np.cov(drawn.T), atol=0.1 * moments.covariance.max())


def test_forgetting_raises_the_prior_again():
    """Eq. 6 of the paper on forgetting: the log-density is a weighted mean, up to a constant."""
    X, y = regression()
    prior = np.array([5.0, 0.0, -1.0]), 0.5
    known = StreamingPosterior(prior).update(evidence(X, y))
    before = known.log_prob(X[:5])
    known.forget(0.3)
    expected = 0.3 * before + 0.7 * StreamingPosterior(prior).log_prob(X[:5])
    assert np.ptp(known.log_prob(X[:5]) - expected) < 1e-9
    assert np.allclose(known.forget(0.0).mean, prior[0])


def test_a_posterior_computed_elsewhere_is_taken_over():
    belief = StreamingPosterior((np.zeros(2), 1.0)).assign((np.array([3.0, 4.0]), np.diag([4.0, 5.0])))
    assert np.allclose(belief.mean, [3, 4])
    assert np.allclose(belief.update((np.zeros(2), 0.0)).precision, np.diag([4, 5]))
    with pytest.raises(InputError, match="posterior must be of the prior's class Beta"):
        StreamingPosterior(Beta([0, 0])).assign(Gamma([0, -1]))


def test_far_from_zero_no_digits_are_lost():
    belief = StreamingPosterior((np.full(2, 1e9), 1e-3)).update((np.full(2, 1e9 + 1), 1.0))
    assert np.allclose(belief.mean - 1e9, 1 / 1.001, rtol=1e-6)


def test_units_of_parameters_do_not_matter():
    units = np.array([1e-8, 1e8])
    X, y = regression(d=2)
    belief = StreamingPosterior((np.zeros(2), np.diag(1 / units**2)))
    belief.update((np.linalg.lstsq(X, y, rcond=None)[0] * units, X.T @ X / np.outer(units, units)))
    plain = StreamingPosterior((np.zeros(2), 1.0)).update((np.linalg.lstsq(X, y, rcond=None)[0], X.T @ X))
    assert np.allclose(belief.mean / units, plain.mean)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ((np.zeros(2), 0.0), "precision of prior must be positive definite"),
        ((np.zeros(2), np.ones((3, 3))), "vector and a square matrix"),
        ((np.zeros(2), np.array([[1.0, 0.5], [0.0, 1.0]])), "must be symmetric"),
        ((np.zeros(2),), "got 1 values"),
        ((np.array([np.nan]), 1.0), "not finite"),
        ("beta", "`natural` and `log_prob`; got str"),
    ],
)
def test_priors_that_are_none(prior, message):
    with pytest.raises(InputError, match=message):
        StreamingPosterior(prior)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((np.zeros(2), -1.0), "cannot take away what is known"),
        ((np.zeros(3), 1.0), "evidence has 3 parameters, the prior 2"),
        (np.zeros(2), r"must be a tuple \(mean, precision\)"),
    ],
)
def test_bad_evidence_changes_nothing(given, message):
    belief = StreamingPosterior((np.zeros(2), 1.0))
    with pytest.raises(InputError, match=message):
        belief.update(given)
    assert belief.n_updates == 0
    assert np.array_equal(belief.precision, np.eye(2))


def test_statistics_of_another_shape():
    with pytest.raises(InputError, match=r"evidence has the shape \(3,\)"):
        StreamingPosterior(Beta([0, 0])).update([1, 2, 3])


def test_merges_without_a_meaning_say_so():
    a, b = StreamingPosterior((np.zeros(2), 1.0)), StreamingPosterior((np.ones(2), 1.0))
    with pytest.raises(MergeError, match="different priors"):
        everlearn.merge([a, b], method="bayes")
    coin = StreamingPosterior(Beta([0, 0]))
    with pytest.raises(MergeError, match="moments of Gaussians"):
        everlearn.merge([coin, coin], method="mean")
    with pytest.raises(MergeError, match="no components"):
        everlearn.merge([coin, coin], n_components=2)
    with pytest.raises(AttributeError, match="ask `posterior`"):
        _ = coin.mean
    less = StreamingPosterior((np.zeros(1), 1.0)).assign((np.zeros(1), 0.1))
    with pytest.raises(MergeError, match="less certain than its prior"):
        less.merge(less)
    with pytest.raises(InputError, match="must be one or more everlearn models"):
        everlearn.merge([coin, everlearn.FIGMN()], method="bayes")


@pytest.mark.parametrize("model", [everlearn.FIGMN(), everlearn.IncrementalGaussianMixture(), everlearn.OnlinePPCA(1)])
def test_models_without_a_posterior_name_those_with_one(model):
    X = np.random.default_rng(0).normal(size=(60, 3))
    with pytest.raises(MergeError, match=r"no posterior of [\s\S]*StreamingPosterior"):
        everlearn.merge([model.fit(X), model.copy()], method="bayes")
