"""ONNX graphs, run: they answer as the models do."""

import json

import numpy as np
import pytest

from everlearn import IncrementalGaussianMixture, IncrementalGaussianMixtureClassifier
from everlearn.errors import InputError
from everlearn.export import to_onnx
from everlearn.export.onnx_operators import Graph

onnxruntime = pytest.importorskip("onnxruntime")


def run(graph, X):
    """Answers of a graph by their names."""
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": X}), strict=True))


def stream(n, D, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) @ (np.eye(D) + 0.5) + 7.0 * rng.integers(2, size=(n, 1))
    return X * 10.0 ** np.arange(D) + 3.0


@pytest.fixture(scope="module", params=[1, 2, 5])
def fitted(request):
    D = request.param
    return IncrementalGaussianMixture(2).fit(stream(600, D)), stream(200, D, seed=1)


def test_complete_rows(fitted):
    model, X = fitted
    X = np.concatenate([X, X[:30] * 50.0])
    found = run(to_onnx(model), X)
    assert model.p_value(X).min() < 1e-8
    np.testing.assert_allclose(found["log_density"], model.score_samples(X), rtol=1e-10)
    np.testing.assert_allclose(found["p_value"], model.p_value(X), rtol=1e-6)
    np.testing.assert_allclose(found["responsibilities"], model.predict_proba(X), atol=1e-10)


def test_gaps_of_a_given_pattern_are_filled(fitted):
    model, X = fitted
    D = X.shape[1]
    if D == 1:
        with pytest.raises(InputError, match="some of the 1 columns"):
            to_onnx(model, gaps=0)
        return
    gaps = [0, D - 1] if D > 2 else [1]
    X = X.copy()
    X[:, gaps] = np.nan
    found, (filled, std) = run(to_onnx(model, gaps=gaps), X), model.impute(X, return_std=True)
    np.testing.assert_allclose(found["filled"], filled, rtol=1e-9)
    np.testing.assert_allclose(found["std"], std, rtol=1e-9)
    np.testing.assert_allclose(found["log_density"], model.score_samples(X), rtol=1e-9)
    np.testing.assert_allclose(found["p_value"], model.p_value(X), rtol=1e-6)


def test_values_in_columns_that_are_gaps_are_not_looked_at():
    model, X = IncrementalGaussianMixture(2).fit(stream(300, 2)), stream(20, 2, seed=1)
    other = X.copy()
    other[:, 1] = 1e9
    graph = to_onnx(model, gaps=[1])
    for name, values in run(graph, X).items():
        np.testing.assert_array_equal(values, run(graph, other)[name])


def test_diagonal_covariances():
    X = stream(600, 3)
    model = IncrementalGaussianMixture(2, covariance_type="diag").fit(X)
    found = run(to_onnx(model), X)
    np.testing.assert_allclose(found["log_density"], model.score_samples(X), rtol=1e-10)


@pytest.mark.parametrize("degrees", [1, 2, 3, 6, 7, 40])
def test_chi_square_tail(degrees):
    from scipy.stats import chi2

    h = np.concatenate([np.linspace(0.0, 3.0, 50), np.geomspace(3.0, 300.0, 50)])[:, None]
    graph = Graph()
    graph.output("tail", graph.chi_square_tail("X", degrees), 1)
    tail = run(graph.finish(1, "", {}), h)["tail"]
    np.testing.assert_allclose(tail, chi2.sf(2.0 * h, degrees), rtol=1e-7)


def test_columns_are_named_in_the_file():
    import pandas as pd

    table = pd.DataFrame(stream(300, 2), columns=["rpm", "torque"])
    graph = to_onnx(IncrementalGaussianMixture(2).fit(table), gaps="torque")
    facts = {entry.key: json.loads(entry.value) for entry in graph.metadata_props}
    assert facts == {"columns": ["rpm", "torque"], "gaps": [1]}
    assert graph.producer_name == "everlearn"


@pytest.fixture(scope="module", params=["full", "diag"])
def classifier(request):
    X = stream(400, 3)
    labels = np.array(["low", "high", "odd"])[(X[:, 0] > 6.0) + (np.abs(X[:, 1] - 60.0) > 60.0).astype(int)]
    model = IncrementalGaussianMixtureClassifier(n_components=2, covariance_type=request.param).fit(X, labels)
    return model.partial_fit(X[:1], labels[:1], classes=["never"])


def test_class_probabilities(classifier):
    X = np.concatenate([stream(100, 3, seed=1), 9.0 * stream(20, 3, seed=2)])
    graph = to_onnx(classifier)
    found = run(graph, X)["probabilities"]
    expected = classifier.predict_proba(X)
    assert expected.max(axis=1).min() < 0.9 < expected.max()
    np.testing.assert_allclose(found, expected, atol=1e-9)
    facts = {entry.key: json.loads(entry.value) for entry in graph.metadata_props}
    assert facts["classes"] == classifier.classes_.tolist()
    assert "never" in facts["classes"]


def test_class_probabilities_without_a_column(classifier):
    X = stream(100, 3, seed=1)
    X[:, 1] = np.nan
    np.testing.assert_allclose(
        run(to_onnx(classifier, gaps=1), X)["probabilities"], classifier.predict_proba(X), atol=1e-9
    )
