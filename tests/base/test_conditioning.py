"""Any columns from any others: equal to brute force and to gmr, in any units, with any gaps."""

import gmr
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn import IncrementalGaussianMixture
from everlearn.errors import InputError
from everlearn.figmn import ask as asking
from everlearn.persistence.model_file import dumps
from examples import examples

D = 5
NAMES = ["flow", "heat", "pressure", "speed", "torque"]


def rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) @ rng.normal(size=(D, D)) * np.array([1.0, 10.0, 0.1, 1.0, 3.0])
    X[::2] += np.array([3.0, -20.0, 0.0, 1.0, 5.0])
    return X


def learned(**parameters):
    return IncrementalGaussianMixture(**{"n_components": 4, **parameters})


MODEL = learned().fit(rows())
DIAGONAL = learned(covariance_type="diag").fit(rows())


def components(model):
    """What answers come from: the components and the broad Gaussian behind them."""
    whole = model.to_sklearn()
    covariances = whole.covariances_
    full = covariances if covariances.ndim == 3 else np.array([np.diag(v) for v in covariances])
    return whole.weights_, whole.means_, full


def brute_force(model, x, target):
    """Weights, means and covariances of the targets for one row, by explicit inverses."""
    weights, means, covariances = components(model)
    x = x.copy()
    x[target] = np.nan
    seen = np.flatnonzero(~np.isnan(x))
    joint = naive.log_joint_with_gaps([x], weights, means, covariances)[0] if len(seen) else np.log(weights)
    share = np.exp(joint - joint.max())
    parts = [naive.condition(m, S, seen, [x[seen]], target) for m, S in zip(means, covariances, strict=True)]
    return share / share.sum(), np.array([m[0] for m, _ in parts]), np.array([S for _, S in parts])


# -- equal to others --------------------------------------------------------------------------------


def test_several_components():
    assert MODEL.n_components_ >= 4
    assert DIAGONAL.n_components_ >= 4


@pytest.mark.parametrize("target", [[1], [0, 3], [4, 2, 1]])
def test_equals_gmr(target):
    weights, means, covariances = components(MODEL)
    peer = gmr.GMM(len(weights), weights, means, covariances)
    known = [column for column in range(D) if column not in target]
    X = rows(200, seed=1)
    expected = peer.predict(np.array(known), X[:, known])
    order = np.argsort(np.argsort(target))  # gmr answers in the order of the columns
    scale = X.std(axis=0)[target]
    for found in (MODEL.predict_columns(X, target), MODEL.predict_columns(X[:, known], target, given=known)):
        assert np.max(np.abs(found - expected[:, order]) / scale) < 1e-8


@given(
    target=st.lists(st.integers(0, D - 1), min_size=1, max_size=4, unique=True),
    gaps=st.lists(st.booleans(), min_size=D, max_size=D),
    seed=st.integers(0, 99),
    diagonal=st.booleans(),
)
def test_equals_brute_force(target, gaps, seed, diagonal):
    model = DIAGONAL if diagonal else MODEL
    X = np.repeat(rows(1, seed), 3, axis=0)
    X[1:, gaps] = np.nan
    answer = model.condition(X, target=target)
    mean, std = model.predict_columns(X, target, return_std=True)
    for i in (0, 2):
        weights, means, covariances = brute_force(model, X[i], target)
        expected_mean, expected_covariance = naive.moment_match(weights, means, covariances)
        assert np.allclose(answer.weights[i], weights, atol=1e-9)
        assert np.allclose(answer.means[i], means, rtol=1e-8, atol=1e-9)
        assert np.allclose(answer.covariances[i], covariances, rtol=1e-8, atol=1e-10)
        assert np.allclose(mean[i], expected_mean, rtol=1e-8, atol=1e-9)
        assert np.allclose(std[i], np.sqrt(np.diagonal(expected_covariance)), rtol=1e-7)
        assert np.allclose(answer.cov()[i], expected_covariance, rtol=1e-7, atol=1e-10)


def test_impute_equals_the_twin():
    X = rows(60, seed=2)
    X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    filled, std = MODEL.impute(X, return_std=True)
    seen = ~np.isnan(X)
    assert np.array_equal(filled[seen], X[seen])
    assert not std[seen].any()
    for x, mean, spread in zip(X, filled, std, strict=True):
        gaps = np.isnan(x)
        if gaps.any() and not gaps.all():
            expected_mean, expected_std = naive.impute(x, *components(MODEL))
            assert np.allclose(mean[gaps], expected_mean, rtol=1e-8)
            assert np.allclose(spread[gaps], expected_std, rtol=1e-6)


def test_a_row_without_any_value_is_filled_with_the_mean():
    filled = MODEL.impute(np.full((1, D), np.nan))
    assert np.allclose(filled[0], MODEL.weights_ @ MODEL.means_)


