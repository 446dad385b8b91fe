"""Answers in the table that a question came in."""

from __future__ import annotations

import sys
from typing import Any

from everlearn.typing import Array


def in_kind_of(table: Any, values: Array) -> Any:
    """The values as a pandas, polars or Arrow table like `table`, with its names and index; else as they are.

    No package is imported: a table of one shows that it is loaded.
    """
    package = type(table).__module__.partition(".")[0]
    if package == "pandas" and hasattr(table, "columns"):
        return sys.modules["pandas"].DataFrame(values, index=table.index, columns=table.columns)
    if package == "polars" and hasattr(table, "columns"):
        return sys.modules["polars"].DataFrame(values, schema=list(table.columns), orient="row")
    if package == "pyarrow" and hasattr(table, "column_names"):
        return sys.modules["pyarrow"].table(list(values.T), names=table.column_names)
    return values
