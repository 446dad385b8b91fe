"""Classes told apart by their densities: views, rows left out of their own class, and the blend."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

import naive
from everlearn.base.scaling import frame_of_spread
from everlearn.figmn import learn as incremental
from everlearn.mixture import class_densities as classes

D = 3
FRAME = frame_of_spread(np.ones(D))


def settings(beta=0.1):
    return incremental.Settings(
        centre=np.zeros(D), initial_variance=np.ones(D), thresholds=incremental.novelty_thresholds(beta, D),
        paper=False, forgetting=1.0, min_age=np.inf, min_count=0.0, max_components=50, max_merge_cost=0.1,
        log_scale=np.zeros(D),
    )  # fmt: skip


def labelled(n=120, n_classes=2, seed=0, gaps=0.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_classes, size=n)
    X = rng.normal(size=(n, D)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -0.7], [0.0, 0.0, 0.6]])
    X = X * (1.0 + 0.5 * labels[:, None]) + 1.5 * labels[:, None]
    X[rng.random(X.shape) < gaps] = np.nan
    return classes.Labelled(X, labels, np.ones(n))


def learned(sample, beta=0.1, diagonal=False):
    shapes = []
    for c in np.unique(sample.labels):
        mine = sample.some(sample.labels == c)
        state = incremental.empty(D, diagonal=diagonal)
        state, _ = incremental.learn(state, mine.rows, mine.weights, settings(beta))
        shapes.append((int(c), classes.class_shape(state, settings(beta))))
    return shapes


def views_of(shapes):
    within = classes.pooled([shape.whole for _, shape in shapes])
    local = classes.pooled([shape.components for _, shape in shapes])
    shared = classes.common(within, local, np.ones(D))
    return classes.all_views([classes.class_views(c, shape, shared) for c, shape in shapes])


def full(covariances):
    return covariances if covariances.ndim == 3 else np.array([np.diag(v) for v in covariances])


# -- views ------------------------------------------------------------------------------------------


def test_the_whole_class_is_one_gaussian_of_its_rows():
    """However many components there are: the moments of the rows, with one creation prior."""
    sample = labelled()
    for c, shape in learned(sample):
        X = sample.rows[sample.labels == c]
        assert len(shape.components.counts) > 1
        scatter = (X - X.mean(axis=0)).T @ (X - X.mean(axis=0))
        assert shape.whole.counts[0] == pytest.approx(len(X))
        assert np.allclose(shape.whole.means[0], X.mean(axis=0))
        assert np.allclose(shape.whole.covariances[0], (scatter + np.eye(D)) / len(X))


def test_views_shrink_as_by_rows_of_the_shared_shape():
    shapes = learned(labelled())
    linear, quadratic, mixture = views_of(shapes)
    within = sum(s.whole.counts[0] * s.whole.covariances[0] for _, s in shapes) / 120
    ridge = 1e-3 * np.eye(D)
    for c, shape in shapes:
        n, S = shape.whole.counts[0], shape.whole.covariances[0]
        assert np.allclose(linear.gaussians.covariances[c], within + ridge)
        assert np.allclose(quadratic.gaussians.covariances[c], (n * S + D * within) / (n + D) + ridge)
    assert np.array_equal(mixture.classes, np.sort(mixture.classes))
    assert len(mixture.classes) == sum(len(s.components.counts) for _, s in shapes)


@pytest.mark.parametrize("gaps", [0.0, 0.4])
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_likelihoods_are_those_of_the_classes(number, diagonal, gaps):
    sample = labelled(n_classes=3, gaps=gaps)
    view = views_of(learned(sample, diagonal=diagonal))[number]
    found = classes.log_likelihoods(view, sample.rows[:30], 4)
    assert np.isneginf(found[:, 3]).all()
    counts, means, covariances = view.gaussians
    for c in range(3):
        mine = view.classes == c
        weights = counts[mine] / counts[mine].sum()
        joint = naive.log_joint_with_gaps(sample.rows[:30], weights, means[mine], full(covariances)[mine])
        assert np.allclose(found[:, c], logsumexp(joint, axis=1))


# -- a row left out of its own class ----------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("diagonal", [False, True])
def test_left_out_equals_the_twin(number, gaps, diagonal):
    sample = labelled(60, gaps=gaps)
    view = views_of(learned(sample, diagonal=diagonal))[number]
    seen = ~np.isnan(sample.rows).all(axis=1)
    sample = sample.some(seen)
    plain = classes.log_likelihoods(view, sample.rows, 2)
    found = classes.log_likelihoods(view, sample.rows, 2, sample)
    counts, means, covariances = view.gaussians
    for i, (x, c) in enumerate(zip(sample.rows, sample.labels, strict=True)):
        assert found[i, 1 - c] == plain[i, 1 - c]
        mine = view.classes == c
        joint = naive.log_joint_with_gaps([x], counts[mine], means[mine], full(covariances)[mine])[0]
        share = np.exp(joint - logsumexp(joint))
        if diagonal:  # only the diagonal of e e' was ever added
            expected = diagonal_left_out(x, share, counts[mine], means[mine], covariances[mine], D)
        else:
            expected = naive.left_out_log_density(x, share, counts[mine], means[mine], covariances[mine], D)
        assert found[i, c] == pytest.approx(expected, rel=1e-8)


def diagonal_left_out(x, share, counts, means, variances, prior):
    joint, seen = [], ~np.isnan(x)
    for n, r, m, v in zip(counts, share, means, variances, strict=True):
        moved = (n * m - r * x) / (n - r)
        lower = ((n + prior) * v - r * n / (n - r) * (x - m) ** 2) / (n - r + prior)
        logs = -0.5 * ((x - moved) ** 2 / lower + np.log(2 * np.pi * lower))
        joint.append(np.log((n - r) / (counts - share).sum()) + logs[seen].sum())
    return logsumexp(joint)


def test_left_out_is_learning_without_the_row(monkeypatch):
    """One Gaussian a class: the same as if the row had never been learned, but for the shared covariance."""
    monkeypatch.setattr(classes, "RIDGE", 0.0)
    sample = labelled(40)
    shapes = learned(sample, beta=0.0)
    within = classes.pooled([shape.whole for _, shape in shapes])
    shared = classes.common(within, within, np.ones(D))
    quadratic = classes.all_views([classes.class_views(c, shape, shared) for c, shape in shapes])[1]
    found = classes.log_likelihoods(quadratic, sample.rows, 2, sample)
    for i in range(40):
        others = sample.some(np.arange(40) != i)
        without = dict(learned(others, beta=0.0))[int(sample.labels[i])].whole
        n = without.counts[0]
        covariance = (n * without.covariances[0] + D * within) / (n + D)
        expected = naive.log_normal(sample.rows[i], without.means[0], covariance)
        assert found[i, sample.labels[i]] == pytest.approx(expected, rel=1e-9)


# -- the blend --------------------------------------------------------------------------------------


@given(seed=st.integers(0, 50))
def test_stacking_finds_the_best_blend(seed):
    """No single voice, and no small step away, gives the truth more probability (up to the prior of one row)."""
    rng = np.random.default_rng(seed)
    truth, weights = rng.beta(0.5, 0.5, (80, 4)), rng.uniform(0.5, 2.0, 80)

    def value(w):
        return weights @ np.log(truth @ w) + np.log(w).sum() / 4

    steps = classes.STACKING_STEPS
    classes.STACKING_STEPS = 3000
    try:
        best = classes._stacked(truth, weights)
    finally:
        classes.STACKING_STEPS = steps
    assert best.sum() == pytest.approx(1.0)
    for j in range(4):
        step = 0.999 * best + 0.001 * np.eye(4)[j]
        assert value(best) >= value(step) - 1e-6
        assert value(best) >= value(np.where(np.arange(4) == j, 0.97, 0.01)) - 1e-6


def test_few_steps_come_close():
    rng = np.random.default_rng(0)
    truth, weights = rng.beta(0.5, 0.5, (200, 10)), np.ones(200)
    few = weights @ np.log(truth @ classes._stacked(truth, weights))
    steps, classes.STACKING_STEPS = classes.STACKING_STEPS, 5000
    many = weights @ np.log(truth @ classes._stacked(truth, weights))
    classes.STACKING_STEPS = steps
    assert few > many - 1.0


def test_the_right_view_speaks_loudest():
    """Same shape in both classes: the linear view. Two heaps a class, crosswise: the mixtures."""
    rng = np.random.default_rng(1)
    labels = rng.integers(2, size=600)
    same = classes.Labelled(rng.normal(size=(600, D)) + 1.5 * labels[:, None], labels, np.ones(600))
    heaps = rng.integers(2, size=600)
    crossed = rng.normal(0, 0.5, size=(600, D))
    crossed[:, 0] += 4.0 * heaps
    crossed[:, 1] += 4.0 * (heaps ^ labels)
    voices = len(classes.TEMPERATURES)
    for rows, loudest in ((same.rows, 0), (crossed, 2)):
        sample = classes.Labelled(rows, labels, np.ones(600))
        weights = classes.blend(learned(sample, beta=0.001), np.ones(D), np.log([0.5, 0.5]), sample).weights
        assert np.argmax([weights[voices * i : voices * (i + 1)].sum() for i in range(3)]) == loudest


def test_unreachable_rows_and_lonely_classes():
    """A class of a single row says nothing about the blend; far rows get the class frequencies' say at least."""
    sample = labelled(30)
    lonely = classes.Labelled(np.vstack([sample.rows, [[9.0, 9.0, 9.0]]]), np.append(sample.labels, 2), np.ones(31))
    log_prior = np.log([0.45, 0.45, 0.1])
    shapes = learned(lonely)
    blend = classes.blend(shapes, np.ones(D), log_prior, lonely)
    assert np.isfinite(blend.weights).all()
    found = classes.log_probabilities(views_of(shapes), blend.weights, np.full((1, D), 1e30), log_prior)
    assert np.isfinite(found).all()
    assert np.allclose(np.exp(found).sum(), 1.0)
    alone = lonely.some(lonely.labels == 2)
    assert np.allclose(classes.blend(shapes, np.ones(D), log_prior, alone).weights, 1 / classes.N_VOICES)


