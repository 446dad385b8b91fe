"""Where the data of the papers comes from."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everlearn.datasets import fetch_mnist, load_mnist
from everlearn.errors import InputError
from everlearn.experiments.papers.registry import Skip

HOW = (
    "Name the folder with the four original files by --data, set EVERLEARN_DATA to the folder that holds mnist/, or "
    "let --fetch download them from OpenML."
)


def mnist_from(folder: str | os.PathLike[str] | None = None, *, fetch: bool = False) -> Callable[[], Any]:
    """Return a function that loads MNIST once, or raises `Skip` with what to do.

    Parameters
    ----------
    folder : path-like, optional
        Folder of the four files, or one that has them in its folder `mnist`; by default that of EVERLEARN_DATA.
    fetch : bool, default=False
        Whether to download the images where there are no files.

    Returns
    -------
    callable
        Gives the bunch of `everlearn.datasets.load_mnist`.
    """

    @functools.cache
    def load() -> Any:
        try:
            return load_mnist(_folder(folder))
        except InputError as error:
            if not fetch:
                raise Skip(f"MNIST was not found. {HOW}") from error
        try:
            return fetch_mnist()
        except OSError as error:
            raise Skip(f"MNIST could not be downloaded from OpenML ({error}). {HOW}") from error

    return load


def _folder(folder: str | os.PathLike[str] | None) -> Path | None:
    if folder is None:
        return None
    inside = Path(folder) / "mnist"
    return inside if inside.is_dir() else Path(folder)
