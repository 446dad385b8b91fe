"""everlearn learn: a model from a stream."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.markup import escape

import everlearn
from everlearn.cli import demo as demonstration
from everlearn.cli import partitions
from everlearn.cli.common import check_output, check_place, errors_explained, names_in
from everlearn.cli.models import KINDS, SUPERVISED, new_model
from everlearn.cli.progress import Display
from everlearn.cli.summary import show_bad_rows, show_summary, suggest
from everlearn.errors import InputError
from everlearn.streams.learner import Learner
from everlearn.streams.opening import open_source
from everlearn.streams.outputs import KINDS as OUTPUTS
from everlearn.streams.outputs import Outputs
from everlearn.streams.questions import has_target
from everlearn.streams.runner import Runner, patiently
from everlearn.streams.source import Source
from everlearn.streams.store import Store

_EXAMPLES = """
Examples:

\b
  everlearn learn --demo
  everlearn learn sensors.csv --model-file machine.evl --report machine.html
  everlearn learn 'logs/*.csv.gz' --columns 'temp*,rpm' --rows 100000
  tail -f sensors.jsonl | everlearn learn - --state run.db
  everlearn learn sensors.csv --follow --state run.db --novelties novelties.jsonl
  everlearn learn kafka://broker:9092/sensors --state run.db --scores redis://localhost/scores
  everlearn learn parts.parquet --model classifier --target defect --model-file parts.evl
  everlearn learn sensors.csv --set forgetting=adaptive --set max_components=50
  everlearn learn 'days/*.parquet' --workers 4 --model-file machine.evl
  everlearn learn '/shared/days/*.parquet' --cluster tcp://scheduler:8786 --model-file machine.evl

With --state the run can be killed at any moment and started again with the same command: it goes on where it was, and
the model is the same as without the interruption. Rows are learned exactly once from files, Kafka and Redis, at least
once from MQTT.
"""


class Options(NamedTuple):
    """What was asked for."""

    sources: tuple[str, ...]
    demo: bool
    model: str
    settings: tuple[str, ...]
    start: str | None
    target: str | None
    columns: tuple[str, ...]
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


@click.command(name="learn", epilog=_EXAMPLES)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@click.option("--demo", is_flag=True, help="Learn the demonstration stream: a machine with regimes, gaps and faults.")
@click.option("--model", type=click.Choice(list(KINDS)), default="mixture", show_default=True, help="What to learn.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the model.")
@click.option("--start", type=click.Path(exists=True, dir_okay=False), help="Go on with the model in this file.")
@click.option("--target", help="The column to predict, for a classifier or regressor.")
@click.option("--columns", multiple=True, help="Names or patterns of the columns to learn, separated by commas.")
@click.option("--rows", type=click.IntRange(min=1), help="Learn at most this many rows.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all randomness.")
@click.option("--state", type=click.Path(dir_okay=False), help="Keep the state of the run here, safe from any crash.")
@click.option("--name", default="model", show_default=True, help="The model's name in the state file.")
@click.option("--model-file", type=click.Path(dir_okay=False), help="Save the model here at the end.")
@click.option("--report", type=click.Path(dir_okay=False), help="Write a report (one HTML file) here at the end.")
@click.option("--scores", help="Write each row's log-density before it was learned to this file or broker.")
@click.option("--imputations", help="Write the rows with their gaps filled.")
@click.option("--changes", help="Write the changes that were noticed.")
@click.option("--novelties", help="Write the rows that were novel.")
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
    an address: redis://host/stream, kafka://host/topic, mqtt://host/topic. Columns of text or times are left out with
    a word about it, and so are rows that cannot be read. Empty cells are gaps, which the model takes as they are.
    """
    given = zip(OUTPUTS, (scores, imputations, changes, novelties), strict=True)
    asked = Options(outputs={kind: where for kind, where in given if where}, **options)
    _check_usage(asked)
    console = Console(quiet=quiet, highlight=False, stderr="-" in asked.outputs.values())
    if asked.workers is not None or asked.cluster is not None:
        with errors_explained():
            check_place(asked.model_file, "--model-file", "model")
            partitions.learn_partitions(asked, console)
        return
    with errors_explained(), _stores(asked) as store:
        check_place(asked.model_file, "--model-file", "model")
        check_place(asked.report, "--report", "report")
        for kind, where in asked.outputs.items():
            check_output(where, f"--{kind}", kind)
        _learn(asked, store, console)


def _check_usage(asked: Options) -> None:
    if asked.demo == bool(asked.sources):
        raise click.UsageError("Give files or an address to learn from, or --demo, and not both.")
    if asked.demo and asked.columns:
        raise click.UsageError("--columns chooses columns of a file; the demonstration stream is learned whole.")
    if (asked.target is not None) != (asked.model in SUPERVISED) and asked.start is None:
        raise click.UsageError("--target goes with --model classifier or regressor, and they need it.")
    if asked.start and asked.settings:
        raise click.UsageError("--set is for a new model; the one of --start has its settings.")
    if asked.workers is not None or asked.cluster is not None:
        partitions.check_usage(asked)
    if asked.demo and asked.target:
        raise click.UsageError("The demonstration stream has no target.")


@contextlib.contextmanager
def _stores(asked: Options) -> Iterator[Store]:
    """The store of the run; one that lives as long as the program if none was asked for."""
    with contextlib.ExitStack() as stack:
        folder = None if asked.state else stack.enter_context(tempfile.TemporaryDirectory())
        yield stack.enter_context(Store(asked.state or os.path.join(folder or "", "run.db")))


