"""The mixture that answers beside the one that learns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.figmn import ask
from everlearn.figmn import consolidate as readout
from everlearn.figmn import learn as incremental
from everlearn.figmn import serving as answering

D = 3


def settings(**changes):
    values = {
        "centre": np.zeros(D), "initial_variance": np.array([1.0, 0.5, 2.0]),
        "thresholds": incremental.novelty_thresholds(0.5, D), "paper": False, "forgetting": 1.0, "min_age": np.inf,
        "min_count": 0.0, "max_components": 200, "max_merge_cost": 0.1, "log_scale": np.zeros(D),
    }  # fmt: skip
    return incremental.Settings(**{**values, **changes})


def both(**changes):
    return answering.settings_for(settings(**changes), np.ones(D), copying=True)


def stream(seed, n):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)) + 6.0 * rng.integers(2, size=(n, 1))


def learned(X, cuts=(), **changes):
    pair, densities = answering.init(incremental.empty(D)), []
    for part in np.split(X, sorted(cuts)):
        pair, info = answering.learn(pair, part, np.ones(len(part)), both(**changes))
        densities.append(info.log_density)
    return pair, np.concatenate(densities)


def density(state, X):
    return ask.score(state, X, np.zeros(D)).log_density


@given(seed=st.integers(0, 20), cuts=st.lists(st.integers(0, 300), max_size=4))
def test_any_split_gives_the_same_answers(seed, cuts):
    X = stream(seed, 300)
    (whole, told), (parts, told_in_parts) = learned(X), learned(X, cuts)
    np.testing.assert_array_equal(told, told_in_parts)
    assert whole.next_copy == parts.next_copy
    for one, other in zip(whole[:2], parts[:2], strict=True):
        np.testing.assert_array_equal(one.means[: one.n_components], other.means[: other.n_components])


def test_what_a_row_was_is_what_the_answer_would_have_been():
    X = stream(0, 200)
    pair, _ = learned(X[:150])
    expected = density(pair.answering, X[150:151])
    _, info = answering.learn(pair, X[150:], np.ones(50), both())
    assert info.log_density[0] == pytest.approx(expected[0])


def test_answers_have_fewer_components_and_as_good_densities():
    X, held_out = stream(0, 1000), stream(1, 1000)
    pair, _ = learned(X)
    assert pair.answering.n_components < pair.learning.n_components / 2
    assert density(pair.answering, held_out).mean() > density(pair.learning, held_out).mean()


def test_answers_follow_a_change_before_the_next_copy():
    pair, _ = learned(stream(0, 400))
    far = np.full((20, D), 30.0) + 0.1 * stream(1, 20)
    before = density(pair.answering, far).mean()
    due = pair.next_copy
    pair, _ = answering.learn(pair, far, np.ones(20), both())
    assert pair.next_copy == due
    assert density(pair.answering, far).mean() > before + 100.0


@pytest.mark.parametrize(
    "changes", [{"forgetting": 0.99}, {"paper": True}, {"max_components": 1}, {"thresholds": np.full(D + 1, np.inf)}]
)
def test_there_is_one_mixture_without_creation_priors_or_a_second_component(changes):
    pair, _ = learned(stream(0, 300), **changes)
    assert pair.answering is None


def test_a_copy_of_components_that_cannot_be_merged():
    """It is made for the sturdier covariances, and not where no creation prior is left to replace."""
    rng = np.random.default_rng(0)
    X = np.repeat([[-50.0] * D, [50.0] * D], 500, axis=0) + rng.normal(size=(1000, D))
    pair, _ = learned(rng.permutation(X), thresholds=np.full(D + 1, 1e3))
    assert pair.learning.n_components == pair.answering.n_components == 2
    constants = both(thresholds=np.full(D + 1, 1e3))
    assert answering.renewed(pair._replace(primed=False), constants).answering is None


@given(seed=st.integers(0, 50), sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), diagonal=st.booleans())
def test_sturdy_covariances_beside_their_rows(seed, sizes, diagonal):
    rng = np.random.default_rng(seed)
    groups = [rng.normal(size=(n, D)) @ rng.normal(size=(D, D)) for n in sizes]
    prior, ridge = np.diag([1.0, 0.5, 2.0]), readout.RIDGE * np.diag([1.0, 2.0, 3.0])
    scatters = [(g - g.mean(axis=0)).T @ (g - g.mean(axis=0)) for g in groups]
    covariances = np.array([(prior + S) / n for S, n in zip(scatters, sizes, strict=True)])
    means, counts = np.array([g.mean(axis=0) for g in groups]), np.array(sizes, dtype=float)
    expected = naive.sturdy_covariances(groups, prior, ridge)
    if diagonal:
        covariances, expected = (np.diagonal(a, axis1=1, axis2=2).copy() for a in (covariances, expected))
    state = incremental.from_components(counts, means, covariances, np.ones(len(sizes)))
    sturdy = readout.sturdy_covariances(state, np.diagonal(prior), np.diagonal(ridge) / readout.RIDGE)
    np.testing.assert_allclose(sturdy, expected, rtol=1e-9, atol=1e-12)


def test_components_without_a_creation_prior_only_get_a_ridge():
    tiny = 1e-4 * np.eye(D)
    state = incremental.from_components(
        np.array([50.0, 50.0]), np.array([[0.0] * D, [9.0] * D]), np.array([tiny, tiny]), np.ones(2)
    )
    copy = readout.merged_copy(state, settings(), np.ones(D), primed=False)
    expected = tiny + readout.RIDGE * np.eye(D)
    np.testing.assert_allclose(incremental.covariances_of(copy), [expected, expected])
    kept = readout.merged_copy(state, settings(), np.ones(D))
    assert (np.linalg.eigvalsh(incremental.covariances_of(kept)) > 0).all()
