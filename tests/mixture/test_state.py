"""Every array of a mixture's state has the type and the shape that its annotation says, at every stage of a stream."""

from typing import Annotated, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from everlearn.mixture import learn
from everlearn.mixture.keep.by_moments import PARTS
from everlearn.mixture.learn import Progress
from everlearn.mixture.state import Components, Model, Pending, Reservoir, State, World
from mixture_toys import groups, settings_for

D, M, WARMUP = 3, 120, 40
STAGES = {"fresh": 0, "warming up": 25, "pending": 45, "learned": 70, "searched again": 260}


def learned(n, **changes):
    settings = settings_for(D, warmup=WARMUP, **changes)
    state = learn.init(D, 0 if settings.parts else M, settings)
    X, _ = groups(np.random.default_rng(0), 300, D, 2)
    return learn.learn(state, X[:n], np.ones(n), settings, Progress())[0]


def arrays(value, found=None):
    """Each array of a state with the words of its annotation."""
    found = [] if found is None else found
    hints = get_type_hints(type(value), include_extras=True)
    for name, part in zip(value._fields, value, strict=True):
        if hasattr(part, "_fields"):
            arrays(part, found)
        elif get_origin(hints[name]) is Annotated:
            found.append((f"{type(value).__name__}.{name}", part, get_args(hints[name])[1].split()))
    return found


@pytest.mark.parametrize("changes", [{}, {"diagonal": True}, {"parts": PARTS}, {"forgetting": 0.98}], ids=str)
@pytest.mark.parametrize("stage", STAGES)
def test_arrays_are_as_they_are_annotated(stage, changes):
    sizes = {"D": D}
    for name, array, words in arrays(learned(STAGES[stage], **changes)):
        axes = [word for word in words if word[0].isupper() or word.isdigit()]
        assert array.ndim == len(axes), name
        for axis, length in zip(axes, array.shape, strict=True):
            # One letter is one length in the whole state; P is that of the rows at hand.
            assert length == (int(axis) if axis.isdigit() else sizes.setdefault(axis, length)), (name, axis)
        kind = next((word for word in words if word.startswith(("int", "float", "bool"))), "float64")
        assert array.dtype == np.dtype(kind), name
        if "any" not in words and "gaps" not in words:
            assert np.isfinite(array).all(), name
        if "positive" in words:
            assert (array > 0.0).all(), name


def test_every_array_of_the_parts_is_annotated():
    """An array without its shape would not be checked when a file is read."""
    for part in (World, Pending, Components, Reservoir):
        hints = get_type_hints(part, include_extras=True)
        others = {name for name, hint in hints.items() if hint in (int, float, bool) or hasattr(hint, "_fields")}
        assert {name for name, hint in hints.items() if get_origin(hint) is Annotated} == set(hints) - others


def test_stages_differ_in_what_is_there():
    stages = {name: learned(n) for name, n in STAGES.items()}
    assert [state.model is not None for state in stages.values()] == [False, False, False, True, True]
    assert [state.n + state.pending.size for state in stages.values()] == list(STAGES.values())
    assert stages["learned"].frame is not None
    assert stages["searched again"].searched > stages["learned"].searched == WARMUP
    assert isinstance(stages["learned"].model, Model)
    assert State._fields[0] == "n"
