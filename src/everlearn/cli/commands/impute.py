"""everlearn impute: rows with their gaps filled."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
import numpy as np

from everlearn.cli.common import check_output, errors_explained, load_model, rows_from, say_bad_rows
from everlearn.errors import InputError

_EXAMPLES = """
Examples:

\b
  everlearn impute machine.evl gappy.csv > filled.csv
  everlearn impute machine.evl gappy.csv --std --output filled.parquet
"""


@click.command(name="impute", epilog=_EXAMPLES)
@click.argument("model_file", type=click.Path(exists=True, dir_okay=False))
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--output", "-o", default="-", help="File (.csv, .jsonl, .parquet) or broker; CSV on standard output.")
@click.option("--name", help="Name of the model, where MODEL_FILE is a state file.")
@click.option("--std", is_flag=True, help="Add the standard deviation of each value; zero where it was observed.")
def command(model_file: str, sources: tuple[str, ...], output: str, name: str | None, std: bool) -> None:
    """Fill the gaps in the rows of files with their expectation under a model."""
    with errors_explained():
        check_output(output, "--output", "rows")
        model = load_model(model_file, name)
        if not hasattr(model, "impute"):
            raise InputError(f"{type(model).__name__} cannot fill gaps; learn a mixture or a PPCA.")
        _impute(model, sources, output, std)


def _impute(model: Any, sources: tuple[str, ...], output: str, std: bool) -> None:
    from everlearn.reporting.queries import column_names
    from everlearn.streams.writers import open_writer

    bad = Counter[str]()
    with rows_from(sources, model) as batches:
        names = column_names(model)
        with open_writer(output, [*names, *(f"{name}_std" for name in names if std)]) as writer:
            for batch in batches:
                bad.update(left_out.reason for left_out in batch.bad)
                if len(batch.X):
                    answer = model.impute(batch.X, return_std=True)
                    writer.write((np.column_stack(answer) if std else answer[0]).tolist())
                    writer.flush()
    say_bad_rows(bad)
