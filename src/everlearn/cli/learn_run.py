"""A run of everlearn learn: source, model, outputs, and what is said of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

import everlearn
from everlearn.cli import demo as demonstration
from everlearn.cli import learn_partitions as partitions
from everlearn.cli.commands.learn import Options
from everlearn.cli.common import check_output, check_place, errors_explained, names_in
from everlearn.cli.models import new_model
from everlearn.cli.progress import Display
from everlearn.cli.summary import show_bad_rows, show_summary, suggest
from everlearn.errors import InputError
from everlearn.reporting.queries import has_target
from everlearn.streams.outputs import Outputs
from everlearn.streams.runner import Runner, patiently
from everlearn.streams.session import Learner
from everlearn.streams.sources.opening import open_source
from everlearn.streams.sources.source import Source
from everlearn.streams.store.store import Store


def run(asked: Options, console: Console) -> None:
    """Learn as asked: one stream row after row, or files apart on several processes."""
    if asked.workers is not None or asked.cluster is not None:
        partitions.check_usage(asked)
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
    from everlearn.reporting.report import write_report

    store, name = learner.store, learner.name
    events = store.latest_events(name, kinds=["change", "novelty"], limit=5000)
    write_report(path, learner.model, store.history(name), events, name=name, totals=store.totals(name))
