"""What a state that came from a file must look like before a kernel may see it.

A state says it itself, on its fields, and :func:`check_state` reads that:

    class State(NamedTuple):
        means: Annotated[Array, "K D"]
        counts: Annotated[Array, "positive K"]
        active: Annotated[NDArray[np.bool_], "bool K"]
        n_rows: int
        bank: BankState | None

    check_state(state, State, {"D": model.n_features_in_})
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from typing import Any

import numpy as np

from everlearn.errors import ModelFileError

Sizes = dict[str, int]

MOST_WEIGHT = 1e100
"""Largest weight of a row: its square, times any number of rows, stays finite."""

_DTYPES: dict[str, np.dtype[Any]] = {
    "int64": np.dtype(np.int64),
    "int32": np.dtype(np.int32),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "float32": np.dtype(np.float32),
    "bool": np.dtype(np.bool_),
}
_WORDS = (*_DTYPES, "gaps", "any", "positive", "nonnegative")
_AXIS = re.compile(r"([A-Za-z]\w*)?([+-]?\d+)?")


def check_state(state: Any, cls: type, sizes: Sizes | None = None) -> Sizes:
    """Refuse a state that is no `cls`, or whose fields are not what their annotations say.

    Parameters
    ----------
    state : object
        What the file holds.
    cls : type
        A NamedTuple or a frozen dataclass. The annotation of a field says what it must be: ``int`` (a count, not
        negative), ``float`` (finite), ``bool``, ``str``, another such class, a union of these with None, a ``tuple`` of
        them, or ``Annotated[..., text]`` with the text that :func:`expect` explains. Other fields are not checked.
    sizes : dict, optional
        Lengths of axes that are known already. Each other axis takes its length from the first array that has it.

    Returns
    -------
    dict
        Lengths of all axes, for the rules that concern several fields; those are written with :func:`require`.

    Raises
    ------
    ModelFileError
        The state does not fit; the message names the field.
    """
    known: Sizes = {} if sizes is None else dict(sizes)
    _check(state, cls, known, cls.__name__)
    return known


def expect(value: Any, wanted: str | type, sizes: Sizes, name: str) -> None:
    """Refuse a value that is not what its place in a state needs.

    Parameters
    ----------
    value : object
        The value.
    wanted : str or type
        ``int`` for a count; ``float`` for a finite number; or the axes of an array, such as ``"K D"``. An axis is a
        number or a name, with a number added if need be (``"K+1"``): `sizes` knows its length, or learns it here.
        Arrays are of finite float64, unless words stand before the axes: the type (``int64``, ``int32``, ``int8``,
        ``uint8``, ``float32``, ``bool``), ``gaps`` (NaN allowed), ``any`` (NaN and infinity allowed), ``positive``,
        ``nonnegative``.
    sizes : dict
        Length of each named axis.
    name : str
        What the value is, for the message.

    Raises
    ------
    ModelFileError
        The value is something else.
    """
    if isinstance(wanted, str):
        _check_text(value, wanted, sizes, name)
    else:
        _check(value, wanted, sizes, name)


def expect_fields(value: Any, cls: type, sizes: Sizes, **fields: str | type) -> None:
    """Refuse a value that is no `cls`, or whose fields are not what :func:`expect` is told of them."""
    require(type(value) is cls, f"there is a {type(value).__name__} where a {cls.__name__} is needed")
    for name, wanted in fields.items():
        expect(getattr(value, name), wanted, sizes, f"{cls.__name__}.{name}")


def require_finite(state: Any, name: str) -> None:
    """Refuse a NamedTuple with an array whose numbers are not finite, whatever the annotations allow."""
    for field, value in zip(state._fields, state, strict=True):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            require(np.isfinite(value).all(), f"{name}.{field} has numbers that are not finite")


def require(condition: Any, message: str) -> None:
    """Refuse a state that breaks a condition."""
    if not condition:
        raise ModelFileError(f"the state does not fit: {message}.")


# -- by annotation ---------------------------------------------------------------------------------


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


@functools.cache
def _taken_apart(hint: Any) -> tuple[Any, tuple[Any, ...], str | None]:
    """Origin, arguments and text of an annotation."""
    arguments = typing.get_args(hint)
    return typing.get_origin(hint), arguments, next((extra for extra in arguments[1:] if isinstance(extra, str)), None)


def _check(value: Any, hint: Any, sizes: Sizes, name: str) -> None:
    """Check a value against one annotation."""
    origin, arguments, text = _taken_apart(hint)
    if origin is typing.Annotated:
        if text is not None:
            _check_text(value, text, sizes, name)
        else:
            _check(value, arguments[0], sizes, name)
    elif origin in (typing.Union, types.UnionType):
        _check_union(value, arguments, sizes, name)
    elif origin is tuple:
        require(type(value) is tuple, f"{name} is a {type(value).__name__} instead of a tuple")
        items = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        require(len(items) == len(value), f"{name} has {len(value)} items instead of {len(items)}")
        for i, (item, wanted) in enumerate(zip(value, items, strict=True)):
            _check(item, wanted, sizes, f"{name}[{i}]")
    elif hint is int:
        require(type(value) is int and 0 <= value < 2**62, f"{name} is no count")
    elif hint is float:
        require(type(value) is float and np.isfinite(value), f"{name} is no finite number")
    elif hint in (bool, str):
        require(type(value) is hint, f"{name} is a {type(value).__name__} instead of a {hint.__name__}")
    elif _has_fields(hint):
        require(type(value) is hint, f"{name} is a {type(value).__name__} instead of a {hint.__name__}")
        for field, wanted in _hints(hint).items():
            if typing.get_origin(wanted) is not typing.ClassVar:
                _check(getattr(value, field), wanted, sizes, f"{name}.{field}")


def _has_fields(hint: Any) -> bool:
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"))


def _check_union(value: Any, choices: tuple[Any, ...], sizes: Sizes, name: str) -> None:
    """Check a value against the one member of a union whose class it has; what it breaks there is the message."""
    if value is None:
        require(type(None) in choices, f"{name} is missing")
        return
    rest = [choice for choice in choices if choice is not type(None)]
    same = [choice for choice in rest if choice is type(value)]
    if same or len(rest) == 1:
        _check(value, (same or rest)[0], sizes, name)
        return
    for choice in rest:
        trial = dict(sizes)
        try:
            _check(value, choice, trial, name)
        except ModelFileError:
            continue
        sizes.update(trial)
        return
    require(False, f"{name} is a {type(value).__name__} that is not expected there")


# -- by text ---------------------------------------------------------------------------------------


@functools.cache
def _parsed(text: str) -> tuple[frozenset[str], tuple[tuple[str, str | None, int], ...], np.dtype[Any]]:
    """Words, axes (as written, name, number added) and type of a text: read once, as a fleet has thousands of files."""
    parts = text.split()
    words = frozenset(part for part in parts if part in _WORDS)
    axes = []
    for part in parts:
        if part in _WORDS:
            continue
        match = _AXIS.fullmatch(part)
        if match is None:
            raise TypeError(f"{part!r} is no axis: write a name, a number, or a name and a number as in K+1.")
        axes.append((part, match[1], int(match[2] or 0)))
    return words, tuple(axes), next((_DTYPES[word] for word in words if word in _DTYPES), np.dtype(np.float64))


def _check_text(value: Any, text: str, sizes: Sizes, name: str) -> None:
    """Check an array, or a number with words alone, against a text such as ``"positive K D"``."""
    words, axes, dtype = _parsed(text)
    if type(value) is float or type(value) is int:
        require(not axes, f"{name} is a number instead of an array")
        numbers = np.array(value, dtype=np.float64)
    else:
        if type(value) is not np.ndarray or value.dtype != dtype:
            require(False, f"{name} is no array of {dtype}")
        _check_axes(value, axes, sizes, name)
        numbers = value
    if "any" not in words and numbers.dtype.kind == "f":
        if "gaps" in words:
            require(not np.isinf(numbers).any(), f"{name} has infinite numbers")
        else:
            require(np.isfinite(numbers).all(), f"{name} has numbers that are not finite")
    if "positive" in words:
        require((numbers > 0).all(), f"{name} has numbers that are not positive")
    if "nonnegative" in words:
        require((numbers >= 0).all(), f"{name} has negative numbers")


def _check_axes(value: np.ndarray, axes: tuple[tuple[str, str | None, int], ...], sizes: Sizes, name: str) -> None:
    if value.ndim != len(axes):
        require(False, f"{name} has {value.ndim} axes instead of {len(axes)}")
    for (axis, base, more), length in zip(axes, value.shape, strict=True):
        needed = more if base is None else sizes.setdefault(base, length - more) + more
        if length != needed:
            require(False, f"{name} has shape {value.shape}, but {axis} should be {needed}")
