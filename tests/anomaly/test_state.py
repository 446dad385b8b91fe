"""Every array of a state has the shape that its comment promises, before and after learning."""

import inspect
import re

import numpy as np
import pytest

from detectors import SETTINGS, prepared_state
from everlearn.anomaly import state as states
from everlearn.anomaly.estimator import settings_of
from everlearn.anomaly.learn import AMONG_ROWS, SAMPLE_ROWS, init, no_info, scratch_for
from everlearn.anomaly.state import LAGS, REGRESSORS, STATISTICS, TIME_SCALES, VIEWS

D = 5
AXES = {
    "D": D, "S": SAMPLE_ROWS, "A": AMONG_ROWS, "T": len(TIME_SCALES), "V": len(STATISTICS), "H": 50, "K": 3, "n": 7,
    "P": 500, "RING": 2048,
    "F": 256, "LAGS": LAGS, "REGRESSORS": REGRESSORS, "number of views": len(VIEWS),
}  # fmt: skip


def promised(cls):
    """Shapes by the comments of a class: every comment begins with the shape."""
    lines = re.sub(r"\(\n\s+Array  # (.*?)\n    \)", r"Array  # \1", inspect.getsource(cls))
    found = {}
    for line in lines.splitlines():
        match = re.match(r"    (\w+): [\w\[\].]+  # \(([^)]*)\)", line)
        if match:
            found[match[1]] = [axis.strip() for axis in match[2].split(",") if axis.strip()]
    return found


def assert_as_promised(value, **axes):
    for field, part in zip(value._fields, value, strict=True):
        if hasattr(part, "_fields"):
            assert_as_promised(part, **axes)
        elif field in promised(type(value)):
            wanted = [axes.get(axis, AXES.get(axis)) or int(axis) for axis in promised(type(value))[field]]
            assert list(part.shape) == wanted, (type(value).__name__, field)


@pytest.mark.parametrize("name", ["fresh", "learned"])
def test_arrays_have_the_shapes_that_are_written_beside_them(name):
    fresh = name == "fresh"
    state = init(D, SETTINGS) if fresh else prepared_state(np.random.default_rng(0), D)
    K = 0 if fresh else 3
    for field, part in zip(state._fields, state, strict=True):
        if field == "recent":
            assert part.shape == (1,)
            continue
        size = part.ring.shape[1] if field in ("memory", "combined", "lasting") else 0
        changed = {"M": size} | ({"V": 1} if field in ("combined", "lasting") else {})
        if not (fresh and field == "density"):
            assert_as_promised(part, K=K, **changed)
    scratch = scratch_for(state)
    if fresh:
        # There is no room for the columns of components before there are any.
        assert scratch.block.shape == (0, 0)
        scratch = scratch._replace(block=np.zeros((D, D)))
    assert_as_promised(scratch, K=max(K, 1))
    assert_as_promised(SETTINGS)
    assert_as_promised(no_info(7))


def test_most_fields_say_their_shape():
    """The comments are read: a change of their form would leave nothing to compare."""
    assert len(promised(states.Past)) >= 20
    assert len(promised(states.Scratch)) == len(states.Scratch._fields)
    assert promised(states.Guard)["budget"] == ["2"]


def test_every_statistic_has_a_view_and_every_view_a_statistic():
    assert set(STATISTICS.values()) == set(VIEWS)
    names = list(STATISTICS)
    for i, view in enumerate(SETTINGS.views):
        assert VIEWS[view] == STATISTICS[names[i]]
    assert names[0] == "mixture"
    assert names[5] == "level_5"


def test_equal_parameters_have_the_same_settings():
    """What was prepared for the settings of a stream is found again by them."""
    assert settings_of("guarded", 1e-3, 50, 100, 0, 4) is SETTINGS
    assert settings_of("always", 1e-3, 50, 100, 0, 4).learning == 2
