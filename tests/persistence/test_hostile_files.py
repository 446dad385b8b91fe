"""Files made to look like models: each of our estimators refuses them or stays within its arrays."""

import contextlib
import copy
import random
import warnings

import numpy as np
import pytest

import everlearn
from everlearn.checks.tools import fresh, learn, make_stream
from everlearn.errors import ModelFileError
from everlearn.persistence import registry
from everlearn.persistence.model_file import dumps, loads
from everlearn.ppca.keep import Every, NaturalConstraint, OnChange
from model_files import parts, rebuilt

PLACES = [place.partition(":")[2] for place in registry.TAGS.values()]
CLASSES = [
    cls for name in PLACES if name in everlearn.__all__ and registry.is_estimator(cls := getattr(everlearn, name))
]  # the others are parts of these
MODES = {
    "IncrementalGaussianMixture": [
        {"forgetting": 0.99, "max_components": 6},
        {"covariance_type": "diag", "reservoir": 50},
    ],
    "IncrementalGaussianMixtureClassifier": [{"covariance_type": "diag", "forgetting": 0.99}],
    "OnlinePPCA": [
        {"constraint": NaturalConstraint(reference=OnChange())},
        {"constraint": NaturalConstraint(reference=Every(7)), "mode": "paper"},
    ],
}
CASES = [(cls, mode) for cls in CLASSES for mode in ({}, *MODES.get(cls.__name__, []))]
VALUES = [
    *(None, True, -1, 0, 7, 2**40, 2**70, -(2**63), 1.5, "x", "", [], {}, [1]),
    {"kind": "tuple", "items": [1]},
    {"kind": "float", "value": "nan"},
    {"kind": "float", "value": "inf"},
    {"kind": "scalar", "type": "F32", "value": 1.0},
]
MUTATIONS = 30


def places(node):
    """Every container and key of a tree."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield node, key
        yield from places(value)


def spoiled(array, rng):
    """An array of another type, shape or content."""
    odd = np.nan if array.dtype.kind == "f" else 1
    large = 1e308 if array.dtype.kind == "f" else np.iinfo(array.dtype).max if array.dtype.kind == "i" else 1
    return rng.choice(
        [
            lambda: array.astype(np.float32),
            lambda: array.reshape(-1),
            lambda: array[..., :0],
            lambda: np.zeros((1,) * array.ndim, array.dtype),
            lambda: np.full(array.shape, odd, array.dtype),
            lambda: np.full(array.shape, -1).astype(array.dtype),
            lambda: np.full(array.shape, large, array.dtype),
        ]
    )()


def mutated(data, rng):
    content, tensors = parts(data)
    if tensors and rng.random() < 0.5:
        name = rng.choice(sorted(tensors))
        tensors[name] = spoiled(tensors[name], rng)
    else:
        node, key = rng.choice(list(places(content["model"])))
        node[key] = copy.deepcopy(rng.choice(VALUES))
    return rebuilt(content, tensors)


def use(model, stream):
    """Ask and teach a model; it may say no."""
    for method in ("score_samples", "predict", "transform", "novelty"):
        if hasattr(model, method):
            yield lambda method=method: getattr(model, method)(stream.X[:3])
    yield lambda: learn(model, stream.part(0, 1))
    yield lambda: learn(model, stream)
    if hasattr(model, "__add__"):
        yield lambda: model + model
    yield lambda: dumps(model)


@pytest.mark.parametrize(("cls", "mode"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
@pytest.mark.parametrize("n_rows", [50, pytest.param(400, marks=pytest.mark.slow)])
def test_hostile_states(cls, mode, n_rows):
    estimator = cls(**mode)
    stream = make_stream(estimator, n_rows)
    data = dumps(learn(fresh(estimator), stream))
    rng, loaded = random.Random(n_rows), 0
    for _ in range(MUTATIONS):
        try:
            model = loads(mutated(data, rng))
        except ModelFileError:
            continue
        loaded += 1
        for call in use(model, stream.part(0, 30)):
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                with contextlib.suppress(ValueError):
                    call()
    assert 0 < loaded < MUTATIONS
