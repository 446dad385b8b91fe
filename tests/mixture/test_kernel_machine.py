"""The kernel machine beside least squares and refits without a row, and its pool beside a general minimiser."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.mixture import kernel_machine as km
from naive import kernel_machine as naive

G = 3


def labelled(n, seed, n_classes=3):
    rng = np.random.default_rng(seed)
    labels = np.sort(np.append(np.arange(n_classes), rng.integers(n_classes, size=n - n_classes)))
    Z = rng.normal(size=(n, G)) + 1.5 * np.eye(n_classes, G)[labels]
    return Z, labels, rng.uniform(0.5, 2.0, n)


def rounding(Z, landmarks, weights, width):
    """What is added to the diagonal of the Gram matrix."""
    gram = sum(w * naive.kernel(x, b, width) ** 2 for x, w in zip(Z, weights, strict=True) for b in landmarks)
    return km.ROUNDING * (gram / len(landmarks) + km.RIDGE)


@pytest.mark.parametrize("block", [1, 30, km.BLOCK])
def test_the_width_is_that_of_the_nearest_rows_of_a_class(block, monkeypatch):
    monkeypatch.setattr(km, "BLOCK", block)
    Z, labels, _ = labelled(25, 0)
    nearest = []
    for i in range(25):
        others = [((Z[i] - Z[j]) ** 2).sum() for j in range(25) if j != i and labels[j] == labels[i]]
        nearest += [min(others)] if others else []
    assert km.kernel_width(Z, labels) == pytest.approx(km.WIDTH * np.mean(nearest))
    assert km.kernel_width(np.zeros((4, G)), np.array([0, 0, 1, 2])) == 0.0


@given(st.integers(8, 30), st.integers(0, 10**6), st.floats(0.3, 1.0))
def test_the_machine_is_the_least_squares_one(n, seed, share):
    Z, labels, importance = labelled(n, seed)
    rng = np.random.default_rng(seed)
    landmarks = rng.permutation(n)[: max(2, int(share * n))]
    machine, _ = km.fit(Z, labels, importance, 3, landmarks, np.arange(n))
    B, weights = Z[landmarks], importance * n / importance.sum()
    more = rounding(Z, B, weights, machine.width)
    Y = np.eye(3)[labels] - 1.0 / 3.0
    A = naive.machine_coefficients(Z, Y, weights, B, machine.width, km.RIDGE, more)
    asked = rng.normal(size=(5, G))
    wanted = [naive.machine_value(x, B, A, machine.width) for x in asked]
    np.testing.assert_allclose(km.values(machine, asked), wanted, atol=1e-5)


@given(st.integers(8, 25), st.integers(0, 10**6))
def test_left_out_is_refitted_without_the_row(n, seed):
    Z, labels, importance = labelled(n, seed)
    landmarks, judged = np.arange(0, n, 2), np.arange(1, n, 3)
    machine, left_out = km.fit(Z, labels, importance, 3, landmarks, judged)
    weights, Y, B = importance * n / importance.sum(), np.eye(3)[labels] - 1.0 / 3.0, Z[landmarks]
    more = rounding(Z, B, weights, machine.width)
    for i, found in zip(judged, left_out, strict=True):
        rest = np.arange(n) != i
        A = naive.machine_coefficients(Z[rest], Y[rest], weights[rest], B, machine.width, km.RIDGE, more)
        np.testing.assert_allclose(found, naive.machine_value(Z[i], B, A, machine.width), atol=1e-5)


def test_blocks_of_rows_change_nothing(monkeypatch):
    Z, labels, importance = labelled(60, 1)
    whole = km.fit(Z, labels, importance, 3, np.arange(20), np.arange(60))
    told = km.values(whole[0], Z)
    monkeypatch.setattr(km, "BLOCK", 7 * 20)
    parts = km.fit(Z, labels, importance, 3, np.arange(20), np.arange(60))
    np.testing.assert_allclose(km.values(parts[0], Z), told, atol=1e-6)
    np.testing.assert_allclose(km.values(whole[0], Z), told, atol=1e-12)


def test_far_from_all_landmarks_the_machine_says_nothing():
    Z, labels, importance = labelled(40, 2)
    machine, _ = km.fit(Z, labels, importance, 3, np.arange(40), np.arange(40))
    np.testing.assert_array_equal(km.values(machine, np.full((1, G), 1e15)), 0.0)


@pytest.mark.parametrize("seed", range(4))
def test_the_pool_has_the_least_log_loss(seed):
    _, labels, importance = labelled(80, seed)
    rng = np.random.default_rng(seed)
    truth = np.eye(3)[labels]
    log_p, f = 8.0 * (truth + rng.normal(0, 0.6, (80, 3))), truth + rng.normal(0, 0.6, (80, 3))
    found = km.pool_weights(log_p, f, labels, importance)
    wanted = naive.pool_weights(log_p, f, labels, importance * 80 / importance.sum())
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert 0.0 < found[0] < 1.0 < found[1]


def test_a_machine_that_does_harm_is_not_heard():
    _, labels, importance = labelled(80, 5)
    truth = np.eye(3)[labels]
    assert km.pool_weights(5.0 * truth, -truth, labels, importance).tolist() == [1.0, 0.0]


def test_the_pool_of_known_classes():
    """Probabilities sum to one; a class that no row of was learned keeps its frequency; the hardest rows are taken."""
    Z, labels, importance = labelled(60, 3)
    known, labels = np.array([0, 2, 3]), np.array([0, 2, 3])[labels]
    joint = np.full((60, 4), -np.inf)
    joint[:, known] = -((Z[:, None] - 1.5 * np.eye(3)) ** 2).sum(axis=2)
    log_prior = np.log([0.3, 0.1, 0.2, 0.4])
    pool = km.pool_of(Z, labels, importance, joint, known, np.arange(60))
    found = km.pooled(pool, Z, joint, log_prior)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0)
    np.testing.assert_allclose(np.exp(found[:, 1]), 0.1)
    assert np.mean(found.argmax(axis=1) == labels) > 0.7
    assert km.pooled(pool, Z[:0], joint[:0], log_prior).shape == (0, 4)
    assert km.pool_of(Z, labels, importance, joint, known, np.arange(0)) is None
    assert km.pool_of(np.zeros_like(Z), labels, importance, joint, known, np.arange(60)) is None


def test_landmarks_are_the_rows_of_least_margin(monkeypatch):
    monkeypatch.setattr(km, "LANDMARKS", 5)
    Z, labels, importance = labelled(30, 4)
    joint = np.random.default_rng(4).normal(size=(30, 3))
    pool = km.pool_of(Z, labels, importance, joint, np.arange(3), np.arange(30))
    margins = [joint[i, c] - max(joint[i, k] for k in range(3) if k != c) for i, c in enumerate(labels)]
    np.testing.assert_array_equal(pool.machine.landmarks, Z[np.argsort(margins)[:5]])
