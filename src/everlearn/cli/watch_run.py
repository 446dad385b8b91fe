"""A run of everlearn watch: source, watcher, places where episodes are told, and what is said of it."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from everlearn.cli.common import check_output, check_place, errors_explained, names_in, suggest_next
from everlearn.cli.learn_run import mqtt_session, stop_on_signals
from everlearn.cli.watch_options import WatchOptions
from everlearn.errors import InputError
from everlearn.reporting.tables import count
from everlearn.streams.backoff import retry
from everlearn.streams.runner import Runner
from everlearn.streams.sources.opening import open_source
from everlearn.streams.sources.schema import Choice
from everlearn.streams.sources.source import Source
from everlearn.streams.sources.times import TimeFormat, moment_of
from everlearn.streams.store.memory import MemoryStore
from everlearn.streams.store.store import Store
from everlearn.watch.episodes import ALARM, Episode
from everlearn.watch.groups import WatchGroups, known_group_columns
from everlearn.watch.rates import parse_duration
from everlearn.watch.session import WatchSession, known_columns, stored_episodes
from everlearn.watch.sinks import Command, EpisodeOutputs, Messenger, Webhook
from everlearn.watch.watcher import Watcher

# A block of a file has some 10,000 rows, which a busy machine watches for a minute: too long for who asked it to stop.
_ROWS_AT_ONCE = 1024
_COLOURS = {"alarm": "bold red", "look": "yellow"}


def watch_stream(asked: WatchOptions, console: Console) -> None:
    """Watch one stream, row after row, and tell what happens."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(errors_explained())
        _check_places(asked)
        # Without a state file nothing is serialised.
        store: Any = MemoryStore()
        if asked.state or asked.by:
            # Without --state the watchers of idle devices need a place all the same.
            folder = asked.state or stack.enter_context(tempfile.TemporaryDirectory())
            store = stack.enter_context(Store(asked.state or os.path.join(folder, "devices.db")))
        stop = threading.Event()
        source = stack.enter_context(_open_source(asked, store, stop, console))
        stack.enter_context(stop_on_signals(stop))
        session: Any = _session(asked, source, store, console)
        messengers = _messengers(asked, lambda message: console.print(f"[yellow]{escape(message)}[/]"))
        outputs = EpisodeOutputs(
            asked.episodes, source.columns.time_format, messengers, resumable=asked.state is not None,
            positions=(session.position or {}).get("outputs"),
        )  # fmt: skip
        with contextlib.closing(outputs):

            def tell(batch: Any, result: Any) -> None:
                if result is None and source.live:
                    result = session.silence()
                    outputs.write(None, result, None)
                for episode in [] if result is None else result.episodes:
                    show_news(episode, console)
                if batch is None and result is not None and result.episodes:
                    runner.commit()  # nothing else would write it while there are no rows

            # The runner asks a session for what both sorts have: rows in, commits, notes.
            told: Any = outputs
            runner = Runner(
                source, session, outputs=told, strict=asked.strict, patience=asked.patience, stop=stop,
                rows_at_once=_ROWS_AT_ONCE,
                say=lambda message: console.print(f"[yellow]{escape(message)}[/]", soft_wrap=True), watch=tell,
            )  # fmt: skip
            runner.run()
        finish = _finish if asked.by is None else _finish_groups
        finish(asked, session, source, console, stopped=stop.is_set())


def _check_places(asked: WatchOptions) -> None:
    check_place(asked.report, "--report", "report")
    check_place(asked.state, "--state", "state")
    for where in asked.episodes:
        check_output(where, "--episodes", "episodes")


def _open_source(asked: WatchOptions, store: Any, stop: threading.Event, console: Console) -> Source:
    columns = names_in(asked.columns)
    known = known_columns(store, asked.name) if asked.by is None else known_group_columns(store, asked.by)
    # Patterns that were given again have to hold the known columns: a watcher cannot lose a sensor.
    if known and columns and not all(Choice(grow=columns).grows(name) for name in known.names):
        raise InputError(
            f"{asked.name!r} in {store.path} watches the columns {', '.join(known.names)[:300]}. Choose the same with "
            "--columns, or another --state."
        )
    return retry(
        lambda: open_source(
            asked.places, columns=columns, target=asked.by, time=asked.time, follow=asked.follow,
            stop_at_end=asked.stop_at_end, session=mqtt_session(asked.state, asked.name), grow=asked.grow,
            known=known, times=True,
        ),
        limit=asked.patience, stop=stop, say=lambda error: console.print(f"[yellow]{escape(str(error))} Waiting.[/]"),
    )  # fmt: skip


