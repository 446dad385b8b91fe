"""everlearn watch: what is wrong with a machine, since when, and which sensor says so."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from everlearn.cli.watch_options import WatchOptions

_EXAMPLES = """
Examples:

\b
  everlearn watch pump.csv --healthy-until 2026-11-05T02:00 --report pump.html
  everlearn watch logs/ --healthy good-day.csv --false-alarms 1/week
  everlearn watch sensors.csv --follow --state run.db --episodes alarms.jsonl
  everlearn watch mqtt://broker/plant/pump --state run.db --webhook https://example.com/alarms
  everlearn watch sensors.csv --follow --state run.db --command 'notify-send Pump'
  everlearn watch fleet.csv --by device --state fleet.db --episodes alarms.jsonl
  everlearn serve --state run.db
  everlearn mark 3 --normal --state run.db

Each episode has a number, begin and end, a severity (look or alarm), the sensors to blame and one sentence. With
--state the run can be killed at any moment and started again with the same command.
"""


@click.command(name="watch", epilog=_EXAMPLES)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--healthy", multiple=True, metavar="FILE", help="Rows that are known to be healthy, learned first.")
@click.option("--healthy-until", metavar="TIME", help="Rows before this time are known to be healthy.")
@click.option(
    "--false-alarms", default="1/day", show_default=True, metavar="RATE", help="False alarms that may be raised."
)
@click.option(
    "--accept-after", default="1h", show_default=True, metavar="TIME",
    help="After so long, what lasts is accepted as the new normal.",
)  # fmt: skip
@click.option("--columns", multiple=True, help="Names or patterns of the sensors to watch, separated by commas.")
@click.option("--time", help="The column of times; by default the first that holds times.")
@click.option("--grow", is_flag=True, help="Learn sensors that appear later, from then on.")
@click.option("--episodes", multiple=True, metavar="PLACE", help="Write episodes to a .csv or .jsonl file or a broker.")
@click.option("--webhook", metavar="ADDRESS", help="Post episodes as JSON to this address, again until it takes them.")
@click.option("--token", envvar="EVERLEARN_WEBHOOK_TOKEN", help="Token for the webhook [EVERLEARN_WEBHOOK_TOKEN].")
@click.option("--command", "program", metavar="COMMAND", help="Run this for each news, with its sentence as argument.")
@click.option("--report", type=click.Path(dir_okay=False), help="Write a report of one page (HTML) at the end.")
@click.option("--state", type=click.Path(dir_okay=False), help="Keep the state of the run here, safe from any crash.")
@click.option("--name", default="model", show_default=True, help="The name in the state file.")
@click.option("--by", metavar="COLUMN", help="One watcher for each value of this column, such as a device.")
@click.option("--follow", is_flag=True, help="Wait for more rows at the end of the files.")
@click.option("--stop-at-end", is_flag=True, help="Stop when all messages of a broker are read.")
@click.option("--strict", is_flag=True, help="Stop at the first row that cannot be read.")
@click.option("--patience", type=click.FloatRange(min=0), help="Seconds to wait for a lost broker or a full disk.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all randomness.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(quiet: bool, **options: Any) -> None:
    """Watch a machine and tell what happened, when, and which sensor to look at.

    SOURCE is a file (CSV, JSON lines, Parquet, Arrow), a folder, a pattern, - for standard input, or an address:
    redis://host/stream, kafka://host/topic, mqtt://host/topic. What is usual is learned from --healthy, from the rows
    before --healthy-until, or, without either, from the start, where rows that do not fit are held back.
    """
    asked = WatchOptions(**options)
    asked.check()
    console = Console(quiet=quiet, highlight=False, stderr="-" in asked.episodes)
    # All that learns is slow to import: wrong usage and --help are answered without it.
    from everlearn.cli.watch_run import watch_stream

    watch_stream(asked, console)
