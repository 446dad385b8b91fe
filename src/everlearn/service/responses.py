"""Answers of models as values that JSON has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from everlearn.errors import InputError
from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.mixture import Mixture
from everlearn.reporting.queries import (
    Detected,
    column_names,
    condition,
    curve,
    detected,
    detector_that_follows,
    has_target,
    is_detector,
    is_fitted,
    mixture_of,
)
from everlearn.service import schemas
from everlearn.service.questions import Budget
from everlearn.service.repository import TARGET_KINDS, ModelRepository, RowShape, target_kind
from everlearn.streams.store.records import mean_log_likelihood
from everlearn.typing import Array, CalibratedModel, ClassifyingModel

# Numbers of the rows that are scored, or drawn, between two looks at the budget.
_VALUES_AT_ONCE = 1 << 17
_DETECTED_ROWS = 256  # the same for a detector, which explains each strange row by itself
_KIND_NAMES = {"text": "text", "truth": "true and false", "whole": "whole numbers", "number": "numbers"}

AnyRows = Sequence[Sequence[float | None]] | Sequence[Mapping[str, float | None]]


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


def arranged(rows: AnyRows, columns: Sequence[str] | None, own: Sequence[str], *, some: bool = False) -> Array:
    """Rows as an array in the order of the model's columns; null becomes NaN.

    Parameters
    ----------
    rows : lists of numbers and None, or dictionaries of them
        What a request holds.
    columns : names, optional
        The order of lists.
    own : names
        The columns of the model.
    some : bool
        Whether `columns` may leave out some of the model's columns, which are not known then.
    """
    if rows and isinstance(rows[0], Mapping):
        return _from_records(rows, columns, own)  # type: ignore[arg-type]
    names = list(own if columns is None else columns)
    if columns is not None:
        check_columns(names, own, some=some)
    # Checked here: NumPy would make an array of objects of rows of different length, or raise without saying which.
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise InputError(f"rows[{i}] has {len(row)} values; there are {len(names)} columns: {_some(names)}.")
    if names == list(own):
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(own))
    X = np.full((len(rows), len(own)), np.nan)
    X[:, [own.index(name) for name in names]] = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    return X


def _from_records(
    rows: Sequence[Mapping[str, float | None]], columns: Sequence[str] | None, own: Sequence[str]
) -> Array:
    if columns is not None:
        raise InputError("columns gives the order of rows that are lists; these are objects. Leave it out.")
    places = {name: j for j, name in enumerate(own)}
    X = np.full((len(rows), len(own)), np.nan)
    for i, row in enumerate(rows):
        for name, value in row.items():
            if name not in places:
                raise InputError(
                    f"rows[{i}] has {name[:80]!r}, and the model no column of that name. It has: {_some(own)}."
                )
            X[i, places[name]] = np.nan if value is None else value
    return X


def columns_of(rows: AnyRows, columns: Sequence[str] | None) -> list[str]:
    """Columns of a new model that begins with these rows."""
    if rows and isinstance(rows[0], Mapping):
        names = list(dict.fromkeys(str(name) for row in rows for name in row))
        if not names:
            raise InputError('rows names no column. Give objects such as {"rpm": 900, "torque": 21.5}.')
        return names
    return list(columns) if columns else [f"x{j}" for j in range(len(rows[0]))]


def check_targets(targets: Sequence[Any] | None, n_rows: int, shape: RowShape) -> str | None:
    """The kind of the targets that come with rows; an error if there should be none, others, or more.

    Returns
    -------
    str or None
        None for a model without a target.
    """
    if shape.target is None:
        if targets is not None:
            raise InputError("The model has no target; only a classifier or a regressor has. Leave out targets.")
        return None
    if targets is None:
        raise InputError(f"The model predicts {shape.target!r}: give its value for each row in the field targets.")
    if len(targets) != n_rows:
        raise InputError(f"There are {len(targets):,} targets and {n_rows:,} rows; give one for each row.")
    kind = target_kind(targets)
    if shape.labels is None and kind == "number":
        raise InputError(f"Labels of a classifier are text, whole numbers, or true and false; got {_odd(targets)}.")
    if shape.labels is not None and any(type(target) not in TARGET_KINDS[shape.labels] for target in targets):
        wanted = _KIND_NAMES[shape.labels]
        raise InputError(
            f"The targets of this model are {wanted}; got {_KIND_NAMES[kind]}, such as {targets[0]!r:.80}."
        )
    return kind


def _odd(targets: Sequence[Any]) -> Any:
    return next(target for target in targets if isinstance(target, float))


def check_columns(names: Sequence[str], own: Sequence[str], *, some: bool = False) -> None:
    """Refuse columns that are not those of the model; `some` of them may do."""
    check_distinct(names)
    unknown = [n for n in names if n not in set(own)]
    absent = [] if some else [n for n in own if n not in set(names)]
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


def scores(budget: Budget, model: Any, X: Array, alarm: float | None) -> schemas.Scores:
    """Log-densities of rows, and p-values where the model gives them; of a detector, also which column is to blame."""
    if has_target(model):
        raise InputError(f"{type(model).__name__} scores no rows; ask for its prediction with /predict.")
    if is_detector(model):
        return _detected(budget, model, X, alarm)
    budget.check_size(2 * len(X))
    density, p_value = np.empty(len(X)), np.empty(len(X)) if isinstance(model, CalibratedModel) else None
    for part in _parts(budget, len(X), X.shape[1]):
        density[part] = model.score_samples(X[part])
        if p_value is not None:
            p_value[part] = model.p_value(X[part])
    return schemas.Scores(log_density=plain(density), p_value=None if p_value is None else plain(p_value))


def _detected(budget: Budget, model: Any, X: Array, alarm: float | None) -> schemas.Scores:
    """What a detector says of rows that follow those it has learned; it learns none of them."""
    budget.check_size(6 * len(X))
    # A copy: a detector scores a row by those before it, and the cached model is shared by all questions.
    follower = detector_that_follows(model, alarm)
    found: dict[str, list[Any]] = {field: [] for field in Detected._fields}
    for start in range(0, len(X), _DETECTED_ROWS):
        budget.check()
        for field, values in detected(follower, X[start : start + _DETECTED_ROWS])._asdict().items():
            found[field] += [name or None for name in values] if field == "column" else plain(values)
    return schemas.Scores(**found)


def _parts(budget: Budget, n_rows: int, n_columns: int) -> Iterator[slice]:
    """Slices over the rows, each of bounded size, as long as the budget lasts."""
    step = max(1, _VALUES_AT_ONCE // max(n_columns, 1))
    for start in range(0, n_rows, step):
        budget.check()
        yield slice(start, start + step)


def predictions(
    budget: Budget,
    model: Any,
    X: Array,
    target: Sequence[str] | None,
    coverage: float,
    own_target: str | None,
) -> schemas.Predictions | schemas.Classes:
    """What is to be expected of columns, or of the target of a model that has one, for each row of known values."""
    if has_target(model):
        if target is not None:
            raise InputError(f"{type(model).__name__} predicts its own target; leave out the field target.")
        if isinstance(model, ClassifyingModel):
            return _classes(budget, model, X)
        return _targets(model, X, coverage, own_target or "target")
    if target is None:
        raise InputError(f"target must name the columns to predict; there are: {_some(column_names(model))}.")
    budget.check_size(4 * len(X) * len(target))
    found: dict[str, list[Any]] = {"mean": [], "std": [], "low": [], "high": []}
    # Conditioning costs O(K D^3) for each set of known values: one that comes again is not computed again.
    answers: dict[tuple[tuple[str, float], ...], tuple[Any, ...]] = {}
    for row in X:
        budget.check()
        fixed = known(model, row)
        # Sorted, as records may name their columns in any order.
        key = tuple(sorted(fixed.items()))
        if key not in answers:
            answer = condition(model, fixed, target)
            numbers = answer.mean(), answer.std(), *answer.interval(coverage)
            answers[key] = tuple(plain(each[0]) for each in numbers)
        for name, number in zip(found, answers[key], strict=True):
            found[name].append(number)
    return schemas.Predictions(columns=list(target), **found)


def _classes(budget: Budget, model: Any, X: Array) -> schemas.Classes:
    """The most probable class of each row, and the probabilities of all."""
    classes = model.classes_.tolist()
    budget.check_size(len(X) * len(classes))
    probability = np.empty((len(X), len(classes)))
    for part in _parts(budget, len(X), X.shape[1] * len(classes)):
        probability[part] = model.predict_proba(X[part])
    labels = [classes[k] for k in probability.argmax(axis=1)]
    return schemas.Classes(classes=classes, label=labels, probability=plain(probability))


def _targets(model: Any, X: Array, coverage: float, name: str) -> schemas.Predictions:
    """Mean, standard deviation and interval of a regressor's targets."""
    mean, std = model.predict(X, return_std=True)
    numbers = dict(zip(("mean", "std", "low", "high"), (mean, std, *model.predict_interval(X, coverage)), strict=True))
    n_targets = 1 if mean.ndim == 1 else mean.shape[1]
    columns = [name] if n_targets == 1 else [f"{name}{j}" for j in range(n_targets)]
    return schemas.Predictions(columns=columns, **{k: plain(v.reshape(len(X), -1)) for k, v in numbers.items()})


