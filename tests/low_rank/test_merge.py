"""Merging low-rank mixtures: what must be kept exactly, whatever is merged with what."""

import numpy as np
import pytest

import naive
from everlearn.low_rank import merge as merging
from everlearn.low_rank.keep.reconsider import flushed
from everlearn.low_rank.keep.search import component_of_rows
from everlearn.low_rank.merge import Part
from everlearn.low_rank.state import Frame, Settings, joined, readout_of
from low_rank_toys import dense, learned, one

D, SETTINGS = 15, Settings(4, 8, 50, 400, 16, 0, 64, 1.0, 2**60, 0)
NOISE = 1.0


def components_at(*shifts, seed=0, n=80):
    rng = np.random.default_rng(seed)
    return joined([component_of_rows(one(rng, n, D) + shift, np.ones(n), SETTINGS) for shift in shifts])


def totals(c):
    """Rows, and the sums of the values and of their squares in each column."""
    return c.n.sum(), c.n @ c.mean, (c.diagonal + c.n[:, None] * c.mean**2).sum(axis=0)


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_fewer_components_have_the_first_and_second_moments_of_all(limit):
    c = components_at(0.0, 1.0, 8.0, 8.5, -20.0)
    fewer = merging.reduced(c, limit, NOISE)
    assert len(fewer.n) == limit
    for found, wanted in zip(totals(fewer), totals(c), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_the_cheapest_pair_is_that_of_all_pairs_by_dense_matrices(seed):
    shifts = np.random.default_rng(seed).permutation([0.0, 4.0, 30.0, 70.0, 150.0])
    c = components_at(*shifts, seed=seed)
    readout = readout_of(c, NOISE)
    covariances = np.array([dense(c, readout, j) for j in range(5)])
    pairs = [(i, j) for i in range(5) for j in range(i + 1, 5)]
    costs = [naive.runnalls_cost(c.mass, c.mean, covariances, i, j) for i, j in pairs]
    assert merging._cheapest_pair(c, NOISE) == pairs[int(np.argmin(costs))]
    of_one = [cost if 3 in pair else np.inf for pair, cost in zip(pairs, costs, strict=True)]
    assert merging._cheapest_pair(c, NOISE, of=3) == pairs[int(np.argmin(of_one))]


@pytest.mark.parametrize("isotropic", [False, True])
def test_the_search_of_a_merge_has_the_noise_of_its_parts(isotropic, monkeypatch):
    seen = []

    def noted(state, settings):
        seen.append(settings.isotropic)
        return state

    monkeypatch.setattr(merging, "reconsider", noted)
    state = learned(one(np.random.default_rng(0), 90, D), SETTINGS)
    merging.merge([Part(state, 1.0, isotropic), Part(state, 1.0, True)], SETTINGS)
    assert seen == [isotropic]


@pytest.mark.parametrize("ratio", [np.ones(D), np.full(D, 4.0), 2.0 ** np.random.default_rng(0).integers(-2, 3, D)])
def test_a_change_of_frame_is_that_of_the_rows(ratio):
    """Means and scatters along directions, as matrices of all columns."""
    c = components_at(0.0, 5.0)
    old = Frame(np.linspace(-1, 1, D), np.full(D, 0.5), np.full(D, np.log(2.0)))
    new = Frame(np.linspace(0, 3, D), 0.5 * ratio, -np.log(0.5 * ratio))
    before = np.einsum("kqi,kq,kqj->kij", c.directions, c.scatter, c.directions)
    means = c.mean / old.inverse + old.centre
    moved = merging._in_frame(c, old, new)
    np.testing.assert_allclose(moved.mean / new.inverse + new.centre, means, atol=1e-10)
    after = np.einsum("kqi,kq,kqj->kij", moved.directions, moved.scatter, moved.directions)
    np.testing.assert_allclose(after, before * ratio * ratio[:, None], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(moved.trace, (moved.diagonal).sum(axis=1))


def test_calibrations_are_pooled_to_that_of_all_values():
    rng = np.random.default_rng(1)
    parts = [rng.normal(2.0 * k, 1.0 + k, 20 + 30 * k) for k in range(3)]
    n, mean, variance = merging.pooled(np.array([[len(p), p.mean(), p.var()] for p in parts]))
    whole = np.concatenate(parts)
    assert (n, mean, variance) == pytest.approx((150, whole.mean(), whole.var()))
    assert not merging.pooled(np.zeros((2, 3))).any()


def rows_of_two_parts():
    rng = np.random.default_rng(2)
    return one(rng, 120, D) + 3.0, one(rng, 160, D) * 2.0


def overall_mean(state, settings):
    c = flushed(state, settings)
    return (c.mass @ c.mean / c.mass.sum()) / state.frame.inverse + state.frame.centre


@pytest.mark.parametrize("share", [1.0, 3.0])
def test_the_mean_of_all_rows_is_exact_and_the_parts_stay(share):
    A, B = rows_of_two_parts()
    a, b = learned(A, SETTINGS), learned(B, SETTINGS)
    before = [array.copy() for state in (a, b) for array in state.model.components]
    merged = merging.merge([Part(a, share), Part(b, 1.0)], SETTINGS, search=False)
    assert merged.n == 280
    # The search of a part works on its sample in single precision.
    wanted = (share * A.sum(axis=0) + B.sum(axis=0)) / (120 * share + 160)
    np.testing.assert_allclose(overall_mean(merged, SETTINGS), wanted, atol=1e-5)
    for old, new in zip(before, (array for s in (a, b) for array in s.model.components), strict=True):
        np.testing.assert_array_equal(old, new)


def test_the_sample_holds_the_rows_of_highest_priority_of_both():
    A, B = rows_of_two_parts()
    states = [learned(rows, SETTINGS) for rows in (A, B)]
    samples = [state.model.reservoir for state in states]
    keys = np.concatenate([sample.keys[: sample.size[0]] for sample in samples])
    parts = [Part(state, 1.0) for state in states]
    everything = merging._united_reservoir(parts, states[0].frame, SETTINGS)
    assert everything.size[0] == everything.offered[0] == 280
    assert everything.level[0] == -np.inf
    few = merging._united_reservoir(parts, states[0].frame, SETTINGS._replace(reservoir=50))
    np.testing.assert_array_equal(np.sort(few.keys), np.sort(keys)[-50:])
    assert few.level[0] == np.sort(keys)[-51]
    raw = everything.rows[:280] / states[0].frame.inverse + states[0].frame.centre
    np.testing.assert_allclose(np.sort(raw[:, 0]), np.sort(np.concatenate([A, B])[:, 0]), atol=1e-4)


def test_rows_of_a_warm_up_are_learned_by_what_is_merged():
    A, B = rows_of_two_parts()
    merged = merging.merge([Part(learned(A, SETTINGS), 1.0), Part(learned(B[:20], SETTINGS), 1.0)], SETTINGS)
    assert merged.n == 140
    both = merging.merge([Part(learned(rows[:20], SETTINGS), 1.0) for rows in (A, B)], SETTINGS)
    assert both.model is None
    assert both.pending.size == 40
    ended = merging.merge([Part(learned(rows[:20], SETTINGS), 1.0) for rows in (A, B)], SETTINGS, most=1)
    assert len(ended.model.components.n) == 1


def test_aggregated_components_stand_for_enough_rows_and_no_row_is_kept():
    A, _ = rows_of_two_parts()
    mixed = np.random.default_rng(3).permutation(np.concatenate([A, A[:25] + 60.0]))
    state = learned(mixed, SETTINGS)
    assert len(state.model.components.n) > 1
    without = SETTINGS._replace(reservoir=0, room=0, quota=1)
    found = merging.aggregated(state, SETTINGS, without, 40)
    assert found.model.components.n.min() >= 40
    assert found.model.components.n.sum() == pytest.approx(145.0)
    assert len(found.model.reservoir.rows) == found.model.waiting.size.sum() == 0