# -- laws -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [MODEL, DIAGONAL], ids=["full", "diag"])
def test_density_is_joint_over_marginal(model):
    """log p(t | g) = log p(t, g) - log p(g), gaps among the given included."""
    X = rows(40, seed=3)
    X[::3, 0] = np.nan
    hidden = X.copy()
    hidden[:, [1, 4]] = np.nan
    found = model.condition(X, target=[1, 4]).log_density(X[:, [1, 4]])
    assert np.allclose(found, model.score_samples(X) - model.score_samples(hidden), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("q", [0.01, 0.5, 0.9])
def test_quantiles_invert_the_distribution(q):
    answer = MODEL.condition(rows(30, seed=4), target=[0, 2])
    assert np.allclose(answer.cdf(answer.quantile(q)), q, atol=1e-9)


def test_interval_is_made_of_quantiles():
    X = rows(30, seed=4)
    answer = MODEL.condition(X, target=2)
    low, high = answer.interval(0.8)
    assert np.allclose(low, answer.quantile(0.1))
    assert np.allclose(high, answer.quantile(0.9))
    mean, ends = MODEL.predict_columns(X, 2, interval=0.8)
    assert np.array_equal(ends[0], low)
    assert np.array_equal(ends[1], high)
    assert np.array_equal(mean, answer.mean())


@pytest.mark.parametrize("power", [-500, 0, 500])
def test_units_do_not_matter(power):
    """Columns in units 2^power: the same answers in those units, bit for bit, from 1e-150 to 1e150."""
    unit = 2.0 ** np.array([power, -power, 0, power, 3])
    X = rows(300)
    near, far = learned().fit(X), learned().fit(X * unit)
    probe = X[:20].copy()
    probe[::2, 3] = np.nan
    for a, b in zip(
        near.predict_columns(probe, [1, 0], return_std=True),
        far.predict_columns(probe * unit, [1, 0], return_std=True),
        strict=True,
    ):
        assert np.array_equal(a * unit[[1, 0]], b)
        assert np.isfinite(b).all()
    assert np.array_equal(near.impute(probe) * unit, far.impute(probe * unit))
    shift = np.log(unit[[1, 0]]).sum()
    densities = [
        m.condition(p, target=[1, 0]).log_density(p[:, [1, 0]]) for m, p in ((near, probe), (far, probe * unit))
    ]
    assert np.allclose(densities[0] - shift, densities[1], rtol=1e-12, atol=1e-9)


@examples(8)
@given(order=st.permutations(range(D)))
def test_order_of_columns_does_not_matter(order):
    X = rows(30, seed=5)
    permuted = learned(scale=np.ones(D)).fit(rows(200)[:, order])
    plain = learned(scale=np.ones(D)).fit(rows(200))
    target = order.index(2)
    assert np.allclose(permuted.predict_columns(X[:, order], target), plain.predict_columns(X, 2), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("interval", [0, 1, 90, -0.5, float("nan")])
def test_an_interval_that_is_no_probability_is_refused_by_its_name(interval):
    with pytest.raises(InputError, match=r"interval=.* is not a probability between 0 and 1"):
        MODEL.predict_columns(rows(5), target=0, interval=interval)


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [{}, {"covariance_type": "full"}], ids=["default", "full"])
def test_intervals_cover_fresh_rows(parameters):
    """Not the model's own samples: other rows of the law that it was learned from."""
    law = rows(7000)
    model = IncrementalGaussianMixture(random_state=1, **parameters).fit(law[:3000])
    X = law[3000:]
    hidden = X.copy()
    hidden[np.random.default_rng(3).random(X.shape) < 0.15] = np.nan
    for target in (0, 2, 4):
        _, (low, high) = model.predict_columns(hidden, target, interval=0.9)
        covered = np.mean((X[:, [target]] >= low) & (X[:, [target]] <= high))
        assert 0.87 < covered < 0.93


def test_samples_have_the_moments_of_the_answer():
    X = rows(3, seed=6)
    X[1, 0] = np.nan
    model = learned(random_state=0).fit(rows())
    draws = model.sample_columns(X, [1, 3], n_samples=20_000)
    answer = model.condition(X, target=[1, 3])
    assert draws.shape == (3, 20_000, 2)
    assert np.allclose(draws.mean(axis=1), answer.mean(), atol=5 * answer.std().max() / np.sqrt(20_000))
    for i in range(3):
        assert np.allclose(np.cov(draws[i].T), answer.cov()[i], rtol=0.1, atol=0.02 * np.abs(answer.cov()[i]).max())


def test_many_rows_are_answered_in_parts(monkeypatch):
    X = rows(50, seed=7)
    X[::2, 1] = np.nan
    whole = MODEL.predict_columns(X, [0, 2], return_cov=True), MODEL.impute(X)
    monkeypatch.setattr(asking, "_PART", 1)
    parts = MODEL.predict_columns(X, [0, 2], return_cov=True), MODEL.impute(X)
    for a, b in zip((*whole[0], whole[1]), (*parts[0], parts[1]), strict=True):
        assert np.allclose(a, b, rtol=1e-12)


def test_asking_changes_nothing():
    model = IncrementalGaussianMixture().partial_fit(rows(100))  # still warming up
    before = dumps(model)
    model.predict_columns(rows(5), [1], interval=0.5)
    model.impute(rows(5))
    model.sample_columns(rows(5), 1)
    assert dumps(model) == before


def test_answers_follow_learning():
    model = learned().fit(rows(100))
    before = model.predict_columns(rows(5), 1)
    model.partial_fit(rows(500, seed=8))
    assert not np.allclose(before, model.predict_columns(rows(5), 1))


@pytest.mark.parametrize("parameters", [{"reservoir": 50}, {"forgetting": "adaptive"}, {"n_components": 3}])
def test_every_mode_answers(parameters):
    X = rows(300)
    model = IncrementalGaussianMixture(**parameters).fit(X)
    X[::4, 2] = np.nan
    error = model.predict_columns(X, [0, 4]) - rows(300)[:, [0, 4]]
    assert (np.sqrt((error**2).mean(axis=0)) < X[:, [0, 4]].std(axis=0)).all()


# -- columns by name or number ----------------------------------------------------------------------


def named():
    return learned().fit(pd.DataFrame(rows(200), columns=NAMES))


def test_names_and_numbers():
    model, X = named(), rows(10, seed=9)
    frame = pd.DataFrame(X, columns=NAMES)
    expected = model.predict_columns(frame, [2, 4])
    known = ["flow", "heat", "speed"]
    ways = [
        model.predict_columns(frame, ["pressure", "torque"]),
        model.predict_columns(frame, [-3, -1]),
        model.predict_columns(frame, [False, False, True, False, True]),
        model.predict_columns(frame, slice(2, None, 2)),
        model.predict_columns(frame[known], ["pressure", "torque"], given=known),
    ]
    for found in ways:
        assert np.array_equal(found, expected)
    np.testing.assert_allclose(model.condition(frame[known], given=known).mean(), expected, rtol=1e-10)
    answer = model.condition(frame, target=["torque", 0])
    assert answer.columns == ["torque", "flow"]
    assert len(answer) == 10
    assert "torque" in repr(answer)


def test_values_of_the_target_are_not_looked_at():
    X, other = rows(5), rows(5)
    other[:, 2] = [np.nan, 1e9, -3.0, 0.0, 7.0]
    assert np.array_equal(MODEL.predict_columns(X, 2), MODEL.predict_columns(other, 2))


def test_subsets_leave_other_columns_open():
    X = rows(5)
    X[:, [0, 1, 4]] = np.nan
    assert np.allclose(MODEL.predict_columns(rows(5)[:, [3]], 2, given=3), MODEL.predict_columns(X, 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "presure"}, r"target holds 'presure'.*Did you mean 'pressure'\?.*flow, heat"),
        ({"target": "zzz"}, r"which is no column of the model. It has"),
        ({"target": 5}, r"the column 5; the model has the columns 0 to 4"),
        ({"target": -6}, r"the column -6"),
        ({"target": [1, "heat"]}, r"names a column twice"),
        ({"target": []}, r"names no column"),
        ({"target": [True, False]}, r"a mask of 2 values; the model has 5"),
        ({"target": 1.5}, r"holds 1.5; columns are given by name or by number"),
        ({"target": None}, r"target= by name or number"),
        ({"target": "heat", "given": ["flow", "heat"]}, r"must be different columns"),
        ({"target": "heat", "given": ["flow"]}, r"X has 5 columns, given names 1"),
        ({"target": "heat", "given": ["speed", "flow", "pressure", "torque"]}, r"X has 5 columns, given names 4"),
    ],
)
def test_mistakes_are_explained(arguments, message):
    with pytest.raises(InputError, match=message):
        named().condition(pd.DataFrame(rows(3), columns=NAMES), **arguments)


def test_more_mistakes():
    frame = pd.DataFrame(rows(3), columns=NAMES)
    with pytest.raises(InputError, match=r"X has the columns \['heat', 'flow'\], given names \['flow', 'heat'\]"):
        named().condition(frame[["heat", "flow"]], given=["flow", "heat"])
    with pytest.raises(InputError, match="columns without names"):
        MODEL.predict_columns(rows(3), "flow")
    with pytest.raises(InputError, match="infinity at row 1, column 0"):
        MODEL.predict_columns([[1.0], [np.inf]], 1, given=0)
    with pytest.raises(InputError, match="n_samples must be at least 1"):
        MODEL.sample_columns(rows(3), 1, n_samples=0)
    with pytest.raises(InputError, match="Y must hold 3 rows of 1 finite values"):
        MODEL.condition(rows(3), target=1).log_density([1.0, 2.0])
    with pytest.raises(InputError, match=r"interval=1\.5"):
        MODEL.predict_columns(rows(3), 1, interval=1.5)
    with pytest.raises(InputError, match=r"coverage=1\.5"):
        MODEL.condition(rows(3), target=1).interval(1.5)
