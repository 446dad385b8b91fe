"""A state from a file is refused before a kernel indexes by it."""

import numpy as np
import pytest

from detectors import SETTINGS, low_rank_density, prepared_state
from everlearn.anomaly.checked import check_events, check_state, with_diagonal_errors
from everlearn.anomaly.estimator import _no_events
from everlearn.anomaly.learn import init
from everlearn.anomaly.state import WIDE
from everlearn.errors import ModelFileError


@pytest.fixture
def state():
    return prepared_state(np.random.default_rng(0), D=2)


def with_counter(state, part, field, value):
    """The state with one counter set."""
    getattr(getattr(state, part), field)[0] = value
    return state


def test_a_state_that_was_learned_is_taken(state):
    check_state(state, init(2, SETTINGS))
    check_events(_no_events(), _no_events())


def test_a_state_of_other_columns_is_refused(state):
    with pytest.raises(ModelFileError, match=r"sample\.rows must be float64 of shape \(1200, 3\)"):
        check_state(state, init(3, SETTINGS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s._replace(clock=s.sample), "clock is a Sample, not a Clock"),
        (lambda s: s._replace(pending=s.pending._replace(rows=s.pending.rows.astype(np.float32))), "pending.rows"),
        (lambda s: s._replace(guard=s.guard._replace(budget=[1.0, 0.0])), "guard.budget must be float64"),
        (lambda s: s._replace(density=None), "density is missing"),
        (lambda s: s._replace(density=s.density._replace(heights=np.zeros(2))), r"density.heights.*\(3,\)"),
        (lambda s: s._replace(density=s.density._replace(log_weights=np.float64(1.0))), "density.log_weights"),
    ],
    ids=["class", "type", "list", "no density", "shape", "scalar"],
)
def test_parts_that_are_no_parts_of_a_state_are_refused(state, change, message):
    with pytest.raises(ModelFileError, match=message):
        check_state(change(state), init(2, SETTINGS))


COUNTERS = [
    ("clock", "rows", -1), ("clock", "period", 2049), ("sample", "size", 1201), ("sample", "observed", 1201),
    ("pending", "size", 500), ("guard", "held", -1), ("memory", "size", 2001), ("memory", "head", 2000),
    ("combined", "head", 8000), ("lasting", "head", 8000), ("memory", "since", -5), ("far", "size", -1),
    ("far", "rows", -1),
]  # fmt: skip


@pytest.mark.parametrize(("part", "field", "value"), COUNTERS)
def test_counters_that_point_outside_of_their_arrays_are_refused(state, part, field, value):
    """One less, where the bound is from above, is taken."""
    with pytest.raises(ModelFileError, match=rf"{part}\.{field} must lie between 0 and"):
        check_state(with_counter(state, part, field, value), init(2, SETTINGS))
    check_state(with_counter(state, part, field, max(value - 1, 0)), init(2, SETTINGS))


@pytest.mark.parametrize("size", [-1, 2**62, 3.0, True])
def test_a_log_that_counts_no_events_is_refused(size):
    with pytest.raises(ModelFileError, match=r"events\.size"):
        check_events(_no_events()._replace(size=size), _no_events())


def test_factors_of_a_low_rank_density_are_taken_and_others_refused(state):
    low, _ = low_rank_density(np.random.default_rng(1), D=2, Q=1)
    check_state(state._replace(density=low), init(2, SETTINGS))
    with pytest.raises(ModelFileError, match=r"density.factors.*\(4, 2, 2\)"):
        check_state(state._replace(density=low._replace(factors=low.factors[:, :1])), init(2, SETTINGS))


def test_a_file_with_the_matrix_of_prediction_errors_of_many_columns_keeps_its_diagonal(state):
    wide, matrix = init(WIDE + 1, SETTINGS), np.diag(np.arange(1.0, WIDE + 2.0))
    old = wide._replace(past=wide.past._replace(covariance=matrix, precision=np.linalg.inv(matrix)))
    new = with_diagonal_errors(old)
    check_state(new, wide)
    np.testing.assert_array_equal(new.past.covariance[:, 0], np.arange(1.0, WIDE + 2.0))
    assert with_diagonal_errors(state) is state
