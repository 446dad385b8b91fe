"""Answers of a model file: read without the model, refused when they do not fit."""

import numpy as np
import pytest

from everlearn import (
    FIGMN,
    AnomalyDetector,
    IncrementalGaussianMixture,
    IncrementalGaussianMixtureRegressor,
    OnlinePPCA,
    dumps,
    loads,
    save,
)
from everlearn.errors import ModelFileError
from everlearn.persistence.model_file import load_answers
from model_files import parts, rebuilt, tensor_of

X = np.random.default_rng(0).normal(size=(300, 3)) + 8.0 * np.random.default_rng(1).integers(2, size=(300, 1))


@pytest.fixture(scope="module")
def model():
    return IncrementalGaussianMixture(random_state=3).fit(X)


@pytest.fixture(scope="module")
def data(model):
    return dumps(model, answers=True)


def test_answers_stand_beside_the_model_and_leave_it_as_it_is(model, data, tmp_path):
    assert dumps(loads(data)) == dumps(model)
    save(model, tmp_path / "m.evl", answers=True)
    assert parts((tmp_path / "m.evl").read_bytes())[0]["digest"] == parts(data)[0]["digest"]
    answers = load_answers(tmp_path / "m.evl")
    assert (answers.model, answers.parameters, answers.n_rows) == ("IncrementalGaussianMixture", "random_state=3", 300)
    assert answers.names is None


NOTHING = np.full((4, 3), np.nan)


@pytest.mark.parametrize(
    "model",
    [
        IncrementalGaussianMixture(),
        OnlinePPCA(1),
        FIGMN().partial_fit(NOTHING),
        OnlinePPCA(1).partial_fit(NOTHING),
        AnomalyDetector().partial_fit(X[:3]),
    ],
    ids=["unfitted", "unfitted PPCA", "no component", "no row to begin with", "no mixture yet"],
)
def test_models_without_answers(model, tmp_path):
    save(model, tmp_path / "m.evl", answers=True)
    assert parts((tmp_path / "m.evl").read_bytes())[0]["digest"] == parts(dumps(model))[0]["digest"]
    assert load_answers(tmp_path / "m.evl") is None


def test_damage_is_noticed(data, tmp_path):
    content, tensors = parts(data)
    where = data.index(tensors[tensor_of(content["answers"]["fields"]["means"], tensors)].tobytes())
    (tmp_path / "m.evl").write_bytes(data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :])
    with pytest.raises(ModelFileError, match="damaged"):
        load_answers(tmp_path / "m.evl")


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("weights", lambda a: -a, "negative"),
        ("means", lambda a: a * np.nan, "not finite"),
        ("means", lambda a: a[:, :-1].copy(), "not expected there"),
        ("covariances", lambda a: -a, "not positive"),
        ("scale", lambda a: 0 * a, "not positive"),
        ("shown", lambda a: a + 100, "shows no component"),
        ("shown", lambda a: a[:0], "shows no component"),
    ],
)
def test_answers_that_cannot_be_are_refused(data, tmp_path, field, change, message):
    content, tensors = parts(data)
    name = tensor_of(content["answers"]["fields"][field], tensors)
    tensors[name] = change(tensors[name])
    hostile = rebuilt(content, tensors)
    (tmp_path / "m.evl").write_bytes(hostile)
    with pytest.raises(ModelFileError, match=message):
        load_answers(tmp_path / "m.evl")
    with pytest.raises(ModelFileError, match=message):
        loads(hostile)


def test_something_else_in_their_place_is_refused(data, tmp_path):
    content, tensors = parts(data)
    content["answers"] = 7
    (tmp_path / "m.evl").write_bytes(rebuilt(content, tensors))
    with pytest.raises(ModelFileError, match="answers are a int"):
        load_answers(tmp_path / "m.evl")


def test_answers_that_a_reader_would_refuse_are_left_out(model, monkeypatch):
    """The file would be refused with them, and the model be lost."""
    broken = model._answers()
    monkeypatch.setattr(type(model), "_answers", lambda self: broken._replace(scale=0.0 * broken.scale))
    data = dumps(model, answers=True)
    assert "answers" not in parts(data)[0]
    assert loads(data).n_samples_seen_ == 300


# -- answers of other models --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def others():
    detector = AnomalyDetector(grace_period=50).fit(np.vstack([X, X[:1] + 50.0]))
    regressor = IncrementalGaussianMixtureRegressor().fit(X[:, 1:], X[:, 0])
    models = {"ppca": OnlinePPCA(1).fit(X), "detector": detector, "regressor": regressor}
    return {name: dumps(model, answers=True) for name, model in models.items()}


@pytest.mark.parametrize("name", ["ppca", "detector", "regressor"])
def test_they_leave_the_model_as_it_is(others, name):
    data = others[name]
    assert dumps(loads(data), answers=True) == data


def of_fields(change):
    return lambda fields, tensors: change(fields)


def of_array(field, change):
    def apply(fields, tensors):
        node = fields[field]
        if node["kind"] == "few":
            array = np.array(node["items"]).reshape(node.get("shape", [-1]))
            fields[field] = node | {"items": change(array).ravel().tolist()}
        else:
            tensors[tensor_of(node, tensors)] = change(tensors[tensor_of(node, tensors)])

    return apply


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("ppca", of_array("noise", np.negative), "not positive"),
        ("ppca", of_array("weights", np.zeros_like), "no weight"),
        ("ppca", of_array("shares", np.negative), "negative"),
        ("ppca", of_fields(lambda f: f.update(shares=None)), "without shares"),
        ("ppca", of_fields(lambda f: f.update(names={"kind": "tuple", "items": ["a"]})), "other columns than names"),
        ("detector", of_array("columns", lambda a: a + 100), "columns that it does not have"),
        ("detector", of_array("columns", lambda a: a - 100), "columns that it does not have"),
        ("detector", of_fields(lambda f: f.update(false_alarm_rate=0.0)), "not positive"),
        ("detector", of_fields(lambda f: f.update(mixture=None)), "missing"),
        ("regressor", of_fields(lambda f: f.update(n_components=-1)), "no count"),
    ],
)
def test_other_answers_that_cannot_be_are_refused(others, name, change, message):
    content, tensors = parts(others[name])
    change(content["answers"]["fields"], tensors)
    with pytest.raises(ModelFileError, match=message):
        loads(rebuilt(content, tensors))
