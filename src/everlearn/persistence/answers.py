"""What a model file holds beside the model, if its writer wants: the mixture that the model answers from.

The model itself needs scikit-learn and compiled kernels to be loaded, and perhaps a search before it answers. Who only
asks, as `everlearn show` and `everlearn ask` do, reads these arrays instead.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.persistence.schema import check_state, require
from everlearn.typing import Array


class Answers(NamedTuple):
    """A mixture of K Gaussians in D columns, each divided by its scale, and what it was learned from."""

    model: str  # class of the model
    parameters: str  # of the model, as far as they differ from their defaults
    n_rows: int  # rows learned
    names: tuple[str, ...] | None  # of the columns
    weights: Annotated[Array, "nonnegative K"]
    means: Annotated[Array, "K D"]
    covariances: Annotated[Array, "K D D"] | Annotated[Array, "K D"]  # the latter diagonal
    scale: Annotated[Array, "positive D"]  # powers of two
    shown: Annotated[NDArray[np.int64], "int64 S"]  # components that the model shows


def check_answers(answers: Any) -> Answers:
    """Refuse answers from a file that do not fit together."""
    sizes = check_state(answers, Answers)
    require(answers.names is None or len(answers.names) == sizes["D"], "its answers have other columns than names")
    # Indices from a file reach fancy indexing: a negative one would count from the end without a word, a large one
    # would raise an IndexError in the middle of a question.
    require(sizes["S"] >= 1 and ((answers.shown >= 0) & (answers.shown < sizes["K"])).all(), "it shows no component")
    # Questions divide by this sum.
    require(answers.weights[answers.shown].sum() > 0.0, "the components that it shows have no weight")
    diagonal = answers.covariances if answers.covariances.ndim == 2 else answers.covariances.diagonal(0, 1, 2)
    require((diagonal > 0.0).all(), "its answers have variances that are not positive")
    return answers  # type: ignore[no-any-return]
