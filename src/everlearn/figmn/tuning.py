"""Choosing the parameters of a mixture by a race of candidates on the stream itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everlearn.errors import InputError
from everlearn.figmn.estimator import IncrementalGaussianMixture

Array = NDArray[np.float64]

CANDIDATES = (
    {"delta": 1.0, "beta": 0.5},
    {"delta": 1.0, "beta": 0.1},
    {"delta": 0.3, "beta": 0.1},
    {"delta": 0.3, "beta": 0.001},
)
"""What `tune` tries by default: from many wide components to few narrow ones."""

# The first rows say more about the start than about the parameters.
HEAD = 0.1
# With a second look a row's density before it was learned is that of a model which knows the legs before it.
LEGS = 10


class Tuned(NamedTuple):
    """The winner of a race, and how all candidates did.

    Attributes
    ----------
    model : IncrementalGaussianMixture
        The best candidate, fitted to all rows.
    results : list of dict
        For each candidate, best first: its parameters, `score` (mean prequential log-likelihood) and `n_components`.
    """

    model: IncrementalGaussianMixture
    results: list[dict[str, Any]]


def tune(
    X: ArrayLike,
    *,
    candidates: Iterable[Mapping[str, Any]] | None = None,
    sample_weight: ArrayLike | None = None,
    **params: Any,
) -> Tuned:
    """Fit a mixture with each of several settings, and keep the one that predicts the rows best.

    Every candidate learns the rows in their order, in one pass. Its score is the mean log-density of the rows, each
    taken before it was learned, over the last nine tenths of them; so no rows need to be held back. With
    `second_look` the rows of each tenth are scored by what the candidate answers before it has seen that tenth.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The rows, in the order of the stream. NaN means "not observed".
    candidates : iterable of dict, optional
        Parameters to try; by default four pairs of delta and beta.
    sample_weight : array-like of shape (n_samples,), optional
        Positive weights of the rows.
    **params
        Parameters of IncrementalGaussianMixture that all candidates share.

    Returns
    -------
    Tuned
        The fitted winner as `model`, and a table of all candidates as `results`, best first.

    Examples
    --------
    >>> import everlearn
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (500, 2)), rng.normal(5, 0.1, (500, 2))])
    >>> model, results = everlearn.tune(rng.permutation(X))
    >>> len(results), results[0]["score"] > results[-1]["score"]
    (4, True)
    >>> model.delta == results[0]["delta"]
    True
    """
    if isinstance(candidates, Mapping):
        raise InputError("candidates is one dict; give a list of them, as in [{'delta': 1.0}, {'delta': 0.1}].")
    listed = [dict(candidate) for candidate in (CANDIDATES if candidates is None else candidates)]
    if not listed:
        raise InputError("candidates is empty; give at least one dict of parameters, or None for the default ones.")
    models = [_candidate(candidate, params) for candidate in listed]
    scores = [_prequential(model, X, sample_weight) for model in models]
    order = sorted(range(len(models)), key=lambda i: -scores[i])
    results = [{**listed[i], "score": scores[i], "n_components": models[i].n_components_} for i in order]
    return Tuned(models[order[0]], results)


def _candidate(candidate: dict[str, Any], params: dict[str, Any]) -> IncrementalGaussianMixture:
    known = IncrementalGaussianMixture._get_param_names()
    unknown = sorted((candidate.keys() | params.keys()) - set(known))
    if unknown:
        raise InputError(f"IncrementalGaussianMixture has no parameter {unknown[0]!r}. It has: {', '.join(known)}.")
    return IncrementalGaussianMixture(**{**params, **candidate})


def _prequential(model: IncrementalGaussianMixture, X: ArrayLike, sample_weight: ArrayLike | None) -> float:
    """Fit the model to all rows; returns the mean log-density of the later rows before they were learned."""
    fresh = model._unfitted()
    rows, _, weights = fresh._check_batch(X, None, sample_weight, first=True)
    fresh._start(rows, whole=True)
    told = _told_in_legs(fresh.copy(), rows, weights) if model.second_look else None
    log_density = fresh._learn(rows, None, weights)
    log_density = log_density if told is None else told
    model._adopt(fresh)
    counted = np.arange(len(rows)) >= int(HEAD * len(rows))
    counted &= np.isfinite(log_density)
    if not counted.any():
        return -np.inf
    return float(np.average(log_density[counted], weights=None if weights is None else weights[counted]))


def _told_in_legs(model: IncrementalGaussianMixture, rows: Array, weights: Array | None) -> Array:
    """Learn the rows leg by leg; returns their densities by the answers of the model before each leg."""
    told = []
    for leg in np.array_split(np.arange(len(rows)), min(LEGS, len(rows))):
        known = model._pair_.learning.n_components > 0
        told.append(model.score_samples(rows[leg]) if known else np.full(len(leg), np.nan))
        model._learn(rows[leg], None, None if weights is None else weights[leg])
    return np.concatenate(told)
