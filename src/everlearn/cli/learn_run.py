"""A run of everlearn learn over one stream: source, model, outputs, and what is said of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

import everlearn
from everlearn.cli import demo as demonstration
from everlearn.cli.common import check_output, check_place, errors_explained, names_in
from everlearn.cli.models import new_model
from everlearn.cli.options import LearnOptions, save_model
from everlearn.cli.progress import Display
from everlearn.cli.summary import show_bad_rows, show_summary, suggest
from everlearn.errors import InputError
from everlearn.reporting.queries import has_target
from everlearn.streams.backoff import retry
from everlearn.streams.outputs import Outputs
from everlearn.streams.runner import Runner
from everlearn.streams.session import Session
from everlearn.streams.sources.opening import open_source
from everlearn.streams.sources.source import Source
from everlearn.streams.store.memory import MemoryStore
from everlearn.streams.store.store import Store
from everlearn.typing import ClassifyingModel


def learn_stream(asked: LearnOptions, console: Console) -> None:
    """Learn one stream, row after row, and say how it went."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(errors_explained())
        _check_places(asked)
        # Without --state nothing is kept between runs, so nothing is serialised either.
        store = stack.enter_context(Store(asked.state)) if asked.state else MemoryStore()
        stop = threading.Event()
        model = everlearn.load(asked.start) if asked.start else new_model(asked.model, asked.settings, asked.seed)
        # Before signals are caught: Ctrl-C ends a program at once that still waits for its broker or its first row.
        source = stack.enter_context(_open_source(asked, model, store, stop, console))
        stack.enter_context(stop_on_signals(stop))
        _check_target(model, source)
        session = Session(model, store=store, name=asked.name, columns=source.columns.names,
                          time_format=source.columns.time_format)  # fmt: skip
        _introduce(asked, session, source, console)
        observer = demonstration.Observer(asked.seed, _demo_rows(asked)) if asked.demo else None
        outputs = Outputs(
            asked.outputs, source.columns.names, session.model, time_format=source.columns.time_format,
            resumable=asked.state is not None, positions=(session.position or {}).get("outputs"),
        )  # fmt: skip
        with Display(session, source, console) as display, contextlib.closing(outputs):

            def watch(batch: Any, result: Any) -> None:
                if observer is not None and batch is not None:
                    observer.add(batch, result)
                display.update()

            Runner(
                source, session, outputs=outputs, strict=asked.strict, n_rows=asked.rows, patience=asked.patience,
                stop=stop, say=display.say, watch=watch,
            ).run()  # fmt: skip
        _finish(asked, session, source, console, observer, stopped=stop.is_set())


def _check_places(asked: LearnOptions) -> None:
    """Say before the work that its results could not be saved after it."""
    check_place(asked.model_file, "--model-file", "model")
    check_place(asked.report, "--report", "report")
    check_place(asked.state, "--state", "state")
    for kind, where in asked.outputs.items():
        check_output(where, f"--{kind}", kind)


def _demo_rows(asked: LearnOptions) -> int:
    return asked.rows or demonstration.ROWS


def _check_target(model: Any, source: Source) -> None:
    """Say what is wrong with the target of a model before the first row is learned."""
    target = source.columns.target
    if target is None and has_target(model):
        raise click.UsageError(f"The {type(model).__name__} of --start needs --target, the column that it predicts.")
    if target is not None and not has_target(model):
        raise click.UsageError(f"--target is for a classifier or regressor; --start holds a {type(model).__name__}.")
    if source.columns.labels and not isinstance(model, ClassifyingModel):
        raise InputError(
            f"The target {target!r} of {source.place} holds text; a regressor predicts numbers. For classes there is "
            "--model classifier."
        )


