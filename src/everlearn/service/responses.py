"""Answers of models as values that JSON has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from everlearn.base.columns import column_numbers
from everlearn.errors import InputError
from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.mixture import Mixture
from everlearn.reporting.queries import column_names, condition, curve, has_target, is_fitted, mixture_of
from everlearn.service import schemas
from everlearn.service.questions import Budget
from everlearn.service.repository import ModelRepository
from everlearn.typing import Array, CalibratedModel, ClassifyingModel

# Numbers of the rows that are scored, or drawn, between two looks at the budget.
_VALUES_AT_ONCE = 1 << 17


def plain(values: ArrayLike) -> Any:
    """An array as nested lists, with null for what is not finite."""
    array = np.asarray(values, dtype=np.float64)
    if np.isfinite(array).all():
        return array.tolist()
    values = array.astype(object)
    values[~np.isfinite(array)] = None
    return values.tolist()


def finite(value: Any) -> float | None:
    """A number, or None where there is none."""
    return float(value) if value is not None and math.isfinite(value) else None


def arranged(rows: Sequence[Sequence[float | None]], columns: Sequence[str] | None, own: Sequence[str]) -> Array:
    """Rows as an array in the order of the model's columns; null becomes NaN.

    Parameters
    ----------
    rows : lists of numbers and None
        What a request holds.
    columns : names, optional
        Their order.
    own : names
        The columns of the model.
    """
    names = list(own if columns is None else columns)
    if columns is not None:
        check_columns(names, own)
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise InputError(f"rows[{i}] has {len(row)} values; there are {len(names)} columns: {_some(names)}.")
    X = np.array(rows, dtype=np.float64)
    return X if names == list(own) else np.ascontiguousarray(X[:, [names.index(name) for name in own]])


def check_columns(names: Sequence[str], own: Sequence[str]) -> None:
    """Refuse columns that are not those of the model."""
    check_distinct(names)
    unknown, absent = [n for n in names if n not in set(own)], [n for n in own if n not in set(names)]
    if unknown or absent:
        parts = ([f"unknown: {_some(unknown)}"] if unknown else []) + ([f"missing: {_some(absent)}"] if absent else [])
        raise InputError(
            f"The columns do not fit the model ({'; '.join(parts)}). It has: {_some(own)}. Give null for a "
            "value that was not observed."
        )


def check_distinct(names: Sequence[str]) -> None:
    """Refuse a column that is named twice."""
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise InputError(f"columns names {twice!r} twice.")


def scores(budget: Budget, model: Any, X: Array) -> schemas.Scores:
    """Log-densities of rows, and p-values where the model gives them."""
    if has_target(model):
        raise InputError(f"{type(model).__name__} scores no rows; ask for its prediction with /predict.")
    budget.check_size(2 * len(X))
    density, p_value = np.empty(len(X)), np.empty(len(X)) if isinstance(model, CalibratedModel) else None
    for part in _parts(budget, len(X), X.shape[1]):
        density[part] = model.score_samples(X[part])
        if p_value is not None:
            p_value[part] = model.p_value(X[part])
    return schemas.Scores(log_density=plain(density), p_value=None if p_value is None else plain(p_value))


def _parts(budget: Budget, n_rows: int, n_columns: int) -> Iterator[slice]:
    """Slices over the rows, each of bounded size, as long as the budget lasts."""
    step = max(1, _VALUES_AT_ONCE // max(n_columns, 1))
    for start in range(0, n_rows, step):
        budget.check()
        yield slice(start, start + step)


def predictions(
    budget: Budget,
    model: Any,
    given: Sequence[Mapping[str, float | None]],
    target: Sequence[str] | None,
    coverage: float,
) -> schemas.Predictions | schemas.Classes:
    """What is to be expected of columns, or of the target of a model that has one, for each set of known values."""
    if has_target(model):
        if target is not None:
            raise InputError(f"{type(model).__name__} predicts its own target; leave out the field target.")
        X = _rows(model, given)
        return _classes(budget, model, X) if isinstance(model, ClassifyingModel) else _targets(model, X, coverage)
    if target is None:
        raise InputError(f"target must name the columns to predict; there are: {_some(column_names(model))}.")
    budget.check_size(4 * len(given) * len(target))
    found: dict[str, list[Any]] = {"mean": [], "std": [], "low": [], "high": []}
    # Conditioning costs O(K D^3) for each set of known values: one that comes again is not computed again.
    answers: dict[tuple[tuple[str, float], ...], tuple[Any, ...]] = {}
    for values in given:
        budget.check()
        fixed = known(model, values)
        key = tuple(sorted(fixed.items()))
        if key not in answers:
            answer = condition(model, fixed, target)
            numbers = answer.mean(), answer.std(), *answer.interval(coverage)
            answers[key] = tuple(plain(each[0]) for each in numbers)
        for name, number in zip(found, answers[key], strict=True):
            found[name].append(number)
    return schemas.Predictions(columns=list(target), **found)


def _rows(model: Any, given: Sequence[Mapping[str, float | None]]) -> Array:
    """Known values as rows, with NaN for what is not known."""
    names = column_names(model)
    return np.array([[fixed.get(name, math.nan) for name in names] for fixed in (known(model, g) for g in given)])


def _classes(budget: Budget, model: Any, X: Array) -> schemas.Classes:
    """The most probable class of each row, and the probabilities of all."""
    classes = model.classes_.tolist()
    budget.check_size(len(X) * len(classes))
    probability = np.empty((len(X), len(classes)))
    for part in _parts(budget, len(X), X.shape[1] * len(classes)):
        probability[part] = model.predict_proba(X[part])
    labels = [classes[k] for k in probability.argmax(axis=1)]
    return schemas.Classes(classes=classes, label=labels, probability=plain(probability))


def _targets(model: Any, X: Array, coverage: float) -> schemas.Predictions:
    """Mean, standard deviation and interval of a regressor's targets."""
    mean, std = model.predict(X, return_std=True)
    numbers = dict(zip(("mean", "std", "low", "high"), (mean, std, *model.predict_interval(X, coverage)), strict=True))
    n_targets = 1 if mean.ndim == 1 else mean.shape[1]
    columns = ["target"] if n_targets == 1 else [f"target{j}" for j in range(n_targets)]
    return schemas.Predictions(columns=columns, **{k: plain(v.reshape(len(X), -1)) for k, v in numbers.items()})


