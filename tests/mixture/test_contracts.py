"""The mixture keeps scikit-learn's contract and the streaming one, in every mode."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from everlearn.checks import stream_checks
from everlearn.mixture.estimator import IncrementalGaussianMixture

MODES = {
    "found": IncrementalGaussianMixture(),
    "fixed": IncrementalGaussianMixture(2),
    "fixed, forgetting": IncrementalGaussianMixture(2, forgetting=0.99),
}
# scikit-learn's contract does not depend on how much is forgotten.


@parametrize_with_checks([MODES["found"], MODES["fixed"]])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def stream_cases():
    for mode, model in MODES.items():
        for name, check in stream_checks(model):
            slow = mode == "fixed, forgetting" or name == "check_memory_is_bounded"
            yield pytest.param(check, id=f"{mode}: {name}", marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("check", list(stream_cases()))
def test_streaming_contract(check):
    check()
