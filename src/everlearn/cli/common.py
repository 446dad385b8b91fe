"""What the commands share: how errors end the program, how tables look, where files may go."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from everlearn.errors import EverlearnError


@contextlib.contextmanager
def errors_explained() -> Iterator[None]:
    """Data problems end the program with a message and status 1."""
    try:
        yield
    except (EverlearnError, OSError) as error:
        raise click.ClickException(str(error)) from error


def check_place(path: str | None, option: str, what: str) -> None:
    """Say before the work that its result could not be saved after it."""
    folder = Path(path or ".").resolve().parent
    if not folder.is_dir():
        raise click.ClickException(f"There is no folder {folder} to save the {what} in. Create it first.")
    if path and not os.access(folder, os.W_OK):
        raise click.ClickException(f"The folder {folder} cannot be written to. Choose another place for {option}.")


def names_in(options: tuple[str, ...]) -> list[str] | None:
    """Names of a repeated option, each of which may hold several with commas between them."""
    names = [name.strip() for option in options for name in option.split(",") if name.strip()]
    return names or None


def number(value: float) -> str:
    """A number in four digits."""
    return f"{value:.4g}"


def show_table(table: Table, console: Console) -> None:
    """Print a table with its numbers to the right, below an empty line."""
    for column in table.columns[1:]:
        column.justify = "right"
    table.title_justify = "left"
    console.print()
    console.print(table)
