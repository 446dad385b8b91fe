"""What a state that came from a file must look like before a kernel may see it."""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.errors import ModelFileError

Sizes = dict[str, int]
_WORDS = {"int64": np.dtype(np.int64), "bool": np.dtype(np.bool_)}


def expect(value: Any, wanted: str | type, sizes: Sizes, name: str) -> None:
    """Refuse a value that is not what its place in a state needs.

    Parameters
    ----------
    value : object
        The value.
    wanted : str or type
        ``int`` for a count; ``float`` for a finite number; or the axes of an array, such as ``"K D"``. An axis is a
        number or a name: `sizes` knows its length, or learns it here. Arrays are of finite float64, unless the axes
        come after the word ``int64``, ``bool``, ``gaps`` (NaN allowed) or ``any`` (NaN and infinity allowed).
    sizes : dict
        Length of each named axis.
    name : str
        What the value is, for the message.

    Raises
    ------
    ModelFileError
        The value is something else.
    """
    if wanted is int:
        require(type(value) is int and 0 <= value < 2**62, f"{name} is no count")
    elif wanted is float:
        require(type(value) is float and np.isfinite(value), f"{name} is no finite number")
    else:
        _expect_array(value, str(wanted).split(), sizes, name)


def expect_fields(value: Any, cls: type, sizes: Sizes, **fields: str | type) -> None:
    """Refuse a value that is no `cls`, or whose fields are not what :func:`expect` is told of them."""
    require(type(value) is cls, f"there is a {type(value).__name__} where a {cls.__name__} is needed")
    for name, wanted in fields.items():
        expect(getattr(value, name), wanted, sizes, f"{cls.__name__}.{name}")


def _expect_array(value: Any, words: list[str], sizes: Sizes, name: str) -> None:
    word, axes = (words[0], words[1:]) if words[0] in ("gaps", "any", *_WORDS) else ("", words)
    dtype = _WORDS.get(word, np.dtype(np.float64))
    require(type(value) is np.ndarray and value.dtype == dtype, f"{name} is no array of {dtype}")
    require(value.ndim == len(axes), f"{name} has {value.ndim} axes instead of {len(axes)}")
    for axis, length in zip(axes, value.shape, strict=True):
        needed = int(axis) if axis.isdigit() else sizes.setdefault(axis, length)
        require(length == needed, f"{name} has shape {value.shape}, but {axis} should be {needed}")
    if word == "":
        require(np.isfinite(value).all(), f"{name} has numbers that are not finite")
    elif word == "gaps":
        require(not np.isinf(value).any(), f"{name} has infinite numbers")


def require(condition: Any, message: str) -> None:
    """Refuse a state that breaks a condition."""
    if not condition:
        raise ModelFileError(f"the state does not fit: {message}.")
