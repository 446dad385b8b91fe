"""Mixture reduction: greedy, refined, measured."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster import hierarchy

import naive
from everlearn.errors import InputError
from everlearn.gaussian import mixture, reduction
from everlearn.gaussian.gaussian import moment_match
from everlearn.gaussian.mixture import Mixture

seeds = st.integers(0, 2**32 - 1)


def random_mixture(rng, K, D, spread=3.0, diagonal=False):
    A = rng.normal(size=(K, D, D + 2))
    S = A @ A.transpose(0, 2, 1) / D
    return Mixture(
        rng.dirichlet(np.ones(K)), rng.normal(0, spread, (K, D)), np.einsum("kii->ki", S).copy() if diagonal else S
    )


def members(labels):
    return sorted(sorted(np.flatnonzero(labels == j).tolist()) for j in np.unique(labels))


@given(seeds, st.integers(1, 10), st.integers(1, 4), st.integers(1, 5))
def test_greedy_makes_the_merges_of_the_full_table(seed, K, D, m):
    f = random_mixture(np.random.default_rng(seed), K, D)
    counts = 100 * f.weights
    found = reduction.reduce_greedy(counts, *f[1:], n_components=m)
    assert members(found.labels) == sorted(sorted(g) for g in naive.reduce_greedy(counts, *f[1:], n_components=m))


def test_greedy_at_size_makes_the_merges_of_the_full_table():
    f = random_mixture(np.random.default_rng(0), 30, 6)
    found = reduction.reduce_greedy(*f, n_components=5)
    assert members(found.labels) == sorted(sorted(g) for g in naive.reduce_greedy(*f, n_components=5))


@given(seeds, st.floats(0, 200))
def test_greedy_stops_at_the_cost(seed, max_cost):
    f = random_mixture(np.random.default_rng(seed), 8, 2)
    counts = 100 * f.weights
    found = reduction.reduce_greedy(counts, *f[1:], max_cost=max_cost)
    assert members(found.labels) == sorted(sorted(g) for g in naive.reduce_greedy(counts, *f[1:], max_cost=max_cost))


def test_greedy_goes_past_the_cost_while_there_are_too_many():
    f = random_mixture(np.random.default_rng(1), 12, 2)
    capped = reduction.reduce_greedy(*f, max_cost=0.0, max_components=5)
    np.testing.assert_array_equal(capped.labels, reduction.reduce_greedy(*f, n_components=5).labels)
    free = reduction.reduce_greedy(*f, max_cost=np.inf, max_components=5, n_components=3)
    assert len(free.weights) == 3


@given(seeds, st.booleans())
def test_what_is_left_is_the_moment_match_of_its_members(seed, diagonal):
    f = random_mixture(np.random.default_rng(seed), 9, 3, diagonal=diagonal)
    g = reduction.reduce_greedy(*f, n_components=3)
    for j in range(3):
        mine = g.labels == j
        mean, covariance = moment_match(*(a[mine] for a in f))
        np.testing.assert_allclose(g.weights[j], f.weights[mine].sum(), rtol=1e-12)
        np.testing.assert_allclose(g.means[j], mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(g.covariances[j], covariance, rtol=1e-9, atol=1e-9)


@given(seeds, st.booleans())
def test_reduction_keeps_the_overall_moments(seed, diagonal):
    f = random_mixture(np.random.default_rng(seed), 8, 3, diagonal=diagonal)
    before, after = mixture.moments(f), mixture.moments(reduction.reduce(f, 3).mixture)
    np.testing.assert_allclose(after.mean, before.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(after.covariance, before.covariance, rtol=1e-9, atol=1e-9)


@given(seeds)
def test_columns_of_any_scale_make_no_difference(seed):
    rng = np.random.default_rng(seed)
    f = random_mixture(rng, 8, 3)
    scale = np.ldexp(1.0, rng.integers(-490, 490, 3))
    wide = Mixture(f.weights, f.means * scale, f.covariances * scale * scale[:, None])
    one, other = reduction.reduce(f, 3), reduction.reduce(wide, 3)
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_allclose(other.mixture.means / scale, one.mixture.means, rtol=1e-9)
    assert other.distance == pytest.approx(one.distance, rel=1e-6, abs=1e-9)
    assert other.squared_error == pytest.approx(one.squared_error, rel=1e-6, abs=1e-9)


def test_arguments_stay_as_they_were():
    f = random_mixture(np.random.default_rng(2), 8, 3)
    copies = [a.copy() for a in f]
    reduction.reduce(f, 2)
    for a, b in zip(f, copies, strict=True):
        np.testing.assert_array_equal(a, b)


def test_as_many_as_there_are_changes_nothing():
    f = random_mixture(np.random.default_rng(3), 5, 2)
    for n in (5, 9):
        same = reduction.reduce(f, n)
        np.testing.assert_array_equal(same.labels, np.arange(5))
        np.testing.assert_allclose(same.mixture.covariances, f.covariances, rtol=1e-14)
        assert same.distance == pytest.approx(0, abs=1e-12)
        assert same.squared_error == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_components_without_weight_are_refused(bad):
    f = random_mixture(np.random.default_rng(4), 3, 2)
    with pytest.raises(InputError, match="weights"):
        reduction.reduce_greedy(np.array([1.0, bad, 1.0]), *f[1:])


@given(seeds, st.integers(2, 15), st.integers(1, 4), st.booleans())
def test_distance_never_rises_in_refinement(seed, K, D, diagonal):
    rng = np.random.default_rng(seed)
    f = random_mixture(rng, K, D, diagonal=diagonal)
    m = int(rng.integers(1, K))
    start = Mixture(*(a[:m] for a in random_mixture(rng, K, D, diagonal=diagonal)))
    refined = reduction.refine(f, start)
    assert np.all(np.diff(refined.distances) <= 1e-9)
    assert refined.distances[-1] == pytest.approx(reduction.distance(f, refined.mixture), rel=1e-9, abs=1e-9)
    assert sorted(np.unique(refined.labels)) == list(range(m))


def test_distance_is_the_sum_over_nearest_components():
    rng = np.random.default_rng(5)
    f, g = random_mixture(rng, 5, 3), random_mixture(rng, 3, 3)
    parts = zip(*f, strict=True)
    expected = sum(w * min(naive.kl(m, S, g.means[j], g.covariances[j]) for j in range(3)) for w, m, S in parts)
    assert reduction.distance(f, g) == pytest.approx(expected, rel=1e-9)


def test_refinement_against_the_best_of_all_partitions():
    found = []
    for seed in range(30):
        f = random_mixture(np.random.default_rng(seed), 6, 2)
        best, labels = naive.best_partition(*f, 3)
        g = Mixture(*reduction.reduce_greedy(*f, n_components=3)[:3])
        refined = reduction.refine(f, g)
        assert refined.distances[-1] >= best - 1e-9
        found.append(refined.distances[-1] <= best + 1e-9)
        optimum = [moment_match(*(a[labels == j] for a in f)) for j in range(3)]
        g = Mixture(np.ones(3) / 3, *(np.stack(a) for a in zip(*optimum, strict=True)))
        assert reduction.refine(f, g).distances[-1] == pytest.approx(best, rel=1e-9)
    assert np.mean(found) >= 0.7


def test_squared_error_against_a_grid():
    rng = np.random.default_rng(6)
    f, g = random_mixture(rng, 4, 2, spread=1.0), random_mixture(rng, 3, 2, spread=1.0)
    axis = np.linspace(-14, 14, 400)
    X = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    cell = (axis[1] - axis[0]) ** 2
    gap = np.exp(mixture.log_density(X, f)) - np.exp(mixture.log_density(X, g))
    assert reduction.squared_error(f, g) == pytest.approx(np.square(gap).sum() * cell, rel=1e-6)
    whole = np.square(np.exp(mixture.log_density(X, f))).sum() * cell
    assert reduction.squared_error(f, g, relative=True) == pytest.approx(np.square(gap).sum() * cell / whole, rel=1e-6)


def test_squared_error_of_diagonal_mixtures_is_that_of_full_ones():
    rng = np.random.default_rng(7)
    f, g = (random_mixture(rng, K, 3, diagonal=True) for K in (4, 2))
    full = [m._replace(covariances=m.covariances[:, :, None] * np.eye(3)) for m in (f, g)]
    assert reduction.squared_error(f, g) == pytest.approx(reduction.squared_error(*full), rel=1e-10)
    assert reduction.distance(f, g) == pytest.approx(reduction.distance(*full), rel=1e-10)


def test_reduce_says_when_refinement_was_worse():
    """Refinement alone raises the squared error of some mixtures and lowers that of more; each time it is said."""
    worse = better = 0
    for seed in range(50):
        f = random_mixture(np.random.default_rng(seed), 20, 2, spread=2.0)
        greedy = reduction.reduce_greedy(*f, n_components=5)
        start = Mixture(*greedy[:3])
        refined = reduction.refine(f, start, greedy.labels)
        before, after = (reduction.squared_error(f, g, relative=True) for g in (start, refined.mixture))
        chosen = reduction.reduce(f, 5)
        assert chosen.is_refined == (after <= before)
        assert chosen.squared_error == pytest.approx(min(before, after))
        np.testing.assert_allclose(chosen.mixture.means, (refined.mixture if after <= before else start).means)
        assert members(chosen.labels) == members(refined.labels if after <= before else greedy.labels)
        worse, better = worse + (after > before), better + (after < before)
    assert worse > 0
    assert better > worse


# -- the tree of reductions ------------------------------------------------------------------------


@given(seeds, st.integers(2, 9), st.integers(1, 3), st.booleans())
def test_a_hierarchy_cut_anywhere_is_the_greedy_reduction(seed, K, D, diagonal):
    f = random_mixture(np.random.default_rng(seed), K, D, diagonal=diagonal)
    tree = reduction.hierarchy(f)
    for n in range(1, K + 1):
        g, labels = tree.cut(n)
        greedy = reduction.reduce_greedy(*f, n_components=n)
        assert members(labels) == members(greedy.labels)
        order, other = np.lexsort(g.means.T), np.lexsort(greedy.means.T)
        np.testing.assert_allclose(g.means[order], greedy.means[other], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(g.covariances[order], greedy.covariances[other], rtol=1e-7, atol=1e-9)


def test_the_linkage_is_one_that_scipy_takes_and_its_heights_bound_the_divergence():
    f = random_mixture(np.random.default_rng(3), 7, 2)
    tree = reduction.hierarchy(f)
    assert hierarchy.is_valid_linkage(tree.linkage)
    assert hierarchy.is_monotonic(tree.linkage)
    assert sorted(hierarchy.dendrogram(tree.linkage, no_plot=True)["leaves"]) == list(range(7))
    for n in range(1, 8):
        assert members(hierarchy.fcluster(tree.linkage, n, "maxclust")) == members(tree.cut(n)[1])
    X, _ = mixture.sample(f, 20_000, np.random.default_rng(4))
    for t, n in enumerate(range(6, 0, -1)):
        gap = mixture.log_density(X, f) - mixture.log_density(X, tree.cut(n)[0])
        assert gap.mean() <= tree.linkage[t, 2] + 3 * gap.std() / np.sqrt(len(X))
    np.testing.assert_allclose(np.cumsum(tree.costs), tree.linkage[:, 2])


def test_a_hierarchy_of_one_component_and_a_cut_out_of_range():
    f = random_mixture(np.random.default_rng(5), 1, 2)
    assert reduction.hierarchy(f).linkage.shape == (0, 4)
    with pytest.raises(InputError, match="from 1 to 1"):
        reduction.hierarchy(f).cut(2)


def test_two_hundred_to_twenty_within_a_second():
    f = random_mixture(np.random.default_rng(8), 200, 10)
    reduction.reduce(Mixture(*(a[:5] for a in f)), 2)  # compiled beforehand
    start = time.process_time()
    assert len(reduction.reduce(f, 20).mixture.weights) == 20
    assert time.process_time() - start < 1.0
