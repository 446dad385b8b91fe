"""Work in slices: the same result at once and slice by slice, and independent parts on several cores."""

import numpy as np

from everlearn.low_rank.keep.search import search
from everlearn.low_rank.keep.slices import at_once, sliced
from everlearn.low_rank.state import Settings
from low_rank_toys import several


def countdown(n):
    for _ in range(n):
        yield
    return n


def total(sizes):
    yield
    return sum((yield [countdown(n) for n in sizes]))


def run(work, results):
    results.append((yield from sliced(work)))


def test_parts_are_worked_out_and_their_results_sent():
    assert at_once(total([2, 3, 0]), 10_000) == 5
    results = []
    assert sum(1 for _ in run(total([2, 3, 0]), results)) == 1 + 5
    assert results == [5]


def test_a_search_in_slices_finds_the_same():
    rng = np.random.default_rng(0)
    X = rng.permutation(several(rng, 160, 60))
    Z = X - X.mean(axis=0)
    settings = Settings(8, 8, 50, 500, 16, 0, 64, 1.0, 2**60, 0)

    def work():
        return search(Z, np.ones(160), np.zeros(160, np.intp), float(Z.var()), settings)

    result = []
    assert sum(1 for _ in run(work(), result)) > 50
    components, labels = at_once(work(), 60)
    np.testing.assert_array_equal(result[0][1], labels)
    np.testing.assert_array_equal(result[0][0].mean, components.mean)
