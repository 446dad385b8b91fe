"""The errata of the FIGMN paper, shown from its printed formulas (docs/errata.md lists them all)."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from everlearn import IncrementalGaussianMixtureClassifier
from everlearn.experiments.papers.figmn.weka import BETA, DELTA, TABLE_3, folds, spread

SEEDS = st.integers(0, 2**32 - 1)
STEPS = st.floats(0.01, 0.9)  # omega, the step size of one update


def component(seed, D=4):
    """A random positive definite covariance and an error e = x - mu."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(D, 2 * D))
    return A @ A.T / D, rng.normal(size=D)


def eq_11(Sigma, e, w):
    """As printed: the new mean's error e*, and the shift of the mean taken off."""
    e_star, shift = e - w * e, w * e
    return (1 - w) * Sigma + w * np.outer(e_star, e_star) - np.outer(shift, shift)


def eq_23(Sigma, e, w):
    return (1 - w) * Sigma + np.outer(e, e) * w * (1 + w * (w - 3))


def eq_24(Lambda, e, w):
    y = Lambda @ e
    return Lambda / (1 - w) + np.outer(y, y) * w * (1 - 3 * w + w**2) / ((w - 1) ** 2 * (w**2 - 2 * w - 1))


def exact(Sigma, e, w):
    return (1 - w) * Sigma + w * (1 - w) * np.outer(e, e)


def one_component(X, rule, Sigma):
    """Learn the rows of X with a single component, created at the first row."""
    mu = X[0]
    for n, x in enumerate(X[1:], start=2):
        e, w = x - mu, 1 / n
        mu, Sigma = mu + w * e, rule(Sigma, e, w)
    return mu, Sigma


# -- equations 11 and 23: the covariance update ----------------------------------------------------


@given(SEEDS, STEPS)
def test_eq_11_is_eq_23(seed, w):
    Sigma, e = component(seed)
    np.testing.assert_allclose(eq_11(Sigma, e, w), eq_23(Sigma, e, w), rtol=1e-12, atol=1e-12)


def test_coefficient_is_negative_from_0_382_on():
    turn = (3 - np.sqrt(5)) / 2
    gain = [eq_23(np.zeros((1, 1)), np.ones(1), w)[0, 0] for w in (turn - 1e-6, turn + 1e-6)]
    assert turn == pytest.approx(0.382, abs=5e-4)
    assert gain[0] > 0 > gain[1]


@pytest.mark.parametrize(("d2", "definite"), [(3.99, True), (4.01, False)])
def test_second_sample_beyond_distance_two_makes_covariance_indefinite(d2, definite):
    Sigma, e = component(0)
    e *= np.sqrt(d2 / (e @ np.linalg.solve(Sigma, e)))
    assert (np.linalg.eigvalsh(eq_11(Sigma, e, 0.5)).min() > 0) == definite
    assert np.linalg.eigvalsh(exact(Sigma, e, 0.5)).min() > 0


@pytest.mark.parametrize(("n", "share"), [(10, 0.42), (100, 0.90)])
def test_eq_11_is_biased_low(n, share):
    X = np.random.default_rng(n).normal(size=(n, 2000))
    nothing = np.zeros(X.shape[1])
    variance = {rule: one_component(X, rule, nothing)[1].mean() for rule in (diagonal_eq_11, diagonal_exact)}
    harmonic = np.sum(1 / np.arange(1, n + 1))
    assert (n - 2 * harmonic + 1 / n) / n == pytest.approx(share, abs=5e-3)  # its expectation in closed form
    assert variance[diagonal_eq_11] == pytest.approx(share, abs=0.03)
    assert variance[diagonal_exact] == pytest.approx(1 - 1 / n, abs=0.03)


def diagonal_eq_11(variance, e, w):
    """Equation 11 for many independent columns at once."""
    return (1 - w) * variance + w * (e - w * e) ** 2 - (w * e) ** 2


def diagonal_exact(variance, e, w):
    return (1 - w) * variance + w * (1 - w) * e**2


@given(SEEDS, st.integers(2, 40))
def test_right_coefficient_gives_the_batch_covariance(seed, n):
    prior, _ = component(seed)
    X = np.random.default_rng(seed).normal(size=(n, len(prior)))
    mu, Sigma = one_component(X, exact, prior)
    np.testing.assert_allclose(mu, X.mean(0), atol=1e-12)
    np.testing.assert_allclose(Sigma, (prior + (X - mu).T @ (X - mu)) / n, rtol=1e-10, atol=1e-12)


# -- equations 24 and 30: precision and determinant ------------------------------------------------


@given(SEEDS, st.floats(0.01, 0.35))
def test_eq_24_inverts_eq_23_at_one_distance_only(seed, w):
    Sigma, e = component(seed)
    Lambda = np.linalg.inv(Sigma)
    where = (1 - w) * (2 - w) / (1 - 3 * w + w**2)
    for d2, inverts in ((where, True), (where / 2, False), (where * 2, False)):
        scaled = e * np.sqrt(d2 / (e @ Lambda @ e))
        product = eq_24(Lambda, scaled, w) @ eq_23(Sigma, scaled, w)
        assert np.allclose(product, np.eye(len(e)), atol=1e-8) == inverts


@pytest.mark.parametrize("seed", range(5))
def test_eq_24_loses_definiteness_at_once_and_soon_explodes(seed):
    X = np.random.default_rng(seed).normal(size=(20, 10))
    with np.errstate(over="ignore", invalid="ignore"):
        early, late = (one_component(X[:n], eq_24, np.eye(10))[1] for n in (5, 20))
    assert np.linalg.eigvalsh(early).min() < 0
    assert not np.abs(late).max() < 1e100