def _session(asked: WatchOptions, source: Source, store: Any, console: Console) -> WatchSession | WatchGroups:
    """The watcher, or those of all devices, with their state; new ones learn what is known to be healthy first."""
    columns = source.columns
    until = None
    if asked.healthy_until is not None:
        until = _moment(asked.healthy_until, columns.time_format)

    def new_watcher(names: Sequence[str]) -> Watcher:
        return Watcher(
            names, false_alarms=asked.false_alarms, accept_after=parse_duration(asked.accept_after),
            time_format=columns.time_format, random_state=asked.seed,
        )  # fmt: skip

    watcher = new_watcher(columns.names)
    if columns.time_format is None:
        watcher.false_alarms.per_row(None)  # says at once that such a rate needs times
    session: Any
    if asked.by is None:
        session = WatchSession(watcher, store=store, name=asked.name, healthy_until=until, time_column=columns.time)
    else:
        session = WatchGroups(new_watcher, store, columns, healthy_until=until)
    if session.resumed:
        seen = (
            f"{watcher.n_stream_rows:,} rows were seen"
            if asked.by is None
            else f"{store.n_models():,} devices are known"
        )
        console.print(f"Going on in {escape(str(store.path))}: {seen}.")
        return session
    time = columns.time
    console.print(
        f"Watching {len(columns.names)} sensors of {escape(source.place)}"
        + (f", with times from [bold]{escape(time)}[/]." if time else "; there is no column of times.")
    )
    for name, what in columns.left_out.items():
        if name != time and not asked.columns:
            console.print(f"The column [bold]{escape(name)}[/] holds {what} and is left out.")
    _learn_healthy(asked, session, console)
    return session


def _learn_healthy(asked: WatchOptions, session: Any, console: Console) -> None:
    if asked.healthy:
        columns, n = session.columns if asked.by else session.watcher.columns, 0
        with open_source(list(asked.healthy), columns=columns, target=asked.by, time=asked.time) as healthy:
            for batch in healthy.batches():
                n += len(batch.X)
                rows = (batch.X, batch.y, batch.times) if asked.by else (batch.X, batch.times)
                session.learn_healthy(*rows)
        console.print(f"Learned {n:,} healthy rows of {escape(healthy.place)}.")
    elif asked.healthy_until is None:
        console.print("No rows are known to be healthy: what is usual is learned from the start, and faults held back.")


def _moment(text: str, how: TimeFormat | None) -> float:
    """A time that a person gave, as seconds since 1970; without a zone it is one of the stream's clock."""
    if how is None:
        raise InputError("--healthy-until needs the times of the rows. Name their column with --time.")
    moment = moment_of(text, how)
    if math.isnan(moment):
        raise InputError(f"--healthy-until {text!r}: write a time as 2026-11-05T12:00, or as the log does.")
    return moment


def _messengers(asked: WatchOptions, say: Any) -> list[Messenger]:
    tellers: list[Any] = []
    if asked.webhook:
        tellers.append(Webhook(asked.webhook, asked.token))
    if asked.program:
        tellers.append(Command(asked.program))
    return [Messenger(teller, say) for teller in tellers]


def show_news(episode: Episode, console: Console) -> None:
    """One line for what is new about an episode."""
    state = {"open": episode.severity, "over": "over", "accepted": "now normal"}[episode.status]
    colour = _COLOURS[episode.severity] if episode.is_open else "green"
    line = f"{episode.number:>4}  [{colour}]{state:<10}[/]  {escape(episode.sentence)}"
    console.print(line, soft_wrap=True)


