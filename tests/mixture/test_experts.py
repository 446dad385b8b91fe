"""Experts on classes: shrinkage, densities with gaps, rows left out of their own class, weights of opinions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

import naive
from everlearn.mixture import experts
from everlearn.mixture.experts import ClassMoments, Sample

D = 3


def labelled(n=120, n_classes=2, seed=0, gaps=0.0):
    rng = np.random.default_rng(seed)
    labels = np.sort(rng.integers(n_classes, size=n))
    X = rng.normal(size=(n, D)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -0.7], [0.0, 0.0, 0.6]])
    X = X * (1.0 + 0.5 * labels[:, None]) + 1.5 * labels[:, None]
    X[rng.random(X.shape) < gaps] = np.nan
    return Sample(X, labels, np.ones(n), np.ones(n))


def some(sample, which):
    return Sample(*(values[which] for values in sample))


def moments_of(rows, diagonal=False, split=None):
    """Moments of a class; of the two halves of it if it is split along a column."""
    halves = [rows] if split is None else [rows[rows[:, split] > 0], rows[rows[:, split] <= 0]]
    covariances = [np.cov(part.T, bias=True) for part in halves]
    if diagonal:
        covariances = [np.diag(each) for each in covariances]
    counts = np.array([float(len(part)) for part in halves])
    return ClassMoments(counts, np.array([part.mean(axis=0) for part in halves]), np.array(covariances))


def moments_by_class(sample, diagonal=False, split=0):
    filled = np.where(np.isnan(sample.rows), 0.3, sample.rows)
    return {int(c): moments_of(filled[sample.labels == c], diagonal, split) for c in np.unique(sample.labels)}


def experts_of(sample, diagonal=False, split=0):
    moments = moments_by_class(sample, diagonal, split)
    shared = experts.shared_of(list(moments.values()))
    parts = [experts.class_experts(c, each, shared) for c, each in moments.items()]
    return experts.all_experts(parts, experts.kernels_of(sample, moments, shared))


def full(covariances):
    return covariances if covariances.ndim == 3 else np.array([np.diag(v) for v in covariances])


# -- from components to experts ---------------------------------------------------------------------


def test_shared_covariance_is_pooled_with_a_row_a_column_of_uncorrelated_ones():
    sample = labelled()
    shared = experts.shared_of(list(moments_by_class(sample).values()))
    centred = np.concatenate([X - X.mean(axis=0) for X in (sample.rows[sample.labels == c] for c in (0, 1))])
    variance = sample.rows.var(axis=0)
    assert np.allclose(shared.variance, variance)
    assert np.allclose(shared.within, (centred.T @ centred + D * np.diag(variance)) / (120 + D))


def test_experts_shrink_as_by_rows_of_the_shared_shape():
    sample = labelled()
    moments = moments_by_class(sample)
    shared = experts.shared_of(list(moments.values()))
    same, loose, firm = experts_of(sample).gaussians
    ridge = np.diag(experts.RIDGE * shared.variance)
    assert np.allclose(same.covariances, shared.within + ridge)
    for expert, prior in ((loose, 1.0), (firm, 1.0 + D / 3.0)):
        n, S = (
            np.concatenate([getattr(each, name) for each in moments.values()]) for name in ("counts", "covariances")
        )
        wanted = (n[:, None, None] * S + prior * shared.local) / (n + prior)[:, None, None] + ridge
        assert np.allclose(expert.covariances, wanted)
        assert expert.classes.tolist() == [0, 0, 1, 1]


def test_a_column_that_never_varied_is_as_wide_as_the_widest():
    sample = labelled()
    sample.rows[:, 1] = 5.0
    shared = experts.shared_of(list(moments_by_class(sample).values()))
    assert shared.variance[1] == shared.variance.max()


# -- log-densities ----------------------------------------------------------------------------------


@pytest.mark.parametrize("gaps", [0.0, 0.4])
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_densities_are_those_of_the_classes(number, diagonal, gaps):
    sample = labelled(n_classes=3, gaps=gaps)
    expert = experts_of(sample, diagonal).gaussians[number]
    found = experts.log_densities(expert, sample.rows[:30], 4)
    assert np.isneginf(found[:, 3]).all()
    for c in range(3):
        mine = expert.classes == c
        weights = expert.counts[mine] / expert.counts[mine].sum()
        joint = naive.log_joint_with_gaps(sample.rows[:30], weights, expert.means[mine], full(expert.covariances)[mine])
        assert np.allclose(found[:, c], logsumexp(joint, axis=1))


@pytest.mark.parametrize("gaps", [0.0, 0.4])
def test_kernels_are_gaussians_on_the_rows(gaps):
    sample = labelled(40, gaps=gaps)
    kernels = experts_of(sample).kernels
    asked = labelled(20, seed=1, gaps=gaps).rows
    found = experts.kernel_log_densities(kernels, asked, 2)
    for c in range(2):
        mine = kernels.classes == c
        weights = np.full(mine.sum(), 1 / mine.sum())
        joint = naive.log_joint_with_gaps(asked, weights, kernels.means[mine], full(kernels.variances[mine]))
        assert np.allclose(found[:, c], logsumexp(joint, axis=1))


def test_a_missing_value_of_a_kernel_is_as_wide_as_its_column():
    sample = labelled(40)
    sample.rows[3, 1] = np.nan
    moments = moments_by_class(sample, split=None)
    shared = experts.shared_of(list(moments.values()))
    kernels = experts.kernels_of(sample, moments, shared)
    assert kernels.means[3, 1] == pytest.approx(moments[0].means[0, 1])
    ridge = experts.RIDGE * shared.variance[1]
    assert kernels.variances[3, 1] == pytest.approx(moments[0].covariances[0, 1, 1] + ridge)
    assert kernels.variances[4, 1] == pytest.approx(experts.BANDWIDTH**2 * shared.local[1, 1] + ridge)


# -- a row left out of its own class ----------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("diagonal", [False, True])
def test_left_out_equals_the_twin(number, gaps, diagonal):
    sample = labelled(60, gaps=gaps)
    expert = experts_of(sample, diagonal).gaussians[number]
    sample = some(sample, ~np.isnan(sample.rows).all(axis=1))
    plain = experts.log_densities(expert, sample.rows, 2)
    found = experts.log_densities(expert, sample.rows, 2, sample)
    for i, (x, c) in enumerate(zip(sample.rows, sample.labels, strict=True)):
        assert found[i, 1 - c] == plain[i, 1 - c]
        mine = expert.classes == c
        counts, means, covariances = expert.counts[mine], expert.means[mine], expert.covariances[mine]
        joint = naive.log_joint_with_gaps([x], counts, means, full(covariances))[0]
        share = np.exp(joint - logsumexp(joint))
        twin = diagonal_left_out if diagonal else naive.left_out_log_density
        assert found[i, c] == pytest.approx(twin(x, share, counts, means, covariances, expert.prior), rel=1e-8)


def diagonal_left_out(x, share, counts, means, variances, prior):
    """Only the diagonal of e e' was ever added."""
    joint, seen = [], ~np.isnan(x)
    for n, r, m, v in zip(counts, share, means, variances, strict=True):
        moved = (n * m - r * x) / (n - r)
        lower = ((n + prior) * v - r * n / (n - r) * (x - m) ** 2) / (n - r + prior)
        logs = -0.5 * ((x - moved) ** 2 / lower + np.log(2 * np.pi * lower))
        joint.append(np.log((n - r) / (counts - share).sum()) + logs[seen].sum())
    return logsumexp(joint)


