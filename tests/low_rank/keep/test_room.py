"""The room for strange rows: alike ones open a component, others are learned after all."""

from itertools import combinations

import numpy as np
import pytest

from everlearn.low_rank.keep import room
from everlearn.low_rank.keep.search import component_of_rows
from everlearn.low_rank.state import Rule, Settings, empty_reservoir, joined, model_of, readout_of
from low_rank_toys import one

D, H = 20, 8
SETTINGS = Settings(4, 8, 50, 0, H, 0, 64, 1.0, 2**60, 0)
RULE = Rule(1.0, 8, 1.0, 3.0, 100.0, 0)


def usual():
    """Rows of one Gaussian."""
    return one(np.random.default_rng(0), 200 + H, D)


def full_room(strange):
    """A model of 200 rows with a full room, and what its sketch says."""
    c = component_of_rows(usual()[:200], np.ones(200), SETTINGS)
    model = model_of(c, SETTINGS, empty_reservoir(0, D))
    model.room.rows[:], model.room.weights[:], model.room.size[0] = strange, np.arange(1.0, H + 1.0), H
    return model, readout_of(c, 1.0)


def alike():
    """Four rows at one far place, in between four rows far from everything."""
    rng = np.random.default_rng(1)
    Y = 40.0 * rng.normal(size=(H, D))
    Y[::2] = 30.0 + rng.normal(size=(4, D))
    return Y


def test_the_tightest_rows_are_those_of_least_spread_about_one_of_them():
    Y = np.random.default_rng(2).normal(size=(9, 3)) ** 3
    found = room.tightest(Y, 4)
    d2 = ((Y[:, None] - Y) ** 2).sum(axis=2)
    wanted = min(d2[i, list(group)].sum() for i in range(9) for group in combinations(range(9), 4) if i in group)
    assert d2[found[0], found].sum() == pytest.approx(wanted)


def test_rows_that_are_alike_open_a_component():
    Y = alike()
    model, readout = full_room(Y)
    after, opened = room.empty_some(model, readout, RULE, SETTINGS)
    c = after.components
    assert opened
    assert len(c.n) == 2
    weights = np.arange(1.0, H + 1.0)[::2]
    assert c.mass[1] == c.n[1] == c.borrowed[1] == weights.sum()
    np.testing.assert_allclose(c.mean[1], weights @ Y[::2] / weights.sum())
    np.testing.assert_array_equal(after.room.rows[:4], Y[1::2])  # the others stay, the oldest first
    assert after.room.size[0] == 4
    assert after.waiting.rows.shape[0] == 2


def test_a_new_component_has_as_many_rows_of_borrowed_shape_as_of_its_own():
    model, _ = full_room(alike())
    c, Z = model.components, alike()[::2]
    new = room.opened(c, 0, Z, np.ones(4))
    E = Z - Z.mean(axis=0)
    np.testing.assert_allclose(new.diagonal[0], (E * E).sum(axis=0) + 4.0 / 200.0 * c.diagonal[0])
    assert new.trace[0] == pytest.approx((E * E).sum() + 4.0 / 200.0 * c.trace[0])
    U, a = c.directions[0, : c.used[0]], c.scatter[0, : c.used[0]]
    S = E.T @ E + 4.0 / 200.0 * (U.T * a) @ U
    np.testing.assert_allclose(new.scatter[0], np.linalg.eigvalsh(S)[::-1][:4], rtol=1e-8)


@pytest.mark.parametrize("most", [1, 64])
def test_rows_that_have_nothing_in_common_or_no_place_are_learned(most):
    """The older half is learned by the component that it fits best."""
    Y = alike() if most == 1 else usual()[200:]
    model, readout = full_room(Y)
    after, opened = room.empty_some(model, readout, RULE, SETTINGS._replace(most=most))
    assert not opened
    assert after.components.mass[0] == pytest.approx(200.0 + 1.0 + 2.0 + 3.0 + 4.0)
    assert after.waiting.size[0] == 4
    np.testing.assert_array_equal(after.waiting.rows[0, :4], Y[:4])
    np.testing.assert_array_equal(after.room.rows[:4], Y[4:])
    np.testing.assert_array_equal(after.room.weights[:4], [5.0, 6.0, 7.0, 8.0])


def test_rows_of_the_room_are_folded_in_when_enough_wait():
    model, readout = full_room(usual()[200:])
    before = readout.log_det.copy()
    room.empty_some(model, readout, RULE._replace(quota=3), SETTINGS._replace(most=1))
    assert model.components.n[0] == pytest.approx(206.0)
    assert model.waiting.size[0] == 1
    assert readout.log_det[0] != before[0]


def test_rows_that_leave_together_are_learned_as_one_after_the_other():
    """After a fold the rows that follow are compared with the component as it is then."""
    rng = np.random.default_rng(3)
    groups = [component_of_rows(usual()[:30] + shift, np.ones(30), SETTINGS) for shift in (0.0, 4.0)]
    rows, weights = usual()[30:80] + rng.choice([0.0, 2.0, 4.0], (50, 1)), rng.uniform(0.5, 2.0, 50)

    def learned(size):
        model = model_of(joined(groups), SETTINGS, empty_reservoir(0, D))
        readout = readout_of(model.components, 1.0)
        for at in range(0, 50, size):
            room.learn_by_best(model, rows[at : at + size], weights[at : at + size], readout, RULE)
        return model

    together, single = learned(50), learned(1)
    assert single.components.n.min() > 32.0, "neither was folded"
    for name in ("mass", "n", "mean", "scatter", "diagonal"):
        wanted = getattr(single.components, name)
        np.testing.assert_allclose(getattr(together.components, name), wanted, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(together.waiting.size, single.waiting.size)
