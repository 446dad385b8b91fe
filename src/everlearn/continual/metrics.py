"""What is kept, lost and transferred when tasks are learned one after another.

``R[i, j]`` is the score on task j after training through task i, tasks counting from 0 to T - 1, and ``b[j]`` that of
the untrained model. Scores are accuracies or mean log-likelihoods: higher is better. Libraries mean different things by
the same words; every function names its variants and what it computes by default.

References
----------
Lopez-Paz and Ranzato, "Gradient episodic memory for continual learning", NIPS 2017.
Chaudhry et al., "Riemannian walk for incremental learning", ECCV 2018.
Diaz-Rodriguez et al., "Don't forget, there is more than forgetting", 2018.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from everlearn.errors import InputError
from everlearn.typing import Array


def accuracy(R: ArrayLike) -> float:
    """ACC: mean score over all tasks at the end, ``mean_j R[T-1, j]``.

    Parameters
    ----------
    R : array-like of shape (n_tasks, n_tasks)
        Scores.

    Returns
    -------
    float
        The mean of the last row.
    """
    return float(_square(R)[-1].mean())


def backward_transfer(R: ArrayLike, *, variant: str = "final") -> float:
    """BWT: what learning later tasks did to earlier ones; negative means forgetting.

    Parameters
    ----------
    R : array-like of shape (n_tasks, n_tasks)
        Scores.
    variant : {"final", "anytime"}, default="final"
        "final" is Lopez-Paz and Ranzato's ``mean_{j<T-1} (R[T-1, j] - R[j, j])``; "anytime" is Diaz-Rodriguez's, the
        mean of ``R[i, j] - R[j, j]`` over all i > j.

    Returns
    -------
    float
        The transfer; NaN with a single task.
    """
    scores = _square(R)
    # Column j less R[j, j]: broadcasting takes the diagonal as a row.
    change = scores - np.diagonal(scores)
    later = {"final": change[-1, :-1], "anytime": change[np.tril_indices(len(scores), -1)]}
    return _mean(_chosen(later, variant))


def forward_transfer(R: ArrayLike, b: ArrayLike, *, variant: str = "gain") -> float:
    """FWT: what earlier tasks did for a task that was not yet learned.

    Parameters
    ----------
    R : array-like of shape (n_tasks, n_tasks)
        Scores.
    b : array-like of shape (n_tasks,)
        Scores of the untrained model.
    variant : {"gain", "score"}, default="gain"
        "gain" is Lopez-Paz and Ranzato's ``mean_{j>=1} (R[j-1, j] - b[j])``; "score" is Diaz-Rodriguez's, the mean of
        ``R[i, j]`` over all i < j, which does not use b.

    Returns
    -------
    float
        The transfer; NaN with a single task, or where b is not known.
    """
    scores = _square(R)
    untrained = np.broadcast_to(np.asarray(b, dtype=np.float64), len(scores))
    # R[j-1, j]: the score on a task just before it is learned, above the diagonal by one.
    gain = np.diagonal(scores, offset=1) - untrained[1:]
    return _mean(_chosen({"gain": gain, "score": scores[np.triu_indices(len(scores), 1)]}, variant))


def forgetting(R: ArrayLike, *, variant: str = "since") -> float:
    """Mean loss from the best score that a task once had to its score at the end, the last task aside.

    Parameters
    ----------
    R : array-like of shape (n_tasks, n_tasks)
        Scores.
    variant : {"since", "ever", "own"}, default="since"
        Where the best score of task j is looked for: "since" it was learned, ``max_{j<=l<T-1} R[l, j]``; "ever", also
        before, which is Chaudhry's definition; "own" takes ``R[j, j]``, so that it is minus BWT.

    Returns
    -------
    float
        The loss; NaN with a single task.
    """
    scores = _square(R)
    before = scores[:-1, :-1]
    # Below the diagonal row l of column j is at or after the learning of task j; before it there is nothing to forget.
    since = np.where(np.tri(len(before), dtype=bool), before, -np.inf)
    best = {"since": since, "ever": before, "own": np.diagonal(before)[None]}
    return _mean(_chosen(best, variant).max(axis=0, initial=-np.inf) - scores[-1, :-1])


def anytime(R: ArrayLike, *, variant: str = "seen") -> float:
    """Mean score over the whole time of learning, not only at its end.

    Parameters
    ----------
    R : array-like of shape (n_tasks, n_tasks)
        Scores.
    variant : {"seen", "all"}, default="seen"
        "seen" averages after each task over the tasks so far, ``mean_i mean_{j<=i} R[i, j]``, also called average
        incremental accuracy; "all" averages over all tasks at all times.

    Returns
    -------
    float
        The mean.
    """
    scores = _square(R)
    seen = [row[: i + 1].mean() for i, row in enumerate(scores)]
    return _mean(_chosen({"seen": np.array(seen), "all": scores.ravel()}, variant))


def running_mean(scores: ArrayLike, *, window: int | None = None, fading: float | None = None) -> Array:
    """Mean of prequential scores up to each row: of all so far, of a sliding window, or of a fading past.

    Parameters
    ----------
    scores : array-like of shape (n_samples,)
        Score of each row before it was learned; NaN where there was none.
    window : int, optional
        Average over the last so many rows.
    fading : float, optional
        Factor in (0, 1) by which each row counts less than the next.

    Returns
    -------
    ndarray of shape (n_samples,)
        The means.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or (window is not None and fading is not None):
        raise InputError("scores must have one dimension, and only one of window and fading can be given.")
    known = np.isfinite(values)
    # Rows without a score count neither in the sum nor in the number.
    sums = np.stack([np.where(known, values, 0.0), known.astype(float)])
    total, count = _faded(sums, fading) if fading is not None else _summed(sums, window)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(total / count)


def _summed(values: Array, window: int | None) -> Array:
    sums = values.cumsum(axis=1)
    if window is None:
        return sums
    if window < 1:
        raise InputError(f"window must be an integer from 1 on; got {window}.")
    # A copy, because the slices overlap.
    sums[:, window:] -= sums[:, :-window].copy()
    return sums


def _faded(values: Array, fading: float) -> Array:
    if not 0.0 < fading < 1.0:
        raise InputError(f"fading must be between 0 and 1; got {fading}.")
    out = values.copy()
    # S_t = s_t + f S_{t-1}; divided by the same sum of ones, so that the first rows are not drawn to zero.
    for t in range(1, out.shape[1]):
        out[:, t] += fading * out[:, t - 1]
    return out


def _square(R: ArrayLike) -> Array:
    scores = np.asarray(R, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1] or not scores.size:
        raise InputError(f"R must have a row and a column for every task; got an array of shape {scores.shape}.")
    return scores


def _chosen(variants: dict[str, Array], name: str) -> Array:
    if name not in variants:
        raise InputError(f"variant={name!r} is not known; choose among {', '.join(map(repr, variants))}.")
    return variants[name]


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else float("nan")
