"""Classifier and regressor keep scikit-learn's contract and the streaming one, in every mode."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from everlearn import FIGMNClassifier, IncrementalGaussianMixtureClassifier, IncrementalGaussianMixtureRegressor
from everlearn.checks import stream_checks

CANNOT_APPLY = {
    "check_sample_weight_equivalence_on_dense_data": (
        "the mixtures depend on the order of rows, so that a row of weight two is not the same row twice"
    ),
}

MODES = {
    "per class": IncrementalGaussianMixtureClassifier(),
    "FIGMN": FIGMNClassifier(),
    "regressor": IncrementalGaussianMixtureRegressor(),
    "diagonal, forgetting": IncrementalGaussianMixtureClassifier(
        covariance_type="diag", forgetting=0.99, max_components=5, reservoir=300
    ),
    "low rank": IncrementalGaussianMixtureClassifier(covariance_type="low_rank"),
}
# These depend neither on the mode nor on what the model does inside.
ONCE = ("check_bad_rows", "check_bad_weights_and_targets")
# A mixture for each class: of these modes a few checks, and with the slow tests all of them.
IN_PART = ("per class", "diagonal, forgetting", "low rank")
KEPT = ("check_gaps", "check_fit_forgets", "check_weights_of_zero", "check_two_rows", "check_constant_columns", *ONCE)
# Thousands of rows, learned by every class or searched again and again: two thirds of the time of all checks.
LONG = (
    "check_memory_is_bounded",
    "check_300_columns",
    "check_failure_changes_nothing",
    "check_input_is_left_alone",
    "check_save_and_load",
    "check_batches_do_not_matter",
    "check_merge",
)


def cannot_apply(estimator):
    return CANNOT_APPLY if isinstance(estimator, IncrementalGaussianMixtureClassifier) else {}


@parametrize_with_checks([MODES["per class"], MODES["FIGMN"], MODES["regressor"]], expected_failed_checks=cannot_apply)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def stream_cases():
    for mode, model in MODES.items():
        for name, check in stream_checks(model):
            if mode not in ("diagonal, forgetting", "low rank") or name not in ONCE:
                slow = name not in KEPT if mode in IN_PART else mode == "regressor" and name in LONG
                yield pytest.param(check, id=f"{mode}: {name}", marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("check", list(stream_cases()))
def test_streaming_contract(check):
    check()