def test_a_row_without_values_is_judged_by_frequency():
    shapes = learned(labelled())
    log_prior = np.log([0.3, 0.7])
    weights = np.full(classes.N_VOICES, 1 / classes.N_VOICES)
    found = classes.log_probabilities(views_of(shapes), weights, np.full((1, D), np.nan), log_prior)
    assert np.allclose(np.exp(found), [[0.3, 0.7]])


def test_work_is_bounded(monkeypatch):
    """The blend looks at fewer rows of the sample when there is much to compute."""
    asked = []
    monkeypatch.setattr(classes, "WORK", 1)
    monkeypatch.setattr(classes, "MIN_ROWS", 20)
    whole = classes.voices
    monkeypatch.setattr(classes, "voices", lambda views, X, *rest: asked.append(len(X)) or whole(views, X, *rest))
    sample = labelled()
    classes.blend(learned(sample), np.ones(D), np.log([0.5, 0.5]), sample)
    assert asked == [20]


def test_a_few_rows_are_answered_like_many():
    sample = labelled(n_classes=3)
    shapes = learned(sample)
    views = views_of(shapes)
    X, log_prior = sample.rows[:40], np.log([0.2, 0.5, 0.3])
    weights = np.random.default_rng(0).dirichlet(np.ones(classes.N_VOICES))
    X[3] = 1e6
    many = classes.log_probabilities(views, weights, X, log_prior)
    few = np.concatenate([classes.log_probabilities(views, weights, X[i : i + 5], log_prior) for i in range(0, 40, 5)])
    np.testing.assert_allclose(few, many, rtol=1e-9, atol=1e-9)
