"""Bad input names the argument, what was given and what to do, and leaves the model exactly as it was."""

import copy

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from everlearn import IncrementalGaussianMixture
from everlearn.base.estimator import as_rows, check_weights
from everlearn.errors import EverlearnError, InputError
from everlearn.persistence.model_file import dumps
from toys import RunningNormal

NAMES = ["temp", "rpm", "load"]
ROWS = np.random.default_rng(0).normal(size=(300, 3))


@pytest.fixture(params=[RunningNormal, IncrementalGaussianMixture], scope="module")
def learned(request):
    """A model that has learned named columns; tests compare it with what it was."""
    return request.param().fit(pd.DataFrame(ROWS, columns=NAMES))


def refused(model, message, *arguments, method="partial_fit", error=ValueError, **options):
    """The call fails with the message, and the model is the same to the last bit."""
    before = dumps(model)
    with pytest.raises(error, match=message) as caught:
        getattr(model, method)(*arguments, **options)
    assert dumps(model) == before
    return caught.value


def with_cell(row, column, value, dtype=float):
    X = ROWS[:10].astype(dtype)
    X[row, column] = value
    return X


TABLES = {
    "infinity": (with_cell(4, 1, np.inf), r"infinity at row 4, column 'rpm'.*accepts finite numbers.*Remove the row"),
    "negative infinity": (with_cell(0, 2, -np.inf), r"infinity at row 0, column 'load'"),
    "text": (with_cell(7, 0, "high", object), r"'high' at row 7, column 0.*not a number.*Leave the column out"),
    "complex": (ROWS[:10] * 1j, r"not a number \(Complex data not supported\)\. Leave"),
    "too few columns": (ROWS[:10, :2], "2 features.*expecting 3"),
    "too many columns": (np.hstack([ROWS, ROWS])[:10], "6 features.*expecting 3"),
    "no rows": (ROWS[:0], "Input X .*0 sample"),
    "empty frame": (pd.DataFrame(), "Input X .*a data frame of 0 rows and 0 columns|feature names"),
    "vector": (ROWS[0], "Input X .*Expected 2D array, got 1D"),
    "number": (1.0, "Input X .*Expected 2D array, got scalar"),
    "three axes": (ROWS[None], "Input X .*dim 3"),
    "nothing": (None, "Input X|NoneType"),
    "words": (["a", "b"], "Input X|2D"),
    "ragged": ([[1.0, 2.0, 3.0], [1.0]], "Input X|inhomogeneous"),
}


@pytest.mark.parametrize(("X", "message"), TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("method", ["partial_fit", "score_samples"])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_tables(learned, X, message, method):
    refused(learned, f"(?s){message}", X, method=method)


@pytest.mark.parametrize("name", [name for name in TABLES if "columns" not in name])
def test_tables_to_fit(learned, name):
    """`fit` takes any number of columns, and forgets their names."""
    X, message = TABLES[name]
    refused(learned, "(?s)" + message.replace("'rpm'", "1").replace("'load'", "2"), X, method="fit")


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
def test_cells_of_tables_are_named(learned, table):
    def columns(X):
        return table(dict(zip(NAMES, X.T.tolist(), strict=True)))

    refused(learned, "infinity at row 4, column 'rpm'", columns(with_cell(4, 1, np.inf)))
    fresh = RunningNormal()
    with pytest.raises(InputError, match="infinity at row 4, column 'rpm'"):
        fresh.partial_fit(columns(with_cell(4, 1, np.inf)))
    assert not fresh._is_started()


def test_text_in_a_named_column(learned):
    frame = pd.DataFrame(ROWS[:10], columns=NAMES).astype({"load": object})
    frame.loc[3, "load"] = "low"
    refused(learned, "'low' at row 3, column 'load'.*is not a number", frame)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["rpm", "temp", "load"], "same order"),
        (["temp", "rpm", "Load"], "(?s)unseen at fit time.*Load"),
        (["temp", "rpm", "x"], "(?s)seen at fit time, yet now missing.*load"),
    ],
)
@pytest.mark.parametrize("method", ["partial_fit", "score_samples"])
def test_renamed_and_reordered_columns(learned, names, message, method):
    refused(learned, message, pd.DataFrame(ROWS, columns=names), method=method)


