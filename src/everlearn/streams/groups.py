"""One model a group: rows of many devices in one table or topic, each learned by the model of its device.

Models that were used lately are in memory, all others in the state file: memory depends on `most`, not on the number of
groups. A step writes every model that it changed, and the position of the source, in one transaction, so that a run
that is killed goes on as if nothing had happened.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError
from everlearn.streams.store.store import Store
from everlearn.typing import Array

MOST_IN_MEMORY = 1000
"""Models in memory between two steps."""


def name_of(key: Any) -> str:
    """The name of a group: numbers without a fraction are written without it."""
    if isinstance(key, float | np.floating):
        if np.isnan(key):
            return ""
        return str(int(key)) if float(key).is_integer() else repr(float(key))
    return str(key)


def split(keys: NDArray[Any], X: Array) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Groups in the order of their first row, and the numbers of their rows in the order of the stream."""
    names, first, codes = np.unique(keys.astype(str) if keys.dtype == object else keys, return_index=True,
                                    return_inverse=True)  # fmt: skip
    # One stable sort gives the rows of all groups in the order of the stream; a mask for each group would read all
    # codes once a group.
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    for g in np.argsort(first, kind="stable"):
        yield name_of(names[g]), order[ends[g - 1] if g else 0 : ends[g]]


class GroupSession:
    """Learns batches whose rows belong to groups; what the runner asks of a session.

    Parameters
    ----------
    prototype : StreamingModel
        A model that has learned nothing; each group begins with a copy of it.
    store : Store
        Where models are kept.
    by : str
        The column of the groups.
    columns : list of str
        Names of the columns that the models see.
    most : int, default=1000
        Models in memory between two steps.

    Attributes
    ----------
    n_rows, n_new, n_bad : int
        Rows learned, groups that were new, and rows that were left out, in this run.
    position : dict or None
        Where the source stood at the latest step.
    """

    def __init__(
        self, prototype: Any, store: Store, by: str, columns: list[str], *, most: int = MOST_IN_MEMORY
    ) -> None:
        self.model, self.store, self.by, self.columns, self.most = prototype, store, by, columns, most
        self._models: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._changed: dict[str, int] = {}  # rows since the latest step
        self.n_rows = self.n_new = self.n_bad = 0
        self.position = store.latest_position(by)
        self.resumed = self.position is not None

    @property
    def is_full(self) -> bool:
        """Whether so many models are in memory that a step is due."""
        return len(self._models) > self.most

    def learn(self, X: Array, y: Any = None, times: Array | None = None) -> None:
        """Learn rows, each by the model of its group, which `y` names."""
        if y is None:
            raise InputError(f"The rows have no column {self.by!r} to tell their groups by.")
        for name, rows in split(y, X):
            if not name:
                self.n_bad += len(rows)
                continue
            model, _ = self._of(name)
            # The model sees bare arrays and does not check names row by row: they are given to it once, with its first
            # row.
            started = model._is_started()
            model.partial_fit(np.ascontiguousarray(X[rows]))
            if not started and model._is_started():
                model.feature_names_in_ = np.array(self.columns, dtype=object)
            if times is not None and not np.isnan(times[rows[-1]]):
                model._last_row_ = float(times[rows[-1]])
            self._changed[name] = self._changed.get(name, 0) + len(rows)
            self.n_rows += len(rows)

    def commit(self, *, position: dict[str, Any] | None = None) -> None:
        """Write the models that have changed, and the position, in one transaction; idle models leave the memory."""
        # Models that were only read are not written: their versions stay, and the step costs what has changed.
        changed = {name: self._models[name] for name in self._changed}
        place = None if position is None else {**position, "by": self.by}
        versions = self.store.commit_many(changed, rows=self._changed, position=place)
        for name, version in versions.items():
            self._models[name] = (self._models[name][0], version)
        self._changed = {}
        # Only behind the commit, and from the one that was used longest ago: a model that leaves the memory is on the
        # disk.
        while len(self._models) > self.most:
            self._models.popitem(last=False)
        self.position = position if position is not None else self.position

    def note(self, kind: str, **details: Any) -> None:
        """Events of the source belong to no group, and are not kept."""

    def leave_out(self, bad_rows: Any) -> None:
        """Count rows that cannot be read."""
        self.n_bad += len(bad_rows)

    def _of(self, name: str) -> tuple[Any, int]:
        """The model of a group, from memory, from the state file, or new; it is the latest used."""
        found = self._models.get(name)
        if found is None:
            entry = self.store.entry(name)
            if entry is None:
                found = self.model.copy(), 0
                self.n_new += 1
            else:
                found = self._same_columns(name, self.store.load(name)), entry.version
            self._models[name] = found
        self._models.move_to_end(name)
        return found

    def _same_columns(self, name: str, model: Any) -> Any:
        # A model that has not begun has no names yet: it takes those of the run.
        known = list(getattr(model, "feature_names_in_", self.columns))
        if type(model) is not type(self.model) or known != self.columns:
            raise InputError(
                f"The model {name!r} in {self.store.path} is a {type(model).__name__} of the columns "
                f"{', '.join(map(str, known))[:200]}; the groups are {type(self.model).__name__} of "
                f"{', '.join(self.columns)[:200]}. Choose another state file."
            )
        return model
