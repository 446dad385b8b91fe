"""What the commands share: how errors end the program, how tables look, where files may go."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import InvalidParameterError

from everlearn.errors import EverlearnError, SourceLostError

FOUND, TRY_LATER = 3, 4  # exit statuses beside 0, 1 and 2


class Stopped(click.ClickException):
    """An end with a message and a status of its own."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.exit_code = status  # type: ignore[misc]


@contextlib.contextmanager
def errors_explained() -> Iterator[None]:
    """Data problems end the program with a message and status 1; what may pass, such as a full disk, with status 4."""
    try:
        yield
    except (EverlearnError, OSError, InvalidParameterError, NotFittedError) as error:
        passing = isinstance(error, SourceLostError) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        raise Stopped(str(error), TRY_LATER if passing else 1) from error


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
