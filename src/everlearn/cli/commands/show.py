"""everlearn show: what is in a model file or a state file."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape

from everlearn.cli.common import errors_explained, is_state_file, load_model, load_to_ask
from everlearn.cli.summary import moments_of, show_parts
from everlearn.cli.text_plots import bar, sparkline
from everlearn.reporting.events import name_of, rows_of, words_of
from everlearn.reporting.tables import Table, count, number
from everlearn.streams.store.records import mean_log_likelihood
from everlearn.typing import DetectingModel

if TYPE_CHECKING:
    from everlearn.streams.store.store import Store

_EXAMPLES = """
Examples:

\b
  everlearn show machine.evl
  everlearn show run.db
  everlearn show run.db --name machine
  everlearn show machine.evl --json | jq .tags
  everlearn show run.db --json | jq '.models[].name'
  everlearn show machine.evl --privacy
"""
_SHOWN = 20


@click.command(name="show", epilog=_EXAMPLES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--name", help="Name of the model, where FILE is a state file with several.")
@click.option("--json", "as_json", is_flag=True, help="Print what the file says about its model, or models, as JSON.")
@click.option("--privacy", is_flag=True, help="Say what could be read from the model about single rows.")
@click.option("--min-rows", type=click.IntRange(min=2), default=20, show_default=True,
              help="--privacy: rows that a component should stand for.")  # fmt: skip
def command(file: str, name: str | None, as_json: bool, privacy: bool, min_rows: int) -> None:
    """Show what is in a model file, or in a state file that `learn --state` or `serve` wrote.

    --json reads the header of a model file alone: version, digest, times, rows, columns with units and ranges, tags,
    the files that were merged into it, and whether rows are inside. Of a state file it is the list of models, or with
    --name one of them.
    """
    # The header alone: no model is built.
    if as_json:
        with errors_explained():
            click.echo(json.dumps(_described(file, name), ensure_ascii=False, indent=1))
        return
    if privacy:
        with errors_explained():
            _show_privacy(load_model(file, name), min_rows)
        return
    from everlearn.streams.store.store import Store

    console = Console(highlight=False)
    with errors_explained():
        if is_state_file(file):
            with Store(file, create=False) as store:
                _show_store(store, name, console)
        else:
            show_model(load_to_ask(file), console)
            _show_origin(file, console)


def _described(file: str, name: str | None) -> dict[str, Any]:
    """What a model file says about its model; of a state file that of one model, or the list of all."""
    from everlearn.persistence.model_file import metadata_of, read_metadata
    from everlearn.streams.store.store import Store

    if not is_state_file(file):
        return read_metadata(file)
    with Store(file, create=False) as store:
        if name is not None:
            return {"name": name} | metadata_of(store.model_bytes(name), f"The model {name!r} in {file}")
        waiting = store.all_waiting()
        return {
            "models": [
                {
                    "name": entry.name,
                    "kind": entry.kind,
                    "rows": entry.n_rows,
                    "waiting": waiting.get(entry.name, 0),
                    "bytes": entry.bytes,
                }
                for entry in store.models()
            ]
        }


def _show_privacy(model: Any, min_rows: int) -> None:
    found = model.privacy(min_rows)
    for sentence in found.sentences():
        click.echo(sentence)
    if not found.is_aggregated:
        click.echo(f"A copy without them: everlearn export FILE --min-rows {min_rows} --output COPY.evl")


def _show_origin(file: str, console: Console) -> None:
    """Where a model file came from, and whether rows are inside."""
    from everlearn.persistence.model_file import read_metadata

    found = read_metadata(file)
    console.print(
        f"\nFile: {found['bytes']:,} bytes, format {found['format']} of everlearn {found['version']}, digest "
        f"{found['digest'][:16]}.",
        soft_wrap=True,
    )
    for what, key in (("First row learned", "created"), ("Last row learned", "last_row")):
        if found[key]:
            console.print(f"{what}: {found[key]}.")
    if found["tags"]:
        console.print(f"Tags: {escape(', '.join(f'{k}={v}' for k, v in found['tags'].items()))}.", soft_wrap=True)
    if found["parents"]:
        names = [parent["name"] for parent in found["parents"]]
        more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
        console.print(f"Merged from {len(names):,} files: {escape(', '.join(names[:_SHOWN]))}{more}.", soft_wrap=True)
    if found["keeps_rows"]:
        console.print("Rows of the stream are inside: everlearn show FILE --privacy.")


def _show_store(store: Store, name: str | None, console: Console) -> None:
    entries = store.models()
    if name is None and len(entries) != 1:
        waiting = store.all_waiting()  # at once: there may be 100,000 models
        rows = [
            (entry.name, entry.kind, f"{entry.n_rows:,}", f"{waiting.get(entry.name, 0):,}", f"{entry.bytes:,}")
            for entry in entries
        ]
        title = f"{len(entries)} models in {store.path}"
        Table(("model", "kind", "rows", "waiting", "bytes"), rows, title).show(console)
        console.print("\nOne of them: [bold]everlearn show FILE --name NAME[/]")
        return
    chosen = name or entries[0].name
    model = store.load(chosen)
    console.print(f"[bold]{escape(chosen)}[/] in {escape(store.path)}")
    show_model(model, console)
    _show_run(store, chosen, model, console)


def _show_run(store: Store, name: str, model: Any, console: Console) -> None:
    """Totals, the curve of the log-likelihood, the latest events and bad rows."""
    totals = [(what, f"{n:,}") for what, n in sorted(store.totals(name).items())]
    Table(("what", "times"), totals, "The whole run").show(console)
    history = store.history(name)
    if curve := sparkline([interval.log_likelihood for interval in history]):
        mean = f"{mean_log_likelihood(history):.2f}"
        score = "mean log p-value" if isinstance(model, DetectingModel) else "log-likelihood"
        console.print(f"\n{score} {curve} {mean} in the mean of the run", soft_wrap=True)
    latest = store.latest_events(name, limit=10)
    when = _event_times(store, name, latest)
    events = [(t, rows_of(e), name_of(e), words_of(e)) for t, e in zip(when, latest, strict=True)]
    Table(("when", "row", "event", "value"), events, "The latest events").show(console)
    for row in store.bad_rows(name, limit=5):
        console.print(f"left out: {escape(row.place)}: {escape(row.reason)}: {escape(row.text[:60])}", soft_wrap=True)


def _event_times(store: Store, name: str, events: list[Any]) -> list[str]:
    """When events happened: by the stream's own times, or by the clock of the program that learned it."""
    from everlearn.streams.sources.times import restored_format

    how = restored_format((store.memory(name) or {}).get("time_format"))
    times = []
    for event in events:
        own = how.show(event.stream_time) if how is not None else ""
        times.append(own or datetime.datetime.fromtimestamp(event.time).isoformat(" ", "seconds"))
    return times


