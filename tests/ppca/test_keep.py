"""The natural constraint against its twin, and what each policy and form promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.errors import InputError
from everlearn.gaussian import ppca
from everlearn.gaussian.ppca import PPCA
from everlearn.monitoring.page_hinkley import PageHinkley
from everlearn.ppca import keep as constraint
from everlearn.ppca import learn as online_em
from everlearn.ppca.keep import Every, NaturalConstraint, OnChange
from everlearn.ppca.schedules import PowerSchedule, as_schedule

GAIN = PowerSchedule(0.9, 0.9)


def make_rows(seed, n=80, d=5, gaps=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + 0.5 * rng.normal(size=(n, d)) + 1.0
    X[rng.random(X.shape) < gaps] = np.nan
    return X


def learn(X, con, gain=GAIN, first=None, marks=None, factor=1.0, mode="robust"):
    state = online_em.init(ppca.maximum_likelihood(first * factor, 2), 30)
    reference = constraint.no_reference(X.shape[1], 2)
    state, info = online_em.learn(
        state, X * factor, online_em.settings(gain, con, mode=mode), reference, marks, np.zeros(4)
    )
    return state, reference, info


def twin_of(X, first, con, gain, takes, mode="robust"):
    strength = as_schedule(con.strength, "strength")
    model = ppca.maximum_likelihood(first, 2)
    twin = naive.OnlineEM(*model, 30, gain, mode=mode, form=con.form, strength=strength, body=con.fisher == "body")
    for t, x in enumerate(X):
        if takes(t):
            twin.take_reference()
        twin.learn(x)
    return twin


def assert_same(state, twin, rtol=1e-9):
    for a, b in ((state.mu, twin.mu), (state.W, twin.W), (state.sigma2, twin.sigma2)):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("fisher", ["appendix", "body"])
@pytest.mark.parametrize("gaps", [0.0, 0.3])
@given(seed=st.integers(0, 10**6))
def test_step_policy_equals_its_twin(fisher, gaps, seed):
    X, first = make_rows(seed, gaps=gaps), make_rows(seed + 1, 30)
    con = NaturalConstraint(PowerSchedule(2.0, 0.3), fisher=fisher)
    state, _, info = learn(X, con, first=first)
    assert info.taken.sum() == (~np.isnan(X).all(axis=1)).sum()
    assert_same(state, twin_of(X, first, con, GAIN, lambda t: not np.isnan(X[t]).all()))


@pytest.mark.parametrize("mode", ["robust", "plain"])
@given(seed=st.integers(0, 10**6), d=st.integers(3, 9))
def test_class_policy_equals_its_twin(mode, seed, d):
    X, first = make_rows(seed, d=d), make_rows(seed + 1, 30, d)
    con, gain = NaturalConstraint(1.5, "class"), PowerSchedule(0.05, 0.0)
    marks = np.zeros(80, dtype=bool)
    marks[[20, 55]] = True
    state, reference, _ = learn(X, con, gain, first, marks, mode=mode)
    twin = twin_of(X, first, con, gain, lambda t: marks[t], mode)
    assert_same(state, twin)
    np.testing.assert_allclose(reference.W, twin.reference[0][1], rtol=1e-9, atol=1e-9)


def test_every_takes_a_reference_each_n_rows():
    X, first = make_rows(3), make_rows(4, 30)
    con = NaturalConstraint(1.0, Every(25))
    state, _, info = learn(X, con, first=first)
    # Thirty rows were learned before X: the 50th, 75th and 100th row of the stream end a period.
    assert list(np.flatnonzero(info.taken)) == [20, 45, 70]
    assert_same(state, twin_of(X, first, con, GAIN, lambda t: t in (20, 45, 70)))


def test_on_change_takes_a_reference_when_the_likelihood_drops():
    first = make_rows(5, 30)
    X = np.vstack([make_rows(5, 300), 4.0 - make_rows(6, 100)])
    con, gain = NaturalConstraint(1.0, OnChange(PageHinkley())), PowerSchedule(0.01, 0.0)
    state, _, info = learn(X, con, gain, first)
    rows = np.flatnonzero(info.taken)
    assert 300 <= rows[0] < 310
    plain = naive.OnlineEM(*ppca.maximum_likelihood(first, 2), 30, gain)
    values = []
    for x in X[: rows[0] + 1]:
        values.append(ppca.log_density(ppca.ready(PPCA(plain.mu, plain.W, plain.sigma2)), x[None])[0])
        plain.learn(x)
    assert naive.page_hinkley(values, 0.25, 10.0, 30, 4.0) == [rows[0]]
    assert_same(state, twin_of(X, first, con, gain, lambda t: t in rows))


def test_until_a_reference_is_taken_nothing_is_constrained():
    X, first = make_rows(7), make_rows(8, 30)
    free = online_em.init(ppca.maximum_likelihood(first, 2), 30)
    free, _ = online_em.learn(free, X, online_em.settings(GAIN, None))
    held, reference, _ = learn(X, NaturalConstraint(5.0, "class"), first=first)
    np.testing.assert_array_equal(held.W, free.W)
    assert not reference.is_active


@given(seed=st.integers(0, 10**6), factor=st.sampled_from([0.01, 100.0]))
def test_the_proximal_form_does_not_depend_on_the_unit(seed, factor):
    X, first = make_rows(seed), make_rows(seed + 1, 30)
    con = NaturalConstraint(1.0)
    a, _, _ = learn(X, con, first=first)
    b, _, _ = learn(X, con, first=first, factor=factor)
    np.testing.assert_allclose(b.mu, a.mu * factor, rtol=1e-9)
    np.testing.assert_allclose(b.W, a.W * factor, rtol=1e-7, atol=1e-9 * factor)
    assert b.sigma2 == pytest.approx(a.sigma2 * factor**2, rel=1e-8)


def test_the_printed_form_depends_on_the_unit():
    X, first = make_rows(1), make_rows(2, 30)
    con = NaturalConstraint(form="paper")
    _, _, one = learn(X, con, first=first)
    _, _, ten = learn(X, con, first=first, factor=10.0)
    assert ten.diverged[0] > 10 * max(one.diverged[0], 1)


@given(seed=st.integers(0, 10**6), beta=st.floats(0.01, 100.0))
def test_the_proximal_step_minimises_its_objective(seed, beta):
    """No other mu and W, and no other s nearby, have a smaller -Q + beta/2 |theta - theta*|^2."""
    rng = np.random.default_rng(seed)
    d, q = 3, 2
    s, V = 0.5, rng.normal(size=(d, q))
    state = online_em.init(PPCA(rng.normal(size=d), V, s), 10)
    reference = constraint.take(ppca.ready(PPCA(rng.normal(size=d), rng.normal(size=(d, q)), 0.8)))
    m, S1, S2 = state.m.copy(), state.S1.copy(), state.S2.copy()
    S0 = state.scalars[1] = np.sum(V**2) + rng.uniform(0.5, 5.0)

    def objective(mu, W, v):
        A = S0 + np.sum((m - mu) ** 2) - 2 * np.sum(S1 * W) + np.trace(S2 @ W.T @ W)
        far = np.sum(reference.F_mu * (mu - reference.mu) ** 2) + np.sum(reference.F_W * (W - reference.W) ** 2)
        far += F_s * (v - s_ref) ** 2
        return 0.5 * (d * np.log(v) + A / v + beta * far)

    s_ref, F_s = reference.scalars[1:]
    found = online_em.kernels.proximal_step(beta, V, True, tuple(state[:7]), tuple(reference), np.empty((q, q)))
    least = objective(state.mu, state.W, s)
    for _ in range(20):
        step = 10.0 ** rng.uniform(-4, 0)
        other = objective(state.mu + step * rng.normal(size=d), state.W + step * rng.normal(size=(d, q)), s)
        assert other > least
    least = objective(state.mu, state.W, found)
    for factor in (0.9, 0.999, 1.001, 1.1):
        assert objective(state.mu, state.W, factor * found) > least


def test_the_stronger_the_constraint_the_nearer_the_reference():
    X, first = make_rows(9, 400) + 3.0, make_rows(10, 30)
    gain, marks = PowerSchedule(0.05, 0.0), np.zeros(400, dtype=bool)
    marks[0] = True
    distances = []
    for beta in (0.01, 1.0, 100.0, 1e6):
        state, reference, _ = learn(X, NaturalConstraint(beta, "class"), gain, first, marks)
        distances.append(np.linalg.norm(state.mu - reference.mu) + np.linalg.norm(state.W - reference.W))
    assert np.all(np.diff(distances) < 0)
    assert distances[-1] < 1e-3


def test_clipped_weights_stay_between_model_and_reference():
    X, first = 100.0 * make_rows(11), 100.0 * make_rows(12, 30)
    for clip in (False, True):
        state, _, info = learn(X, NaturalConstraint(1.0, form="paper", clip=clip), first=first)
        assert info.diverged[0] > 0
        assert np.all(np.isfinite(state.W))
        assert state.sigma2 > 0
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
        constraint.check(NaturalConstraint(**bad))


def test_schedules():
    assert PowerSchedule(0.5, 0.0)(1000) == 0.5
    assert PowerSchedule(1.0, 1.0)(4) == 0.25
    assert as_schedule(0.01, "learning_rate") == PowerSchedule(0.01, 0.0)
    with pytest.raises(InputError, match=r"learning_rate.*at most 1"):
        as_schedule(PowerSchedule(1.5, 0.9), "learning_rate", most=1.0)
