"""Arrays as JSON values and back: null where a number is not finite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from everlearn.typing import Array


def json_value(value: Any) -> Any:
    """A value as JSON takes it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_list(values: Array) -> list[Any]:
    """An array as lists of JSON values."""
    return [json_list(part) for part in values] if values.ndim > 1 else [json_value(x) for x in values.tolist()]


def array_of(values: Any) -> Array:
    """The array of lists of JSON values; NaN where one is null."""
    return np.array(values, dtype=np.float64)