def test_left_out_is_learning_without_the_row(monkeypatch):
    """One Gaussian a class: the same as if the row had never been learned, but for the shared covariance."""
    monkeypatch.setattr(experts, "RIDGE", 0.0)
    sample = labelled(40)
    shared = experts.shared_of(list(moments_by_class(sample, split=None).values()))
    loose = experts_of(sample, split=None).gaussians.loose
    found = experts.log_densities(loose, sample.rows, 2, sample)
    for i in range(40):
        others = some(sample, (np.arange(40) != i) & (sample.labels == sample.labels[i]))
        without = moments_of(others.rows)
        n = without.counts[0]
        covariance = (n * without.covariances[0] + shared.local) / (n + 1.0)
        expected = naive.log_normal(sample.rows[i], without.means[0], covariance)
        assert found[i, sample.labels[i]] == pytest.approx(expected, rel=1e-9)


def test_a_row_is_left_out_of_the_kernels():
    sample = labelled(30)._replace(stands_for=np.linspace(1.0, 2.0, 30))
    kernels = experts_of(sample).kernels
    found = experts.kernel_log_densities(kernels, sample.rows, 2, sample)
    for i in range(30):
        rest = (np.arange(30) != i) & (sample.labels == sample.labels[i])
        weights = sample.stands_for[rest] / sample.stands_for[rest].sum()
        joint = naive.log_joint_with_gaps(sample.rows[[i]], weights, kernels.means[rest], full(kernels.variances[rest]))
        assert found[i, sample.labels[i]] == pytest.approx(logsumexp(joint), rel=1e-9)


# -- opinions and their weights ---------------------------------------------------------------------


