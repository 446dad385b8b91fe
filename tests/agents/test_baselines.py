"""The two rivals learn what they should."""

import gymnasium
import numpy as np
import pytest

from everlearn.agents import comparison
from everlearn.agents.baselines import SarsaTiles, SmallDQN, Tiles
from everlearn.agents.rollout import Spaces
from everlearn.errors import InputError


class Walk(gymnasium.Env):
    """Five places in a row; the right end ends the walk."""

    observation_space = gymnasium.spaces.Box(0.0, 4.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.place, self.left = 0, 40
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        self.left -= 1
        return np.array([self.place], np.float32), -1.0, self.place == 4, self.left == 0, {}


def test_each_grid_has_one_active_tile():
    tiles = Tiles(Spaces(np.array([-1.0, -np.inf]), np.array([1.0, np.inf]), 2, 0), 4, 8)
    for observation in np.random.default_rng(0).uniform(-5, 5, size=(100, 2)):
        active = tiles.active(observation)
        np.testing.assert_array_equal(active // 25, range(8))
    near = np.intersect1d(tiles.active([0.1, 0.1]), tiles.active([0.15, 0.1]))
    far = np.intersect1d(tiles.active([0.1, 0.1]), tiles.active([0.9, 2.9]))
    assert len(near) >= 6 > len(far) == 0


def test_sarsa_finds_the_way():
    returns = SarsaTiles(n_tiles=4, random_state=0).train(Walk(), 60, seed=0)
    assert returns[-10:].mean() == -4.0 > returns[0]


@pytest.mark.torch
def test_dqn_finds_the_way():
    agent = SmallDQN(width=16, rate=5e-3, every=1, period=50, fading=0.93, random_state=0)
    returns = agent.train(Walk(), 90, seed=0)
    assert returns[-10:].mean() > -6.0


def test_learners_by_name():
    assert comparison.learner("one set", "cart-pole", 0).gamma == 0.99
    assert comparison.learner("mixture", "cart-pole", 0).gamma == 0.98
    assert (
        comparison.learner("one set", "acrobot", 0).get_params()
        == comparison.learner("mixture", "acrobot", 0).get_params()
    )
    with pytest.raises(InputError, match="no learner"):
        comparison.learner("TRPO", "acrobot", 0)
