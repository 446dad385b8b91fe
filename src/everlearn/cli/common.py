"""What the commands share: how errors end the program, where files may go, how models and rows are opened."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from everlearn.cli.deferred import import_scikit_learn
from everlearn.errors import EverlearnError, InputError, SourceLostError

FOUND, TRY_LATER = 3, 4  # exit statuses beside 0, 1 and 2
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
    except BrokenPipeError:
        # Whoever reads the output, such as head, has had enough: click ends the program without a word.
        raise
    except (EverlearnError, OSError, ValueError) as error:
        if not isinstance(error, _expected()):
            raise
        number = getattr(error, "errno", None)
        hint = ". Raise the limit on the size of files (ulimit -f), and run again" if number == errno.EFBIG else ""
        passing = isinstance(error, SourceLostError) or number in _NO_ROOM
        raise Stopped(f"{error}{hint}", TRY_LATER if passing else 1) from error


def _expected() -> tuple[type[Exception], ...]:
    """Errors whose message is all that a user needs."""
    # scikit-learn is slow to import; where it has not been, the error is none of its own.
    if "sklearn" not in sys.modules:
        return EverlearnError, OSError
    from sklearn.exceptions import NotFittedError
    from sklearn.utils._param_validation import InvalidParameterError

    return EverlearnError, OSError, NotFittedError, InvalidParameterError


def check_place(path: str | None, option: str, what: str) -> None:
    """Say before the work that its result could not be saved after it."""
    # Hours of learning must not end in a message that there is no such folder.
    folder = Path(path or ".").resolve().parent
    if not folder.is_dir():
        raise click.ClickException(f"There is no folder {folder} to save the {what} in. Create it first.")
    if path and not os.access(folder, os.W_OK):
        raise click.ClickException(f"The folder {folder} cannot be written to. Choose another place for {option}.")


def check_output(where: str, option: str, what: str) -> None:
    """The same for what may also go to a broker, or to standard output."""
    if where != "-" and "://" not in where:
        check_place(where, option, what)


def names_in(options: tuple[str, ...]) -> list[str] | None:
    """Names of a repeated option, each of which may hold several with commas between them."""
    names = [name.strip() for option in options for name in option.split(",") if name.strip()]
    return names or None


def is_state_file(path: str) -> bool:
    """Whether this is a state file, which `learn --state` and `serve` write, and no model file."""
    # By the first bytes, not by the ending: people name state files as they like.
    with open(path, "rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def load_to_ask(path: str, name: str | None = None) -> Any:
    """What answers for the model in a file: its answers where the file has them, which load faster, or the model."""
    from everlearn.base.saved_model import load_saved_model

    saved = None if is_state_file(path) else load_saved_model(path)
    return load_model(path, name) if saved is None else saved


def texts_in(options: tuple[str, ...], option: str) -> dict[str, str]:
    """Texts of a repeated option NAME=TEXT, by name."""
    found = {}
    for given in options:
        name, equals, text = given.partition("=")
        if not equals or not name.strip() or not text.strip():
            raise click.UsageError(f"{option} {given}: write NAME=TEXT, for example {option} site=north.")
        found[name.strip()] = text.strip()
    return found


def load_model(path: str, name: str | None = None) -> Any:
    """A model from a model file, or by its name from a state file; of an imputer, the model that fills its gaps."""
    from everlearn.persistence.model_file import load
    from everlearn.streams.store.store import Store

    import_scikit_learn()
    if not is_state_file(path):
        return _inside(load(path))
    with Store(path, create=False) as store:
        # A file with one model needs no name; otherwise "model" is what `learn` calls it by default.
        names = [entry.name for entry in store.models()]
        return store.load(name or (names[0] if len(names) == 1 else "model"))


def _inside(model: Any) -> Any:
    """The model inside an imputer; any other model itself."""
    from sklearn.base import MetaEstimatorMixin

    if not isinstance(model, MetaEstimatorMixin):
        return model
    if not model._is_started():
        raise InputError(f"The file holds a {type(model).__name__} that has learned nothing yet.")
    return model.model_


@contextlib.contextmanager
def rows_from(sources: tuple[str, ...], model: Any) -> Iterator[Iterator[Any]]:
    """Batches of files, which are known to have the columns of a model before the first is read."""
    from everlearn.streams.sources.opening import open_source

    model._check_started()
    names = getattr(model, "feature_names_in_", None)
    # Columns by name where the model knows names: those of a file may come in another order.
    with open_source(sources, columns=None if names is None else list(map(str, names)), stop_at_end=True) as source:
        if len(source.columns.names) != model.n_features_in_:
            raise InputError(
                f"{source.place} has {len(source.columns.names)} columns of numbers, the model {model.n_features_in_}."
            )
        yield source.batches()


def say_bad_rows(counts: dict[str, int]) -> None:
    """Say on standard error how many rows were left out."""
    for reason, n in counts.items():
        click.echo(f"Rows left out: {n:,} with {reason}.", err=True)


def suggest_next(suggestions: Iterable[tuple[str, str]], console: Console) -> None:
    """Say what to try next: for each what it is for and, on a line of its own that can be pasted, the command."""
    found = list(suggestions)
    if not found:
        return
    console.print("\nTo try next")
    for purpose, command in found:
        console.print(f"  {escape(purpose)}:\n    [bold]{escape(command)}[/]", soft_wrap=True)
