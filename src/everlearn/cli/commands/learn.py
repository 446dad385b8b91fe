"""everlearn learn: a model from a stream."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from everlearn.cli.deferred import import_scikit_learn
from everlearn.cli.models import KINDS
from everlearn.cli.options import LearnOptions

_EXAMPLES = """
Examples:

\b
  everlearn learn --demo
  everlearn learn sensors.csv --model-file machine.evl --report machine.html
  everlearn learn 'logs/*.csv.gz' --columns 'temp*,rpm' --rows 100000
  tail -f sensors.jsonl | everlearn learn - --state run.db
  everlearn learn sensors.csv --follow --state run.db --novelties novelties.jsonl
  everlearn learn kafka://broker:9092/sensors --state run.db --scores redis://localhost/scores
  everlearn learn sensors.csv --model detector --set patience=2000 --model-file watch.evl
  everlearn learn parts.parquet --model classifier --target defect --model-file parts.evl
  everlearn learn sensors.csv --set forgetting=adaptive --set max_components=50
  everlearn learn fleet.parquet --by device --state fleet.db
  everlearn learn 'days/*.parquet' --workers 4 --model-file machine.evl
  everlearn learn '/shared/days/*.parquet' --cluster tcp://scheduler:8786 --model-file machine.evl

With --state the run can be killed at any moment and started again with the same command: it goes on where it was, and
the model is the same as without the interruption. Rows are learned exactly once from files, Kafka and Redis, at least
once from MQTT.
"""


@click.command(name="learn", epilog=_EXAMPLES)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@click.option("--demo", is_flag=True, help="Learn the demonstration stream: a machine with regimes, gaps and faults.")
@click.option("--model", type=click.Choice(list(KINDS)), default="mixture", show_default=True, help="What to learn.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the model: a number, a word, a list, or PageHinkley(threshold=12).",
)
@click.option("--start", type=click.Path(exists=True, dir_okay=False), help="Go on with the model in this file.")
@click.option("--target", help="The column to predict, for a classifier or regressor.")
@click.option("--columns", multiple=True, help="Names or patterns of the columns to learn, separated by commas.")
@click.option("--time", help="The column of times, kept and not learned; by default the first that holds times.")
@click.option("--rows", type=click.IntRange(min=1), help="Learn at most this many rows.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all randomness.")
@click.option("--state", type=click.Path(dir_okay=False), help="Keep the state of the run here, safe from any crash.")
@click.option("--name", default="model", show_default=True, help="The model's name in the state file.")
@click.option("--model-file", type=click.Path(dir_okay=False), help="Save the model here at the end.")
@click.option("--by", metavar="COLUMN", help="Learn one model for each value of this column, such as a device.")
@click.option("--tag", "tags", multiple=True, metavar="NAME=TEXT", help="Something to say about the model in its file.")
@click.option("--unit", "units", multiple=True, metavar="COLUMN=UNIT", help="The unit of a column, for the file.")
@click.option("--report", type=click.Path(dir_okay=False), help="Write a report (one HTML file) here at the end.")
@click.option("--scores", help="Write each row's log-density before it was learned to this file or broker.")
@click.option("--imputations", help="Write the rows with their gaps filled.")
@click.option("--changes", help="Write the changes that were noticed.")
@click.option(
    "--novelties", help="Write the rows whose p-value is below the model's novelty_level, or a detector's anomalies."
)
@click.option("--follow", is_flag=True, help="Wait for more rows at the end of the files.")
@click.option("--stop-at-end", is_flag=True, help="Stop when all messages of a broker are learned.")
@click.option("--strict", is_flag=True, help="Stop at the first row that cannot be read.")
@click.option("--patience", type=click.FloatRange(min=0), help="Seconds to wait for a lost broker or a full disk.")
@click.option("--workers", type=click.IntRange(min=1), help="Learn files apart on so many processes, and merge.")
@click.option(
    "--cluster", metavar="ADDRESS", help="Learn files apart on the Dask cluster with this scheduler, and merge."
)
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(quiet: bool, scores: str, imputations: str, changes: str, novelties: str, **options: Any) -> None:
    """Learn a model from files or a broker, one row after the other.

    SOURCE is a file (CSV, JSON lines, Parquet, Arrow; also compressed with gzip), a pattern, - for standard input, or
    an address: redis://host/stream, kafka://host/topic, mqtt://host/topic. Columns of text are skipped, with a message,
    and so are rows that cannot be read. A column of times is kept beside the rows and not learned. Empty cells are
    gaps, which the model takes as they are.
    """
    places = {"scores": scores, "imputations": imputations, "changes": changes, "novelties": novelties}
    asked = LearnOptions(outputs={kind: where for kind, where in places.items() if where}, **options)
    asked.check()
    # Where records go to standard output, messages must not stand between them.
    console = Console(quiet=quiet, highlight=False, stderr="-" in asked.outputs.values())
    # All that learns is slow to import: wrong usage and --help are answered without it.
    import_scikit_learn()
    if asked.by is not None:
        from everlearn.cli.learn_groups import learn_groups

        learn_groups(asked, console)
    elif asked.in_partitions:
        from everlearn.cli.learn_partitions import learn_partitions

        learn_partitions(asked, console)
    else:
        from everlearn.cli.learn_run import learn_stream

        learn_stream(asked, console)
