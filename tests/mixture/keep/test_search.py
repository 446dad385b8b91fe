"""The search for a structure: what it remembers of components."""

import warnings

import numpy as np

from everlearn.mixture.keep.search import Seen
from everlearn.mixture.kernels.em import Moments


def test_a_component_without_rows_has_no_spread_and_no_warning():
    """EM in many columns may leave one: 0/0 was a RuntimeWarning on the user's screen."""
    counts, means = np.array([0.0, 40.0]), np.array([[1.0, 2.0], [3.0, 4.0]])
    moments = Moments(counts, means, np.array([np.zeros((2, 2)), 40.0 * np.eye(2)]))
    seen = Seen([], [], [])
    seen.add(moments, 1, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert seen.place(moments, 0) == -1
        assert seen.place(moments, 1) == 0


def test_a_component_that_hardly_changed_is_found_again():
    seen = Seen([], [], [])
    scatters = np.array([100.0 * np.eye(2), 50.0 * np.eye(2)])
    found = Moments(np.array([100.0, 50.0]), np.array([[0.0, 0.0], [9.0, 9.0]]), scatters)
    assert [seen.place(found, k) for k in range(2)] == [-1, -1]
    for k in range(2):
        seen.add(found, k, None)
    assert [seen.place(found, k) for k in (1, 0)] == [1, 0]
    moved = Moments(np.array([100.0, 60.0]), np.array([[0.5, 0.0], [9.0, 9.0]]), scatters)
    assert [seen.place(moved, k) for k in range(2)] == [-1, -1]
