"""everlearn backup: a copy of a state file, whole, while others write to it."""

from __future__ import annotations

import os

import click
from rich.console import Console

from everlearn.cli.common import errors_explained

_EXAMPLES = """
Examples:

\b
  everlearn backup run.db /backups/run-$(date +%F).db

\b
To go on from a copy, stop the program, put the copy in the place of the state file, remove run.db-wal and run.db-shm,
and start it again.
"""


@click.command(epilog=_EXAMPLES)
@click.argument("state", type=click.Path(exists=True, dir_okay=False))
@click.argument("copy", type=click.Path(dir_okay=False))
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(state: str, copy: str, quiet: bool) -> None:
    """Copy the state file STATE to the file COPY as it is at this moment.

    `learn`, `watch` and `serve` may go on writing to it: the copy holds all of a commit or nothing, with the rows that
    were acknowledged and not learned yet. Copying the file with other programs while it is written gives a damaged one.
    """
    with errors_explained():
        from everlearn.streams.store.store import Store

        # Not a copy of the file: its latest commits are in the write-ahead log beside it.
        with Store(state, create=False) as store:
            store.backup(copy)
        with Store(copy, create=False) as copied:  # reads it whole, and says if it is damaged
            n_models = copied.n_models()
        size = os.path.getsize(copy) / 2**20
    Console(quiet=quiet, highlight=False).print(f"{copy}: {n_models:,} models, {size:.1f} MiB", markup=False)
