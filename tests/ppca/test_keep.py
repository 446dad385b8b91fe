"""The natural constraint against its twin, and what each policy and form promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.errors import InputError
from everlearn.monitoring.page_hinkley import PageHinkley
from everlearn.ppca import ask, keep, learn
from everlearn.ppca.keep import Every, NaturalConstraint, OnChange
from everlearn.ppca.schedules import PowerSchedule, as_schedule
from everlearn.ppca.state import PPCA, factor, init
from examples import examples

GAIN = PowerSchedule(0.9, 0.9)


def make_rows(seed, n=80, d=5, gaps=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + 0.5 * rng.normal(size=(n, d)) + 1.0
    X[rng.random(X.shape) < gaps] = np.nan
    return X


def run(X, con, gain=GAIN, first=None, ends=None, unit=1.0, mode="robust"):
    state = init(learn.maximum_likelihood(first * unit, 2), 30, constrained=True)
    return learn.learn(state, X * unit, learn.settings(gain, con, mode=mode), ends)


def twin_of(X, first, con, gain, takes, mode="robust"):
    strength = as_schedule(con.strength, "strength")
    model = learn.maximum_likelihood(first, 2)
    twin = naive.OnlineEM(*model, 30, gain, mode=mode, form=con.form, strength=strength, body=con.fisher == "body")
    for t, x in enumerate(X):
        if takes(t):
            twin.take_reference()
        twin.learn(x)
    return twin


def assert_same(state, twin, rtol=1e-9):
    for a, b in ((state.mu, twin.mu), (state.W, twin.W), (state.sigma2[0], twin.sigma2)):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("fisher", ["appendix", "body"])
@pytest.mark.parametrize("gaps", [0.0, 0.3])
@examples(10)
@given(seed=st.integers(0, 10**6))
def test_step_policy_equals_its_twin(fisher, gaps, seed):
    X, first = make_rows(seed, gaps=gaps), make_rows(seed + 1, 30)
    con = NaturalConstraint(PowerSchedule(2.0, 0.3), fisher=fisher)
    state, info = run(X, con, first=first)
    assert info.taken.sum() == (~np.isnan(X).all(axis=1)).sum()
    assert_same(state, twin_of(X, first, con, GAIN, lambda t: not np.isnan(X[t]).all()))


@pytest.mark.parametrize("mode", ["robust", "plain"])
@given(seed=st.integers(0, 10**6), d=st.integers(3, 9))
def test_class_policy_equals_its_twin(mode, seed, d):
    X, first = make_rows(seed, d=d), make_rows(seed + 1, 30, d)
    con, gain = NaturalConstraint(1.5, "class"), PowerSchedule(0.05, 0.0)
    ends = np.zeros(80, dtype=bool)
    ends[[20, 55]] = True
    state, _ = run(X, con, gain, first, ends, mode=mode)
    twin = twin_of(X, first, con, gain, lambda t: ends[t], mode)
    assert_same(state, twin)
    np.testing.assert_allclose(state.reference.W, twin.reference[0][1], rtol=1e-9, atol=1e-9)


def test_every_takes_a_reference_each_n_rows():
    X, first = make_rows(3), make_rows(4, 30)
    con = NaturalConstraint(1.0, Every(25))
    state, info = run(X, con, first=first)
    # Thirty rows were learned before X: the 50th, 75th and 100th row of the stream end a period.
    assert list(np.flatnonzero(info.taken)) == [20, 45, 70]
    assert_same(state, twin_of(X, first, con, GAIN, lambda t: t in (20, 45, 70)))


def test_on_change_takes_a_reference_when_the_likelihood_drops():
    first = make_rows(5, 30)
    X = np.vstack([make_rows(5, 300), 4.0 - make_rows(6, 100)])
    test = PageHinkley()
    con, gain = NaturalConstraint(1.0, OnChange(test)), PowerSchedule(0.01, 0.0)
    state, info = run(X, con, gain, first)
    rows = np.flatnonzero(info.taken)
    # At the limit of 2.5 a row, of which 0.5 is tolerated, a threshold of 7.6 takes four rows. For log-densities the
    # ratios are smaller, and not all rows are at the limit; the twin below says exactly which row it is.
    assert 304 <= rows[0] < 330
    plain = naive.OnlineEM(*learn.maximum_likelihood(first, 2), 30, gain)
    values = []
    for x in X[: rows[0] + 1]:
        values.append(ask.log_density(factor(PPCA(plain.mu, plain.W, plain.sigma2)), x[None])[0])
        plain.learn(x)
    assert naive.page_hinkley(values, test.drift, test.threshold, test.min_rows, test.limit) == [rows[0]]
    assert_same(state, twin_of(X, first, con, gain, lambda t: t in rows))


def test_until_a_reference_is_taken_nothing_is_constrained():
    X, first = make_rows(7), make_rows(8, 30)
    free, _ = learn.learn(init(learn.maximum_likelihood(first, 2), 30), X, learn.settings(GAIN, None))
    held, _ = run(X, NaturalConstraint(5.0, "class"), first=first)
    np.testing.assert_array_equal(held.W, free.W)
    assert not held.reference.is_active[0]


@given(seed=st.integers(0, 10**6), unit=st.sampled_from([0.01, 100.0]))
def test_the_proximal_form_does_not_depend_on_the_unit(seed, unit):
    X, first = make_rows(seed), make_rows(seed + 1, 30)
    con = NaturalConstraint(1.0)
    a, _ = run(X, con, first=first)
    b, _ = run(X, con, first=first, unit=unit)
    np.testing.assert_allclose(b.mu, a.mu * unit, rtol=1e-9)
    np.testing.assert_allclose(b.W, a.W * unit, rtol=1e-7, atol=1e-9 * unit)
    assert b.sigma2[0] == pytest.approx(a.sigma2[0] * unit**2, rel=1e-8)


def test_the_printed_form_depends_on_the_unit():
    X, first = make_rows(1), make_rows(2, 30)
    con = NaturalConstraint(form="paper")
    _, one = run(X, con, first=first)
    _, ten = run(X, con, first=first, unit=10.0)
    assert ten.overshot[0] > 10 * max(one.overshot[0], 1)


def test_the_stronger_the_constraint_the_nearer_the_reference():
    X, first = make_rows(9, 400) + 3.0, make_rows(10, 30)
    gain, ends = PowerSchedule(0.05, 0.0), np.zeros(400, dtype=bool)
    ends[0] = True
    distances = []
    for beta in (0.01, 1.0, 100.0, 1e6):
        state, _ = run(X, NaturalConstraint(beta, "class"), gain, first, ends)
        distances.append(np.linalg.norm(state.mu - state.reference.mu) + np.linalg.norm(state.W - state.reference.W))
    assert np.all(np.diff(distances) < 0)
    assert distances[-1] < 1e-3


def test_clipped_weights_stay_between_model_and_reference():
    X, first = 100.0 * make_rows(11), 100.0 * make_rows(12, 30)
    for clip in (False, True):
        state, info = run(X, NaturalConstraint(1.0, form="paper", clip=clip), first=first)
        assert info.overshot[0] > 0
        assert np.all(np.isfinite(state.W))
        assert state.sigma2[0] > 0
    assert np.linalg.norm(state.mu - X.mean(axis=0)) < 100.0


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ({"strength": -1.0}, "strength"),
        ({"strength": PowerSchedule(1.0, -0.5)}, "strength"),
        ({"strength": "strong"}, "strength"),
        ({"reference": "often"}, "reference"),
        ({"reference": Every(0)}, "reference"),
        ({"reference": OnChange(PageHinkley(threshold=-1.0))}, "detector"),
        ({"reference": OnChange("cusum")}, "reference"),
        ({"fisher": "full"}, "fisher"),
        ({"form": "exact"}, "form"),
    ],
)
def test_wrong_values_are_refused_by_name(bad, match):
    with pytest.raises(InputError, match=match):
        keep.check(NaturalConstraint(**bad))


# -- Fisher information ----------------------------------------------------------------------------


def random_model(seed, d=6, q=2, scale=1.0):
    rng = np.random.default_rng(seed)
    return PPCA(scale * rng.normal(size=d), scale * rng.normal(size=(d, q)), scale**2 * rng.uniform(0.1, 1.0))


sizes = st.tuples(st.integers(1, 8), st.integers(1, 4)).map(lambda pair: (max(pair), min(pair)))


@given(seed=st.integers(0, 10**6), size=sizes)
def test_fisher_information_equals_the_traces(seed, size):
    model = random_model(seed, *size)
    factored = factor(model)
    for fast, slow in (
        (keep.fisher(factored), naive.ppca_fisher(model.W, model.sigma2)),
        (keep.fisher(factored, body=True), naive.ppca_fisher_body(model.W, model.sigma2)),
    ):
        for a, b in zip(fast, slow, strict=True):
            # What is left of differences of terms up to 1 / sigma2^2, whose M^-1 has a jitter of 1e-14.
            rounding = max(1e-12 * np.max(b), 1e-13 / model.sigma2**2)
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=rounding)


def test_fisher_information_is_the_variance_of_the_score():
    model = random_model(7, 5, 2)
    n = 200_000
    Y = ask.sample(model, n, np.random.default_rng(1)) - model.mu
    P = np.linalg.inv(ask.covariance(model))
    G = Y @ P
    scores = (
        G,
        np.einsum("ni,nj->nij", G, G @ model.W) - P @ model.W,
        0.5 * (np.sum(G**2, axis=1) - np.trace(P)),
    )
    for score, F in zip(scores, keep.fisher(factor(model)), strict=True):
        squares = score**2
        error = squares.std(axis=0) / np.sqrt(n)
        assert np.all(np.abs(squares.mean(axis=0) - F) <= 5 * error)