def show_model(model: Any, console: Console) -> None:
    """Kind, parameters, columns and parts of a model."""
    from everlearn.base.columns import column_names
    from everlearn.base.saved_model import SavedModel

    saved = isinstance(model, SavedModel)
    name, parameters = (model.model, model.parameters) if saved else (type(model).__name__, model._changed_parameters())
    console.print(f"[bold]{escape(name)}[/]({escape(parameters)})")
    if not saved and not model._is_started():
        console.print("It has learned nothing yet.")
        return
    names = column_names(model)
    console.print(f"{count(model.n_samples_seen_, 'row')} learned, {count(len(names), 'column')}.")
    moments = moments_of(model)
    if moments is not None:
        _show_columns(names, *moments, console)
    show_parts(model, names, console)
    if hasattr(type(model), "weights_"):
        _show_weights(model.weights_, console)


def _show_columns(names: list[str], means: Any, stds: Any, console: Console) -> None:
    columns = list(zip(names, means, stds, strict=True))[:_SHOWN]
    Table(("column", "mean", "std"), [(name, number(m), number(s)) for name, m, s in columns]).show(console)


def _show_weights(weights: Any, console: Console) -> None:
    console.print("\nWeights of the components")
    for weight in np.sort(weights)[::-1][:_SHOWN]:
        console.print(f"{weight:6.1%} {bar(weight / weights.max())}")
    if len(weights) > _SHOWN:
        console.print(f"and {len(weights) - _SHOWN} more")
