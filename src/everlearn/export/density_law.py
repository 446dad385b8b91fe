"""What an exported model needs beside its mixture to answer with p-values, as numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from everlearn.base.columns import Indices
from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.gaussian import LOG_2PI
from everlearn.mixture.ask import Look
from everlearn.mixture.p_values import reference, tail_bound
from everlearn.typing import Array


class DensityLaw(NamedTuple):
    """Distribution of the log-density over some columns; see `everlearn.mixture.p_values`."""

    log_density: Array  # (m,), ascending
    below: Array  # (m,), share of rows with a lower one
    tail: int  # place below which the mixture's own tail goes on
    start: float  # bound of the tail there
    weights: Array  # (K + 1,), of the mixture
    heights: Array  # (K + 1,), log w_k - log|2 pi Sigma_k| / 2


def density_law(look: Look, observed: Indices) -> DensityLaw:
    """The law of the log-density of rows in which the columns `observed` are known."""
    known, below, tail, part = reference(look, observed)
    heights = np.log(part.weights) - 0.5 * (mixtures.whitenings(part).log_det + len(observed) * LOG_2PI)
    return DensityLaw(known, below, tail, float(tail_bound(known[tail : tail + 1], part)[0]), part.weights, heights)


def require_mixture(model: Any, target: str) -> None:
    """Refuse what is no incremental mixture, by name."""
    from everlearn.errors import InputError
    from everlearn.mixture.estimator import IncrementalGaussianMixture

    if not isinstance(model, IncrementalGaussianMixture):
        raise InputError(
            f"A {type(model).__name__} cannot be exported to {target}; an IncrementalGaussianMixture can, and to ONNX "
            "also an IncrementalGaussianMixtureClassifier. "
            "Any model can be asked over HTTP instead: everlearn serve."
        )
