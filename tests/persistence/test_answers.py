"""Answers of a model file: read without the model, refused when they do not fit."""

import numpy as np
import pytest

from everlearn import IncrementalGaussianMixture, OnlinePPCA, dumps, loads, save
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


@pytest.mark.parametrize("model", [IncrementalGaussianMixture(), OnlinePPCA(1).fit(X)], ids=["unfitted", "no mixture"])
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
    with pytest.raises(ModelFileError, match="Answers is a int"):
        load_answers(tmp_path / "m.evl")
