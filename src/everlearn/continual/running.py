"""Running a protocol: learn task after task, and score all of them after each."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from everlearn.continual.protocols import Task
from everlearn.continual.results import Results
from everlearn.errors import InputError
from everlearn.typing import Array

Learn = Callable[[Any, Task], Any]
Score = Callable[[Any, Task], float]


def run(
    model: Any,
    tasks: Iterable[Task],
    *,
    learn: Learn | None = None,
    score: Score | None = None,
    untrained: ArrayLike | None = None,
    with_interference: bool = False,
) -> Results:
    """Let a copy of a model learn tasks in their order, and score every task after each.

    Parameters
    ----------
    model : estimator
        A model that has learned nothing; it does not change.
    tasks : iterable of Task
        From a protocol.
    learn : callable (model, task), optional
        How a task is learned, in place; by default ``model.partial_fit(task.X, task.y)``.
    score : callable (model, task) -> float, optional
        How a task is scored; by default ``model.score(task.X_test, task.y_test)``.
    untrained : float or array-like of shape (n_tasks,), optional
        Score of the untrained model, for forward transfer: chance level, where it cannot answer yet.
    with_interference : bool, default=False
        Whether to fill the interference matrix too, which trains one more model for each pair of tasks.

    Returns
    -------
    Results
        The matrix R and what follows from it.

    Examples
    --------
    >>> from everlearn import IncrementalGaussianMixture
    >>> from everlearn.continual import class_by_class, run
    >>> from sklearn.datasets import load_iris
    >>> tasks = class_by_class(*load_iris(return_X_y=True))
    >>> results = run(IncrementalGaussianMixture(scale=[0.8, 0.4, 1.7, 0.8]), tasks)
    >>> results.R.shape
    (3, 3)
    """
    listed = _listed(tasks)
    learn, score = learn or _learner(listed), score or _score
    b = np.full(len(listed), np.nan) if untrained is None else np.broadcast_to(untrained, len(listed)).astype(float)
    # Any estimator is taken, not only ours: deepcopy is the one way that all of them can be copied unfitted.
    learning = copy.deepcopy(model)
    R = np.empty((len(listed), len(listed)))
    for i, task in enumerate(listed):
        learn(learning, task)
        # Tasks that are still to come are scored, too: forward transfer needs the upper triangle of R.
        R[i] = [_scored(score, learning, other) for other in listed]
    crossed = interference(model, listed, learn=learn, score=score) if with_interference else None
    return Results(tuple(task.name for task in listed), R, b, crossed)


def interference(model: Any, tasks: Iterable[Task], *, learn: Learn | None = None, score: Score | None = None) -> Array:
    """Matrix ``I[i, j]``: score on j after learning i and then j, less the score after learning j alone.

    Negative where what was learned first stands in the way (Pamplona and Manzanera, NAT-oEM). The diagonal says what
    learning a task twice does.

    Parameters
    ----------
    model : estimator
        A model that has learned nothing; it does not change.
    tasks : iterable of Task
        From a protocol.
    learn, score : callable, optional
        As for :func:`run`.

    Returns
    -------
    ndarray of shape (n_tasks, n_tasks)
        The differences.
    """
    listed = _listed(tasks)
    learn, score = learn or _learner(listed), score or _score
    # K models that know one task each, and K x K copies of them that learn a second: the cost is quadratic in tasks.
    first = [_learned(copy.deepcopy(model), task, learn) for task in listed]
    # The same models serve as "j alone" and as "i first".
    alone = [score(learned, task) for learned, task in zip(first, listed, strict=True)]
    both = [[score(_learned(copy.deepcopy(m), task, learn), task) for task in listed] for m in first]
    return np.asarray(both, dtype=float) - np.asarray(alone, dtype=float)


def prequential(model: Any, X: ArrayLike, y: ArrayLike | None = None, *, batch: int = 1) -> Array:
    """Score each row, then learn it (test-then-train); the model changes.

    Parameters
    ----------
    model : estimator
        A model; it goes on learning.
    X : array-like of shape (n_samples, n_features)
        Rows of a stream in their order.
    y : array-like of shape (n_samples,), optional
        Labels. With labels a score is 1 where the prediction was right and 0 where it was wrong, else the log-density.
    batch : int, default=1
        Number of rows that are scored before they are learned together.

    Returns
    -------
    ndarray of shape (n_samples,)
        Scores; NaN for rows before the model could answer. See :func:`running_mean`.
    """
    rows, labels = np.asarray(X), None if y is None else np.asarray(y)
    if batch < 1:
        raise InputError(f"batch must be an integer from 1 on; got {batch}.")
    classes = _classes_argument(model, labels)
    # NaN and not zero: a row that could not be scored says nothing about the model.
    scores = np.full(len(rows), np.nan)
    for start in range(0, len(rows), batch):
        part = slice(start, start + batch)
        # A model that has learned nothing cannot answer.
        if start:
            scores[part] = _row_scores(model, rows[part], None if labels is None else labels[part])
        model.partial_fit(rows[part], *(() if labels is None else (labels[part],)), **classes)
        classes = {}  # scikit-learn takes the argument with the first batch only
    return scores


def _row_scores(model: Any, X: Any, y: Any) -> Array:
    if y is None:
        return np.asarray(model.score_samples(X), dtype=float)
    return np.asarray(np.asarray(model.predict(X)) == y, dtype=float)


def _listed(tasks: Iterable[Task]) -> list[Task]:
    listed = list(tasks)
    if not listed:
        raise InputError("tasks is empty; give at least one task.")
    return listed


def _learned(model: Any, task: Task, learn: Learn) -> Any:
    learn(model, task)
    return model


def _learner(tasks: list[Task]) -> Learn:
    """partial_fit; a classifier of scikit-learn is told all classes at its first call, as it demands."""
    labels = None if tasks[0].y is None else np.concatenate([task.y for task in tasks if task.y is not None])

    def learn(model: Any, task: Task) -> None:
        # scikit-learn's classifiers must be told all classes with the first batch, those of later tasks included.
        classes = {} if hasattr(model, "classes_") else _classes_argument(model, labels)
        model.partial_fit(task.X, *(() if task.y is None else (task.y,)), **classes)

    return learn


def _classes_argument(model: Any, labels: Any) -> dict[str, Any]:
    wanted = labels is not None and "classes" in inspect.signature(model.partial_fit).parameters
    return {"classes": np.unique(labels)} if wanted else {}


def _score(model: Any, task: Task) -> float:
    return float(model.score(task.X_test) if task.y_test is None else model.score(task.X_test, task.y_test))


def _scored(score: Score, model: Any, task: Task) -> float:
    value: Any = score(model, task)
    if not isinstance(value, int | float | np.number):
        raise InputError(f"score must return a number; for the task {task.name!r} it returned {value!r}.")
    return float(value)
