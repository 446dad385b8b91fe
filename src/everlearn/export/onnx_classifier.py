"""The class probabilities of a classifier as an ONNX graph: its experts, and their weighted opinions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from everlearn.base.columns import Indices
from everlearn.base.conditioning import LIMIT
from everlearn.export.onnx_operators import Graph
from everlearn.gaussian.gaussian import LOG_2PI, whiten
from everlearn.mixture.experts import TEMPERATURES, GaussianExpert, KernelExpert


def classifier_graph(model: Any, observed: Indices) -> Graph:
    """A graph whose output `probabilities` is that of `predict_proba` for rows that lack all but some columns."""
    weighed, experts = model._current_experts()
    log_prior, graph, n_classes = model._log_prior(), Graph(), len(model.classes_)
    units = weighed.units
    x = graph.columns("X", observed) if len(observed) < model.n_features_in_ else "X"
    scaled = graph.apply("Div", graph.apply("Sub", x, units.centre[observed]), units.scale[observed])
    z = graph.apply("Min", graph.apply("Max", scaled, -LIMIT), LIMIT)
    densities = [_gaussian_densities(graph, z, expert, observed, n_classes) for expert in experts.gaussians]
    densities.append(_kernel_densities(graph, z, experts.kernels, observed, n_classes))
    # The last opinion is the class frequency alone; the others are each expert at each temperature.
    total = graph.constant(weighed.weights[-1] * np.exp(log_prior))
    for number, density in enumerate(densities):
        for place, temperature in enumerate(TEMPERATURES):
            tempered = graph.apply("Add", graph.apply("Mul", density, temperature), log_prior)
            weight = weighed.weights[number * len(TEMPERATURES) + place]
            opinion = graph.apply("Mul", graph.apply("Softmax", tempered, axis=1), weight)
            total = graph.apply("Add", total, opinion)
    graph.output("probabilities", total, n_classes)
    return graph


def facts_of_classes(model: Any) -> dict[str, str]:
    """The labels, in the order of the probabilities."""
    return {"classes": json.dumps(model.classes_.tolist())}


def _gaussian_densities(graph: Graph, z: str, expert: GaussianExpert, observed: Indices, n_classes: int) -> str:
    """Log-density of each row under each class by an expert's Gaussians, (n, n_classes)."""
    diagonal = expert.covariances.ndim == 2
    part = expert.covariances[:, observed] if diagonal else expert.covariances[:, observed[:, None], observed]
    matrix, log_det = whiten(part, diagonal=diagonal)
    deviations = graph.apply("Sub", graph.insert_axis(z, 0), expert.means[:, None, observed])
    whitened = graph.apply("Mul" if diagonal else "MatMul", deviations, matrix[:, None, :] if diagonal else matrix)
    d2 = graph.apply("Transpose", graph.reduce("ReduceSum", graph.apply("Mul", whitened, whitened), 2), perm=[1, 0])
    totals = np.bincount(expert.classes, expert.counts, minlength=n_classes)
    heights = np.log(expert.counts / totals[expert.classes]) - 0.5 * (log_det + len(observed) * LOG_2PI)
    joint = graph.apply("Sub", heights, graph.apply("Mul", d2, 0.5))
    return _sums_by_class(graph, joint, expert.classes, n_classes)


def _kernel_densities(graph: Graph, z: str, expert: KernelExpert, observed: Indices, n_classes: int) -> str:
    """The same by narrow Gaussians on sampled rows: three matrix products, as in `experts.kernel_log_densities`."""
    if not len(expert.classes):
        return graph.constant(np.zeros((1, n_classes)))
    means, variances = expert.means[:, observed], expert.variances[:, observed]
    precision = 1.0 / variances
    weighted = means * precision
    squares = graph.apply("MatMul", graph.apply("Mul", z, z), precision.T)
    products = graph.apply("MatMul", z, 2.0 * weighted.T)
    d2 = graph.apply("Add", graph.apply("Sub", squares, products), (weighted * means).sum(axis=1))
    heights = expert.log_weights - 0.5 * (np.log(variances).sum(axis=1) + len(observed) * LOG_2PI)
    joint = graph.apply("Sub", heights, graph.apply("Mul", graph.apply("Max", d2, 0.0), 0.5))
    return _sums_by_class(graph, joint, expert.classes, n_classes)


def _sums_by_class(graph: Graph, joint: str, classes: Indices, n_classes: int) -> str:
    """log sum exp over the entries of each class; -inf for a class that has none."""
    columns = []
    for c in range(n_classes):
        mine = np.flatnonzero(classes == c)
        if len(mine):
            columns.append(graph.insert_axis(graph.log_sum_exp(graph.columns(joint, mine)), 1))
        else:
            # A column of -inf with as many rows as X has, which only the runtime knows.
            first = graph.columns(joint, [0])
            columns.append(graph.apply("Sub", graph.apply("Mul", first, 0.0), np.inf))
    return graph.apply("Concat", *columns, axis=1)
