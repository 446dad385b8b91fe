"""CIFAR-10 from its binary files."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from everlearn.errors import InputError

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
COLUMNS = 3072
"""Values of a picture."""

_TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_TEST = "test_batch.bin"
_INSIDE = "cifar-10-batches-bin"
_ARCHIVE = "cifar-10-binary.tar.gz"
_ABOUT = (
    "Colour pictures of ten kinds of things, 32 x 32 pixels from 0 to 255: a row is the red plane, then the green, "
    "then the blue one, line by line. A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009."
)


def load_cifar10(path: str | os.PathLike[str] | None = None) -> Bunch:
    """Load the pictures of CIFAR-10 from the files of its binary version.

    The version for Python is made of pickles, which run code when they are read: it is not read.

    Parameters
    ----------
    path : path-like, optional
        The archive `cifar-10-binary.tar.gz`, or the folder that holds it or its six `.bin` files; by default the folder
        `cifar10` in the folder that the environment variable EVERLEARN_DATA names.

    Returns
    -------
    Bunch
        With `data` (50000, 3072) and `target`, `test_data` (10000, 3072) and `test_target`, all of bytes,
        `target_names` and `DESCR`.
    """
    place = _place(path)
    parts = [_split(content, name) for name, content in _contents(place).items()]
    data, target = (np.concatenate([part[i] for part in parts[:-1]]) for i in range(2))
    return Bunch(
        data=data,
        target=target,
        test_data=parts[-1][0],
        test_target=parts[-1][1],
        target_names=list(NAMES),
        DESCR=_ABOUT,
    )


def _place(path: str | os.PathLike[str] | None) -> Path:
    """The archive, or the folder of the six files."""
    if path is None and "EVERLEARN_DATA" not in os.environ:
        raise InputError(
            "load_cifar10 needs the place of CIFAR-10's binary version: give path=, or set EVERLEARN_DATA to the "
            "folder that holds cifar10/."
        )
    place = Path(path) if path is not None else Path(os.environ["EVERLEARN_DATA"]) / "cifar10"
    if place.is_file():
        return place
    # Unpacked with or without the folder that the archive has.
    for candidate in (place, place / _INSIDE):
        if (candidate / _TEST).is_file():
            return candidate
    if (place / _ARCHIVE).is_file():
        return place / _ARCHIVE
    raise InputError(
        f"There is neither {_ARCHIVE} nor {_TEST} in {place}. Put the binary version of CIFAR-10 there (the version "
        "for Python is pickled, and is not read), or name its folder with path=."
    )


def _contents(place: Path) -> dict[str, bytes]:
    """The bytes of the six files, the test pictures last."""
    wanted = (*_TRAIN, _TEST)
    try:
        if place.is_dir():
            return {name: (place / name).read_bytes() for name in wanted}
        # Nothing is unpacked: only the members with the known names are read.
        with tarfile.open(place) as archive:
            found = {}
            for name in wanted:
                member = archive.extractfile(f"{_INSIDE}/{name}")
                found[name] = b"" if member is None else member.read()
            return found
    except (OSError, EOFError, KeyError, tarfile.TarError) as error:
        raise InputError(
            f"{place} does not hold the six files of CIFAR-10's binary version, or is damaged: {error}"
        ) from error


def _split(content: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pictures and labels of a file: each record is a byte of the label and 3072 bytes of the picture."""
    if len(content) % (1 + COLUMNS) or not content:
        raise InputError(
            f"{name} has {len(content)} bytes, which are no whole number of records of {1 + COLUMNS}. Fetch it again."
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + COLUMNS)
    labels = records[:, 0].copy()
    if labels.max() >= len(NAMES):
        raise InputError(f"{name} has the label {labels.max()}; CIFAR-10's are 0 to 9. Is it CIFAR-100?")
    return records[:, 1:].copy(), labels