@given(SEEDS, STEPS)
def test_eq_30_is_the_determinant_of_eq_23(seed, w):
    Sigma, e = component(seed)
    d2 = e @ np.linalg.solve(Sigma, e)
    printed = (1 - w) ** len(e) * np.linalg.det(Sigma) * (1 + w * (1 + w * (w - 3)) / (1 - w) * d2)
    assert np.linalg.det(eq_23(Sigma, e, w)) == pytest.approx(printed, rel=1e-8, abs=1e-10)


@given(SEEDS, STEPS)
def test_right_precision_and_determinant(seed, w):
    Sigma, e = component(seed)
    Lambda = np.linalg.inv(Sigma)
    y = Lambda @ e
    d2 = e @ y
    new = exact(Sigma, e, w)
    np.testing.assert_allclose((Lambda - w * np.outer(y, y) / (1 + w * d2)) / (1 - w) @ new, np.eye(4), atol=1e-8)
    rise = len(e) * np.log(1 - w) + np.log(1 + w * d2)
    assert np.linalg.slogdet(new)[1] == pytest.approx(np.linalg.slogdet(Sigma)[1] + rise, abs=1e-9)


# -- equations 14 and 32: asking -------------------------------------------------------------------


@given(SEEDS)
def test_eq_32_is_transposed(seed):
    Sigma, x = component(seed)
    Lambda = np.linalg.inv(Sigma)
    i, t = slice(0, 2), slice(2, 4)
    truth = Sigma[t, i] @ np.linalg.solve(Sigma[i, i], x[i])  # equation 15, zero mean
    printed = -Lambda[i, t] @ np.linalg.inv(Lambda[t, t]) @ x[i]
    right = -np.linalg.solve(Lambda[t, t], Lambda[t, i] @ x[i])
    np.testing.assert_allclose(right, truth, rtol=1e-7, atol=1e-9)
    # As close as to tell chance from truth: of a thousand random ones some agree to three digits.
    assert not np.allclose(printed, truth, rtol=1e-6, atol=0.0)


def test_eq_32_cannot_be_computed_with_one_target():
    Sigma, x = component(1)
    Lambda = np.linalg.inv(Sigma)
    with pytest.raises(ValueError, match="mismatch"):
        Lambda[:3, 3:] @ np.linalg.inv(Lambda[3:, 3:]) @ x[:3]


@given(SEEDS)
def test_marginal_precision_is_a_schur_complement(seed):
    Sigma, _ = component(seed)
    Lambda = np.linalg.inv(Sigma)
    i, t = slice(0, 3), slice(3, 4)
    right = Lambda[i, i] - Lambda[i, t] @ np.linalg.solve(Lambda[t, t], Lambda[t, i])
    np.testing.assert_allclose(right @ Sigma[i, i], np.eye(3), atol=1e-8)
    assert not np.allclose(Lambda[i, i] @ Sigma[i, i], np.eye(3), rtol=0.0, atol=1e-6)
    log_det = np.linalg.slogdet(Sigma)[1] + np.linalg.slogdet(Lambda[t, t])[1]
    assert np.linalg.slogdet(Sigma[i, i])[1] == pytest.approx(log_det, abs=1e-9)


# -- the algorithms and their constants ------------------------------------------------------------


def test_algorithm_3_depends_on_the_unit_of_the_data():
    def d2(power, unit):
        sigma_ini, e = 0.5 * unit, 1.5 * unit
        return e * sigma_ini**power * e

    assert d2(-2, 1000.0) == pytest.approx(d2(-2, 1.0))
    assert d2(-1, 1000.0) == pytest.approx(1000 * d2(-1, 1.0))


def test_algorithm_1_never_creates_the_first_component():
    components = []
    for x in np.random.default_rng(0).normal(size=(50, 2)):
        if len(components) == 0 or any(np.sum((x - mu) ** 2) < chi2.isf(0.1, 2) for mu in components):
            components = [mu + 0.1 * (x - mu) for mu in components]  # update: for all components
        else:
            components.append(x)
    assert components == []


def test_smallest_double_as_beta_never_finds_a_row_novel():
    thresholds = chi2.isf(4.9e-324, [4, 34])
    assert np.all(thresholds > 1400)
    assert np.all(chi2.isf(2e-6, [4, 34]) < 100)


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes", "glass"])
def test_tables_2_and_3_need_another_delta_and_beta(name):
    def components(**reading):
        settings = {"delta": DELTA, "beta": BETA, **reading}
        models = (
            IncrementalGaussianMixtureClassifier.paper(scale=spread(fold.X), **settings).fit(fold.known, fold.y)
            for fold in folds(name, 1)
        )
        return np.mean([model.n_components_ for model in models])

    printed = float(TABLE_3[name].split()[0])
    assert components() == pytest.approx(printed, rel=0.3)
    assert components(delta=DELTA**2) > 1.5 * printed  # sigma_ini = delta std(x), equation 13
    assert components(beta=4.9e-324) < 2


def test_every_test_that_the_errata_name_is_there(repository):
    page = (repository / "docs" / "errata.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\btest_[a-z0-9_]+\b(?!\.py)", page))
    files = [path.read_text(encoding="utf-8") for path in (repository / "tests").rglob("test_*.py")]
    defined = {name for text in files for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert named - defined == set()
