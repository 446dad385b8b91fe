"""The program `everlearn`: one file a command, loaded when it is called."""

from __future__ import annotations

import importlib
from typing import Any

import click

import everlearn

COMMANDS = {
    "learn": "Learn a model from a stream.",
    "serve": "Serve models over HTTP, with a live page.",
}
_EXAMPLES = """
Examples:

\b
  everlearn learn --demo
  everlearn learn sensors.csv --model-file machine.evl
  everlearn learn sensors.csv --columns 'temp*,rpm' --rows 100000

\b
Exit status:
  0  done
  1  the data, a model file or a place on the disk cannot be used; the message says why
  2  wrong usage
"""


class Commands(click.Group):
    """A group whose command `name` is the object `command` of the module `everlearn.cli.name`."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import the module of a command."""
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"everlearn.cli.{name}").command
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.version_option(everlearn.__version__, prog_name="everlearn")
def main(**_: Any) -> None:
    """Probabilistic models that never stop learning."""
