"""everlearn merge: one model out of several."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from everlearn.cli.common import check_place, errors_explained, load_model, texts_in

_EXAMPLES = """
Examples:

\b
  everlearn merge north.evl south.evl west.evl --output all.evl
  everlearn merge devices/ --output all.evl --tag site=north
  everlearn merge a.evl b.evl --output both.evl --components 20
  everlearn merge all.evl --without device-00017.evl --output rest.evl

A folder stands for the model files in it (*.evl). Files are read one after the other and merged in a tree: no
more than 1,024 of them, or 256 MiB, are in memory at a time. The merged file keeps the list of what was merged, and
with --without that is done again from the files on the list.
"""


@click.command(name="merge", epilog=_EXAMPLES)
@click.argument("model_files", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--output", "-o", required=True, type=click.Path(dir_okay=False), help="Where to save the merged model.")
@click.option("--method", default="auto", show_default=True, type=click.Choice(["auto", "mean", "mode", "bayes"]),
              help="The rule of merging.")  # fmt: skip
@click.option("--components", type=click.IntRange(min=1), help="Reduce the merged mixture to this many components.")
@click.option("--without", multiple=True, metavar="NAME", help="Merge again what MODEL_FILES lists, without this one.")
@click.option(
    "--files", type=click.Path(exists=True, file_okay=False), help="--without: where the merged files are now."
)
@click.option("--tag", "tags", multiple=True, metavar="NAME=TEXT", help="Something to say about the merged model.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(
    model_files: tuple[str, ...],
    output: str,
    method: str,
    components: int | None,
    without: tuple[str, ...],
    files: str | None,
    tags: tuple[str, ...],
    quiet: bool,
) -> None:
    """Merge models that were learned apart; the files stay as they are.

    Columns are matched by name; a model may lack some of them. Parameters that may differ do so with a message.
    """
    said = texts_in(tags, "--tag")
    console = Console(quiet=quiet, highlight=False)
    with errors_explained():
        check_place(output, "--output", "model")
        paths = _paths_without(model_files, without, files) if without else _paths(model_files)
        # Not imported at the top: wrong usage is answered without scikit-learn.
        import everlearn

        # A generator: with the method "auto" a group of models is in memory at a time, not all of a fleet.
        models = _named_models(paths, Path(output).resolve().parent)
        with warnings.catch_warnings(record=True) as words:
            warnings.simplefilter("always", UserWarning)
            merged: Any = everlearn.merge(models, method=method, n_components=components)
        everlearn.save(merged, output, answers=True, tags=said)
        rows = merged.n_samples_seen_ if merged._is_started() else 0
    for word in words:
        console.print(f"[yellow]{escape(str(word.message))}[/]", soft_wrap=True)
    console.print(f"{len(paths):,} models with {rows:,} rows are merged in [bold]{escape(output)}[/].")


def _paths(given: Sequence[str]) -> list[str]:
    paths: list[str] = []
    for path in given:
        if os.path.isdir(path):
            found = sorted(str(file) for file in Path(path).glob("*.evl"))
            if not found:
                raise click.ClickException(f"The folder {path} holds no model file (*.evl).")
            paths += found
        else:
            paths.append(path)
    return paths


def _paths_without(given: Sequence[str], without: Sequence[str], files: str | None) -> list[str]:
    """The files on the list of a merged model, but for some, each of which must be what it was."""
    from everlearn.persistence.metadata import DIGEST_DIGITS
    from everlearn.persistence.model_file import read_metadata

    if len(given) != 1 or os.path.isdir(given[0]):
        raise click.UsageError("--without takes one merged model file, and merges again what it lists.")
    found = read_metadata(given[0])
    parents = found["parents"]
    if not parents:
        raise click.ClickException(f"{given[0]} lists no models that were merged into it.")
    for name in without:
        if not any(_is_called(parent["name"], name) for parent in parents):
            raise click.ClickException(f"{name} is not among the {len(parents):,} models that {given[0]} lists.")
    if sum(parent["rows"] for parent in parents) != found["rows"]:
        raise click.ClickException(
            f"{given[0]} has learned {found['rows']:,} rows, the models that it lists "
            f"{sum(parent['rows'] for parent in parents):,}: rows that it learned itself cannot be learned again."
        )
    folder = Path(files or Path(given[0]).resolve().parent)
    paths = []
    for parent in parents:
        if any(_is_called(parent["name"], name) for name in without):
            continue
        path = folder / (os.path.basename(parent["name"]) if files else parent["name"])
        if not path.is_file():
            raise click.ClickException(f"The file {path} was merged, and is not there. Say where with --files.")
        # A file that has gone on learning under its old name would bring in rows that were never merged.
        if not read_metadata(path)["digest"].startswith(parent["digest"][:DIGEST_DIGITS]):
            raise click.ClickException(f"The file {path} is not the one that was merged: its digest is another.")
        paths.append(str(path))
    if not paths:
        raise click.ClickException("Nothing is left to merge.")
    return paths


def _is_called(name: str, asked: str) -> bool:
    """Whether a file of the list is meant: by its path, its name, or its name without the ending."""
    return asked in (name, os.path.basename(name), Path(name).stem)


def _named_models(paths: Sequence[str], folder: Path) -> Iterator[Any]:
    """Models one by one, known by their place beside the merged file: the list holds when the folder is moved."""
    from everlearn.persistence.metadata import named

    for path in paths:
        model = load_model(path)
        named(model, os.path.relpath(Path(path).resolve(), folder))
        yield model