def density(model: Any, given: Mapping[str, float | None], target: str, coverage: float) -> schemas.Density:
    """The distribution of one column."""
    found = curve(model, known(model, given), target, coverage=coverage)
    numbers = {key: finite(getattr(found, key)) for key in ("mean", "std", "low", "high")}
    return schemas.Density(column=target, x=plain(found.x), density=plain(found.density), coverage=coverage, **numbers)


def draws(budget: Budget, model: Any, n_rows: int, given: Mapping[str, float | None]) -> schemas.Drawn:
    """Rows drawn from the model, those columns fixed that are given."""
    names, fixed = column_names(model), known(model, given)
    free = [name for name in names if name not in fixed]
    if fixed and not free:
        raise InputError("given fixes every column; leave out at least one.")
    budget.check_size(n_rows * len(names))
    X = np.empty((n_rows, len(names)))
    answer = condition(model, fixed, free)
    places = [names.index(name) for name in free]
    for part in _parts(budget, n_rows, len(names)):
        X[part, places] = answer.sample(len(X[part]))[0]
    for name, value in fixed.items():
        X[:, names.index(name)] = value
    return schemas.Drawn(columns=names, rows=plain(X))


def summary(repository: ModelRepository, name: str) -> schemas.Summary:
    """What a model is and has seen."""
    waiting = repository.store.waiting(name)  # first: when none wait, the rest tells of all rows
    entry, totals, history = repository.entry(name), repository.store.totals(name), repository.store.history(name)
    last = history[-1] if history else None
    position, model = repository.store.position(name), repository.model(name)
    mixture = mixture_of(model) if is_fitted(model) else None
    trouble = repository.learning.troubles.get(name)
    found = {
        "name": name,
        "kind": entry.kind,
        "version": entry.version,
        "rows": entry.n_rows,
        "waiting": waiting,
        "updated": entry.updated,
        "takes_rows": position is None or "inbox" in position,
        "components": len(mixture.weights) if mixture is not None else None,
        "log_likelihood": last and finite(last.log_likelihood),
        "rows_per_second": last and finite(last.n_rows / last.seconds if last.seconds > 0 else None),
        "forgetting": last and finite(last.forgetting),
        "memory": last and finite(last.memory),
        "novelties": totals.get("novelty", 0) + totals.get("anomaly", 0),
        "changes": totals.get("change", 0),
        "bad_rows": totals.get("bad rows", 0),
        "trouble": None if trouble is None else f"It is not learned at the moment: {_public(trouble, repository)}",
        "columns": _columns(repository.columns(name), mixture),
    }
    return schemas.Summary.model_validate(found)


def _public(error: Exception, repository: ModelRepository) -> str:
    """An error for clients, who need not know where files lie."""
    return str(error).replace(str(repository.store.path), "the state file")


def _columns(names: Sequence[str], mixture: Mixture | None) -> list[dict[str, Any]]:
    if mixture is None:
        return [{"name": column, "mean": None, "std": None} for column in names]
    mean = mixture.weights @ mixture.means
    std = np.sqrt(mixture.weights @ (mixtures.variances(mixture) + (mixture.means - mean) ** 2))
    return [{"name": n, "mean": finite(m), "std": finite(s)} for n, m, s in zip(names, mean, std, strict=True)]


def known(model: Any, given: Mapping[str, float | None]) -> dict[str, float]:
    """The values that are known; the names of the others must be right, too."""
    names = column_names(model)
    if given:
        column_numbers(list(given), names, len(names), "given")
    return {name: value for name, value in given.items() if value is not None}


def _some(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(name[:60] for name in names[:most])
    return shown if len(names) <= most else f"{shown}, and {len(names) - most} more"