@given(seed=st.integers(0, 50))
def test_stacking_finds_the_best_weights(seed):
    """No single opinion, and no small step away, gives the truth more probability (up to the prior of one row)."""
    rng = np.random.default_rng(seed)
    truth, importance = rng.beta(0.5, 0.5, (80, 4)), rng.uniform(0.5, 2.0, 80)

    def value(w):
        return importance @ np.log(truth @ w) + np.log(w).sum() / 4

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experts, "STACKING_STEPS", 3000)
        best = experts.stacked(truth, importance)
    assert best.sum() == pytest.approx(1.0)
    for j in range(4):
        step = 0.999 * best + 0.001 * np.eye(4)[j]
        assert value(best) >= value(step) - 1e-6
        assert value(best) >= value(np.where(np.arange(4) == j, 0.97, 0.01)) - 1e-6


def test_few_steps_come_close(monkeypatch):
    truth, importance = np.random.default_rng(0).beta(0.5, 0.5, (200, 9)), np.ones(200)
    few = np.log(truth @ experts.stacked(truth, importance)).sum()
    monkeypatch.setattr(experts, "STACKING_STEPS", 5000)
    assert few > np.log(truth @ experts.stacked(truth, importance)).sum() - 1.0


def test_the_right_expert_counts_most():
    """Same shape in both classes: the shared covariance. Two groups a class, crosswise: mixtures or kernels."""
    rng = np.random.default_rng(1)
    labels = np.sort(rng.integers(2, size=600))
    same = rng.normal(size=(600, D)) + 1.5 * labels[:, None]
    groups = rng.integers(2, size=600)
    crossed = rng.normal(0, 0.5, size=(600, D))
    crossed[:, 0] += 4.0 * groups - 2.0
    crossed[:, 1] += 4.0 * (groups ^ labels)
    each = len(experts.TEMPERATURES)
    for rows, split, is_shared in ((same, None, True), (crossed, 0, False)):
        sample = Sample(rows, labels, np.ones(600), np.ones(600))
        judged = np.ones(600, dtype=bool)
        weights = experts.weights_of_opinions(experts_of(sample, split=split), sample, np.log([0.5, 0.5]), judged)
        shares = [weights[each * i : each * (i + 1)].sum() for i in range(4)]
        assert (np.argmax(shares) == 0) == is_shared, shares


def test_unreachable_rows_and_classes_of_one_row():
    """A row that is not judged says nothing about the weights; far rows get the class frequencies' say at least."""
    sample = labelled(30)
    log_prior = np.log([0.45, 0.55])
    found = experts.log_probabilities(
        experts_of(sample), np.full(experts.N_OPINIONS, 1 / experts.N_OPINIONS), np.full((1, D), 1e30), log_prior
    )
    assert np.isfinite(found).all()
    assert np.allclose(np.exp(found).sum(), 1.0)
    nothing = np.zeros(30, dtype=bool)
    weights = experts.weights_of_opinions(experts_of(sample), sample, log_prior, nothing)
    assert np.array_equal(weights, experts.UNWEIGHED)
    assert weights.sum() == pytest.approx(1.0)


def test_rows_are_left_out_by_their_leverages_where_they_are_given():
    """The deviation from each Gaussian of its class is 1/(1 - share leverage n/(n + prior)) times as large."""
    sample = labelled(40)
    firm = experts_of(sample).gaussians.firm
    leverages = {c: np.random.default_rng(c).uniform(0.0, 0.9, (int((sample.labels == c).sum()), 2)) for c in (0, 1)}
    found = experts.log_densities(firm, sample.rows, 2, sample, leverages)
    whole = experts.log_densities(firm, sample.rows, 2)
    for i in range(40):
        c = sample.labels[i]
        mine = np.flatnonzero(firm.classes == c)
        own = leverages[int(c)][i - np.flatnonzero(sample.labels == c)[0]]
        heights, grown = [], []
        for k, leverage in zip(mine, own, strict=True):
            e, weight = sample.rows[i] - firm.means[k], firm.counts[k] / firm.counts[mine].sum()
            height = np.log(weight) - 0.5 * np.linalg.slogdet(2 * np.pi * firm.covariances[k])[1]
            heights.append(height - 0.5 * e @ np.linalg.solve(firm.covariances[k], e))
            share = np.exp(heights[-1] - whole[i, c]) * firm.counts[k] / (firm.counts[k] + firm.prior)
            e = e / (1.0 - min(share * leverage, 0.5))
            grown.append(height - 0.5 * e @ np.linalg.solve(firm.covariances[k], e))
        assert whole[i, c] == pytest.approx(logsumexp(heights))
        assert found[i, c] == pytest.approx(logsumexp(grown))
        assert found[i, 1 - c] == whole[i, 1 - c]


def test_a_row_without_values_is_judged_by_frequency():
    weights = np.full(experts.N_OPINIONS, 1 / experts.N_OPINIONS)
    found = experts.log_probabilities(experts_of(labelled()), weights, np.full((1, D), np.nan), np.log([0.3, 0.7]))
    assert np.allclose(np.exp(found), [[0.3, 0.7]])
