"""Merging in a tree whose shape depends on the number of models, and on their sizes if those are bounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Model = TypeVar("Model")


class MergeTree(Generic[Model]):
    """Models merged in groups of `fan_in` neighbours, their results likewise, up to one.

    A group is merged as soon as it is complete, so no more than `fan_in` models wait at each level.

    Parameters
    ----------
    merge : callable
        Makes one model of several.
    fan_in : int
        Models in a group.
    size : callable, optional
        Size of a model: a group is also complete when its models have `room` together, and are two or more.
    room : float
        See `size`.
    """

    def __init__(
        self,
        merge: Callable[[Sequence[Model]], Model],
        fan_in: int,
        size: Callable[[Model], float] | None = None,
        room: float = math.inf,
    ) -> None:
        self._merge = merge
        self._fan_in = fan_in
        self._size, self._room = size, room
        self._levels: list[list[Model]] = []
        self._sizes: list[float] = []

    def add(self, model: Model) -> None:
        """Take the next model."""
        self._add(model, 0)

    def root(self) -> Model:
        """All models as one; groups that are not complete are merged as they are."""
        level = 0
        while level < len(self._levels):
            waiting, last = self._levels[level], level == len(self._levels) - 1
            if last and len(waiting) == 1:
                return waiting[0]
            if waiting:
                self._levels[level], self._sizes[level] = [], 0.0
                self._add(self._merge(waiting) if len(waiting) > 1 else waiting[0], level + 1)
            level += 1
        raise ValueError("there is no model to merge")

    def _add(self, model: Model, level: int) -> None:
        if level == len(self._levels):
            self._levels.append([])
            self._sizes.append(0.0)
        group = self._levels[level]
        group.append(model)
        self._sizes[level] += 0.0 if self._size is None else self._size(model)
        if len(group) == self._fan_in or (len(group) > 1 and self._sizes[level] >= self._room):
            self._levels[level], self._sizes[level] = [], 0.0
            self._add(self._merge(group), level + 1)
