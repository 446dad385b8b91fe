"""everlearn export: a model for machines without Python."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from everlearn.cli.common import check_place, errors_explained, load_model, names_in

_EXAMPLES = """
Examples:

\b
  everlearn export machine.evl --to c --output machine.c
  everlearn export machine.evl --to onnx --output machine.onnx
  everlearn export machine.evl --to onnx --gaps torque,temp --output fill.onnx
"""


@click.command(name="export", epilog=_EXAMPLES)
@click.argument("model_file", type=click.Path(exists=True, dir_okay=False))
@click.option("--to", "kind", required=True, type=click.Choice(["c", "onnx"]), help="C99 source, or an ONNX graph.")
@click.option("--output", "-o", required=True, type=click.Path(dir_okay=False), help="Where to write it.")
@click.option("--gaps", multiple=True, metavar="COLUMNS", help="onnx: columns to fill, which are never observed.")
@click.option("--name", help="Name of the model, where MODEL_FILE is a state file.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(kind: str, model_file: str, output: str, gaps: tuple[str, ...], name: str | None, quiet: bool) -> None:
    """Write a model as C source that scores and learns, or as an ONNX graph that scores."""
    if gaps and kind == "c":
        raise click.UsageError("--gaps is for --to onnx; the C source takes rows with any gaps.")
    with errors_explained():
        check_place(output, "--output", "exported model")
        content = _exported(load_model(model_file, name), kind, names_in(gaps))
        Path(output).write_bytes(content)
    size = f"{len(content) / 1024:,.0f} KiB"
    Console(quiet=quiet, highlight=False).print(f"Wrote [bold]{escape(output)}[/], {size}.")


def _exported(model: object, kind: str, gaps: list[str] | None) -> bytes:
    from everlearn.export import to_c, to_onnx

    if kind == "c":
        return to_c(model).encode()
    graph: bytes = to_onnx(model, gaps=gaps).SerializeToString()
    return graph