def test_gaps():
    holes = with_cell(2, 1, np.nan)
    refused(RunningNormal().fit(ROWS), "NaN at row 2, column 1.*accepts finite numbers", holes)
    model = IncrementalGaussianMixture().fit(ROWS)
    refused(model, "accepts finite numbers, or NaN for a value that was not observed", with_cell(0, 0, np.inf))
    assert model.partial_fit(holes).n_samples_seen_ == 310


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] + [-1.0] * 9, "sample_weight must be finite, not negative.*row 1 has .*-1.0.*Give weight 0"),
        ([1e200] * 10, "at most 1e\\+100"),
        ([1.0] * 9 + [-2.0], "row 9 has .*-2.0"),
        ([1.0, np.nan] * 5, "row 1 has .*nan"),
        ([1.0, np.inf] * 5, "row 1 has .*inf"),
        ([1.0] * 9, r"sample_weight has shape \(9,\); X has 10 rows"),
        (np.ones((10, 1)), r"shape \(10, 1\)"),
        (["a"] * 10, "sample_weight must hold one number per row"),
        ([1j] * 10, "sample_weight must hold one number per row"),
        (-1.0, "not negative"),
    ],
)
@pytest.mark.parametrize("method", ["partial_fit", "fit"])
def test_weights(learned, weights, message, method):
    error = refused(learned, message, ROWS[:10], method=method, sample_weight=weights)
    assert isinstance(error, InputError)


def test_good_weights():
    np.testing.assert_array_equal(check_weights(2, 3), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(check_weights(np.array([1, 2], dtype=object), 2), [1.0, 2.0])
    np.testing.assert_array_equal(check_weights(pd.Series([1, 2], index=[5, 6]), 2), [1.0, 2.0])


PARAMETERS = {
    "n_components": [0, -1, 2.5, "many"],
    "scale": ["big", [1.0, 2.0], [1.0, -1.0, 1.0], [1.0, np.inf, 1.0], 0.0],
    "reservoir": [-1, 2.5, "long"],
    "max_components": [0, -3, 1.5],
    "covariance_type": ["tied", None],
    "novelty_level": [0.0, 1.0, "rare"],
    "forgetting": [-0.5, 1.5, "fast"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in PARAMETERS.items() for value in values])
def test_parameters(name, value):
    model = IncrementalGaussianMixture(**{name: value})
    before = copy.deepcopy(vars(model))
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=name):
            getattr(model, method)(ROWS)
        assert list(vars(model)) == list(before)


def test_parameters_are_checked_at_the_first_row():
    """Not when the warm-up ends, some hundred rows later."""
    for name, values in PARAMETERS.items():
        with pytest.raises(ValueError, match=name):
            IncrementalGaussianMixture(**{name: values[0]}).partial_fit(ROWS[:1])


def test_a_model_that_has_learned_nothing():
    for method in ("score_samples", "predict", "p_value"):
        with pytest.raises(ValueError, match="not fitted yet"):
            getattr(IncrementalGaussianMixture(), method)(ROWS)
    for attribute in ("means_", "events_", "n_components_"):
        assert not hasattr(IncrementalGaussianMixture(), attribute)


def test_a_failing_fit_keeps_what_was_learned(learned):
    """`fit` forgets only when the new data can be learned."""
    refused(learned, "infinity", with_cell(9, 2, np.inf), method="fit")
    assert learned.score_samples(ROWS).shape == (300,)


def test_merging_what_does_not_belong_together(learned):
    other = type(learned)().fit(ROWS)
    refused(learned, "column names: temp, rpm, load and none", other, method="merge")
    refused(learned, "3 and 2 columns", type(learned)().fit(ROWS[:, :2]), method="merge")
    stranger = IncrementalGaussianMixture if isinstance(learned, RunningNormal) else RunningNormal
    refused(learned, "cannot be merged with", stranger().fit(ROWS), method="merge")


def test_every_error_of_ours_has_one_root():
    with pytest.raises(EverlearnError):
        as_rows([["a"]])
