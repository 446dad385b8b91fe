"""everlearn learn --by COLUMN: one model a group."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from everlearn.cli.common import check_place, errors_explained, names_in, texts_in
from everlearn.cli.learn_run import mqtt_session, stop_on_signals
from everlearn.cli.models import new_model
from everlearn.cli.options import LearnOptions
from everlearn.errors import InputError
from everlearn.streams.backoff import retry
from everlearn.streams.groups import GroupSession
from everlearn.streams.runner import Runner
from everlearn.streams.sources.opening import open_source
from everlearn.streams.store.store import Store


def learn_groups(asked: LearnOptions, console: Console) -> None:
    """Learn one model for each value of a column, and say how it went."""
    assert asked.by is not None
    with contextlib.ExitStack() as stack:
        stack.enter_context(errors_explained())
        check_place(asked.state, "--state", "state")
        # Without --state the models of idle groups need a place all the same.
        path = asked.state or os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "groups.db")
        store = stack.enter_context(Store(path))
        stop = threading.Event()
        stack.enter_context(stop_on_signals(stop))
        source = stack.enter_context(
            retry(
                lambda: open_source(
                    asked.sources, columns=names_in(asked.columns), target=asked.by, time=asked.time,
                    follow=asked.follow, stop_at_end=asked.stop_at_end, session=mqtt_session(asked.state, asked.name),
                ),
                limit=asked.patience, stop=stop,
                say=lambda error: console.print(f"[yellow]{escape(str(error))} Waiting.[/]"),
            )
        )  # fmt: skip
        model = new_model(asked.model, asked.settings, asked.seed)
        session = GroupSession(model, store, asked.by, source.columns.names)
        if session.resumed:
            console.print(f"Going on in {escape(str(store.path))} with {store.n_models():,} models.")
        # The runner asks a session for what all sorts have: rows in, commits, notes.
        run: Any = session
        Runner(
            source, run, strict=asked.strict, n_rows=asked.rows, patience=asked.patience, stop=stop,
            say=lambda message: console.print(f"[yellow]{escape(message)}[/]", soft_wrap=True),
        ).run()  # fmt: skip
        _finish(asked, session, store, console)


def _finish(asked: LearnOptions, session: GroupSession, store: Store, console: Console) -> None:
    n = store.n_models()
    if not n:
        raise click.ClickException(f"There is no row with a value of {asked.by!r} that can be learned.")
    if session.n_bad:
        console.print(f"[yellow]Rows left out: {session.n_bad:,}.[/]")
    console.print(f"{session.n_rows:,} rows learned; {n:,} models, {session.n_new:,} of them new.")
    if asked.model_file is not None:
        save_groups(store, Path(asked.model_file), texts_in(asked.tags, "--tag") | {"by": str(asked.by)})
        console.print(f"Saved to [bold]{escape(asked.model_file)}[/], a file each.")
    if asked.state is not None:
        console.print(f"One of them: [bold]everlearn show {escape(asked.state)} --name NAME[/]")


def save_groups(store: Store, folder: Path, tags: dict[str, str]) -> None:
    """Write the model of each group to a file in `folder`, one after the other."""
    folder.mkdir(exist_ok=True)
    # A thousand entries at a time and one model at a time: there may be 100,000 groups.
    after, taken = "", set()
    while entries := store.models(after=after, limit=1000):
        for entry in entries:
            file = f"{re.sub(r'[^A-Za-z0-9._-]', '_', entry.name).lstrip('.') or '_'}.evl"
            if file in taken:
                raise InputError(f"Two groups would be saved as {file}. Leave them in a state file: --state.")
            taken.add(file)
            store.load(entry.name).save(folder / file, tags={**tags, "group": entry.name})
        after = entries[-1].name
