"""Blocks of rows: what they change, how they are cut and divided. That they equal single rows is in test_learn.py."""

import numpy as np
import pytest

from everlearn.figmn import blocks, bounds
from everlearn.figmn.state import Rows, with_arrays
from everlearn.linalg.backend import HOST, LARGE
from states import mixture, rows_from, settings_for


def learned(start, X, settings, screen=None):
    """The state after a block, what it reports, and its rows."""
    state = with_arrays(start, np.copy)
    rows = Rows(X, np.ones(len(X)), np.empty(len(X)), np.empty(len(X)))
    return *blocks.learn_block(state, HOST, HOST.matrices(state.precisions), rows, rows.X, settings, screen), rows


def test_one_component_is_the_mean_and_scatter_of_its_rows():
    """By the definition: counts add up, and so do scatters about the common mean."""
    rng = np.random.default_rng(0)
    start = mixture(rng, 5, 1, count=30.0)
    X = rows_from(rng, start, 50)
    after, progress, _ = learned(start, X, settings_for(5))
    n, mean, S = start.counts[0], start.means[0], start.counts[0] * np.linalg.inv(start.precisions[0])
    total = (n * mean + X.sum(axis=0)) / (n + 50.0)
    S = S + n * np.outer(mean - total, mean - total) + (X - total).T @ (X - total)
    assert progress.rows == 50
    np.testing.assert_allclose(after.means[0], total, rtol=1e-10)
    np.testing.assert_allclose(np.linalg.inv(after.precisions[0]), S / (n + 50.0), rtol=1e-8, atol=1e-10)
    assert after.counts[0] == pytest.approx(n + 50.0)
    assert after.log_dets[0] == pytest.approx(np.linalg.slogdet(S / (n + 50.0))[1])


def test_components_that_are_reported_as_unchanged_are():
    rng = np.random.default_rng(1)
    start = mixture(rng, 8, 12, spread=40.0, count=300.0)
    X = rows_from(rng, start, 40)
    X[0] += 500.0  # opens a component
    screen = bounds.bounds_of(np.zeros(8), start.means, start.precisions, 12)
    after, progress, _ = learned(start, X[[0, *range(1, 6)]], settings_for(8, beta=1e-6), screen)
    assert (progress.rows, after.n_components, len(progress.changed)) == (6, 13, 13)
    assert progress.changed[12]
    same = ~progress.changed[:12]
    assert 6 <= same.sum() < 12
    np.testing.assert_array_equal(after.means[:12][same], start.means[:12][same])
    np.testing.assert_array_equal(after.precisions[:12][same], start.precisions[:12][same])
    assert (after.means[:12][~same] != start.means[:12][~same]).any(axis=1).all()


@pytest.mark.parametrize(("K", "b", "D"), [(1, 8, 3), (40, 64, 16), (7, 4096, 100), (5, 32, LARGE)])
def test_stacks_are_all_components_once_and_in_order(K, b, D):
    parts = blocks.stacks(HOST, K, b, D)
    assert [j for part in parts for j in range(K)[part]] == list(range(K))
    if D >= LARGE:
        assert len(parts) == K
    else:
        assert all((part.stop - part.start - 1) * b * D <= HOST.stack_numbers for part in parts)


def test_screens_pass_over_most_components_of_a_separated_mixture():
    rng = np.random.default_rng(10)
    start = mixture(rng, 16, 30, spread=8.0, count=300.0)
    X = rows_from(rng, start, 256)
    rows = Rows(X, np.ones(256), np.empty(256), np.empty(256))
    known = bounds.bounds_of(np.zeros(16), start.means, start.precisions, 30)
    _, progress = blocks.learn_block(
        start, HOST, HOST.matrices(start.precisions), rows, rows.X, settings_for(16), known
    )
    assert progress.rows == 256
    assert progress.share < 0.1


def test_a_block_with_too_many_assigned_rows_is_cut_short(monkeypatch):
    rng = np.random.default_rng(11)
    start = mixture(rng, 16, 3, spread=0.1, count=300.0)
    X = rows_from(rng, start, 256)
    rows = Rows(X, np.ones(256), np.empty(256), np.empty(256))
    known = bounds.bounds_of(np.zeros(16), start.means, start.precisions, 3)
    monkeypatch.setattr(blocks, "MOST_ASSIGNED", 3 * 64**2)
    _, progress = blocks.learn_block(
        start, HOST, HOST.matrices(start.precisions), rows, rows.X, settings_for(16), known
    )
    assert progress.rows == 64
