"""Tables: one value, rendered as plain text, Markdown, HTML or on the terminal.

Every table that the package prints or writes is a :class:`Table`, so that numbers, missing values and special
characters look alike in the program, the reports and the documentation.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

MISSING = "-"
# The backslash first: later it would escape the backslashes that escape the others.
_MARKDOWN_SIGNS = ("\\", "*", "_", "|", "<", "`")


def count(n: int, one: str, many: str = "") -> str:
    """A number with what it counts.

    Examples
    --------
    >>> from everlearn.reporting.tables import count
    >>> count(1, "row"), count(2000, "row"), count(0, "anomaly", "anomalies")
    ('1 row', '2,000 rows', '0 anomalies')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


class Cell(NamedTuple):
    """A cell that is more than its text."""

    text: str
    strong: bool = False
    """Whether it stands out, such as the best figure of its column."""
    beneath: str = ""
    """A second, smaller figure, such as the one that a paper prints."""


Value = Cell | str | int | float


class Table(NamedTuple):
    """Rows under named columns; the first column is aligned to the left, the others to the right.

    Examples
    --------
    >>> from everlearn.reporting.tables import Cell, Table
    >>> table = Table(("model", "rows", "score"), [("mixture", 1200, 0.25), ("ppca", 7, float("nan"))])
    >>> print(table.text())
    model     rows   score
    mixture   1200   0.250
    ppca         7       -
    >>> print(table.markdown(), end="")
    | model | rows | score |
    | --- | ---: | ---: |
    | mixture | 1200 | 0.250 |
    | ppca | 7 | - |
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    title: str = ""
    note: str = ""
    digits: int = 3
    """Decimal places of numbers that are not integers."""
    highlighted: Sequence[int] = ()
    """Numbers of the rows that stand out, in forms that can show it."""

    def cells(self) -> list[list[Cell]]:
        """All cells as text, row by row."""
        return [[as_cell(value, self.digits) for value in row] for row in self.rows]

    def text(self) -> str:
        """Columns of equal width, for `print`."""
        rows = [list(self.columns), *([_one_line(cell) for cell in row] for row in self.cells())]
        widths = [max(len(row[c]) for row in rows) for c in range(len(self.columns))]
        lines = []
        for row in rows:
            right = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            lines.append("   ".join([row[0].ljust(widths[0]), *right]).rstrip())
        return "\n".join([*([self.title] if self.title else []), *lines, *([self.note] if self.note else [])])

    def markdown(self) -> str:
        """A table of Markdown, with its title before and its note behind it; ends with a line break."""
        rows = [
            [escape_markdown(name) for name in self.columns],
            ["---", *["---:"] * (len(self.columns) - 1)],
            *([_markdown_cell(cell) for cell in row] for row in self.cells()),
        ]
        lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
        head = f"{escape_markdown(self.title)}:\n\n" if self.title else ""
        return head + lines + (f"\n{escape_markdown(self.note)}\n" if self.note else "")

    def html(self) -> str:
        """A `table` element in a box that scrolls sideways, and its note; everything is escaped."""
        caption = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        head = "".join(f"<th scope=col>{html.escape(name)}</th>" for name in self.columns)
        marks = [' class="highlighted"' if i in self.highlighted else "" for i in range(len(self.rows))]
        body = "".join(
            f"<tr{mark}>{''.join(map(_html_cell, row))}</tr>\n" for mark, row in zip(marks, self.cells(), strict=True)
        )
        note = f'<p class="note">{html.escape(self.note)}</p>' if self.note else ""
        table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
        return f'<div class="scroll">{table}</div>{note}'

    def rich(self) -> RichTable:
        """A table of the package rich; text in it is not taken for markup."""
        # rich is imported late: `import everlearn` and the service do not need it.
        from rich.markup import escape
        from rich.table import Table as RichTable

        table = RichTable(title=escape(self.title) or None, title_justify="left", caption=escape(self.note) or None)
        for i, name in enumerate(self.columns):
            table.add_column(escape(name), justify="right" if i else "left")
        for row in self.cells():
            table.add_row(*(f"[bold]{escape(_one_line(c))}[/]" if c.strong else escape(_one_line(c)) for c in row))
        return table

    def show(self, console: Console) -> None:
        """Print the table on a terminal, below an empty line."""
        console.print()
        console.print(self.rich())


def as_cell(value: Value, digits: int = 3) -> Cell:
    """A value as a cell: numbers with `digits` decimal places, NaN as a dash."""
    if isinstance(value, Cell):
        return value
    if isinstance(value, float):
        return Cell(MISSING if value != value else f"{value:.{digits}f}")
    return Cell(str(value))


def number(value: float) -> str:
    """A number with four significant digits; nothing for NaN."""
    return "" if value != value else f"{value:.4g}"


def escape_markdown(text: str) -> str:
    """Text in which nothing is taken for markup of Markdown."""
    for sign in _MARKDOWN_SIGNS:
        text = text.replace(sign, f"\\{sign}")
    return text


def _one_line(cell: Cell) -> str:
    return f"{cell.text} ({cell.beneath})" if cell.beneath else cell.text


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    beneath = f" ({escape_markdown(cell.beneath)})" if cell.beneath else ""
    return (f"**{text}**" if cell.strong else text) + beneath


def _html_cell(cell: Cell) -> str:
    text = html.escape(cell.text)
    beneath = f"<small>{html.escape(cell.beneath)}</small>" if cell.beneath else ""
    return f"<td>{f'<b>{text}</b>' if cell.strong else text}{beneath}</td>"
