"""everlearn reduce: a smaller mixture that says nearly the same."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape

import everlearn
from everlearn.cli.common import check_place, errors_explained, load_model
from everlearn.errors import InputError
from everlearn.reporting.tables import count

_EXAMPLES = """
Examples:

\b
  everlearn reduce machine.evl --components 8 --output small.evl
"""


@click.command(name="reduce", epilog=_EXAMPLES)
@click.argument("model_file", type=click.Path(exists=True, dir_okay=False))
@click.option("--components", "-n", required=True, type=click.IntRange(min=1), help="The most components to keep.")
@click.option("--output", "-o", required=True, type=click.Path(dir_okay=False), help="Where to save the smaller one.")
@click.option("--name", help="Name of the model, where MODEL_FILE is a state file.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(model_file: str, components: int, output: str, name: str | None, quiet: bool) -> None:
    """Reduce a mixture to a few components; it goes on learning from there."""
    with errors_explained():
        check_place(output, "--output", "model")
        model = load_model(model_file, name)
        if not isinstance(model, everlearn.IncrementalGaussianMixture):
            raise InputError(f"reduce takes an IncrementalGaussianMixture; not {type(model).__name__}.")
        smaller = everlearn.reduce(model, components)
        everlearn.save(smaller, output, answers=True)
    console = Console(quiet=quiet, highlight=False)
    before, after = model.n_components_, smaller.n_components_
    console.print(f"{count(before, 'component')} became {after}, saved to [bold]{escape(output)}[/].")
