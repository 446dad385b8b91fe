"""everlearn merge: one model out of several."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape

import everlearn
from everlearn.cli.common import check_place, errors_explained, load_model

_EXAMPLES = """
Examples:

\b
  everlearn merge north.evl south.evl west.evl --output all.evl
  everlearn merge a.evl b.evl --output both.evl --components 20
"""


@click.command(name="merge", epilog=_EXAMPLES)
@click.argument("model_files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--output", "-o", required=True, type=click.Path(dir_okay=False), help="Where to save the merged model.")
@click.option("--method", default="auto", show_default=True, type=click.Choice(["auto", "mean", "mode", "bayes"]),
              help="The rule of merging.")  # fmt: skip
@click.option("--components", type=click.IntRange(min=1), help="Reduce the merged mixture to this many components.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(model_files: tuple[str, ...], output: str, method: str, components: int | None, quiet: bool) -> None:
    """Merge models that were learned apart, on the same columns with the same settings; the files stay as they are."""
    with errors_explained():
        check_place(output, "--output", "model")
        models = [load_model(path) for path in model_files]
        merged = everlearn.merge(models, method=method, n_components=components)
        everlearn.save(merged, output, answers=True)
        rows = merged.n_samples_seen_ if merged._is_started() else 0
    console = Console(quiet=quiet, highlight=False)
    console.print(f"{len(models)} models with {rows:,} rows are merged in [bold]{escape(output)}[/].")
