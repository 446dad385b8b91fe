"""Numbers at the ends of floating point, tables of any sort, and models that are copied, pickled, forked and shared."""

import copy
import os
import pickle
import threading
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from everlearn import IncrementalGaussianMixture, OnlinePPCA, VariationalPPCA
from everlearn.errors import EverlearnError
from everlearn.persistence.model_file import dumps, loads

MODELS = (IncrementalGaussianMixture, OnlinePPCA, VariationalPPCA)
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(120, 2))
SIGNS = np.where(np.arange(120)[:, None] % 2, 1.0, -1.0)
STREAMS = {
    "1e300": Z * 1e300,
    "1e-300": Z * 1e-300,
    "denormal": Z * 5e-320,
    "1e154": Z * 1e154,
    "both ends": Z * [1e300, 1e-300],
    "the largest": np.full((60, 2), 1.79e308),
    "the largest, of both signs": SIGNS * np.full((1, 2), 1.79e308),
    "taking turns": np.where(SIGNS > 0, 1e200, 1e-200) * Z,
    "constant": np.ones((120, 3)),
    "zero": np.zeros((120, 3)),
    "the same column five times": np.repeat(Z[:, :1], 5, axis=1),
    "one column": Z[:, :1],
    "2**53": 2.0**53 - RNG.integers(0, 3, size=(120, 2)),
    "far from zero": 1e15 + Z,
    "one row many times": np.tile([[1.0, 2.0]], (5000, 1)),
    "a column never observed": np.c_[Z[:, 0], np.full(120, np.nan)],
    "one row": np.array([[1.0, 2.0]]),
}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
@pytest.mark.parametrize("name", STREAMS)
def test_any_numbers_give_finite_answers(model, name):
    X = STREAMS[name]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        learned = (model(1) if name == "one column" else model()).partial_fit(X[:60])
        learned.partial_fit(X[60:] if len(X) > 60 else X)
        scores = learned.score_samples(X[:10])
        assert np.isfinite(scores).all()
        assert np.array_equal(loads(dumps(learned)).score_samples(X[:10]), scores)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_rows_without_any_value_give_no_answer(model):
    learned = model().partial_fit(np.full((60, 2), np.nan))
    with pytest.raises(EverlearnError, match="every row so far was NaN"):
        learned.score_samples(Z[:3])


FRAME = pd.DataFrame({"a": Z[:, 0], "b": Z[:, 1]})
ODD = {
    "long double": (Z.astype(np.longdouble), True),
    "complex": (Z.astype(complex), False),
    "bool": (Z > 0, True),
    "objects": (Z.astype(object), True),
    "sparse": (sparse.csr_matrix(Z), False),
    "other byte order": (Z.astype(">f8"), True),
    "half": (Z.astype("f2"), True),
    "the largest integers": (np.full((60, 2), 2**64 - 1, np.uint64), True),
    "read-only": (np.frombuffer(Z.tobytes()).reshape(Z.shape), True),
    "by columns": (np.asfortranarray(Z), True),
    "backwards": (Z[::-1, ::-1], True),
    "no rows": (Z[:0], False),
    "no columns": (Z[:, :0], False),
    "a vector": (Z[0], False),
    "three dimensions": (Z[None], False),
    "infinity": (np.where(Z > 2, np.inf, Z), False),
    "ragged": ([[1, 2], [3]], False),
    "nothing": (None, False),
    "text": ("abc", False),
    "dates": (np.zeros((3, 2), "M8[s]"), False),
    "400 digits": ([[10**400, 1]], False),
    "two columns of one name": (pd.DataFrame(Z, columns=["a", "a"]), False),
    "categories": (pd.DataFrame({"a": pd.Categorical(["x", "y"] * 10), "b": range(20)}), False),
    "nullable": (pd.DataFrame({"a": pd.array([1, None, 3] * 10, dtype="Int64"), "b": range(30)}), True),
    "names of two kinds": (FRAME.rename(columns={"a": 1}), False),
}


@pytest.mark.parametrize("name", ODD)
def test_tables_of_any_sort_are_taken_or_refused(name):
    table, taken = ODD[name]
    model = IncrementalGaussianMixture()
    if taken:
        model.partial_fit(table)
        assert model.n_samples_seen_ == len(table)
        return
    # TypeError is what scikit-learn's own checks ask for, for sparse tables and names.
    with pytest.raises((EverlearnError, TypeError)):
        model.partial_fit(table)
    assert not model._is_started()


def test_copies_answer_alike(tmp_path):
    model = IncrementalGaussianMixture().partial_fit(np.tile(Z, (3, 1)))
    joblib.dump(model, tmp_path / "model.joblib")
    copies = pickle.loads(pickle.dumps(model)), copy.deepcopy(model), joblib.load(tmp_path / "model.joblib")
    for each in (*copies, model.copy(), loads(dumps(model))):
        assert np.array_equal(each.score_samples(Z), model.score_samples(Z))
        assert dumps(each.partial_fit(Z)) == dumps(model.copy().partial_fit(Z))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_goes_on_learning():
    model = OnlinePPCA(1).partial_fit(Z)
    child = os.fork()
    if child == 0:
        try:
            model.partial_fit(Z)
            os._exit(0 if model.n_samples_seen_ == 240 and np.isfinite(model.score_samples(Z)).all() else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert model.n_samples_seen_ == 120


@pytest.mark.parametrize("kind", [IncrementalGaussianMixture, OnlinePPCA])
def test_copies_are_asked_while_the_model_learns(kind):
    """One model is for one thread; a copy of it is for another."""
    model = kind().partial_fit(np.tile(Z, (3, 1)))
    asked, wrong = model.copy(), []
    expected = asked.score_samples(Z)

    def ask():
        for _ in range(30):
            if not np.array_equal(asked.score_samples(Z), expected):
                wrong.append(1)

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(30):
        model.partial_fit(Z)
    thread.join()
    assert not wrong
    assert model.n_samples_seen_ == 360 + 30 * 120
