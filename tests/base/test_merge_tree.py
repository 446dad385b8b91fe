"""The shape of a merge depends on the number of models alone, or on their sizes, too."""

import pytest

from everlearn.base.merge_tree import MergeTree


def shape_of(sizes, fan_in, **bounds):
    """The tree as nested tuples of the numbers 0, 1, ..., and the most models that waited at any time."""
    tree, most = MergeTree(tuple, fan_in, **bounds), 0
    for model in sizes:
        tree.add(model)
        most = max(most, max(map(len, tree._levels)))
    return tree.root(), most


def leaves(tree):
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple) else [tree]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 9, 10, 26, 100])
@pytest.mark.parametrize("fan_in", [2, 3, 8])
def test_every_model_is_merged_once_and_in_its_order(n, fan_in):
    tree, most = shape_of(range(n), fan_in)
    assert leaves(tree) == list(range(n))
    assert most < fan_in


def test_neighbours_are_merged_in_groups():
    assert shape_of(range(4), 2)[0] == ((0, 1), (2, 3))
    assert shape_of(range(9), 3)[0] == ((0, 1, 2), (3, 4, 5), (6, 7, 8))
    assert shape_of(range(1), 3)[0] == 0


def test_what_is_left_is_merged_as_it_is():
    assert shape_of(range(5), 2)[0] == (((0, 1), (2, 3)), 4)
    assert shape_of(range(4), 3)[0] == ((0, 1, 2), 3)


def test_a_group_is_complete_when_its_models_are_large_together():
    """Two models at least: a model that fills the room alone still meets another."""
    size = lambda model: model if isinstance(model, int) else 0.0  # noqa: E731
    assert shape_of([1, 9, 1, 1, 1], 100, size=size, room=10)[0] == ((1, 9), (1, 1, 1))
    assert shape_of([50, 1, 2], 100, size=size, room=10)[0] == ((50, 1), 2)


def test_nothing_cannot_be_merged():
    with pytest.raises(ValueError, match="no model"):
        MergeTree(tuple, 2).root()
