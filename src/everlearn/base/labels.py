"""Labels of classes: which are taken, and how a new one finds its place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets

from everlearn.base.user_warnings import warn_user
from everlearn.errors import InputError

KINDS = {"U": "text", "b": "truth values", "i": "numbers", "u": "numbers", "f": "numbers"}


def check_labels(y: Any, name: str, n_rows: int) -> NDArray[Any]:
    """Labels as an array: one for each row, all text or all numbers."""
    if y is None:
        raise InputError(f"This classifier requires {name} to be passed, but the target {name} is None.")
    labels = np.asarray(y)
    if labels.shape == (n_rows, 1):
        warn_user(
            f"A column-vector {name} was passed when a 1d array was expected; it is taken as one label per row.",
            DataConversionWarning,
        )
        labels = labels.ravel()
    if labels.shape != (n_rows,):
        raise InputError(f"{name} has shape {labels.shape}; give one label for each of {n_rows} rows.")
    if labels.dtype.kind not in "Uiub":
        labels = _check_unusual_labels(labels, name)
    return labels


def _check_unusual_labels(labels: NDArray[Any], name: str) -> NDArray[Any]:
    if labels.dtype.kind in "OT":
        n_texts = sum(isinstance(label, str) for label in labels.tolist())
        if n_texts not in (0, len(labels)):
            raise InputError(f"{name} holds text and other values. Use one kind of label.")
        # Objects become text or numbers of one type, which can be sorted.
        labels = np.array(labels.tolist())
    if labels.dtype.kind not in KINDS or labels.ndim != 1:
        raise InputError(f"{name} holds values of type {labels.dtype}; labels are text or whole numbers.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError(f"Input {name} contains NaN or infinity; every row needs a label.")
    try:
        check_classification_targets(labels)
    except ValueError as error:
        raise InputError(f"{name} cannot be taken as labels: {error}") from error
    return labels


def check_same_kind(labels: NDArray[Any], known: NDArray[Any]) -> None:
    """Refuse text among numbers, and the like."""
    mine, theirs = KINDS[labels.dtype.kind], KINDS[known.dtype.kind]
    if mine != theirs and len(known) and len(labels):
        raise InputError(f"Some labels are {mine}, others are {theirs}. Use one kind of label.")


def inserted(labels: NDArray[Any], at: int, label: Any) -> NDArray[Any]:
    """Labels with one more; the array grows to hold a longer text or a wider number."""
    new = np.asarray([label])
    if not len(labels):
        return new
    return np.concatenate([labels[:at], new, labels[at:]])
