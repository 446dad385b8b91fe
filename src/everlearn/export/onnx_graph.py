"""Models as ONNX graphs, for runtimes in other languages; float64 throughout."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from everlearn.base.columns import Indices, column_numbers
from everlearn.errors import InputError
from everlearn.export.density_law import DensityLaw, density_law, require_mixture
from everlearn.export.onnx_classifier import classifier_graph, facts_of_classes
from everlearn.export.onnx_operators import Graph
from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.gaussian import LOG_2PI, regression
from everlearn.gaussian.mixture import Mixture
from everlearn.mixture import ask
from everlearn.mixture.ask import Look
from everlearn.mixture.classifier import IncrementalGaussianMixtureClassifier
from everlearn.mixture.shrinkage import shrinkage, shrunk


def to_onnx(model: Any, *, gaps: Any = None) -> Any:
    """Return an ONNX model of a mixture or a classifier.

    Its input is `X`, rows of float64 with all columns of the model. The outputs of a mixture are `log_density`,
    `p_value` and `responsibilities`; with `gaps` those of the other columns, and `filled` and `std` as `impute` gives
    them. That of a classifier is `probabilities`, in the order of `classes_`, as `predict_proba` gives them.

    Parameters
    ----------
    model : IncrementalGaussianMixture or IncrementalGaussianMixtureClassifier
        A fitted model; it does not change.
    gaps : column or list of columns, optional
        Columns that are never observed where the graph runs, by name or number. Their values in `X` are not looked at.

    Returns
    -------
    onnx.ModelProto
        The graph; ``graph.SerializeToString()`` is the content of a file. Needs the extra `onnx`.

    Examples
    --------
    >>> import numpy as np
    >>> from everlearn import IncrementalGaussianMixture
    >>> from everlearn.export import to_onnx
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> graph = to_onnx(IncrementalGaussianMixture().fit(X), gaps=1)
    >>> [output.name for output in graph.graph.output]
    ['log_density', 'p_value', 'responsibilities', 'filled', 'std']
    """
    is_classifier = isinstance(model, IncrementalGaussianMixtureClassifier)
    if not is_classifier:
        require_mixture(model, "ONNX")
    model._check_started()
    D, names = model.n_features_in_, _names(model)
    missing = np.empty(0, np.intp) if gaps is None else column_numbers(gaps, names, D, "gaps")
    observed = np.setdiff1d(np.arange(D), missing)
    if gaps is not None and not 0 < len(missing) < D:
        raise InputError(f"gaps={gaps!r} must name some of the {D} columns, and not all of them.")
    facts = {"columns": json.dumps(names or list(range(D))), "gaps": json.dumps(missing.tolist())}
    if is_classifier:
        description = f"A classifier of {len(model.classes_)} classes, learned from {model.n_samples_seen_} rows."
        return classifier_graph(model, observed).finish(D, description, facts | facts_of_classes(model))
    graph = _mixture_graph(model._look(), observed, missing)
    description = f"A mixture of {model.n_components_} Gaussians, learned from {model.n_samples_seen_} rows."
    return graph.finish(D, description, facts)


def _mixture_graph(look: Look, observed: Indices, missing: Indices) -> Graph:
    whole, graph = mixtures.with_matrices(ask.whole_mixture(look)), Graph()
    x = graph.columns("X", observed) if len(missing) else "X"
    joint = _log_joint(graph, x, mixtures.marginal(whole, observed))
    density = graph.log_sum_exp(joint)
    graph.output("log_density", density)
    graph.output("p_value", _p_value(graph, density, density_law(look, observed), len(observed)))
    shown = ask.shown_components(look)
    graph.output("responsibilities", graph.apply("Softmax", graph.columns(joint, shown), axis=1), len(shown))
    if len(missing):
        noise = shrinkage(look)
        if noise:
            whole = shrunk(whole, noise)
            joint = _log_joint(graph, x, mixtures.marginal(whole, observed))
        _impute(graph, joint, x, whole, (observed, missing))
    return graph


def _names(model: Any) -> list[str] | None:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _log_joint(graph: Graph, x: str, mixture: Mixture) -> str:
    """log w_k + log N(x; mu_k, Sigma_k) of each row and component, (n, K)."""
    matrix, log_det = mixtures.whitenings(mixture)
    heights = np.log(mixture.weights) - 0.5 * (log_det + mixture.means.shape[1] * LOG_2PI)
    whitened = graph.apply("MatMul", _deviations(graph, x, mixture), matrix)
    squared = graph.reduce("ReduceSum", graph.apply("Mul", whitened, whitened), 2)
    distances = graph.apply("Transpose", squared, perm=[1, 0])
    return graph.apply("Sub", heights, graph.apply("Mul", distances, 0.5))


def _deviations(graph: Graph, x: str, mixture: Mixture) -> str:
    """x - mu_k for each component and row, (K, n, D)."""
    return graph.apply("Sub", graph.insert_axis(x, 0), mixture.means[:, None, :])


def _p_value(graph: Graph, density: str, law: DensityLaw, degrees: int) -> str:
    """Interpolation in the law of the log-density; below its tail the mixture's own goes on."""
    t = graph.insert_axis(density, 1)
    steps = np.diff(law.log_density)
    # Equal densities make knots of no width; beyond the last knot the law is constant.
    slopes = np.append(np.where(steps > 0.0, np.diff(law.below) / np.where(steps > 0.0, steps, 1.0), 0.0), 0.0)
    # How many knots lie at or below: ONNX has no operator for a binary search.
    reached = graph.apply("Cast", graph.apply("GreaterOrEqual", t, law.log_density), to=graph.onnx.TensorProto.INT64)
    count = graph.apply("ReduceSum", reached, graph.constant([1], np.int64), keepdims=0)
    place = graph.apply("Max", graph.apply("Sub", count, graph.constant(1, np.int64)), graph.constant(0, np.int64))
    known, below, slope = (
        graph.apply("Gather", graph.constant(values), place) for values in (law.log_density, law.below, slopes)
    )
    inside = graph.apply("Add", below, graph.apply("Mul", slope, graph.apply("Sub", density, known)))
    h = graph.apply("Max", graph.apply("Sub", law.heights, t), 0.0)
    bound = graph.apply("MatMul", graph.chi_square_tail(h, degrees), law.weights)
    share = graph.apply("Min", graph.apply("Div", bound, max(law.start, 1e-300)), 1.0)
    far = graph.apply("Mul", share, law.below[law.tail])
    return graph.apply("Where", graph.apply("Less", density, law.log_density[law.tail]), far, inside)


