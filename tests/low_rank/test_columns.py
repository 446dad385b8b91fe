"""Low-rank mixtures over other columns: in another order, and with columns that their rows never had."""

import numpy as np
import pytest

from everlearn import IncrementalGaussianMixture
from everlearn.errors import MergeError
from everlearn.low_rank.columns import with_rank
from low_rank_toys import one

pd = pytest.importorskip("pandas")
D = 60
NAMES = [f"c{i}" for i in range(D)]


def learned(X, names, **parameters):
    model = IncrementalGaussianMixture(covariance_type="low_rank", **parameters)
    return model.fit(pd.DataFrame(X, columns=NAMES)[names])


def frame(X, names=NAMES):
    return pd.DataFrame(X, columns=NAMES)[list(names)]


@pytest.fixture(scope="module")
def rows():
    """One Gaussian of rank 3: 600 rows to learn, 300 to ask about."""
    X = one(np.random.default_rng(0), 900, D)
    return X[:600], X[600:]


def test_the_order_of_the_columns_does_not_matter(rows):
    X, T = rows
    turned, again = learned(X[300:], NAMES[::-1]), NAMES[::2] + NAMES[1::2]
    back = turned._over_columns(again, [])
    expected = turned.score_samples(frame(T, NAMES[::-1]))
    np.testing.assert_allclose(back.score_samples(frame(T, again)), expected, rtol=1e-9)
    first = learned(X[:300], NAMES)
    merged = first.merge(turned)
    assert list(merged.feature_names_in_) == NAMES
    # Not to the last digit: models of as many rows are merged in the order of the bytes of their means.
    assert merged.score(frame(T)) == pytest.approx(first.merge(learned(X[300:], NAMES)).score(frame(T)), abs=0.1)


@pytest.mark.parametrize("n", [300, 30], ids=["components", "warm-up"])
def test_columns_that_one_of_them_lacks_are_taken_from_the_other(rows, n):
    """Half of the rows lack a quarter of the columns: the merged model is nearly that of all cells."""
    X, T = rows
    some = NAMES[:45]
    merged = learned(X[:300], NAMES).merge(learned(X[300 : 300 + n], some))
    best, other = learned(X, NAMES), learned(X[:300], NAMES)
    assert sorted(merged.feature_names_in_) == sorted(NAMES)
    assert merged.n_samples_seen_ == 300 + n
    # A column that is unknown where the rows lack it would cost half a nat a column and more.
    assert merged.score(frame(T)) > min(best.score(frame(T)), other.score(frame(T))) - 1.0
    # The columns depend on the others as they do in the rows that have them.
    gaps = frame(T).copy()
    gaps[NAMES[45:]] = np.nan
    filled = np.asarray(merged.impute(gaps[list(merged.feature_names_in_)]))
    error = filled[:, 45:] - T[:, 45:]
    assert np.mean(error**2) < 1.1 * np.mean((np.asarray(best.impute(gaps))[:, 45:] - T[:, 45:]) ** 2)


def test_three_models_none_of_which_has_all_columns(rows):
    X, T = rows
    parts = [learned(X[200 * i : 200 * (i + 1)], NAMES[20 * i :] + NAMES[: max(20 * i - 20, 0)]) for i in range(3)]
    merged = parts[0].merge(*parts[1:])
    assert merged.n_features_in_ == D
    assert merged.score(frame(T, merged.feature_names_in_)) > learned(X, NAMES).score(frame(T)) - 3.0


def test_columns_that_are_shared_by_nobody_are_independent():
    rng = np.random.default_rng(1)
    X = one(rng, 300, D)
    merged = learned(X, NAMES[:30]).merge(learned(X, NAMES[30:]))
    assert merged.n_features_in_ == D
    assert np.isfinite(merged.score_samples(frame(X, merged.feature_names_in_))).all()


def test_kinds_of_covariances_that_differ_by_the_number_of_columns_are_named():
    rng = np.random.default_rng(2)
    names = [f"c{i}" for i in range(260)]
    few, many = (pd.DataFrame(rng.normal(size=(30, n)), columns=names[:n]) for n in (250, 260))
    with pytest.raises(MergeError, match="Give all of them covariance_type='low_rank'"):
        IncrementalGaussianMixture().fit(few).merge(IncrementalGaussianMixture().fit(many))


def test_directions_beyond_the_rank_are_dropped_and_new_ones_have_no_scatter(rows):
    model = learned(rows[0], NAMES, rank=5)
    state, settings = model._state_, model._core_.settings
    assert with_rank(state, settings) is state
    for rank in (2, 9):
        c = with_rank(state, settings._replace(rank=rank)).model.components
        assert c.directions.shape == (1, rank, D)
        assert c.used[0] == min(rank, state.model.components.used[0])
        np.testing.assert_array_equal(c.directions[0, :2], state.model.components.directions[0, :2])
        assert (c.scatter[0, 5:] == 0.0).all()
