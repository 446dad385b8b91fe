"""Figures that README and docs show: written from the records of the pages, never typed.

A document has blocks, from `<!-- figures: NAME -->` to `<!-- end of figures -->`. `python benchmarks` fills them when
pages were made, `python benchmarks --documents` fills them without a run, and a test sees that they hold what the
records say. A page that was made before there were records is read itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import _page

DOCUMENTS = ("README.md", "docs/scale.md")
BLOCK = re.compile(r"(<!-- figures: ([\w ]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
NUMBER = re.compile(r"\**[+-]?\d[\d,.e+-]*\**( s| MiB| \(.*\))?$|$")
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
PRICE = 0.04  # USD for an hour of a core, assumed


def write_documents(root: Path = _page.ROOT) -> None:
    """Fill the blocks of all documents."""
    for name in DOCUMENTS:
        path = root / name
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


def filled(text: str) -> str:
    """A document with the figures of the records in its blocks."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{BLOCKS[found[2]]().strip()}\n\n{found[3]}", text)


def tables(page: str) -> list[dict[str, Any]]:
    """The tables of a page, from its record if there is one."""
    if (_page.RESULTS / f"{page}.json").exists():
        found: list[dict[str, Any]] = _page.read(page)["tables"]
        return found
    return _page.tables_of((_page.RESULTS / f"{page}.md").read_text(encoding="utf-8"))


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; columns of numbers are aligned to the right."""
    aligned = ["---:" if all(map(NUMBER.match, column)) else "---" for column in zip(*rows, strict=True)]
    lines = [columns, aligned, *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def whole(page: str, number: int = 0) -> str:
    """A table of a page, as it is."""
    table = tables(page)[number]
    return as_markdown(table["columns"], table["rows"])


# -- README ----------------------------------------------------------------------------------------


def one_pass() -> str:
    """Means over the sets, one pass beside a batch model."""
    classes, numbers, gaps = ({row[0]: row[1:] for row in table["rows"]} for table in tables("one_pass")[:3])
    n = [WORDS[len(table) - 1] for table in (classes, numbers, gaps)]
    rows = [
        [f"classes of {n[0]} sets: accuracy, percent; random forest", *classes["mean"]],
        [f"numbers of {n[1]} sets: explained variance, percent; random forest", *numbers["mean"]],
        [
            f"gaps of {n[2]} sets, three cells in ten: error in standard deviations; iterative imputation",
            gaps["mean"][0],
            gaps["mean"][2],
        ],
    ]
    return as_markdown(("", "one pass", "batch"), rows)


def merging() -> str:
    """One model of all rows beside sixteen, merged."""
    table = tables("one_pass")[3]
    return as_markdown(("held-out log-likelihood, nats per row", *table["columns"][1:]), table["rows"])


def quality() -> str:
    """How far batch EM is ahead of one pass."""
    page = (_page.RESULTS / "mixture_quality.md").read_text(encoding="utf-8")
    found = re.findall(r"Gap (\w+): median (\S+), 90th percentile (\S+), worst (\S+)\.", page)
    kinds = ("that the defaults were chosen on",) * 2 + ("kept aside until the end",) * 2
    rows = [[kind, *figures] for kind, figures in zip(kinds, found, strict=True)]
    return as_markdown(("sets", "order of the rows", "median", "90th percentile", "worst"), rows)


# -- docs/scale.md ---------------------------------------------------------------------------------


def cluster() -> str:
    """One process beside a cluster on this machine."""
    table = tables("scale")[0]
    text = f"{table['heading']} (`benchmarks/results/scale.md`):\n\n{whole('scale')}"
    times = number(table["rows"][1][3])
    if times > 2:
        text += (
            f"\n\n{times:.1f} times as fast, and not only because of the second core: a model of a part of the rows "
            "has fewer components to look at than one of all of them."
        )
    return text


def cores() -> str:
    """One large mixture and many small ones on two cores."""
    return f"{whole('scale_cores')}\n\n{whole('scale_cores', 1)}"


def billion() -> str:
    """What a billion rows of a hundred columns take, by the rates of one core."""
    rate, _, size, merge = _rates(columns="100")
    learning, merging = 1e9 / rate, 1000 * merge / 1000
    hours = (learning + merging) / 3600
    rows = [
        ["data", "10⁹ × 100 × 8 bytes = 800 GB"],
        [
            "learning",
            f"10⁹ rows / {rate:,.0f} rows per second = {learning:,.0f} s: {learning / 3600:.1f} hours of one core, "
            f"{learning / 6000:.1f} minutes of a hundred",
        ],
        [
            "reading",
            f"{rate:,.0f} rows per second are {rate * 800 / 1e6:.0f} MB per second and core: a hundred cores need "
            f"{rate * 0.8 / 1e4:.1f} GB per second from their disks or network",
        ],
        [
            "merging",
            f"1,000 partitions of a million rows: 1,000 × {size:,.0f} KiB of models and {merging:,.0f} s of one core",
        ],
        [
            "money",
            f"{hours:.1f} hours of a core at an assumed {PRICE} USD: {PRICE * hours:.2f} USD, without storage; replace "
            "the price by your own",
        ],
    ]
    return as_markdown(("what", "how much"), rows)


def million() -> str:
    """What a million devices with a model each take."""
    _, single, size, merge = _rates(columns="4")
    held, hours, sent = 1e6 * size * 1024, 1e6 * merge / 1000 / 3600, 1e6 * 86_400 * 32
    rows = [
        ["a row on the device", f"{single:.0f} microseconds of a server's core, one row at a time"],
        ["a model", f"{size:.0f} KiB, however many rows it has seen"],
        [
            "all models, kept or sent once",
            f"10⁶ × {size:.0f} KiB = {held / 1e9:.0f} GB; once a day {held / 86_400e6:.2f} MB per second",
        ],
        [
            "all models merged",
            f"10⁶ × {merge:.0f} ms = {1000 * merge:,.0f} s: {hours:.1f} hours of one core, {0.6 * hours:.1f} minutes "
            "of a hundred, in a tree with any number of levels",
        ],
        ["money", f"{hours:.1f} hours of a core at an assumed {PRICE} USD: {PRICE * hours:.2f} USD a merge"],
        [
            "rows, sent instead",
            f"a row per second: 10⁶ × 86,400 × 32 bytes = {sent / 1e12:.1f} TB per day, {sent / held:.0f} times the "
            "models",
        ],
    ]
    return as_markdown(("what", "how much"), rows)


def _rates(columns: str) -> tuple[float, float, float, float]:
    """Rows per second, microseconds of a single row, KiB, and milliseconds of a merge, of a mixture."""
    rows = tables("rates")[0]["rows"]
    found = next(row for row in rows if row[:2] == ["mixture", columns])
    rate, single, size, merge = map(number, found[3:7])
    return rate, single, size, merge


def number(cell: str) -> float:
    """The number in a cell."""
    return float(cell.strip("* ").replace(",", ""))


BLOCKS: dict[str, Callable[[], str]] = {
    "one pass": one_pass,
    "merging": merging,
    "quality": quality,
    "cluster": cluster,
    "partitions": lambda: whole("partitions"),
    "cores": cores,
    "cost": lambda: whole("scale_cost"),
    "gpu": lambda: whole("gpu"),
    "gpu mixture": lambda: whole("gpu", 1),
    "billion": billion,
    "million": million,
}
