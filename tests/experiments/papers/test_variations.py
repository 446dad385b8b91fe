"""What the NAT-oEM paper leaves open: the data drawn to the letter, other orders of the classes."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from everlearn.continual import forgetting
from everlearn.experiments.papers.nat_oem.convergence import class_scores
from everlearn.experiments.papers.nat_oem.protocol import make, make_pool, nearest, of_table_1, printed
from everlearn.experiments.papers.nat_oem.variations import _learned, reordered


def test_the_noise_is_drawn_between_zero_and_one():
    pools = [make_pool(np.random.default_rng(i), 4000) for i in range(12)]
    sigmas = np.array([pool.sigma for pool in pools])
    assert sigmas.min() < 0.3 < 0.7 < sigmas.max() < 1.0
    for pool in pools:
        # Three axes of length one above the noise: the other eigenvalues are its variance.
        values = np.linalg.eigvalsh(np.cov(np.vstack([pool.train, pool.test]).T))
        assert values[:13].mean() == pytest.approx(pool.sigma**2, rel=0.03)
        assert values[13:].mean() == pytest.approx(1.0 + pool.sigma**2, rel=0.1)


def test_every_point_is_in_the_class_of_its_nearest_centroid():
    rng = np.random.default_rng(3)
    rows, centroids = rng.normal(size=(300, 16)), rng.normal(size=(4, 16))
    np.testing.assert_array_equal(nearest(rows, centroids), cdist(rows, centroids).argmin(axis=1))
    pool = make_pool(rng, 4000)
    assert set(pool.y) == set(pool.test_y) == {0, 1, 2, 3}


def test_rows_of_table_1_come_class_after_class():
    pool = make_pool(np.random.default_rng(5), 5000)
    data = of_table_1(pool)
    assert (len(data.X), len(data.test)) == (3200, 800)
    assert np.all(np.diff(data.y) >= 0)
    assert sorted(map(tuple, data.X)) == sorted(map(tuple, pool.train[:3200]))


def test_another_order_has_the_same_rows():
    data = make(np.random.default_rng(0), 50)
    other = reordered(data, (2, 0, 3, 1))
    assert list(dict.fromkeys(other.y.tolist())) == [2, 0, 3, 1]
    for c in range(4):
        np.testing.assert_array_equal(other.X[other.y == c], data.X[data.y == c])


def test_forgetting_follows_the_order_in_which_classes_came():
    data = reordered(make(np.random.default_rng(1), 120), (3, 1, 0, 2))
    end, lost = _learned(data, "paper mode", "online EM", 0)
    model = printed(None, 0)
    scores = np.empty((4, 4))
    for i, c in enumerate((3, 1, 0, 2)):
        model.partial_fit(data.X[data.y == c], data.y[data.y == c])
        found = class_scores(model, data)
        scores[i] = [found[k] for k in (3, 1, 0, 2)]
    assert end == pytest.approx(scores[-1].mean())
    assert lost == pytest.approx(np.mean([scores[:, j].max() - scores[-1, j] for j in range(3)]), abs=0.2)
    assert lost == pytest.approx(forgetting(scores))