def density(model: Any, body: schemas.Question) -> schemas.Density:
    """The distribution of one column."""
    target, coverage = body.target, body.coverage
    found = curve(model, known_values(model, body), target, coverage=coverage)
    numbers = {key: finite(getattr(found, key)) for key in ("mean", "std", "low", "high")}
    return schemas.Density(column=target, x=plain(found.x), density=plain(found.density), coverage=coverage, **numbers)


def draws(budget: Budget, model: Any, body: schemas.Draw) -> schemas.Drawn:
    """Rows drawn from the model, those columns fixed that are given."""
    n_rows, names, fixed = body.n_rows, column_names(model), known_values(model, body)
    free = [name for name in names if name not in fixed]
    if fixed and not free:
        raise InputError("rows fixes every column; leave out at least one.")
    budget.check_size(n_rows * len(names))
    X = np.empty((n_rows, len(names)))
    # Conditioned once for all draws. Drawn in parts, as a body of 16 bytes could otherwise take gigabytes.
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
    mean, detects = finite(mean_log_likelihood(history)), is_detector(model)
    found = {
        "name": name,
        "kind": entry.kind,
        "version": entry.version,
        "rows": entry.n_rows,
        "waiting": waiting,
        "updated": entry.updated,
        "takes_rows": position is None or "inbox" in position,
        "components": len(mixture.weights) if mixture is not None else None,
        "log_likelihood": None if detects else mean,
        "mean_log_p_value": mean if detects else None,
        "rows_per_second": last and finite(last.n_rows / last.seconds if last.seconds > 0 else None),
        "forgetting": last and finite(last.forgetting),
        "memory": last and finite(last.memory),
        "novelties": totals.get("novelty", 0) + totals.get("anomaly", 0),
        "changes": totals.get("change", 0) + totals.get("new_normal", 0),
        "bad_rows": totals.get("bad rows", 0),
        "trouble": None if trouble is None else f"It is not learned at the moment: {_public(trouble, repository)}",
        "target": (position or {}).get("inbox", {}).get("target"),
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


def known(model: Any, row: Array) -> dict[str, float]:
    """The values of a row that are known, by column."""
    return {name: float(value) for name, value in zip(column_names(model), row, strict=True) if value == value}


def known_values(model: Any, body: schemas.Known) -> dict[str, float]:
    """What a question knows: the values of its one row, or nothing."""
    X = arranged(body.rows, body.columns, column_names(model), some=True)
    return known(model, X[0]) if len(X) else {}


def _some(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(name[:60] for name in names[:most])
    return shown if len(names) <= most else f"{shown}, and {len(names) - most} more"
