"""The one place that imports torch."""

from typing import TYPE_CHECKING

from everlearn.errors import require

if TYPE_CHECKING:
    import torch
else:
    torch = require("torch", extra="torch")

__all__ = ["torch"]
