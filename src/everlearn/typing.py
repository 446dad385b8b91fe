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

    def _check_loaded(self) -> None:
        """Refuse a state that does not fit together."""
