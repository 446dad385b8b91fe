"""The models behind the service: questions are answered from the store, changes go through the learning pool."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

import everlearn
from everlearn.errors import InputError, ModelFileError, StateFileError
from everlearn.reporting.queries import column_names, has_target
from everlearn.service.errors import BusyError, ConflictError, NoModelError
from everlearn.service.inbox import Inbox
from everlearn.service.learning import LearningPool
from everlearn.service.recent import RecentlyUsed
from everlearn.service.settings import Limits
from everlearn.streams.store.records import ModelEntry
from everlearn.streams.store.store import Store
from everlearn.typing import Array, ClassifyingModel

KINDS = (
    "IncrementalGaussianMixture",
    "IncrementalGaussianMixtureClassifier",
    "IncrementalGaussianMixtureRegressor",
    "AnomalyDetector",
    "OnlinePPCA",
    "VariationalPPCA",
)
TARGET_KINDS: dict[str, tuple[type, ...]] = {"text": (str,), "truth": (bool,), "whole": (int,), "number": (int, float)}
"""Types of the targets of each kind; true is no whole number here."""

_SLOW_SECONDS, _STALE_FACTOR = 0.25, 10.0  # a model that is slow to load is asked for this many times as long
# Parameters such as a number of components size arrays: one must not be a way to take the memory.
_LARGEST_PARAMETER = 100_000
_SHAPE_SECONDS = 10.0  # for which the columns of a model that takes rows are not looked up again
_MOST_SHAPES = 10_000  # models whose columns are remembered
_N_LOCKS = 64


class CachedModel(NamedTuple):
    """A model as the store had it, for questions only."""

    version: int
    model: Any
    loaded: float
    seconds: float


class RowShape(NamedTuple):
    """What rows for a model look like."""

    columns: list[str]
    target: str | None = None
    """Name of what a classifier or regressor predicts; None for other models."""
    labels: str | None = None
    """Kind of the targets, a key of `TARGET_KINDS`; of a classifier it is known from the first labels on."""


class ModelRepository:
    """Models by name.

    Parameters
    ----------
    store : Store
        Where they live.
    limits : Limits
        Bounds of what is accepted.
    quick_answers : bool
        Whether questions are answered without a search before them.
    """

    def __init__(self, store: Store, limits: Limits, *, quick_answers: bool = False) -> None:
        self.store = store
        self.quick_answers = quick_answers
        self.limits = limits
        # Half of the memory for models that learn, half for those that answer: they are different copies.
        self.learning = LearningPool(store, self._leave_inbox, limits)
        self.inbox = Inbox(store, self.learning.arrived, self._leave_inbox)
        self._lock = threading.Lock()
        # A model is loaded once, however many ask for it; names share the locks.
        self._loading = [threading.Lock() for _ in range(_N_LOCKS)]
        self._cache: RecentlyUsed[CachedModel] = RecentlyUsed(limits.models_in_memory, limits.memory_bytes // 2)
        self._shapes: RecentlyUsed[tuple[RowShape, float]] = RecentlyUsed(_MOST_SHAPES)
        # What an earlier process left counts against the limit, too.
        waiting = store.all_waiting()
        self._left = {name: len(self.columns(name)) for name in waiting if store.entry(name) is not None}
        self._waiting_values = sum(waiting[name] * width for name, width in self._left.items())

    def start(self) -> None:
        """Begin to learn, first of all what an earlier run left in the inbox."""
        self.learning.start()
        self.inbox.start()
        self.learning.arrived(self._left)

    def stop(self) -> None:
        """Finish what is being written, and close the store."""
        # In this order: the inbox hands its last rows to the learning pool, and both write to the store.
        self.inbox.stop()
        self.learning.stop()
        self.store.close()

    # -- questions --------------------------------------------------------------------------------

    def entry(self, name: str) -> ModelEntry:
        """What the store knows of a model."""
        entry = self.store.entry(name)
        if entry is None:
            known = ", ".join(entry.name for entry in self.store.models(limit=20)) or "none"
            raise NoModelError(f"There is no model {name!r}. There are: {known}.")
        return entry

    def model(self, name: str) -> Any:
        """A model as it was at the latest commit, or shortly before if it is slow to load. It must not be changed."""
        entry = self.entry(name)
        cached = self._cached(name, entry.version)
        if cached is None:
            with self._loading[hash(name) % _N_LOCKS]:
                # Asked again behind the lock: another thread may have loaded it while this one waited.
                cached = self._cached(name, entry.version) or self._load(entry)
        return cached.model

    def _cached(self, name: str, version: int) -> CachedModel | None:
        cached = self._cache.get(name)
        if cached is None:
            return None
        age = time.monotonic() - cached.loaded
        # A wide model that learns all the time has a new version with every question: loading it for each would take
        # all threads.
        slow = cached.seconds > _SLOW_SECONDS and age < _STALE_FACTOR * cached.seconds
        return cached if cached.version == version or slow else None

    def _load(self, entry: ModelEntry) -> CachedModel:
        started = time.monotonic()
        try:
            model = self.store.load(entry.name)
        except ModelFileError as error:
            # The client asked rightly; it is the server's file that is wrong, and where that lies concerns nobody.
            raise StateFileError(f"The model {entry.name!r} is damaged in the state file. Delete it.") from error
        # A model that is loaded anew has not been asked before, so that its first question would be preceded by a
        # search: up to hundreds of milliseconds, after every commit and for each of many models
        # (benchmarks/service.py).
        if self.quick_answers and model._is_started():
            model._ask_without_search()
        ended = time.monotonic()
        cached = CachedModel(entry.version, model, ended, ended - started)
        self._cache.put(entry.name, cached, entry.bytes)
        return cached

    def columns(self, name: str) -> list[str]:
        """Names of a model's columns, also before it has learned."""
        entry = self.entry(name)
        if entry.columns is not None:
            return entry.columns
        position = self.store.position(name) or {}
        if "inbox" in position:
            return list(position["inbox"]["columns"])
        model = self.model(name)
        return column_names(model) if model._is_started() else []

    @property
    def waiting_values(self) -> int:
        """Numbers in the inbox."""
        return self._waiting_values

    # -- changes ----------------------------------------------------------------------------------

    def put(self, name: str, X: Array, key: str | None, y: list[Any] | None = None) -> Future[int]:
        """Keep rows to be learned; the future is done when they are on the disk."""
        with self._lock:
            if self._waiting_values + X.size > self.limits.waiting_values:
                raise BusyError(
                    f"{self._waiting_values:,} values wait to be learned already. Send slower, or start the service "
                    "with a larger limit."
                )
            # Counted before the rows are queued, and given back when they leave the inbox or do not get there. A repeat
            # with a known key is given back at once, or repeats would fill the limit for good.
            self._waiting_values += X.size
        return self.inbox.put(name, X, y, key)

    def _leave_inbox(self, n_values: int) -> None:
        with self._lock:
            self._waiting_values = max(0, self._waiting_values - n_values)

    def row_shape(self, name: str) -> RowShape:
        """What rows for a model look like, if it takes any; asked of the store every few seconds."""
        known = self.known_shape(name)
        if known is not None:
            return known
        self.check_takes_rows(name)
        shape = RowShape(self.columns(name), *self._target(name))
        self._shapes.put(name, (shape, time.monotonic() + _SHAPE_SECONDS))
        return shape

    def known_shape(self, name: str) -> RowShape | None:
        """The same from memory only."""
        shape, until = self._shapes.get(name) or (None, 0.0)
        return shape if time.monotonic() < until else None

    def _target(self, name: str) -> tuple[str | None, str | None]:
        inbox = (self.store.position(name) or {}).get("inbox", {})
        return inbox.get("target"), inbox.get("labels")

    def target(self, name: str) -> str | None:
        """Name of what a classifier or regressor that takes rows predicts."""
        return self._target(name)[0]

    def fix_labels(self, name: str, kind: str) -> Future[RowShape]:
        """Write down of which kind the labels of a classifier are, unless that is known; later ones are the same."""

        def fix() -> RowShape:
            position = self.store.position(name) or {}
            # Within the pool, between two steps: two first batches with labels of different kinds cannot both decide.
            if "labels" not in position["inbox"]:
                position["inbox"]["labels"] = kind
                self.learning.session(name).commit(position=position)
            self._shapes.pop(name)
            return self.row_shape(name)

        return self.learning.call(name, fix)

    def check_takes_rows(self, name: str) -> None:
        """Refuse rows for a model that another program learns from its own source."""
        position = self.store.position(name)
        if position is not None and "inbox" not in position:
            raise ConflictError(
                f"The model {name!r} is learned from a source of its own by `everlearn learn`. Send the rows to a "
                "model of another name; it can begin with what this one knows: merge this one's file into it."
            )

    def create(
        self, name: str, kind: str, parameters: dict[str, Any], columns: Sequence[str], target: str | None = None
    ) -> Future[Any]:
        """Make a new model."""
        model = make_model(kind, parameters, len(columns))
        if target is not None and not has_target(model):
            raise InputError(f"{kind} has no target; a classifier or a regressor has one. Leave out the field target.")
        return self.learning.call(name, lambda: self._create(name, model, list(columns), target))

    def ensure(self, name: str, columns: Sequence[str]) -> Future[Any]:
        """Make a mixture with the usual parameters, unless another request has made a model of this name meanwhile."""
        model = make_model("IncrementalGaussianMixture", {}, len(columns))

        def create_if_absent() -> None:
            if self.store.entry(name) is None:
                self._create(name, model, list(columns))

        return self.learning.call(name, create_if_absent)

    def _create(self, name: str, model: Any, columns: list[str], target: str | None = None) -> None:
        if self.store.entry(name) is not None:
            raise ConflictError(f"There is a model {name!r} already. Choose another name, or delete it first.")
        if (n_models := self.store.n_models()) >= self.limits.models:
            raise ConflictError(
                f"There are {n_models:,} models already, which is the limit. Delete one first, or start the service "
                "with a larger --max-models."
            )
        inbox: dict[str, Any] = {"columns": columns}
        if has_target(model):
            inbox["target"] = target or "target"
            if inbox["target"] in columns:
                raise InputError(f"The target {inbox['target']!r} is one of the columns, too. Name them apart.")
            classes = getattr(model, "classes_", None)
            if not isinstance(model, ClassifyingModel):
                inbox["labels"] = "number"
            elif classes is not None:
                inbox["labels"] = target_kind(classes.tolist())
        self.store.commit(name, model, 0, position={"inbox": inbox})

    def merge(self, name: str, other: Any) -> Future[Any]:
        """Put what `other` knows into a model, or make a new one of it."""
        if type(other).__name__ not in KINDS:
            raise InputError(f"The file holds a {type(other).__name__}; the service takes {', '.join(KINDS)}.")
        if not other._is_started():
            raise InputError("The model in the file has learned nothing.")
        if other.n_features_in_ > self.limits.columns:
            raise InputError(
                f"The model has {other.n_features_in_:,} columns; at most {self.limits.columns:,} are taken."
            )
        return self.learning.call(name, lambda: self._merge(name, other))

    def _merge(self, name: str, other: Any) -> None:
        if self.store.entry(name) is None:
            self._create(name, other, column_names(other))
            return
        self.check_takes_rows(name)
        self.learning.merge(name, other)

    def delete(self, name: str) -> Future[Any]:
        """Forget a model, its history and its inbox."""

        def forget() -> None:
            self.entry(name)
            self.check_takes_rows(name)
            waiting = self.store.waiting(name) * len(self.columns(name))
            self.learning.delete(name)
            self._shapes.pop(name)
            self.store.delete(name)
            self._leave_inbox(waiting)
            self._cache.pop(name)

        return self.learning.call(name, forget)


