"""Models by the names that the program knows them by."""

from __future__ import annotations

import ast
import importlib
from typing import Any

import click

import everlearn

KINDS = {
    "mixture": "IncrementalGaussianMixture",
    "detector": "AnomalyDetector",
    "ppca": "OnlinePPCA",
    "variational": "VariationalPPCA",
    "classifier": "IncrementalGaussianMixtureClassifier",
    "regressor": "IncrementalGaussianMixtureRegressor",
}
# Objects that a setting may be, written as in Python, and their modules, which are imported when one is asked for.
OBJECTS = {
    "PageHinkley": "everlearn",
    "PowerSchedule": "everlearn",
    "NaturalConstraint": "everlearn",
    "Every": "everlearn.ppca.keep",
    "OnChange": "everlearn.ppca.keep",
    "IncrementalGaussianMixture": "everlearn",
}
SUPERVISED = ("classifier", "regressor")


def new_model(kind: str, settings: tuple[str, ...], seed: int) -> Any:
    """A model that has learned nothing.

    Parameters
    ----------
    kind : str
        A key of `KINDS`.
    settings : tuple of str
        Parameters as ``name=value``; a value is a Python literal, a word, or an object such as
        ``PageHinkley(threshold=12)``.
    seed : int
        Seed of all randomness.

    Returns
    -------
    estimator
        The model.
    """
    model = getattr(everlearn, KINDS[kind])()
    parameters = dict(map(_setting, settings))
    known = model.get_params(deep=False)
    for name in parameters:
        if name not in known:
            raise click.UsageError(f"--set {name}: a {kind} has the settings {', '.join(sorted(known))}.")
    # A seed by default: the same command on the same file gives the same model, bit for bit.
    if "random_state" in known:
        parameters.setdefault("random_state", seed)
    model.set_params(**parameters)
    try:
        # Now and not at the first row, which a live stream may send in an hour.
        model._validate_params()
    except ValueError as error:
        raise click.UsageError(f"--set: {error}") from error
    return model


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise click.UsageError(f"--set {text}: write name=value, for example --set forgetting=adaptive.")
    return name.strip(), _value(name.strip(), value.strip())


def _value(name: str, text: str) -> Any:
    """A literal, one of `OBJECTS` made of literals, or a word. Nothing that is written is executed."""
    try:
        return _built(ast.parse(text, mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    except TypeError as error:
        raise click.UsageError(f"--set {name}={text}: {error}.") from error


def _built(node: ast.expr) -> Any:
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    if not isinstance(node.func, ast.Name) or node.func.id not in OBJECTS:
        raise ValueError(node)
    made = getattr(importlib.import_module(OBJECTS[node.func.id]), node.func.id)
    options = {option.arg: _built(option.value) for option in node.keywords if option.arg is not None}
    return made(*map(_built, node.args), **options)
