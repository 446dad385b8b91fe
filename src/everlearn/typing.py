"""Types that the whole package shares."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@runtime_checkable
class SaveableModel(Protocol):
    """What a model file can hold: parameters that `get_params` gives, fitted attributes, caches that stay behind."""

    _transient: ClassVar[tuple[str, ...]]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the constructor."""

    def _is_started(self) -> bool:
        """Whether the model has learned a row."""

    def _validate_params(self) -> None:
        """Refuse parameters that are not valid."""

    def _to_save(self) -> dict[str, Any]:
        """Fitted attributes as a file holds them."""

    def _answers(self) -> Any:
        """What a file holds for those who only ask, or None."""

    def _check_loaded(self) -> None:
        """Refuse a state that does not fit together."""


class StreamingModel(Protocol):
    """A model that learns rows as they come, as streams, the program and the service use it.

    What only some models can do is a protocol of its own below. Those name methods alone, so that `isinstance` looks
    for a method and computes no attribute.
    """

    n_features_in_: int
    n_samples_seen_: int

    def partial_fit(self, X: Any, y: Any = None) -> Any:
        """Learn rows."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the constructor."""

    def merge(self, other: Any) -> Any:
        """A model that knows what both know."""

    def _is_started(self) -> bool:
        """Whether the model has learned a row."""


@runtime_checkable
class DensityModel(Protocol):
    """A model of all columns alike, without a target."""

    def score_samples(self, X: Any) -> Array:
        """Log-density of each row."""


@runtime_checkable
class PrequentialModel(Protocol):
    """A model that scores each row just before it learns it, and records novelties and changes in `events_`."""

    def prequential(self, X: Any) -> Array:
        """Learn rows; returns the log-density of each before it was learned."""


@runtime_checkable
class CalibratedModel(Protocol):
    """A model that tells how unusual a row is; it has a parameter `novelty_level`."""

    def p_value(self, X: Any) -> Array:
        """Share of rows that are as unusual as this one, or more."""


@runtime_checkable
class ImputingModel(Protocol):
    """A model that fills gaps."""

    def impute(self, X: Any) -> Any:
        """Rows with their gaps filled."""


@runtime_checkable
class ConditionalModel(Protocol):
    """A model that gives the distribution of some columns, or of its target, once others are known."""

    def condition(self, X: Any) -> Any:
        """The distribution for each row."""


@runtime_checkable
class CovarianceModel(Protocol):
    """A model that is a single Gaussian of all columns, with the mean `mean_`."""

    def get_covariance(self) -> Array:
        """Its covariance."""


@runtime_checkable
class ClassifyingModel(Protocol):
    """A model whose target is one of several classes, named in `classes_`."""

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class for each row."""

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of those probabilities."""


@runtime_checkable
class MergingModel(Protocol):
    """A model that can be merged with others of its class."""

    def merge(self, *others: Any, method: str = "auto", weights: Any = None) -> Any:
        """What this model and others know together."""


@runtime_checkable
class DetectingModel(Protocol):
    """An anomaly detector, which scores rows in their order and blames columns."""

    def prequential(self, X: Any) -> Any:
        """Score rows in their order, then learn them."""

    def explain(self, X: Any) -> Any:
        """Each column's part in how strange rows are."""