def _impute(graph: Graph, joint: str, x: str, whole: Mixture, columns: tuple[Indices, Indices]) -> None:
    """Conditional mean and standard deviation of the missing columns, among the observed ones."""
    observed, missing = columns
    model, D = regression(whole.covariances, observed, missing), whole.means.shape[1]
    share = graph.insert_axis(graph.apply("Softmax", joint, axis=1), 2)
    deviations = _deviations(graph, x, mixtures.marginal(whole, observed))
    shifted = graph.apply("MatMul", deviations, model.gain.transpose(0, 2, 1))
    means = graph.apply("Transpose", graph.apply("Add", shifted, whole.means[:, None, missing]), perm=[1, 0, 2])
    mean = graph.reduce("ReduceSum", graph.apply("Mul", share, means), 1)
    # Law of total variance: within the components, and between their conditional means.
    E = graph.apply("Sub", means, graph.insert_axis(mean, 1))
    spread = graph.apply("Add", graph.apply("Mul", E, E), np.diagonal(model.covariance, axis1=1, axis2=2))
    variance = graph.reduce("ReduceSum", graph.apply("Mul", share, spread), 1)
    # Columns that are looked at keep their values; the others may hold NaN, which no product would take away.
    places, is_gap = np.eye(D)[missing], graph.constant(np.isin(np.arange(D), missing), np.bool_)
    kept = graph.apply("Where", is_gap, 0.0, "X")
    graph.output("filled", graph.apply("Add", kept, graph.apply("MatMul", mean, places)), D)
    graph.output("std", graph.apply("MatMul", graph.apply("Sqrt", variance), places), D)
