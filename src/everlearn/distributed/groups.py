"""One model a group, learned in partitions: `fit(..., by=)`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from everlearn.base.merge import merge
from everlearn.errors import InputError
from everlearn.persistence.atomic_write import write_whole
from everlearn.persistence.model_file import dumps, loads


class Packed(NamedTuple):
    """The model of a group as the bytes of its file, and the rows that it has learned."""

    rows: int
    data: bytes


Packs = dict[str, Packed]


def merge_groups(parts: Sequence[Packs]) -> Packs:
    """The groups of all parts; models of a group that several parts know are merged."""
    # A group that lies in one partition only passes through as bytes.
    shared: dict[str, list[Packed]] = {}
    for part in parts:
        for name, packed in part.items():
            shared.setdefault(name, []).append(packed)
    return {name: known[0] if len(known) == 1 else _merged(known) for name, known in shared.items()}


def _merged(known: Sequence[Packed]) -> Packed:
    model = merge([loads(packed.data) for packed in known])
    return Packed(sum(packed.rows for packed in known), dumps(model))


class GroupModels(Mapping[str, Any]):
    """Models by the names of their groups; each is built from its bytes when it is asked for.

    Parameters
    ----------
    packs : dict
        Rows and bytes by name.
    """

    def __init__(self, packs: Packs) -> None:
        self._packs = dict(sorted(packs.items()))

    def __getitem__(self, name: str) -> Any:
        return loads(self._packs[name].data, name=f"The model {name!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._packs)

    def __len__(self) -> int:
        return len(self._packs)

    @property
    def rows(self) -> dict[str, int]:
        """Rows of each group."""
        return {name: packed.rows for name, packed in self._packs.items()}

    @property
    def n_samples_seen_(self) -> int:
        """Rows of all groups."""
        return sum(packed.rows for packed in self._packs.values())

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write each model to a file of its name in `folder`, which is made if it is not there.

        Parameters
        ----------
        folder : path-like
            The folder.
        """
        place, taken = Path(folder), set()
        place.mkdir(exist_ok=True)
        for name, packed in self._packs.items():
            # Names of groups come from data: nothing but plain characters reaches the file system, and no leading dot
            # or slash.
            file = f"{re.sub(r'[^A-Za-z0-9._-]', '_', name).lstrip('.') or '_'}.evl"
            if file in taken:
                raise InputError(f"Two groups would be saved as {file}. Save them under names of your own.")
            taken.add(file)
            write_whole(place / file, packed.data, "model")