def _open_source(
    asked: LearnOptions, model: Any, store: Store | MemoryStore, stop: threading.Event, console: Console
) -> Source:
    """The source, with the columns that were asked for, or those that the model has learned already."""
    if asked.demo:
        return demonstration.source(_demo_rows(asked), asked.seed)
    entry = store.entry(asked.name)
    # A run that goes on reads the columns that it has learned, not those that the first rows of today's file suggest.
    names = entry.columns if entry else getattr(model, "feature_names_in_", None)
    columns = names_in(asked.columns) or (None if names is None else list(map(str, names)))
    return retry(
        lambda: open_source(
            asked.sources, columns=columns, target=asked.target, time=asked.time, follow=asked.follow,
            stop_at_end=asked.stop_at_end, session=mqtt_session(asked.state, asked.name),
        ),
        limit=asked.patience, stop=stop, say=lambda error: console.print(f"[yellow]{escape(str(error))} Waiting.[/]"),
    )  # fmt: skip


def mqtt_session(state: str | None, name: str) -> str:
    """A name under which an MQTT broker knows this run again; none if its state is not kept."""
    if state is None:
        return ""
    # A digest, as a client's name may have 23 characters at most; by the absolute path, so that the same run has the
    # same session from any folder.
    run = f"{os.path.abspath(state)} {name}"
    return f"everlearn-{hashlib.sha256(run.encode()).hexdigest()[:12]}"


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Let the first Ctrl-C, or a request to end, finish the batch and commit; the second Ctrl-C ends the program."""

    def handle(number: int, frame: Any) -> None:
        # Only a second Ctrl-C: SIGTERM, however often it comes, lets the commit end.
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- what is said ----------------------------------------------------------------------------------


def _introduce(asked: LearnOptions, session: Session, source: Source, console: Console) -> None:
    if asked.demo:
        demonstration.introduce(_demo_rows(asked), console)
    elif not session.resumed:
        _say_columns(asked, source, console)
    if session.resumed:
        done = f"{session.monitor.n_rows:,} rows are learned"
        console.print(f"Going on with [bold]{escape(session.name)}[/] in {escape(session.store.path)}: {done}.")
    if asked.state and not source.replayable:
        kept = source.place.startswith("mqtt")
        promise = "at least once" if kept else "at most once: they cannot be read again after a crash"
        console.print(f"[yellow]Rows from {escape(source.place)} are learned {promise}.[/]")


def _say_columns(asked: LearnOptions, source: Source, console: Console) -> None:
    """Say which columns are not learned, and why."""
    time = source.columns.time
    if time is not None:
        console.print(f"The column [bold]{escape(time)}[/] holds the times of the rows: kept, and not learned.")
    if not asked.columns:
        for name, what in source.columns.left_out.items():
            if name != time:
                console.print(f"The column [bold]{escape(name)}[/] holds {what} and is left out.")


def _finish(
    asked: LearnOptions, session: Session, source: Source, console: Console, observer: Any, *, stopped: bool
) -> None:
    if stopped:
        console.print(f"[yellow]Stopped after {session.monitor.n_rows:,} rows.[/]")
    show_bad_rows(session, console)
    if session.monitor.n_rows == 0:
        if stopped:  # before it had read any, which says nothing about the source
            return
        raise click.ClickException(f"{source.place} has no row that can be learned.")
    if observer is not None and isinstance(session.model, everlearn.IncrementalGaussianMixture):
        observer.show(session.model, console)
    else:
        show_summary(session, console)
    if asked.model_file is not None:
        if session.last_time is not None:
            session.model._last_row_ = session.last_time  # by the stream's own clock
        save_model(asked, session.model)
        console.print(f"\nSaved to [bold]{escape(asked.model_file)}[/] ({os.path.getsize(asked.model_file):,} bytes).")
    if asked.report is not None:
        _write_report(asked.report, session, source, observer)
        console.print(f"The report is in [bold]{escape(asked.report)}[/].")
    suggest(asked, session, console)


def _write_report(path: str, session: Session, source: Source, observer: demonstration.Observer | None) -> None:
    from everlearn.reporting.report import write_report

    store, name = session.store, session.name
    events = store.latest_events(name, kinds=["change", "novelty", "anomaly", "new_normal", "time gap"], limit=5000)
    write_report(
        path, session.model, store.history(name), events,
        name=name if observer is None else "The demonstration machine", totals=store.totals(name),
        time_format=source.columns.time_format, stays=() if observer is None else observer.stays,
        findings=() if observer is None else observer.findings,
    )  # fmt: skip
