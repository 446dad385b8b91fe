"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def text_table(header: Sequence[str], rows: Sequence[Sequence[Any]], digits: int = 3) -> str:
    """Columns of text and numbers, the first to the left and the others to the right."""
    cells = [[_cell(value, digits) for value in row] for row in (header, *rows)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(header))]
    return "\n".join(_line(row, widths) for row in cells)


def _line(cells: list[str], widths: list[int]) -> str:
    right = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "   ".join([cells[0].ljust(widths[0]), *right]).rstrip()


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return "-" if value != value else f"{value:.{digits}f}"
    return str(value)
