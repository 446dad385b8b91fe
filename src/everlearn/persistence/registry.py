"""The classes that a model file may name.

Files name classes by tags of their own, not by modules, so that code can move. Reading a file imports and builds
only what stands in `TAGS`, or was registered by the program itself. Constructors of these classes only store.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from everlearn.errors import InputError, ModelFileError

TAGS = {
    # estimators
    "classifier/1": "everlearn.mixture.classifier:IncrementalGaussianMixtureClassifier",
    "classifier_joint/1": "everlearn.mixture.classifier_joint:JointClasses",
    "classifier_per_class/1": "everlearn.mixture.classifier_per_class:ClassMixtures",
    "figmn/1": "everlearn.figmn.estimator:IncrementalGaussianMixture",
    "online_ppca/1": "everlearn.ppca.estimator:OnlinePPCA",
    "q_agent/1": "everlearn.agents.q_agent:MixtureQAgent",
    "regressor/1": "everlearn.mixture.regressor:IncrementalGaussianMixtureRegressor",
    "variational_ppca/1": "everlearn.variational.estimator:VariationalPPCA",
    # their states, settings and parameters
    "blend/1": "everlearn.mixture.class_densities:Blend",
    "change_state/1": "everlearn.monitoring.page_hinkley:ChangeState",
    "column_scaling/1": "everlearn.base.scaling:Frame",
    "constraint_every/1": "everlearn.ppca.keep:Every",
    "constraint_on_change/1": "everlearn.ppca.keep:OnChange",
    "constraint_reference/1": "everlearn.ppca.keep:Reference",
    "episode/1": "everlearn.agents.episode:Episode",
    "event_log/1": "everlearn.monitoring.event_log:MonitorState",
    "figmn_bank/1": "everlearn.figmn.adaptive:AdaptiveState",
    "figmn_pair/1": "everlearn.figmn.serving:Pair",
    "figmn_state/1": "everlearn.figmn.learn:MixtureState",
    "figmn_warmup/1": "everlearn.figmn.estimator:Warmup",
    "forgetting_bank/1": "everlearn.forgetting.bank:BankState",
    "labelled_rows/1": "everlearn.mixture.classifier_per_class:LabelledRows",
    "natural_constraint/1": "everlearn.ppca.keep:NaturalConstraint",
    "online_em_state/1": "everlearn.ppca.learn:State",
    "page_hinkley/1": "everlearn.monitoring.page_hinkley:PageHinkley",
    "power_schedule/1": "everlearn.ppca.schedules:PowerSchedule",
    "value_function_state/1": "everlearn.agents.value_function:MemoryState",
    "variational_paper_state/1": "everlearn.variational.learn:PaperState",
    "variational_state/1": "everlearn.variational.learn:State",
}
"""Classes that a file may name: a tag, which never changes, and where the class is found today ("module:class").

The number after the slash counts up when the fields of a class change their meaning.
"""

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
