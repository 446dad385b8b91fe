"""Warnings point at the line of the user."""

import numpy as np
import pytest
from sklearn.exceptions import DataConversionWarning

from everlearn import IncrementalGaussianMixtureClassifier
from everlearn.base.user_warnings import warn_user


def test_the_line_outside_the_package_is_named():
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20)[:, None] % 2
    with pytest.warns(DataConversionWarning, match="column-vector") as caught:
        IncrementalGaussianMixtureClassifier().partial_fit(X, y)
    assert caught[0].filename == __file__


def test_a_direct_call_is_its_own_line():
    with pytest.warns(UserWarning, match="look out") as caught:
        warn_user("look out")
    assert caught[0].filename == __file__
