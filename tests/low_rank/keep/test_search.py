"""How many components: the simplest cases."""

import numpy as np
import pytest
from scipy.cluster.vq import kmeans2

from everlearn.low_rank.keep.search import Search, search
from everlearn.low_rank.keep.slices import at_once
from everlearn.low_rank.state import Settings, readout_of
from low_rank_toys import one, several

SETTINGS = Settings(8, 8, 50, 500, 16, 0, 64, 1.0, 2**60, 0)


def found(X, settings=SETTINGS):
    Z = X - X.mean(axis=0)
    noise = float(Z.var())
    work = search(Z, np.ones(len(Z)), np.zeros(len(Z), np.intp), noise, settings)
    components, labels = at_once(work, Z.shape[1])
    return components, labels, readout_of(components, noise).rank


@pytest.mark.parametrize("n", [40, 200])
@pytest.mark.parametrize("seed", range(2))
def test_one_gaussian_stays_one(n, seed):
    components, _, rank = found(one(np.random.default_rng(seed), n, 300))
    assert len(components.n) == 1
    assert 2 <= rank[0] <= 4


def test_four_are_found_and_their_rows_told_apart():
    rng = np.random.default_rng(0)
    order = rng.permutation(240)
    components, labels, rank = found(several(rng, 240, 300)[order])
    assert len(components.n) == 4
    np.testing.assert_array_equal(components.mass, 60.0)
    assert all(len(set(labels[order // 60 == k])) == 1 for k in range(4))
    assert ((rank >= 2) & (rank <= 4)).all()


def test_groups_without_few_strong_directions_are_not_split():
    """Five Gaussians with covariances of full rank and fewer rows than columns each."""
    rng = np.random.default_rng(0)
    D, K = 784, 5
    X = np.concatenate([
        4.0 * rng.normal(size=D) + rng.normal(size=(300, D)) @ (np.eye(D) + 0.3 * rng.normal(size=(D, D)) / np.sqrt(D))
        for _ in range(K)
    ])  # fmt: skip
    components, _, _ = found(rng.permutation(X))
    assert len(components.n) == K


def test_groups_that_are_not_two_are_merged():
    rng = np.random.default_rng(1)
    X = one(rng, 120, 100)
    Z = X - X.mean(axis=0)
    work = search(Z, np.ones(120), rng.integers(3, size=120), float(Z.var()), SETTINGS)
    components, _ = at_once(work, 100)
    assert len(components.n) == 1


def test_pieces_of_a_group_are_merged_where_there_are_fewer_rows_than_columns():
    """Either piece's component fits the rows of the other badly: nats a parameter do not tell that they are two."""
    rng = np.random.default_rng(5)
    variances = (675.0, 350.0, 180.0, 95.0, 50.0, 27.0)
    groups = [one(rng, 200, 300, variances, 0.5) + 0.4 * rng.normal(size=300) for _ in range(2)]
    Z = np.concatenate(groups) - np.mean(groups, axis=(0, 1))
    pieces = kmeans2(Z, 8, seed=1, minit="++")[1].astype(np.intp)
    found = Search(Z, np.ones(400), pieces, float(Z.var()), SETTINGS._replace(rank=16))
    at_once(found.merge_all(at_once(found.components(), 300)), 300)
    assert found.K <= 3  # it was four when pairs that lose two nats a parameter were not judged


def test_a_number_that_is_asked_for_is_kept():
    rng = np.random.default_rng(2)
    assert len(found(several(rng, 160, 60), SETTINGS._replace(fixed=3))[0].n) == 3
    assert len(found(one(rng, 100, 60), SETTINGS._replace(fixed=2))[0].n) == 2


def test_most_components_are_a_bound():
    assert len(found(several(np.random.default_rng(3), 160, 60), SETTINGS._replace(most=2))[0].n) == 2
