"""The program `everlearn`: one file a command, loaded when it is called."""

from __future__ import annotations

import gc
import importlib
from typing import Any

import click

import everlearn
from everlearn.cli.deferred import defer

COMMANDS = {
    "learn": "Learn a model from a stream.",
    "watch": "Watch a machine: episodes with times, sensors and a sentence each.",
    "mark": "Say whether an episode was normal or a fault.",
    "score": "Score rows: log-density and p-value, or predictions.",
    "impute": "Fill the gaps in rows.",
    "ask": "Ask for columns, given others.",
    "show": "Show what is in a model or state file.",
    "merge": "Merge models that were learned apart.",
    "reduce": "Make a mixture smaller.",
    "export": "Write a model as C source, as an ONNX graph, or without its rows.",
    "serve": "Serve models over HTTP, with a live page.",
    "backup": "Copy a state file while it is written.",
    "bench": "Measure everlearn beside its peers on this machine.",
    "doctor": "Say whether this machine is fine, on one screen.",
    "reproduce": "Make the tables and figures of the papers anew, beside the printed ones.",
}
_EXAMPLES = """
Examples:

\b
  everlearn learn --demo
  everlearn learn sensors.csv --model-file machine.evl
  everlearn learn sensors.csv --follow --state run.db
  everlearn watch pump.csv --healthy-until 2026-11-05T02:00 --report pump.html
  everlearn ask machine.evl --given temp=21,rpm=900 --predict torque
  everlearn score machine.evl new.csv --alarm 1e-6 > scores.csv

\b
Exit status:
  0  done
  1  the data, a model file or a place on the disk cannot be used; the message says why
  2  wrong usage
  3  score --alarm: rows were found
  4  a broker cannot be reached, or there is no room for a file: try again later; with --state nothing is lost
"""


class Commands(click.Group):
    """A group whose command `name` is the object `command` of the module `everlearn.cli.commands.name`."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import the module of a command."""
        if name not in COMMANDS:
            return None
        # Each command brings its own imports; `everlearn --help` needs none of them.
        _collect_less_often()
        _defer_what_others_import()
        command: click.Command = importlib.import_module(f"everlearn.cli.commands.{name}").command
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _collect_less_often() -> None:
    """Let the garbage collector look for cycles after 10,000 new objects, not 700.

    Imports make 100,000 objects that stay. Those of `learn` take 1.4 s of CPU: of it, 259 collections take 0.18 s, and
    18 of them 0.12 s.
    """
    gc.set_threshold(10_000, *gc.get_threshold()[1:])


def _defer_what_others_import() -> None:
    """Let what dependencies import, and no command needs at its start, wait until it is used."""
    import numpy as np  # noqa: F401  # the package of two of them

    # scikit-learn imports the first for a single function, and it takes as long as all the rest of scikit-learn. SciPy
    # imports all that NumPy has, its interface to Fortran and its tools for tests included: 0.15 s of CPU.
    for name in ("scipy.stats", "numpy.f2py", "numpy.testing"):
        defer(name)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.version_option(everlearn.__version__, prog_name="everlearn")
def main(**_: Any) -> None:
    """Probabilistic models that never stop learning."""
