"""What a reproduction finds: claims that held or did not, tables with the printed numbers beside ours, figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from everlearn.reporting import tables

REPRODUCED = "reproduced"
PAPER_MODE_ONLY = "reproduced in paper mode only"
NOT_REPRODUCED = "not reproduced"
SKIPPED = "skipped"
VERDICTS = (REPRODUCED, PAPER_MODE_ONLY, NOT_REPRODUCED, SKIPPED)

Cell = str | float | dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, put to the test.

    Parameters
    ----------
    said : str
        What the paper says.
    found : str
        What this run found, in numbers.
    as_printed : bool
        Whether it holds for the paper's own algorithm and settings.
    by_default : bool, optional
        Whether it holds for everlearn's default too, where that differs.
    """

    said: str
    found: str
    as_printed: bool
    by_default: bool | None = None

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        if not self.as_printed:
            return NOT_REPRODUCED
        return REPRODUCED if self.by_default is None or self.by_default else PAPER_MODE_ONLY


@dataclass(frozen=True)
class Table:
    """A table; a cell is text, a number, or what `measured` gives."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure; `plot` holds the data and layout that plotly draws."""

    title: str
    plot: dict[str, Any]
    note: str = ""


@dataclass(frozen=True)
class Findings:
    """All that running an item has found.

    Parameters
    ----------
    about : str
        What was done, and where it had to differ from the paper.
    claims : list of Claim
        The verdict follows from them.
    tables, figures : list
        What to show.
    n_runs : int
        Number of runs that means and spreads are taken over.
    """

    about: str
    claims: list[Claim]
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    n_runs: int = 1

    def verdict(self) -> tuple[str, str]:
        """Return the verdict on the whole item, and why."""
        verdicts = [claim.verdict for claim in self.claims]
        # An item is as good as its worst claim.
        worst = max(verdicts, key=VERDICTS.index, default=REPRODUCED)
        why = [claim.found for claim, verdict in zip(self.claims, verdicts, strict=True) if verdict == worst]
        return worst, "" if worst == REPRODUCED else " ".join(why)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain lists, dictionaries and numbers."""
        verdict, why = self.verdict()
        found = asdict(self)
        # Comparisons of arrays give np.bool_, which JSON does not take.
        for record, claim in zip(found["claims"], self.claims, strict=True):
            record["verdict"] = claim.verdict
            record["as_printed"] = bool(claim.as_printed)
            record["by_default"] = None if claim.by_default is None else bool(claim.by_default)
        return {"verdict": verdict, "why": why, **found}


def measured(values: ArrayLike, printed: str = "", *, digits: int = 1, mark: str = "") -> Cell:
    """Return a cell with the mean and spread of what was measured, beside what the paper printed.

    Parameters
    ----------
    values : float or array-like
        One number for each run.
    printed : str, optional
        The paper's number, as printed.
    digits : int, default=1
        Digits after the point to show.
    mark : str, optional
        A sign behind the number, such as that of a significant difference.

    Returns
    -------
    dict
        With the keys ours, spread (None for a single run), printed, digits and mark.
    """
    runs = np.atleast_1d(np.asarray(values, dtype=np.float64))
    spread = float(runs.std(ddof=1)) if len(runs) > 1 else None
    ours = float(runs.mean())
    # Two digits more than are shown: another renderer may show one more, and the file stays small and diffable.
    keep = max(digits + 2, 2)
    return {
        "ours": round(ours, keep),
        "spread": None if spread is None else round(spread, keep),
        "printed": printed,
        "digits": digits,
        "mark": mark,
    }


def shown(cell: Cell) -> str:
    """Return a cell's own part as text: mean, spread and mark; the printed number is left to the caller."""
    if isinstance(cell, str):
        return cell
    if not isinstance(cell, dict):
        return f"{cell:g}"
    if cell["ours"] is None:
        return "–"
    spread = "" if cell["spread"] is None else f" ± {cell['spread']:.{cell['digits']}f}"
    return f"{cell['ours']:,.{cell['digits']}f}{spread}{cell['mark'] and ' ' + cell['mark']}"


def rendered(table: dict[str, Any], before_printed: str = "") -> tables.Table:
    """Return a table of a record for the one renderer, the printed numbers beneath ours."""
    rows = [[tables.Cell(shown(cell), beneath=_printed(cell, before_printed)) for cell in row] for row in table["rows"]]
    return tables.Table(table["columns"], rows, table["title"], table["note"])


def _printed(cell: Cell, before: str) -> str:
    return before + cell["printed"] if isinstance(cell, dict) and cell["printed"] else ""
