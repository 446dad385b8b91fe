"""Models for machines without Python: C source, and ONNX graphs."""

from __future__ import annotations

from everlearn.export.c_source import to_c as to_c
from everlearn.export.onnx_graph import to_onnx as to_onnx

__all__ = ["to_c", "to_onnx"]
