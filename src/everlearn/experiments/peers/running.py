"""Running the comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NamedTuple

from threadpoolctl import threadpool_limits

import everlearn.experiments.peers.anomaly as anomaly
import everlearn.experiments.peers.change as change
import everlearn.experiments.peers.classification as classification
import everlearn.experiments.peers.conditional as conditional
import everlearn.experiments.peers.density as density
import everlearn.experiments.peers.everlearn_models as everlearn_models
import everlearn.experiments.peers.gmr as gmr
import everlearn.experiments.peers.missing as missing
import everlearn.experiments.peers.pomegranate as pomegranate
import everlearn.experiments.peers.pysad as pysad
import everlearn.experiments.peers.regression as regression
import everlearn.experiments.peers.river as river
import everlearn.experiments.peers.scikit_learn as scikit_learn
import everlearn.experiments.peers.speed as speed
from everlearn.errors import InputError
from everlearn.experiments.peers.adapter import Contender
from everlearn.experiments.peers.data import Context
from everlearn.experiments.peers.table import Row, Table

COLUMNS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (speed, classification, regression, density, missing, conditional, anomaly, change)
}
FAMILIES: dict[str, ModuleType] = {
    "everlearn": everlearn_models, "scikit-learn": scikit_learn, "river": river, "gmr": gmr, "pomegranate": pomegranate,
    "pysad": pysad,
}  # fmt: skip
QUICK_ROWS, ROWS = 1000, 50_000


class Task(NamedTuple):
    """One contender in one column."""

    column: ModuleType
    contender: Contender


def context_for(*, quick: bool = False, rows: int | None = None) -> Context:
    """Sizes of a run."""
    return Context(rows or (QUICK_ROWS if quick else ROWS), 1 if quick else 5, quick)


def tasks(only: Sequence[str] = (), *, quick: bool = False) -> list[Task]:
    """What there is to measure.

    Parameters
    ----------
    only : sequence of str
        Names of columns and of packages; everything by default. everlearn itself is always measured.
    quick : bool, default=False
        Whether to leave out the slowest contenders.

    Returns
    -------
    list of Task
        Columns in their order, in each the contenders of every package.
    """
    for name in only:
        if name not in COLUMNS and name not in FAMILIES:
            known = ", ".join([*COLUMNS, *FAMILIES])
            raise InputError(f"There is nothing to measure by the name {name!r}; names are {known}.")
    columns = [COLUMNS[name] for name in COLUMNS if name in only] or list(COLUMNS.values())
    families = [name for name in FAMILIES if name in only or name == "everlearn"]
    families = families if any(name in FAMILIES for name in only) else list(FAMILIES)
    found = [Task(column, contender) for column in columns for contender in _contenders(column, families)]
    return [task for task in found if not (quick and task.contender.slow)]


def _contenders(column: ModuleType, families: list[str]) -> list[Contender]:
    found = [contender for name in families for contender in FAMILIES[name].CONTENDERS[column.NAME]]
    return found + list(getattr(column, "BASELINES", []))


def compare(
    todo: Sequence[Task], context: Context, report: Callable[[int, Task], None] = lambda done, task: None
) -> list[Table]:
    """Measure all contenders on the same data.

    Parameters
    ----------
    todo : sequence of Task
        What to measure, as from `tasks`.
    context : Context
        Sizes, as from `context_for`.
    report : callable, optional
        Told the number of tasks that are done and the one that comes next.

    Returns
    -------
    list of Table
        One for each column.
    """
    rows: dict[str, list[Row]] = {}
    for done, task in enumerate(todo):
        report(done, task)
        # Rates are per second of CPU time, which counts every thread, also those that wait for others.
        with threadpool_limits(1):
            row = task.column.measure(task.contender, context)
        rows.setdefault(task.column.NAME, []).append(row)
    return [Table(name, COLUMNS[name].TITLE, COLUMNS[name].ABOUT, COLUMNS[name].MEASURES, rows[name]) for name in rows]
