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
# Hundreds of rows again and again, or thousands: half of the time of all checks. Laws of learning, files and undoing
# are tested apart from them.
LONG = (
    "check_memory_is_bounded",
    "check_failure_changes_nothing",
    "check_input_is_left_alone",
    "check_save_and_load",
    "check_batches_do_not_matter",
)
# scikit-learn's contract does not depend on how much is forgotten.


@parametrize_with_checks([MODES["found"], MODES["fixed"]])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def stream_cases():
    for mode, model in MODES.items():
        for name, check in stream_checks(model):
            slow = mode == "fixed, forgetting" or name in LONG
            yield pytest.param(check, id=f"{mode}: {name}", marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("check", list(stream_cases()))
def test_streaming_contract(check):
    check()
