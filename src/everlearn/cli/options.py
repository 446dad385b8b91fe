"""The options of `everlearn learn`: what was asked for, and which of them exclude each other."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import click

from everlearn.cli.common import texts_in
from everlearn.cli.models import SUPERVISED

# Options of a stream that is learned row after row; files that are learned apart and merged have no such order.
_STREAM_OPTIONS = ("demo", "start", "rows", "time", "state", "report", "outputs", "follow", "stop_at_end", "patience")


class LearnOptions(NamedTuple):
    """What was asked for."""

    sources: tuple[str, ...]
    demo: bool
    model: str
    settings: tuple[str, ...]
    start: str | None
    target: str | None
    columns: tuple[str, ...]
    time: str | None
    rows: int | None
    seed: int
    state: str | None
    name: str
    model_file: str | None
    report: str | None
    outputs: dict[str, str]
    follow: bool
    stop_at_end: bool
    strict: bool
    patience: float | None
    workers: int | None
    cluster: str | None
    tags: tuple[str, ...]
    units: tuple[str, ...]
    by: str | None

    @property
    def in_partitions(self) -> bool:
        """Whether files are learned apart, on several processes or a cluster."""
        return self.workers is not None or self.cluster is not None

    def check(self) -> None:
        """Refuse options that do not go together."""
        if self.demo == bool(self.sources):
            raise click.UsageError("Give files or an address to learn from, or --demo, and not both.")
        if self.demo and self.columns:
            raise click.UsageError("--columns chooses columns of a file; the demonstration stream is learned whole.")
        if (self.target is not None) != (self.model in SUPERVISED) and self.start is None:
            if self.target is None:
                raise click.UsageError(f"--model {self.model} needs --target COLUMN: the column to predict.")
            raise click.UsageError(
                "--target names what a classifier or regressor predicts: add --model classifier or regressor."
            )
        if self.start and self.settings:
            raise click.UsageError("--set is for a new model; the one of --start has its settings.")
        if self.demo and (self.target or self.time):
            raise click.UsageError(f"The demonstration stream has no {'target' if self.target else 'times'}.")
        if not 0 < len(self.name) <= 200 or not self.name.isprintable():
            raise click.UsageError(f"--name {self.name[:40]!r}: give 1 to 200 printable characters.")
        texts_in(self.tags, "--tag")
        texts_in(self.units, "--unit")
        if (self.tags or self.units) and self.model_file is None:
            raise click.UsageError("--tag and --unit go into the file of --model-file.")
        if self.by is not None:
            self._check_groups()
        if self.in_partitions:
            self._check_partitions()

    def _check_groups(self) -> None:
        """--by has a model for each group: what concerns one model, or its answers, does not go with it."""
        given = next((name for name in ("demo", "start", "report", "outputs", "units") if getattr(self, name)), None)
        if given is not None or self.in_partitions:
            option = (
                "--workers and --cluster" if given is None else f"--{given.rstrip('s') if given == 'units' else given}"
            )
            raise click.UsageError(f"{option}: that is for one model; --by learns one for each value of a column.")
        if self.model in SUPERVISED:
            raise click.UsageError("--by is for models without a target.")
        if self.state is None and self.model_file is None:
            raise click.UsageError("Say where the models go: --state FILE, or --model-file FOLDER for a file each.")
        if self.model_file is not None and os.path.exists(self.model_file) and not os.path.isdir(self.model_file):
            raise click.UsageError(f"--model-file {self.model_file}: with --by this is a folder.")

    def _check_partitions(self) -> None:
        if self.workers is not None and self.cluster is not None:
            raise click.UsageError("Give --workers for processes of this machine, or --cluster, and not both.")
        given = next((name for name in _STREAM_OPTIONS if getattr(self, name)), None)
        if given is not None:
            option = f"--{next(iter(self.outputs))}" if given == "outputs" else f"--{given.replace('_', '-')}"
            raise click.UsageError(
                f"{option} belongs to a stream that is learned row after row; --workers and --cluster learn whole "
                "files apart and merge the models."
            )


def save_model(asked: LearnOptions, model: Any) -> None:
    """Write the model to --model-file, with what --tag and --unit say."""
    from everlearn.persistence.model_file import save

    assert asked.model_file is not None
    tags, units = texts_in(asked.tags, "--tag"), texts_in(asked.units, "--unit")
    save(model, asked.model_file, answers=True, tags=tags, units=units)
