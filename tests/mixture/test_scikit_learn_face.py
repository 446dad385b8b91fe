"""What a user of scikit-learn types in the first minute."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline

import everlearn
from everlearn import IncrementalGaussianMixture
from everlearn.errors import InputError

rng = np.random.default_rng(0)
GROUPS = rng.integers(3, size=600)
X = rng.normal(size=(600, 2)) + 9.0 * GROUPS[:, None] * [1.0, 0.0]
TABLE = pd.DataFrame(X, columns=["rpm", "torque"])


@pytest.fixture(scope="module")
def model():
    return IncrementalGaussianMixture(3, random_state=0).fit(TABLE)


def test_fit_predict(model):
    labels = IncrementalGaussianMixture(3).fit_predict(TABLE)
    assert adjusted_rand_score(GROUPS, labels) == 1.0
    np.testing.assert_array_equal(labels, model.predict(TABLE))


def test_transform_gives_responsibilities(model):
    np.testing.assert_array_equal(model.transform(TABLE), model.predict_proba(TABLE))
    assert list(model.get_feature_names_out()) == [f"incrementalgaussianmixture{k}" for k in range(3)]
    classifier = make_pipeline(IncrementalGaussianMixture(3), LogisticRegression()).fit(X, GROUPS == 1)
    assert classifier.score(X, GROUPS == 1) == 1.0


def test_set_output():
    model = IncrementalGaussianMixture(3).set_output(transform="pandas")
    shares = model.fit_transform(TABLE)
    assert isinstance(shares, pd.DataFrame)
    assert list(shares.columns) == list(model.get_feature_names_out())


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
def test_impute_keeps_the_data_frame(model, make):
    columns = {"rpm": [np.nan, 9.0], "torque": [1.0, 2.0]}
    table = make(columns)
    filled, std = model.impute(table, return_std=True)
    values = model.impute(np.array([[np.nan, 1.0], [9.0, 2.0]]))
    assert isinstance(values, np.ndarray)
    for answer in (filled, std):
        assert type(answer) is type(table)
        assert list(getattr(answer, "column_names", None) or answer.columns) == ["rpm", "torque"]
    np.testing.assert_array_equal(np.column_stack([np.asarray(filled["rpm"]), np.asarray(filled["torque"])]), values)


def test_sample_takes_a_random_state(model):
    rows, labels = model.sample(5, random_state=7)
    again, _ = model.sample(5, random_state=7)
    other, _ = model.sample(5, random_state=8)
    np.testing.assert_array_equal(rows, again)
    assert rows.shape == (5, 2)
    assert labels.shape == (5,)
    assert not np.array_equal(rows, other)
    np.testing.assert_array_equal(model.sample(5)[0], model.sample(5, random_state=0)[0])


def test_predict_by_mode_gives_clusters_that_are_no_gaussians_one_number():
    rng = np.random.default_rng(1)
    group = rng.integers(2, size=1000)
    skewed = np.column_stack([rng.gamma(2.0, size=1000) + 30.0 * group, rng.normal(size=1000)])
    model = IncrementalGaussianMixture().fit(skewed)
    modes, components = model.predict(skewed, by="mode"), model.predict(skewed)
    assert len(np.unique(components)) > 2
    assert adjusted_rand_score(group, modes) == 1.0
    assert set(modes) == {0, 1}
    assert len(everlearn.modes(model).points) == 2


def test_by_is_checked(model):
    with pytest.raises(InputError, match="by must be 'component' or 'mode'; got 'modes'"):
        model.predict(X, by="modes")
