"""The seven sets of the FIGMN paper's tables 1 to 3."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from everlearn.errors import InputError

NAMES = ("breast_cancer", "diabetes", "glass", "ionosphere", "iris", "labor", "soybean")
"""Names that `load` takes."""

_ABOUT = {
    "breast_cancer": (
        "Recurrence of breast cancer within five years, from nine nominal attributes. Obtained from the University "
        "Medical Centre, Institute of Oncology, Ljubljana; thanks go to M. Zwitter and M. Soklic for providing the "
        "data."
    ),
    "diabetes": (
        "Onset of diabetes among Pima Indian women, from eight measurements. National Institute of Diabetes and "
        "Digestive and Kidney Diseases; donor V. Sigillito. Zeros in some columns stand for missing values."
    ),
    "glass": "Kind of glass from its refractive index and chemistry. Creator B. German; donor V. Spiehler.",
    "ionosphere": (
        "Radar returns from the ionosphere, good or bad; the second column is constant. Space Physics Group, Johns "
        "Hopkins University; donor V. Sigillito."
    ),
    "iris": "Three species of iris from four measurements. R. A. Fisher; donor M. Marshall.",
    "labor": (
        "Settlements in Canadian labour negotiations, good or bad, most rows with gaps. Collective Bargaining Review, "
        "Labour Canada; donor S. Matwin."
    ),
    "soybean": (
        "Nineteen diseases of soybean from 35 nominal attributes, some missing. R. S. Michalski and R. L. Chilausky; "
        "donors M. Tan and J. Schlimmer."
    ),
}
_SHARED = (
    "Nominal attributes hold the index of their value in `categories`, in the order of the source, which is the "
    "natural one where there is any; `categorical` marks them. NaN is a missing value. The rows are in the order of "
    "the source, partly sorted by class. From the UCI Machine Learning Repository, as Weka distributes it."
)


def load(name: str) -> Bunch:
    """Load one of the seven sets by name.

    Nominal attributes are numbered from 0 in the order of the source, which is the natural one for sizes, ages and
    months; missing values are NaN. Rows come in the order of the source, partly sorted by class: shuffle them for an
    unordered stream.

    Parameters
    ----------
    name : str
        One of `NAMES`; a hyphen may stand for the underscore.

    Returns
    -------
    Bunch
        With `data` of shape (n_samples, n_features), `target` (class numbers), `feature_names`, `target_names`,
        `categorical` (which columns are nominal), `categories` (their values by column name) and `DESCR`.

    Examples
    --------
    >>> from everlearn import datasets
    >>> labor = datasets.load("labor")
    >>> labor.data.shape, labor.target_names.tolist()
    ((57, 16), ['bad', 'good'])
    """
    key = str(name).replace("-", "_")
    if key not in NAMES:
        raise InputError(f"name={name!r} is not a data set of everlearn. It has: {', '.join(NAMES)}.")
    about = _tables()[key]
    with resources.files(__package__).joinpath(f"data/{key}.csv").open(encoding="ascii") as file:
        # Empty cells become NaN.
        table = np.genfromtxt(file, delimiter=",", dtype=np.float64)
    names = about["feature_names"]
    return Bunch(
        data=np.ascontiguousarray(table[:, :-1]),
        target=table[:, -1].astype(np.int64),
        feature_names=np.array(names, dtype=object),
        target_names=np.array(about["target_names"], dtype=object),
        categorical=np.array([column in about["categories"] for column in names]),
        categories={column: list(values) for column, values in about["categories"].items()},
        DESCR=f"{_ABOUT[key]} {_SHARED}",
    )


@functools.cache
def _tables() -> dict[str, Any]:
    """Names of columns, categories and classes of every set."""
    text = resources.files(__package__).joinpath("data/sets.json").read_text(encoding="ascii")
    tables: dict[str, Any] = json.loads(text)
    return tables


def load_breast_cancer() -> Bunch:
    """Load the Ljubljana breast cancer data, 286 rows of 9 nominal columns in 2 classes; see :func:`load`.

    Thanks go to M. Zwitter and M. Soklic, University Medical Centre, Institute of Oncology, Ljubljana, for providing
    it.
    """
    return load("breast_cancer")


def load_diabetes() -> Bunch:
    """Load the Pima Indians diabetes data, 768 rows of 8 columns in 2 classes; see :func:`load`."""
    return load("diabetes")


def load_glass() -> Bunch:
    """Load the glass identification data, 214 rows of 9 columns in 6 classes; see :func:`load`."""
    return load("glass")


def load_ionosphere() -> Bunch:
    """Load the ionosphere data, 351 rows of 34 columns in 2 classes; see :func:`load`."""
    return load("ionosphere")


def load_iris() -> Bunch:
    """Load the iris data, 150 rows of 4 columns in 3 classes; see :func:`load`."""
    return load("iris")


def load_labor() -> Bunch:
    """Load the labor negotiations data, 57 rows of 16 columns in 2 classes, with many gaps; see :func:`load`."""
    return load("labor")


def load_soybean() -> Bunch:
    """Load the soybean data, 683 rows of 35 nominal columns in 19 classes, with gaps; see :func:`load`."""
    return load("soybean")