def _finish(asked: WatchOptions, session: WatchSession, source: Source, console: Console, *, stopped: bool) -> None:
    watcher, n = session.watcher, session.watcher.n_stream_rows
    if stopped:
        console.print(f"[yellow]Stopped after {n:,} rows.[/]")
    if not watcher.started and n and not stopped:
        raise click.ClickException(
            f"The pace of {source.place} is not known after {n:,} rows: ten steps between times that rise are needed, "
            f"and {source.columns.time!r} has fewer. Name another column with --time, or --time '' for none, with a "
            "rate in rows (--false-alarms 1/10000rows)."
        )
    if n == 0:
        if stopped:  # before it had read any, which says nothing about the source
            return
        raise click.ClickException(f"{source.place} has no row that can be watched.")
    episodes = stored_episodes(session.store, session.name)
    alarms = sum(episode.severity == ALARM for episode in episodes)
    lasting = sum(episode.is_open for episode in episodes)
    console.print(f"\n{count(n, 'row')}: {_told(len(episodes), alarms)}; {lasting or 'none'} still open.")
    if asked.report is not None:
        from everlearn.reporting.watch_report import write_watch_report

        write_watch_report(asked.report, session.store, session.name, place=source.place, columns=watcher.columns,
                           time_format=watcher.time_format)  # fmt: skip
        console.print(f"The report is in [bold]{escape(asked.report)}[/].")
    _suggest(asked, episodes, console)


def _told(n_episodes: int, n_alarms: int) -> str:
    """Episodes, and how many of them were alarms."""
    if n_episodes == 1:
        return f"1 episode, {'an alarm' if n_alarms else 'no alarm'}"
    return f"{n_episodes:,} episodes, {n_alarms:,} of them {'an alarm' if n_alarms == 1 else 'alarms'}"


def _finish_groups(
    asked: WatchOptions, groups: WatchGroups, source: Source, console: Console, *, stopped: bool
) -> None:
    if stopped:
        console.print(f"[yellow]Stopped after {groups.n_rows:,} rows.[/]")
    n = groups.store.n_models()
    if not n:
        raise click.ClickException(f"{source.place} has no row with a value of {asked.by!r} that can be watched.")
    if groups.n_bad:
        console.print(f"[yellow]Rows left out: {groups.n_bad:,}.[/]")
    rows = f"{count(groups.n_rows, 'row')} of {count(n, 'device')}"
    console.print(f"\n{rows}: {_told(groups.n_episodes, groups.n_alarms)}.")
    if asked.state is not None and groups.latest is not None:
        device, number = groups.latest
        suggest_next([(f"if episode {number} of {device} was no fault", _mark(asked.state, number, device))], console)


def _mark(state: str, number: int, name: str) -> str:
    """The command that marks an episode as normal."""
    own = "" if name == "model" else f" --name {shlex.quote(name)}"
    return f"everlearn mark {number} --normal --state {shlex.quote(state)}{own}"


def _suggest(asked: WatchOptions, episodes: list[Episode], console: Console) -> None:
    found = []
    if asked.report is None:
        found.append(("a report of one page", f"{_asked(asked)} --report report.html"))
    if asked.state is None:
        found.append(("to go on later, to mark episodes, and for the page", f"{_asked(asked)} --state run.db"))
    else:
        found.append(("the page on the wall", f"everlearn serve --state {shlex.quote(asked.state)}"))
        if episodes:
            number = episodes[-1].number
            found.append((f"if episode {number} was no fault", _mark(asked.state, number, asked.name)))
    suggest_next(found, console)


def _asked(asked: WatchOptions) -> str:
    """The command that was given, as far as it says what is watched."""
    words = ["everlearn", "watch", *asked.sources]
    for option, values in (("--healthy", asked.healthy), ("--columns", asked.columns)):
        words += [word for value in values for word in (option, value)]
    for option, value in (("--healthy-until", asked.healthy_until), ("--time", asked.time), ("--state", asked.state)):
        words += [] if value is None else [option, value]
    defaults = {"--false-alarms": (asked.false_alarms, "1/day"), "--accept-after": (asked.accept_after, "1h"),
                "--name": (asked.name, "model"), "--seed": (str(asked.seed), "0")}  # fmt: skip
    for option, (given, default) in defaults.items():
        words += [] if given == default else [option, given]
    return shlex.join([*words, *(["--grow"] if asked.grow else [])])
