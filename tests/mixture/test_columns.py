"""Mixtures over other columns: reordered, and with columns that their rows never had."""

import numpy as np
import pandas as pd
import pytest

import everlearn
from everlearn import IncrementalGaussianMixture
from everlearn.errors import InputError, MergeError
from everlearn.gaussian.mixture import Mixture
from everlearn.mixture import columns


def rows(n, seed):
    """Three groups in three columns that tell much about each other."""
    rng = np.random.default_rng(seed)
    k = rng.integers(3, size=n)
    a = rng.normal(5.0 * k, 1.0)
    b = 2.0 * a + rng.normal(size=n)
    return pd.DataFrame({"a": a, "b": b, "c": b - a + 0.5 * rng.normal(size=n) + k})


def learned(seed, names, n=1200, **parameters):
    return IncrementalGaussianMixture(**parameters).partial_fit(rows(n, seed)[list(names)])


@pytest.mark.parametrize("reservoir", ["auto", pytest.param(0, marks=pytest.mark.slow)])
def test_another_order_is_the_same_model(reservoir):
    model, test = learned(0, "cab", reservoir=reservoir), rows(500, 9)
    same = model._over_columns(list("abc"), [])
    np.testing.assert_allclose(same.score(test), model.score(test[list("cab")]), atol=1e-3)
    mixture, other = model.mixture_between_searches(), same.mixture_between_searches()
    order = [1, 2, 0]
    np.testing.assert_allclose(other.covariances, mixture.covariances[:, order][:, :, order], rtol=1e-9)
    merged = learned(1, "abc", reservoir=reservoir) + model
    assert list(merged.feature_names_in_) == ["a", "b", "c"]
    one_pass = IncrementalGaussianMixture().partial_fit(pd.concat([rows(1200, 1), rows(1200, 0)]))
    assert merged.score(test) == pytest.approx(one_pass.score(test), abs=0.02)


@pytest.mark.parametrize("reservoir", ["auto", pytest.param(0, marks=pytest.mark.slow)])
def test_a_column_that_one_model_lacks_is_a_gap(reservoir):
    test = rows(2000, 9)
    known, lacking = learned(1, "abc", reservoir=reservoir), learned(2, "ba", reservoir=reservoir)
    merged = everlearn.merge([lacking, known])
    assert list(merged.feature_names_in_) == ["b", "a", "c"]
    assert merged.n_samples_seen_ == 2400
    assert merged.effective_samples_ == pytest.approx(2400)
    # As good as one pass over the same rows with gaps; a column without any relation to the others would cost 1.5 nats.
    gaps = pd.concat([rows(1200, 1), rows(1200, 2).assign(c=np.nan)])
    assert merged.score(test[["b", "a", "c"]]) == pytest.approx(
        IncrementalGaussianMixture().partial_fit(gaps).score(test), abs=0.03
    )
    everlearn.loads(everlearn.dumps(merged)).partial_fit(rows(300, 5)[["b", "a", "c"]])


@pytest.mark.slow
@pytest.mark.parametrize(("n_known", "n_lacking"), [(100, 1200), (1200, 100), (60, 60)])
def test_models_that_warm_up(n_known, n_lacking):
    merged = everlearn.merge([learned(1, "ab", n_lacking), learned(2, "abc", n_known)])
    assert merged.n_samples_seen_ == n_known + n_lacking
    assert merged.score(rows(2000, 9)) > -5.2


def test_columns_that_no_model_shares():
    merged = learned(1, "ab", 400) + learned(2, "c", 400)
    assert list(merged.feature_names_in_) == ["a", "b", "c"]
    assert np.isfinite(merged.score(rows(100, 3)))


def test_conditional_moments_are_those_of_draws():
    """A twin by simulation: draw from the component, then the column from the donor given what was drawn."""
    rng = np.random.default_rng(0)
    L = rng.normal(size=(3, 3))
    donor = Mixture(np.ones(1), rng.normal(size=(1, 3)), (L @ L.T + np.eye(3))[None])
    m, A = rng.normal(size=2), rng.normal(size=(2, 2))
    S = A @ A.T + 0.1 * np.eye(2)
    gap = columns.Gap(np.array([0, 1]), np.array([2, 0]), 1)
    mean, variance, cross = columns._conditional_moments(donor, gap, m, S, S)
    x = rng.multivariate_normal(m, S, size=400_000)
    Sigma, mu = donor.covariances[0], donor.means[0]
    inverse = np.linalg.inv(Sigma[np.ix_([2, 0], [2, 0])])
    slope = Sigma[1, [2, 0]] @ inverse
    c = mu[1] + (x - mu[[2, 0]]) @ slope + rng.normal(size=len(x)) * np.sqrt(Sigma[1, 1] - slope @ Sigma[[2, 0], 1])
    assert mean == pytest.approx(c.mean(), abs=0.02)
    assert variance == pytest.approx(c.var(), rel=0.02)
    np.testing.assert_allclose(cross, np.cov(x.T, c)[2, :2], atol=0.05)


def test_what_cannot_be_done_by_name():
    scaled = learned(1, "abc", scale=[1.0, 1.0, 1.0])
    with pytest.raises(MergeError, match="scale= for each column"):
        scaled + learned(2, "cba", scale=[1.0, 1.0, 1.0])
    with pytest.raises(InputError, match="weights= is for models with the same columns"):
        learned(1, "ab").merge(learned(2, "abc"), weights=[1, 2])
