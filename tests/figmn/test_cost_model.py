"""The cost model chooses the method that the benchmarks found cheapest."""

from everlearn.figmn import cost_model
from everlearn.figmn.cost_model import Method


def test_the_cheapest_method_is_chosen():
    assert cost_model.choose(784, 0) == Method.ROWS
    assert cost_model.choose(4, 3) == Method.ROWS
    assert cost_model.choose(784, 1) == Method.BLOCKS
    assert cost_model.choose(34, 75) == Method.SCREENED_ROWS
    assert cost_model.choose(34, 75, 1.0) == Method.ROWS
    assert cost_model.choose(784, 50).is_screened
    assert cost_model.choose(784, 50, 1.0) == Method.BLOCKS
    assert not cost_model.choose(784, 50, screening=False).is_screened


def test_costs_grow_with_columns_and_components():
    for method in Method:
        assert cost_model.costs(40, 20, 0.5)[method] > cost_model.costs(20, 20, 0.5)[method]
        assert cost_model.costs(40, 40, 0.5)[method] > cost_model.costs(40, 20, 0.5)[method]


def test_blocks_have_sixteen_to_256_rows_and_screened_ones_more():
    assert [cost_model.block_rows(D) for D in (1, 34, 784, 10_000)] == [16, 16, 128, 256]
    assert cost_model.block_rows(34, 100, screened=True) == 1024
    assert cost_model.block_rows(34, 1, screened=True) == 32


def test_the_first_row_of_a_wide_stream_is_learned_by_itself():
    """Its component is then learned in blocks."""
    assert cost_model.rows_until_reconsidered(784, 0) == 1
    assert cost_model.rows_until_reconsidered(4, 0) >= 16
