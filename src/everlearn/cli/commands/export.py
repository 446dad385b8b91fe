"""everlearn export: a model for machines without Python, or without its rows for others."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from everlearn.cli.common import check_place, errors_explained, load_model, names_in
from everlearn.persistence.atomic_write import write_whole

_EXAMPLES = """
Examples:

\b
  everlearn export machine.evl --to c --output machine.c
  everlearn export machine.evl --to onnx --output machine.onnx
  everlearn export machine.evl --to onnx --gaps torque,temp --output fill.onnx
  everlearn export machine.evl --min-rows 20 --output shared.evl
"""


@click.command(name="export", epilog=_EXAMPLES)
@click.argument("model_file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--to", "kind", type=click.Choice(["c", "onnx", "model"]), help="C99 source, an ONNX graph, or a model file."
)
@click.option("--min-rows", type=click.IntRange(min=2),
              help="Leave rows behind, and join components of fewer rows than this.")  # fmt: skip
@click.option("--output", "-o", required=True, type=click.Path(dir_okay=False), help="Where to write it.")
@click.option("--gaps", multiple=True, metavar="COLUMNS", help="onnx: columns to fill, which are never observed.")
@click.option("--name", help="Name of the model, where MODEL_FILE is a state file.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(
    kind: str | None,
    min_rows: int | None,
    model_file: str,
    output: str,
    gaps: tuple[str, ...],
    name: str | None,
    quiet: bool,
) -> None:
    """Write a model as C source that scores and learns, as an ONNX graph that scores, or without its rows.

    With --min-rows the copy holds no row of the stream, and each of its components stands for so many rows or more; it
    is a model file unless --to says otherwise. `everlearn show FILE --privacy` says what could be read from a file.
    """
    if kind is None and min_rows is None:
        raise click.UsageError("Say what to write: --to c, --to onnx, or --min-rows 20 for a model without its rows.")
    if gaps and kind != "onnx":
        raise click.UsageError("--gaps is for --to onnx; the C source and models take rows with any gaps.")
    with errors_explained():
        check_place(output, "--output", "exported model")
        model = load_model(model_file, name)
        with warnings.catch_warnings(record=True) as words:
            warnings.simplefilter("always", UserWarning)
            model = model if min_rows is None else model.anonymised(min_rows)
        if kind in (None, "model"):
            model.save(output, answers=True)
        else:
            write_whole(output, _exported(model, kind, names_in(gaps)), "exported model")
    size = f"{Path(output).stat().st_size / 1024:,.0f} KiB"
    console = Console(quiet=quiet, highlight=False)
    for word in words:
        console.print(f"[yellow]{escape(str(word.message))}[/]", soft_wrap=True)
    console.print(f"Wrote [bold]{escape(output)}[/], {size}.")


def _exported(model: Any, kind: str | None, gaps: list[str] | None) -> bytes:
    from everlearn.export import to_c, to_onnx

    if kind == "c":
        return to_c(model).encode()
    graph: bytes = to_onnx(model, gaps=gaps).SerializeToString()
    return graph
