"""The classes that a model file may name.

Reading a file imports and builds only what stands in `ESTIMATORS` and `VALUES`, or was registered by
the program itself. Constructors of these classes only store.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from everlearn.errors import InputError, ModelFileError
from everlearn.estimators.base import StreamEstimator

ESTIMATORS = {
    "everlearn.agents.learner": ("MixtureQAgent",),
    "everlearn.estimators.class_joint": ("JointClasses",),
    "everlearn.estimators.class_mixtures": ("ClassMixtures",),
    "everlearn.estimators.classifier": ("IncrementalGaussianMixtureClassifier",),
    "everlearn.estimators.mixture": ("IncrementalGaussianMixture",),
    "everlearn.estimators.ppca": ("OnlinePPCA",),
    "everlearn.estimators.variational": ("VariationalPPCA",),
    "everlearn.estimators.regressor": ("IncrementalGaussianMixtureRegressor",),
}
"""Estimators a file may name, by the module that holds them."""

VALUES = {
    "everlearn.agents.episode": ("Episode",),
    "everlearn.core.adaptive": ("AdaptiveState",),
    "everlearn.core.answering": ("Pair",),
    "everlearn.core.change": ("ChangeState", "PageHinkley"),
    "everlearn.core.classes": ("Blend",),
    "everlearn.core.constraint": ("Every", "NaturalConstraint", "OnChange", "Reference"),
    "everlearn.core.forgetting": ("BankState",),
    "everlearn.core.frame": ("Frame",),
    "everlearn.core.incremental": ("MixtureState",),
    "everlearn.core.memory": ("MemoryState",),
    "everlearn.core.monitor": ("MonitorState",),
    "everlearn.core.online_em": ("State",),
    "everlearn.core.schedules": ("PowerSchedule",),
    "everlearn.core.variational": ("PaperState", "State"),
    "everlearn.estimators.class_mixtures": ("LabelledRows",),
    "everlearn.estimators.mixture": ("Warmup",),
}
"""NamedTuples and frozen dataclasses a file may name, by the module that holds them."""

_REGISTERED: dict[str, type] = {}


def register(cls: type) -> type:
    """Let model files name `cls`: a subclass of StreamEstimator, a NamedTuple or a frozen dataclass.

    Parameters
    ----------
    cls : type
        The class; its name must not be taken by another one.

    Returns
    -------
    cls
        The class itself, so that this serves as a decorator.
    """
    name = _file_name(cls.__module__, cls.__name__, is_estimator(cls))
    if not (is_estimator(cls) or is_value(cls)):
        raise InputError(f"{cls!r} is neither a StreamEstimator, nor a NamedTuple, nor a frozen dataclass.")
    if name in _listed() or _REGISTERED.setdefault(name, cls) is not cls:
        raise InputError(f"Model files already use the name {name!r} for another class. Rename the class.")
    return cls


def _file_name(module: str, name: str, estimator: bool) -> str:
    return name if estimator else f"{module.rpartition('.')[2]}.{name}"


@functools.cache
def _listed() -> dict[str, tuple[str, str]]:
    """Module and class by the name that files use."""
    tables = ((ESTIMATORS, True), (VALUES, False))
    return {
        _file_name(module, name, estimator): (module, name)
        for table, estimator in tables
        for module, names in table.items()
        for name in names
    }


def is_estimator(cls: Any) -> bool:
    """Whether `cls` is a class of models."""
    return isinstance(cls, type) and issubclass(cls, StreamEstimator)


def is_named_tuple(cls: Any) -> bool:
    """Whether `cls` is a tuple with named fields."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_value(cls: Any) -> bool:
    """Whether `cls` is a NamedTuple or a frozen dataclass."""
    params = getattr(cls, "__dataclass_params__", None)
    return is_named_tuple(cls) or (isinstance(cls, type) and params is not None and params.frozen)


def class_named(name: str, wanted: Callable[[Any], bool]) -> type:
    """The class that a file calls `name`, if it is known and of the wanted sort."""
    cls = _REGISTERED.get(name)
    if cls is None and name in _listed():
        module, attribute = _listed()[name]
        try:
            cls = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError):
            cls = None
    if cls is None or not wanted(cls):
        raise ModelFileError(
            f"the file names the class {name[:80]!r}, which this version of everlearn does not know. "
            "Load it with the version that wrote it, or register your own class first."
        )
    return cls


def name_of(cls: type, wanted: Callable[[Any], bool]) -> str:
    """The name that files use for `cls`, if they can read it back."""
    name = _file_name(cls.__module__, cls.__name__, is_estimator(cls))
    try:
        known = class_named(name, wanted)
    except ModelFileError:
        known = None
    if known is not cls:
        raise InputError(
            f"A {cls.__name__} cannot be saved: model files do not know this class. "
            "Register it with everlearn.estimators.registry.register."
        )
    return name
