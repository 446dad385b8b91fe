"""Orders in which data can come: mixed, class by class, groups of classes, the same data in other columns.

Each protocol takes rows and labels and yields one `Task` after another. What is held back for testing is either given,
``test=(X_test, y_test)``, or a share of the rows, ``test=0.2``, drawn at random.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everlearn.errors import InputError

Rows = NDArray[Any]
Test = float | tuple[ArrayLike, ArrayLike | None]


class Task(NamedTuple):
    """A part of the data to learn, and what to test it on; labels are None where there are none."""

    name: str
    X: Rows
    y: Rows | None
    X_test: Rows
    y_test: Rows | None


class _Part(NamedTuple):
    X: Rows
    y: Rows | None

    def take(self, which: NDArray[Any]) -> _Part:
        return _Part(self.X[which], None if self.y is None else self.y[which])


def iid(
    X: ArrayLike, y: ArrayLike | None = None, *, n_tasks: int = 5, test: Test = 0.2, random_state: int = 0
) -> Iterator[Task]:
    """Yield parts of the shuffled data: every task is like every other, and is tested on all of the test rows.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows.
    y : array-like of shape (n_samples,), optional
        Labels.
    n_tasks : int, default=5
        Number of parts.
    test : float or tuple (X_test, y_test), default=0.2
        Rows to test on, or the share of rows to hold back.
    random_state : int, default=0
        Seed of the shuffling.

    Yields
    ------
    Task
        The next part.
    """
    rng = np.random.default_rng(random_state)
    train, held = _split(X, y, test, rng)
    if not 1 <= n_tasks <= len(train.X):
        raise InputError(f"n_tasks must be from 1 to the number of training rows, {len(train.X)}; got {n_tasks}.")
    # All tasks share the test rows, so that the columns of R are the same up to chance.
    for i, rows in enumerate(np.array_split(rng.permutation(len(train.X)), n_tasks)):
        yield Task(f"part {i + 1}", *train.take(rows), *held)


def class_by_class(
    X: ArrayLike,
    y: ArrayLike,
    *,
    order: Sequence[Any] | None = None,
    test: Test = 0.2,
    random_state: int = 0,
) -> Iterator[Task]:
    """Yield one class after another.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows.
    y : array-like of shape (n_samples,)
        Labels.
    order : sequence of labels, optional
        Classes in the order in which they come; by default sorted.
    test : float or tuple (X_test, y_test), default=0.2
        Rows to test on, or the share of rows to hold back.
    random_state : int, default=0
        Seed of the choice of test rows.

    Yields
    ------
    Task
        All rows of one class.
    """
    classes = list(np.unique(_labels(y)) if order is None else order)
    yield from disjoint(X, y, groups=[[c] for c in classes], test=test, random_state=random_state)


def disjoint(
    X: ArrayLike,
    y: ArrayLike,
    *,
    groups: Sequence[Sequence[Any]] | int = 2,
    test: Test = 0.2,
    random_state: int = 0,
) -> Iterator[Task]:
    """Yield groups of classes, none of which comes twice: of ten digits first 0 to 4, then 5 to 9.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows.
    y : array-like of shape (n_samples,)
        Labels.
    groups : int or sequence of sequences of labels, default=2
        The classes of each task, or the number of tasks into which the sorted classes are divided.
    test : float or tuple (X_test, y_test), default=0.2
        Rows to test on, or the share of rows to hold back.
    random_state : int, default=0
        Seed of the choice of test rows and of the order within a task.

    Yields
    ------
    Task
        The rows of one group of classes, in random order.
    """
    rng = np.random.default_rng(random_state)
    # Test rows without labels could not be given to the task of their class.
    given = (test[0], _labels(test[1])) if isinstance(test, tuple) else test
    train, held = _split(X, _labels(y), given, rng)
    assert train.y is not None
    assert held.y is not None
    for group in _class_groups(groups, np.unique(train.y)):
        rows = np.flatnonzero(np.isin(train.y, group))
        # Each task is tested on its own classes only: R[i, j] then tells what learning task i did to task j.
        tested = np.flatnonzero(np.isin(held.y, group))
        if not len(rows) or not len(tested):
            raise InputError(f"No rows to {'learn' if not len(rows) else 'test'} for the classes {list(group)}.")
        yield Task(_group_name(group), *train.take(rng.permutation(rows)), *held.take(tested))


def permuted(
    X: ArrayLike, y: ArrayLike | None = None, *, n_tasks: int = 3, test: Test = 0.2, random_state: int = 0
) -> Iterator[Task]:
    """Yield the same rows again and again, each time with the columns in another random order, the first time as is.

    On MNIST this is also called shuffled MNIST.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows.
    y : array-like of shape (n_samples,), optional
        Labels.
    n_tasks : int, default=3
        Number of orders.
    test : float or tuple (X_test, y_test), default=0.2
        Rows to test on, or the share of rows to hold back.
    random_state : int, default=0
        Seed of the permutations.

    Yields
    ------
    Task
        All rows in another order of columns.
    """
    rng = np.random.default_rng(random_state)
    train, held = _split(X, y, test, rng)
    for i in range(n_tasks):
        # The first order is the original one, so that the first task is comparable with learning the data as they are.
        order = rng.permutation(train.X.shape[1]) if i else np.arange(train.X.shape[1])
        yield Task(f"order {i + 1}", train.X[:, order], train.y, held.X[:, order], held.y)


def _labels(y: ArrayLike | None) -> Rows:
    if y is None:
        raise InputError("y is None; this protocol orders rows by their classes. Give one label per row.")
    return np.asarray(y)


def _part(X: Any, y: Any) -> _Part:
    rows = np.asarray(X)
    if rows.ndim != 2:
        raise InputError(f"X must have two dimensions, rows and columns; got an array of shape {rows.shape}.")
    labels = None if y is None else np.asarray(y)
    if labels is not None and labels.shape != (len(rows),):
        raise InputError(f"y has shape {labels.shape}; X has {len(rows)} rows. Give one label per row.")
    return _Part(rows, labels)


def _split(X: ArrayLike, y: ArrayLike | None, test: Test, rng: np.random.Generator) -> tuple[_Part, _Part]:
    """Training and test rows; a share is drawn from each class alike."""
    whole = _part(X, y)
    if isinstance(test, tuple):
        return whole, _part(*test)
    if not 0.0 < test < 1.0:
        raise InputError(f"test must be a share between 0 and 1, or a tuple (X_test, y_test); got {test!r}.")
    # Systematic sampling of the rows sorted by class, shuffled within: each class
    # gives its share of test rows, up to one.
    order = rng.permutation(len(whole.X))
    if whole.y is not None:
        order = order[np.argsort(whole.y[order], kind="stable")]
    steps = np.floor(np.arange(len(order) + 1) * test + rng.random())
    drawn = np.zeros(len(order), dtype=bool)
    drawn[order] = np.diff(steps) > 0
    return whole.take(np.flatnonzero(~drawn)), whole.take(np.flatnonzero(drawn))


def _class_groups(groups: Sequence[Sequence[Any]] | int, classes: Rows) -> Sequence[Any]:
    if isinstance(groups, int):
        if not 1 <= groups <= len(classes):
            raise InputError(f"groups must be from 1 to the number of classes, {len(classes)}; got {groups}.")
        return np.array_split(classes, groups)
    named = [label for group in groups for label in group]
    if len(set(named)) < len(named):
        raise InputError(f"groups={groups!r} names a class more than once.")
    return groups


def _group_name(group: Sequence[Any]) -> str:
    names = [str(label) for label in group]
    return names[0] if len(names) == 1 else ", ".join(names) if len(names) <= 5 else f"{names[0]} to {names[-1]}"
