"""everlearn score: how likely rows are under a model, or what it predicts for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from everlearn.cli.common import FOUND, Stopped, check_output, errors_explained, load_model, rows_from, say_bad_rows
from everlearn.errors import InputError

_EXAMPLES = """
Examples:

\b
  everlearn score machine.evl new.csv
  everlearn score machine.evl new.parquet --output scores.parquet
  everlearn score run.db --name machine today.csv --alarm 1e-6 > scores.csv || echo "look at it"

\b
Fields: row, log_density, p_value (share of rows that are as improbable or more so: small for a novelty).
Of a detector: row, score (log p-value), p_value and, of rows below --alarm or its false_alarm_rate, the column to
blame, its value, and the interval in which it was expected.
Of a classifier: row, prediction, probability. Of a regressor: row, prediction, std.
"""


@click.command(name="score", epilog=_EXAMPLES)
@click.argument("model_file", type=click.Path(exists=True, dir_okay=False))
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--output", "-o", default="-", help="File (.csv, .jsonl, .parquet) or broker; CSV on standard output.")
@click.option("--name", help="Name of the model, where MODEL_FILE is a state file.")
@click.option("--alarm", type=click.FloatRange(0, 1), help="End with status 3 if any row's p-value is below this.")
def command(model_file: str, sources: tuple[str, ...], output: str, name: str | None, alarm: float | None) -> None:
    """Score the rows of files with a model: log-density and p-value, or predictions.

    The columns are those that the model learned, found by name.
    """
    with errors_explained():
        check_output(output, "--output", "scores")
        model = load_model(model_file, name)
        if alarm is not None and not hasattr(model, "p_value"):
            raise InputError(f"--alarm needs a model with p-values, a mixture; not {type(model).__name__}.")
        n_alarms = _score(model, sources, output, alarm)
    if n_alarms:
        raise Stopped(f"{n_alarms:,} rows have a p-value below {alarm:g}.", FOUND)


def _score(model: Any, sources: tuple[str, ...], output: str, alarm: float | None) -> int:
    from everlearn.streams.writers import open_writer

    row, n_alarms, bad, model = 0, 0, Counter[str](), ready_to_score(model, alarm)
    with rows_from(sources, model) as batches, open_writer(output, fields(model)) as writer:
        for batch in batches:
            bad.update(left_out.reason for left_out in batch.bad)
            if len(batch.X):
                answers = answers_to(model, batch.X)
                writer.write(list(zip(range(row, row + len(batch.X)), *map(_plain, answers), strict=True)))
                # After each batch: who reads from a pipe sees scores as they come.
                writer.flush()
                row += len(batch.X)
                n_alarms += int((answers[1] < alarm).sum()) if alarm is not None else 0
    say_bad_rows(bad)
    return n_alarms


def ready_to_score(model: Any, alarm: float | None) -> Any:
    """The model; of a detector a copy that follows the rows and learns none of them."""
    from everlearn.reporting.queries import detector_that_follows, is_detector

    return detector_that_follows(model, alarm) if is_detector(model) else model


def fields(model: Any) -> list[str]:
    """Names of what is said of each row."""
    from everlearn.reporting.queries import has_target, is_detector

    if is_detector(model):
        return ["row", "score", "p_value", "column", "value", "low", "high"]
    if has_target(model):
        return ["row", "prediction", "probability" if hasattr(model, "predict_proba") else "std"]
    return ["row", "log_density", "p_value"] if hasattr(model, "p_value") else ["row", "log_density"]


def answers_to(model: Any, X: Any) -> Sequence[Any]:
    """The fields after the number of the row."""
    from everlearn.reporting.queries import detected, is_detector

    kind = fields(model)
    if is_detector(model):
        return detected(model, np.asarray(X, dtype=np.float64))
    if kind[-1] == "probability":
        probabilities = model.predict_proba(X)
        return model.classes_[np.argmax(probabilities, axis=1)], probabilities.max(axis=1)
    if kind[-1] == "std":
        return [np.asarray(answer).ravel() for answer in model.predict(X, return_std=True)]
    return (model.score_samples(X), model.p_value(X)) if kind[-1] == "p_value" else (model.score_samples(X),)


def _plain(values: Any) -> list[Any]:
    plain: list[Any] = np.asarray(values).tolist()
    return plain
