"""The classes that a model file may name.

Files name classes by tags of their own, not by modules, so that code can move. Reading a file imports and builds
only what stands in `everlearn.file_tags`, or was registered by the program itself. Constructors of these classes only
store.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from everlearn.errors import InputError, ModelFileError
from everlearn.file_tags import TAGS

_REGISTERED: dict[str, type] = {}


def register(cls: type, tag: str | None = None) -> type:
    """Let model files name `cls`: a subclass of StreamEstimator, a NamedTuple or a frozen dataclass.

    Parameters
    ----------
    cls : type
        The class.
    tag : str, optional
        The name that files use for it; by default the name of the class. It must not be taken by another one.

    Returns
    -------
    cls
        The class itself, so that this serves as a decorator.
    """
    tag = cls.__name__ if tag is None else tag
    if not (is_estimator(cls) or is_value(cls)):
        raise InputError(f"{cls!r} is neither a StreamEstimator, nor a NamedTuple, nor a frozen dataclass.")
    if tag in TAGS or _REGISTERED.setdefault(tag, cls) is not cls:
        raise InputError(f"Model files already use the tag {tag!r} for another class. Choose another tag.")
    return cls


@functools.cache
def _tags_by_class() -> dict[str, str]:
    return {place: tag for tag, place in TAGS.items()}


def is_estimator(cls: Any) -> bool:
    """Whether `cls` is a class of models."""
    return isinstance(cls, type) and hasattr(cls, "_transient") and hasattr(cls, "_check_loaded")


def is_named_tuple(cls: Any) -> bool:
    """Whether `cls` is a tuple with named fields."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_value(cls: Any) -> bool:
    """Whether `cls` is a NamedTuple or a frozen dataclass."""
    params = getattr(cls, "__dataclass_params__", None)
    return is_named_tuple(cls) or (isinstance(cls, type) and params is not None and params.frozen)


def class_named(tag: str, wanted: Callable[[Any], bool]) -> type:
    """The class that a file calls `tag`, if it is known and of the wanted sort."""
    cls = _REGISTERED.get(tag)
    if cls is None and tag in TAGS:
        module, _, name = TAGS[tag].partition(":")
        try:
            cls = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            cls = None
    if cls is None or not wanted(cls):
        raise ModelFileError(
            f"the file names the class {tag[:80]!r}, which this version of everlearn does not know. "
            "Load it with the version that wrote it, or register your own class first."
        )
    return cls


def tag_of(cls: type) -> str:
    """The tag that files use for `cls`."""
    tag = _tags_by_class().get(f"{cls.__module__}:{cls.__name__}")
    if tag is None:
        tag = next((tag for tag, known in _REGISTERED.items() if known is cls), None)
    if tag is None:
        raise InputError(
            f"A {cls.__name__} cannot be saved: model files do not know this class. "
            "Register it with everlearn.persistence.registry.register."
        )
    return tag
