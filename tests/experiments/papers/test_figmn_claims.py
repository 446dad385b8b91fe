"""Orders, delta and memory: the yardsticks that their items measure with."""

import pickle

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import adjusted_rand_score

from everlearn import datasets
from everlearn.experiments.papers.figmn.orders import agreement, columns
from everlearn.experiments.papers.figmn.settings import forest_bytes, halves


def test_agreement_is_one_for_the_same_clusters_and_near_zero_by_chance():
    rng = np.random.default_rng(0)
    clusters = rng.integers(0, 4, 400)
    renamed = (clusters + 1) % 4
    assert agreement([clusters, renamed, clusters]) == pytest.approx(1.0)
    assert abs(agreement([rng.integers(0, 4, 400) for _ in range(5)])) < 0.02
    halved = clusters // 2
    assert agreement([clusters, halved]) == pytest.approx(adjusted_rand_score(clusters, halved))


@pytest.mark.parametrize("name", ["iris", "ionosphere", "soybean"])
def test_columns_have_unit_spread_and_no_gaps(name):
    X = columns(name)
    assert len(X) == len(datasets.load(name).data)
    assert not np.isnan(X).any()
    assert np.all(X.std(axis=0) > 0)
    if name == "iris":
        assert np.allclose(X.std(axis=0), 1.0)


def test_halves_are_two_and_hold_every_row_once():
    first, second = halves("glass", 0)
    assert len(first.test) + len(second.test) == 214
    assert len(first.X) == len(second.test)
    assert sorted(map(tuple, np.vstack([first.test, second.test]))) == sorted(map(tuple, datasets.load("glass").data))


def test_a_forest_holds_five_numbers_a_node_and_a_count_a_class_in_its_leaves():
    X, y = np.arange(8.0)[:, None], np.repeat([0, 1], 4)
    forest = RandomForestClassifier(1, bootstrap=False, random_state=0).fit(X, y)  # one split: three nodes, two leaves
    pickled, nodes = forest_bytes(forest)
    assert nodes == 8 * (5 * 3 + 2 * 2)
    assert pickled == len(pickle.dumps(forest))
