"""Models by the names that the program knows them by."""

from __future__ import annotations

import ast
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
SUPERVISED = ("classifier", "regressor")


def new_model(kind: str, settings: tuple[str, ...], seed: int) -> Any:
    """A model that has learned nothing.

    Parameters
    ----------
    kind : str
        A key of `KINDS`.
    settings : tuple of str
        Parameters as ``name=value``; a value is a Python literal or a word.
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
    # Literals only: nothing that is written on the command line is executed.
    try:
        return name.strip(), ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        return name.strip(), value.strip()