def _learn(asked: Options, store: Store, console: Console) -> None:
    stop = threading.Event()
    model = everlearn.load(asked.start) if asked.start else new_model(asked.model, asked.settings, asked.seed)
    with _source(asked, model, store, stop, console) as source, _signals(stop):
        _check_target(model, source)
        learner = Learner(model, store=store, name=asked.name, columns=source.columns.names)
        _introduce(asked, learner, source, console)
        display = Display(learner, source, console)
        extra = demonstration.Observer(asked.seed, _demo_rows(asked)) if asked.demo else None
        outputs = _outputs(asked, learner)
        with display, contextlib.closing(outputs):
            runner = Runner(
                source, learner, outputs=outputs, strict=asked.strict, n_rows=asked.rows, patience=asked.patience,
                say=display.say, watch=lambda batch, seen: _watch(display, extra, batch, seen, learner.model),
            )  # fmt: skip
            runner.stop = stop
            runner.run()
        _finish(asked, learner, source, console, extra, stopped=stop.is_set())


def _watch(display: Display, extra: Any, batch: Any, seen: Any, model: Any) -> None:
    if extra is not None and batch is not None:
        extra.add(batch, seen, model)
    display.update()


def _demo_rows(asked: Options) -> int:
    return asked.rows or demonstration.ROWS


def _check_target(model: Any, source: Source) -> None:
    """Say what is wrong with the target of a model before the first row is learned."""
    target = source.columns.target
    if target is None and has_target(model):
        raise click.UsageError(f"The {type(model).__name__} of --start needs --target, the column that it predicts.")
    if target is not None and not has_target(model):
        raise click.UsageError(f"--target is for a classifier or regressor; --start holds a {type(model).__name__}.")
    if source.columns.labels and not hasattr(model, "predict_proba"):
        raise InputError(
            f"The target {target!r} of {source.place} holds text; a regressor predicts numbers. For classes there is "
            "--model classifier."
        )


def _source(asked: Options, model: Any, store: Store, stop: threading.Event, console: Console) -> Source:
    if asked.demo:
        return demonstration.source(_demo_rows(asked), asked.seed)
    entry = store.entry(asked.name)
    names = entry.columns if entry else getattr(model, "feature_names_in_", None)
    columns = names_in(asked.columns) or (None if names is None else list(map(str, names)))
    source: Source = patiently(
        lambda: open_source(
            asked.sources, columns=columns, target=asked.target, follow=asked.follow, stop_at_end=asked.stop_at_end,
            session=_session(asked),
        ),
        limit=asked.patience, stop=stop, say=lambda error: console.print(f"[yellow]{escape(str(error))} Waiting.[/]"),
    )  # fmt: skip
    return source


def _session(asked: Options) -> str:
    """A name under which an MQTT broker knows this run again; none if its state is not kept."""
    if asked.state is None:
        return ""
    run = f"{os.path.abspath(asked.state)} {asked.name}"
    return f"everlearn-{hashlib.sha256(run.encode()).hexdigest()[:12]}"


def _outputs(asked: Options, learner: Learner) -> Outputs:
    positions = (learner.position or {}).get("sinks", {})
    return Outputs(
        asked.outputs, learner.columns or [], learner.model, resumable=asked.state is not None, positions=positions
    )


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """Let the first Ctrl-C, or a request to end, finish the batch and commit; the second Ctrl-C ends the program."""

    def handle(number: int, frame: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- what is said ----------------------------------------------------------------------------------


def _introduce(asked: Options, learner: Learner, source: Source, console: Console) -> None:
    if asked.demo:
        demonstration.introduce(_demo_rows(asked), console)
    elif not asked.columns and not learner.resumed:
        for name, what in source.columns.left_out.items():
            console.print(f"The column [bold]{escape(name)}[/] holds {what} and is left out.")
    if learner.resumed:
        done = f"{learner.monitor.n_rows:,} rows are learned"
        console.print(f"Going on with [bold]{escape(learner.name)}[/] in {escape(learner.store.path)}: {done}.")
    if asked.state and not source.replayable:
        kept = source.place.startswith("mqtt")
        promise = "at least once" if kept else "at most once: they cannot be read again after a crash"
        console.print(f"[yellow]Rows from {escape(source.place)} are learned {promise}.[/]")


def _finish(asked: Options, learner: Learner, source: Source, console: Console, extra: Any, *, stopped: bool) -> None:
    if stopped:
        console.print(f"[yellow]Stopped after {learner.monitor.n_rows:,} rows.[/]")
    show_bad_rows(learner, console)
    if learner.monitor.n_rows == 0:
        raise click.ClickException(f"{source.place} has no row that can be learned.")
    show_summary(learner, console)
    if extra is not None:
        extra.show(learner.model, console)
    if asked.model_file is not None:
        everlearn.save(learner.model, asked.model_file)
        console.print(f"\nSaved to [bold]{escape(asked.model_file)}[/] ({os.path.getsize(asked.model_file):,} bytes).")
    if asked.report is not None:
        _write_report(asked.report, learner)
        console.print(f"The report is in [bold]{escape(asked.report)}[/].")
    suggest(asked, learner, console)


def _write_report(path: str, learner: Learner) -> None:
    from everlearn.streams.report import write_report

    store, name = learner.store, learner.name
    events = store.latest_events(name, kinds=["change", "novelty"], limit=5000)
    write_report(path, learner.model, store.history(name), events, name=name, totals=store.totals(name))
