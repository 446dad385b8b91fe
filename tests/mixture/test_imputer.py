"""StreamImputer in scikit-learn's pipelines: it fills as its model does, keeps data frames and goes on learning."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from everlearn import IncrementalGaussianMixture, OnlinePPCA, StreamImputer, dumps, load, loads, merge
from everlearn.errors import InputError, MergeError, ModelFileError
from model_files import parts, rebuilt

NAMES = ["inlet", "middle", "outlet"]


def stream(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1)) + 0.2 * rng.normal(size=(n, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


X = stream()
TABLE = pd.DataFrame(X, columns=NAMES, index=np.arange(400) * 10)
ONE = IncrementalGaussianMixture(1)


def test_it_fills_as_its_model_does_and_goes_on_learning():
    imputer = StreamImputer(ONE).partial_fit(X[:200]).partial_fit(X[200:])
    model = IncrementalGaussianMixture(1).partial_fit(X)
    np.testing.assert_allclose(imputer.transform(X), model.impute(X))
    assert imputer.model_.n_samples_seen_ == 400
    assert imputer.fit(X[:100]).model_.n_samples_seen_ == 100
    assert ONE.__dict__.get("n_features_in_") is None  # the model that was given has not learned


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_a_data_frame_stays_one(kind):
    table = TABLE if kind is pd.DataFrame else pl.DataFrame(X, schema=NAMES, orient="row")
    filled = StreamImputer(ONE).fit_transform(table)
    assert type(filled) is kind
    assert list(filled.columns) == NAMES
    assert not np.isnan(filled.to_numpy()).any()
    if kind is pd.DataFrame:
        assert (filled.index == TABLE.index).all()


@pytest.mark.parametrize(("asked", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_set_output(asked, kind):
    imputer = StreamImputer(ONE).set_output(transform=asked)
    for rows in (X, TABLE):
        assert type(imputer.fit_transform(rows)) is kind
    assert list(imputer.get_feature_names_out()) == NAMES


def test_in_a_pipeline_and_in_a_column_transformer():
    seen = ~np.isnan(X).all(axis=1)
    y = np.full(len(X), np.nan)
    y[seen] = np.nanmean(X[seen], axis=1)
    model = make_pipeline(StandardScaler(), StreamImputer(ONE), LinearRegression()).fit(TABLE[seen], y[seen])
    assert model.score(TABLE[seen], y[seen]) > 0.9
    some = ColumnTransformer([("fill", StreamImputer(ONE), ["inlet", "outlet"])], remainder="passthrough")
    filled = some.set_output(transform="pandas").fit_transform(TABLE)
    assert list(filled.columns) == ["fill__inlet", "fill__outlet", "remainder__middle"]
    assert not filled[["fill__inlet", "fill__outlet"]].isna().any(axis=None)


def test_other_models_fill_too():
    filled = StreamImputer(OnlinePPCA(1)).fit(TABLE).transform(TABLE)
    np.testing.assert_allclose(filled.to_numpy()[~np.isnan(X)], X[~np.isnan(X)])
    assert list(filled.columns) == NAMES


def test_scikit_learn_knows_it():
    imputer = StreamImputer(ONE)
    with pytest.raises(NotFittedError):
        imputer.transform(X)
    twin = clone(imputer.fit(TABLE))
    assert not hasattr(twin, "model_")
    assert twin.get_params()["model__n_components"] == 1
    assert imputer.__sklearn_tags__().input_tags.allow_nan
    imputer.fit(X)
    assert not hasattr(imputer, "feature_names_in_")


def test_weights_go_to_models_that_take_them():
    weights = np.arange(400) % 3
    filled = StreamImputer(ONE).fit(X, sample_weight=weights).transform(X)
    np.testing.assert_array_equal(filled, IncrementalGaussianMixture(1).fit(X, sample_weight=weights).impute(X))
    with pytest.raises(InputError, match="OnlinePPCA takes no weights"):
        StreamImputer(OnlinePPCA(1)).fit(X, sample_weight=weights)


def test_a_model_that_fills_nothing_is_refused():
    with pytest.raises(InputError, match="has no partial_fit and no impute"):
        StreamImputer(LinearRegression()).fit(X)


@parametrize_with_checks([StreamImputer(ONE)])
def test_passes_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("table", [X, TABLE], ids=["array", "data frame"])
def test_a_file_of_it_fills_and_goes_on_learning_as_it_does(tmp_path, table):
    imputer = StreamImputer(ONE).fit(table[:200])
    imputer.save(tmp_path / "i.evl")
    again = load(tmp_path / "i.evl")
    assert type(again) is StreamImputer
    assert again.get_params()["model__n_components"] == 1
    np.testing.assert_array_equal(again.transform(table), imputer.transform(table))
    assert dumps(again.partial_fit(table[200:])) == dumps(imputer.partial_fit(table[200:]))
    assert not hasattr(loads(dumps(StreamImputer())), "model_")


def test_files_that_do_not_fit_are_refused():
    content, tensors = parts(dumps(StreamImputer(ONE).fit(X)))
    fitted = content["model"]["fitted"]
    fitted["n_features_in_"] = 2
    with pytest.raises(ModelFileError, match="different columns"):
        loads(rebuilt(content, tensors))
    del fitted["model_"]
    with pytest.raises(ModelFileError, match="no model that fills gaps"):
        loads(rebuilt(content, {}))


def test_a_foreign_model_cannot_be_saved():
    class Foreign(OnlinePPCA):
        pass

    with pytest.raises(InputError, match="cannot be saved"):
        dumps(StreamImputer(Foreign(1)).fit(X))


@pytest.mark.parametrize("method", ["auto", "mode"])
def test_merged_imputers_fill_as_their_merged_models_do(method):
    parts = [StreamImputer(ONE).fit(TABLE[start : start + 100]) for start in range(0, 400, 100)]
    merged = merge(parts, method=method)
    model = merge([part.model_ for part in parts], method=method)
    np.testing.assert_array_equal(merged.transform(X), model.impute(X))
    assert merged.n_samples_seen_ == 400
    assert list(merged.feature_names_in_) == NAMES
    assert all(part.n_samples_seen_ == 100 for part in parts)
    assert merge(iter(parts), method=method).n_samples_seen_ == 400
    assert merged.partial_fit(TABLE[:10]).n_samples_seen_ == 410


def test_an_imputer_that_learned_nothing_adds_nothing_to_a_merge():
    fitted = StreamImputer(ONE).fit(X)
    np.testing.assert_array_equal(StreamImputer(ONE).merge(fitted).transform(X), fitted.transform(X))
    with pytest.raises(NotFittedError):
        StreamImputer().merge(StreamImputer()).transform(X)


def test_imputers_are_merged_with_imputers_only():
    with pytest.raises(MergeError, match="with IncrementalGaussianMixture"):
        StreamImputer(ONE).fit(X).merge(ONE)
    with pytest.raises(MergeError, match="IncrementalGaussianMixture cannot be merged with OnlinePPCA"):
        StreamImputer(ONE).fit(X).merge(StreamImputer(OnlinePPCA(1)).fit(X))


def test_a_model_without_merge_is_named():
    class Mean(BaseEstimator):
        def partial_fit(self, X):
            self.n_features_in_ = X.shape[1]
            return self

        def impute(self, X):
            return np.nan_to_num(X)

    imputer = StreamImputer(Mean()).partial_fit(X)
    with pytest.raises(MergeError, match="Mean, has no merge"):
        imputer.merge(imputer)
