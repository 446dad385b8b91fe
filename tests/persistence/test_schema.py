"""States that say on their fields what they hold."""

import dataclasses
from typing import Annotated, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from everlearn.errors import ModelFileError
from everlearn.persistence.schema import check_state, expect
from everlearn.typing import Array


class Part(NamedTuple):
    centre: Annotated[Array, "D"]


@dataclasses.dataclass(frozen=True)
class Options:
    rate: float
    name: str = "x"


class State(NamedTuple):
    means: Annotated[Array, "K D"]
    counts: Annotated[Array, "positive K"]
    edges: Annotated[Array, "any K+1"]
    active: Annotated[NDArray[np.bool_], "bool K"]
    n_rows: int
    share: Annotated[float, "nonnegative"]
    part: Part | None
    parts: tuple[Part, ...]
    options: Options


def sound(**changes):
    part = Part(np.zeros(2))
    state = State(
        np.zeros((3, 2)),
        np.ones(3),
        np.full(4, np.inf),
        np.ones(3, bool),
        7,
        0.5,
        part,
        (part, part),
        Options(0.1),
    )
    return state._replace(**changes)


def test_a_sound_state_tells_its_sizes():
    assert check_state(sound(), State, {"D": 2}) == {"D": 2, "K": 3}
    assert check_state(sound(part=None, parts=()), State) == {"D": 2, "K": 3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"means": np.zeros((3, 5))}, r"State\.part\.centre has shape \(2,\), but D should be 5"),
        ({"means": np.zeros(3)}, "1 axes instead of 2"),
        ({"means": np.full((3, 2), np.nan)}, "not finite"),
        ({"means": np.zeros((3, 2), np.float32)}, "no array of float64"),
        ({"means": [[0.0]]}, "no array"),
        ({"counts": np.array([1.0, 0.0, 1.0])}, "not positive"),
        ({"edges": np.zeros(3)}, r"K\+1 should be 4"),
        ({"active": np.ones(3)}, "no array of bool"),
        ({"n_rows": -1}, "no count"),
        ({"n_rows": True}, "no count"),
        ({"share": -0.1}, "negative"),
        ({"share": float("nan")}, "not finite"),
        ({"part": Options(0.1)}, "Options instead of a Part"),
        ({"part": Part(np.zeros(9))}, "D should be 2"),
        ({"parts": (Part(np.zeros(2)), None)}, r"parts\[1\] is a NoneType"),
        ({"parts": [Part(np.zeros(2))]}, "instead of a tuple"),
        ({"options": Options("fast")}, r"options\.rate is no finite number"),
        ({"options": Options(0.1, 5)}, r"options\.name is a int instead of a str"),
    ],
)
def test_refusals_name_the_field(changes, message):
    with pytest.raises(ModelFileError, match=message):
        check_state(sound(**changes), State)


def test_sizes_that_are_known_count():
    with pytest.raises(ModelFileError, match="D should be 9"):
        check_state(sound(), State, {"D": 9})


def test_another_class_with_the_same_fields_is_refused():
    with pytest.raises(ModelFileError, match="tuple instead of a State"):
        check_state(tuple(sound()), State)


def test_an_annotation_that_is_no_axis_is_a_mistake_of_ours():
    with pytest.raises(TypeError, match="is no axis"):
        expect(np.zeros(3), "K*2", {}, "x")
