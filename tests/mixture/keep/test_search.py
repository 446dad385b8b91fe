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
