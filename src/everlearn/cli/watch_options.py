"""The options of `everlearn watch`: what was asked for, and which of them exclude each other."""

from __future__ import annotations

import os
from typing import NamedTuple

import click


class WatchOptions(NamedTuple):
    """What was asked for."""

    sources: tuple[str, ...]
    healthy: tuple[str, ...]
    healthy_until: str | None
    false_alarms: str
    accept_after: str
    columns: tuple[str, ...]
    time: str | None
    grow: bool
    episodes: tuple[str, ...]
    webhook: str | None
    token: str | None
    program: str | None
    report: str | None
    state: str | None
    name: str
    by: str | None
    follow: bool
    stop_at_end: bool
    strict: bool
    patience: float | None
    seed: int

    @property
    def places(self) -> list[str]:
        """The sources; a folder stands for all files in it."""
        return [os.path.join(place, "*") if os.path.isdir(place) else place for place in self.sources]

    def check(self) -> None:
        """Refuse options that do not go together."""
        if self.healthy and self.healthy_until:
            raise click.UsageError("Give --healthy or --healthy-until, and not both.")
        if self.token and not self.webhook:
            raise click.UsageError("--token is sent to a --webhook, and there is none.")
        if self.by is not None and self.report is not None:
            raise click.UsageError("--report is for one machine; --by watches one for each value of a column.")
        if self.by is not None and self.name != "model":
            raise click.UsageError("--name is for one machine; with --by each has the name of its device.")
        if not 0 < len(self.name) <= 200 or not self.name.isprintable():
            raise click.UsageError(f"--name {self.name[:40]!r}: give 1 to 200 printable characters.")
