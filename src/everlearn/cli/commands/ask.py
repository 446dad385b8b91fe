"""everlearn ask: the distribution of some columns once others are known."""

from __future__ import annotations

import json
import math
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape

from everlearn.cli.common import errors_explained, load_to_ask, names_in
from everlearn.cli.text_plots import histogram
from everlearn.errors import InputError
from everlearn.reporting.tables import Table, number

_DRAWN = 6  # columns with a histogram: what a screen holds
_EXAMPLES = """
Examples:

\b
  everlearn ask machine.evl --given temp=21,rpm=900 --predict torque
  everlearn ask machine.evl --predict torque
  everlearn ask run.db --name machine --given rpm=900 --predict torque,power --json
"""


@click.command(name="ask", epilog=_EXAMPLES)
@click.argument("model_file", type=click.Path(exists=True, dir_okay=False))
@click.option("--given", multiple=True, metavar="COLUMN=VALUE,...", help="What is known.")
@click.option("--predict", multiple=True, metavar="COLUMN,...", help="What is asked; by default all other columns.")
@click.option("--coverage", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.9, show_default=True,
              help="Probability of the interval.")  # fmt: skip
@click.option("--name", help="Name of the model, where MODEL_FILE is a state file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def command(
    model_file: str, given: tuple[str, ...], predict: tuple[str, ...], coverage: float, name: str | None, as_json: bool
) -> None:
    """Ask a model for columns, given others: mean, standard deviation, interval and a small histogram."""
    from everlearn.base.saved_model import SavedModel
    from everlearn.reporting.queries import check_askable, column_names, curve, summaries

    with errors_explained():
        model = load_to_ask(model_file, name)
        # Answers are only saved of a model that has learned.
        if not isinstance(model, SavedModel):
            model._check_started()
        check_askable(model)
        known = _values(given)
        targets = names_in(predict) or [column for column in column_names(model) if column not in known]
        if not targets:
            raise InputError("--given fixes every column of the model, and nothing is left to ask for.")
        found = summaries(model, known, targets, coverage=coverage)
        drawn = [] if as_json else targets[:_DRAWN]
        curves = [curve(model, known, target, coverage=coverage) for target in drawn]
    if as_json:
        answers = {c.column: {"mean": c.mean, "std": c.std, "low": c.low, "high": c.high} for c in found}
        click.echo(json.dumps({"given": known, "coverage": coverage, "predict": answers}))
        return
    _show(found, curves, known, coverage, Console(highlight=False))


def _values(given: tuple[str, ...]) -> dict[str, float]:
    values: dict[str, float] = {}
    for part in names_in(given) or []:
        name, equals, text = part.partition("=")
        try:
            value = float(text)
        except ValueError:
            equals = ""
        if not equals or not math.isfinite(value):
            raise InputError(f"--given {part}: write column=value with a number, for example --given rpm=900.")
        if name.strip() in values:
            raise InputError(f"--given names {name.strip()!r} twice.")
        values[name.strip()] = value
    return values


def _show(found: list[Any], curves: list[Any], known: dict[str, float], coverage: float, console: Console) -> None:
    condition = ", ".join(f"{name} = {value:g}" for name, value in known.items()) or "nothing is known"
    rows = [(c.column, number(c.mean), number(c.std), f"{number(c.low)} to {number(c.high)}") for c in found]
    Table(("column", "mean", "std", f"{coverage:.0%} interval"), rows, f"Given that {condition}").show(console)
    for c in curves:
        console.print(f"\n{escape(c.column)}")
        mass = np.add.reduceat(c.density, np.arange(0, len(c.density), max(1, len(c.density) // 16)))
        console.print(histogram(np.linspace(c.x[0], c.x[-1], len(mass) + 1), mass), soft_wrap=True)
