"""AnomalyDetector keeps the contracts of scikit-learn and of streams."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from everlearn import AnomalyDetector
from everlearn.checks import stream_checks


@parametrize_with_checks([AnomalyDetector()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in stream_checks(AnomalyDetector())])
def test_streaming_contract(check):
    check()
