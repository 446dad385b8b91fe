"""MNIST from its four original files."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from everlearn.errors import InputError

_FILES = {
    "data": "train-images-idx3-ubyte",
    "target": "train-labels-idx1-ubyte",
    "test_data": "t10k-images-idx3-ubyte",
    "test_target": "t10k-labels-idx1-ubyte",
}
_ABOUT = "Handwritten digits, 28 x 28 pixels from 0 to 255. Y. LeCun and C. Cortes."
TRAIN = 60_000
"""Rows to learn; the others are to test."""


def load_mnist(folder: str | os.PathLike[str] | None = None) -> Bunch:
    """Load the handwritten digits of MNIST from the four original files, gzipped or not.

    Parameters
    ----------
    folder : path-like, optional
        Where the files are; by default the folder `mnist` in the folder that the environment variable
        EVERLEARN_DATA names.

    Returns
    -------
    Bunch
        With `data` (60000, 784) and `target`, `test_data` (10000, 784) and `test_target`, all of bytes, and `DESCR`.
    """
    place = _folder(folder)
    arrays = {key: read_idx(_file(place, name)) for key, name in _FILES.items()}
    for key in ("data", "test_data"):
        arrays[key] = arrays[key].reshape(len(arrays[key]), -1)
    return Bunch(**arrays, DESCR=_ABOUT)


def fetch_mnist() -> Bunch:
    """Download the handwritten digits of MNIST from OpenML; scikit-learn keeps them in its data folder.

    Returns
    -------
    Bunch
        As from :func:`load_mnist`.
    """
    from sklearn.datasets import fetch_openml

    found = fetch_openml("mnist_784", version=1, as_frame=False, parser="liac-arff")
    images, digits = found.data.astype(np.uint8), found.target.astype(np.uint8)
    parts = {
        "data": images[:TRAIN],
        "target": digits[:TRAIN],
        "test_data": images[TRAIN:],
        "test_target": digits[TRAIN:],
    }
    return Bunch(**parts, DESCR=_ABOUT)


def _folder(folder: str | os.PathLike[str] | None) -> Path:
    if folder is not None:
        return Path(folder)
    if "EVERLEARN_DATA" in os.environ:
        return Path(os.environ["EVERLEARN_DATA"]) / "mnist"
    raise InputError(
        "load_mnist needs the folder of the four MNIST files: give folder=, or set EVERLEARN_DATA to the folder that "
        "holds mnist/. Where there are none, fetch_mnist() downloads the same images."
    )


def _file(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    raise InputError(
        f"There is no {name}.gz in {folder}. Put the four original MNIST files there, name their folder with folder=, "
        "or let fetch_mnist() download the same images."
    )


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an array of bytes in the idx format: two zeros, 8 for bytes, the number of axes, their lengths, the data."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        content = file.read()
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise InputError(f"{path} is not an idx file of bytes, as MNIST's are.")
    n_axes = content[3]
    shape = np.frombuffer(content, dtype=">u4", count=n_axes, offset=4) if len(content) >= 4 + 4 * n_axes else None
    if shape is None or len(content) != 4 + 4 * n_axes + int(np.prod(shape, dtype=np.int64)):
        raise InputError(f"{path} is truncated or too long: its length does not fit its header. Fetch it again.")
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * n_axes).reshape(shape).copy()