def make_model(kind: str, parameters: dict[str, Any], n_columns: int) -> Any:
    """A new model whose parameters are valid and small enough for this number of columns."""
    cls = getattr(everlearn, kind)
    unknown = set(parameters) - set(cls().get_params(deep=False))
    if unknown:
        known = ", ".join(sorted(cls().get_params(deep=False)))
        raise InputError(f"{kind} has no parameter {sorted(unknown)[0]!r}. It has: {known}.")
    for name, value in parameters.items():
        if isinstance(value, int) and abs(value) > _LARGEST_PARAMETER and name != "random_state":
            raise InputError(f"{name}={value} is too large; the service takes up to {_LARGEST_PARAMETER:,}.")
    model = cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in parameters.items()})
    # The rules of parameters are those of the model itself: a copy that learns one row says what it does not accept,
    # while the client still waits.
    tried: tuple[Any, ...] = (np.zeros((1, n_columns)), *([np.zeros(1, dtype=int)] if has_target(model) else []))
    try:
        model.copy().partial_fit(*tried)
    except (ValueError, TypeError) as error:
        raise InputError(f"{kind} cannot be made with these parameters and {n_columns} columns: {error}") from error
    return model


def target_kind(targets: Sequence[Any]) -> str:
    """The narrowest kind that all of some targets are of."""
    for kind, types in TARGET_KINDS.items():
        if all(type(target) in types for target in targets):
            return kind
    raise InputError("targets holds values of several kinds. Give text, whole numbers, true and false, or numbers.")
