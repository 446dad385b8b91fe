"""The two rivals learn what they should."""

import gymnasium
import numpy as np
import pytest

from everlearn.agents import comparison
from everlearn.agents.baselines import (
    DQN,
    Adam,
    Replay,
    SarsaTiles,
    Tiles,
    forward,
    init_network,
    make_workspace,
    td_gradients,
)
from everlearn.agents.rollout import Spaces
from everlearn.errors import InputError
from naive.tiles import TileSarsa, active_cells


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


class Still(gymnasium.Env):
    """Observations that a test gives."""

    observation_space = gymnasium.spaces.Box(np.array([-1.0, -np.inf]), np.array([2.0, np.inf]), dtype=np.float64)
    action_space = gymnasium.spaces.Discrete(3)


def test_sarsa_learns_like_its_twin_with_dictionaries():
    rng = np.random.default_rng(0)
    agent = SarsaTiles(n_tiles=3, n_tilings=4, alpha=0.4, gamma=0.95, trace=0.8, epsilon=0.3, random_state=1)
    agent.train(Still(), 0)
    twin = TileSarsa(0.4 / 4, 0.95 * 0.8)
    walk = np.cumsum(rng.normal(scale=0.2, size=(400, 2)), axis=0)  # leaves the box at times
    cells, action, greedy = None, None, 0
    for t, x in enumerate(walk[:-1]):
        if cells is None:
            cells, action, twin.traces = active_cells(x, [-1, -3], [2, 3], 3, 4), agent._act(x), {}
        assert agent._act(x) == action
        reward, ended = rng.normal(), t % 60 == 59
        agent._observe(reward, walk[t + 1], ended, False)
        after = active_cells(walk[t + 1], [-1, -3], [2, 3], 3, 4)
        ahead = 0.0
        if not ended:
            # Decided before this step was learned, as Sarsa does.
            values = [twin.value(after, b) for b in range(3)]
            chosen = agent.before[1]
            greedy += values[chosen] == pytest.approx(max(values), abs=1e-12)
            ahead = 0.95 * values[chosen]
        twin.learn(cells, action, reward + ahead - twin.value(cells, action))
        cells, action = (None, None) if ended else (after, agent._act(walk[t + 1]))
    place = {(grid, i, j): grid * 16 + i + 4 * j for grid in range(4) for i in range(4) for j in range(4)}
    expected = np.zeros((3, 64))
    for (b, cell), weight in twin.weights.items():
        expected[b, place[cell]] = weight
    assert (expected != 0).sum() > 60
    np.testing.assert_allclose(agent.weights, expected, atol=1e-12)
    assert 0.7 < greedy / 393 < 0.95  # epsilon fades from 0.3, and a third of the random actions are greedy, too


def test_traces_of_an_endless_memory_fit():
    agent = SarsaTiles(n_tiles=2, n_tilings=2, gamma=1.0, trace=1.0, random_state=0)
    agent.train(Walk(), 5, seed=0)
    assert agent.n_traces <= agent.tiles.size


@pytest.mark.slow
def test_dqn_finds_the_way():
    agent = DQN(hidden=(16,), rate=5e-3, first=100, every=1, steps=1, period=50, exploring=800, random_state=0)
    returns = agent.train(Walk(), 90, seed=0)
    assert returns[-10:].mean() > -6.0


# -- the network against its definition ------------------------------------------------------------


@pytest.fixture
def td():
    """A network in double precision, and transitions with errors on both sides of the Huber loss's corner."""
    rng = np.random.default_rng(1)
    network = init_network((3, 7, 5, 2), rng, np.float64)
    batch = Replay(rng.normal(size=(12, 3)), rng.integers(2, size=12), np.empty(0), np.empty(0), np.empty(0))
    goal = forward(network.layers, batch.states)[-1][np.arange(12), batch.actions] + np.linspace(-3, 3, 12)
    return network.layers, batch, goal


def gradients_of(td):
    """What `td_gradients` fills."""
    work = make_workspace(td[0], 12)
    work.gradients.values[:] = np.nan  # nothing may be left of what was there before
    td_gradients(*td, work)
    return work.gradients


def huber(network, batch, goal):
    """Mean Huber loss, row by row from its definition."""
    total = 0.0
    for x, action, wanted in zip(batch.states, batch.actions, goal, strict=True):
        h = x
        for i, (W, b) in enumerate(network):
            h = np.array([sum(h[k] * W[k, j] for k in range(len(h))) + b[j] for j in range(len(b))])
            h = h if i == len(network) - 1 else np.where(h > 0, h, 0.0)
        error = abs(h[action] - wanted)
        total += 0.5 * error**2 if error <= 1 else error - 0.5
    return total / len(goal)


def test_gradients_are_those_of_the_huber_loss(td):
    network, batch, goal = td
    found = gradients_of(td).layers
    for layer, gradients in zip(network, found, strict=True):
        for part, gradient in zip(layer, gradients, strict=True):
            for place in list(np.ndindex(part.shape))[::3]:
                kept, h = part[place], 1e-6
                part[place] = kept + h
                above = huber(network, batch, goal)
                part[place] = kept - h
                below = huber(network, batch, goal)
                part[place] = kept
                assert gradient[place] == pytest.approx((above - below) / (2 * h), abs=1e-8)


def test_adam_follows_its_printed_algorithm():
    rng = np.random.default_rng(0)
    values = rng.normal(size=6)
    theta, m, v = values.copy(), 0.0, 0.0
    adam = Adam(values, 0.01)
    for t in range(1, 6):
        g = rng.normal(size=6)
        # Gradients that are longer than one are cut to their direction.
        adam.step(g.copy(), most=1.0)
        g = g / max(1.0, np.linalg.norm(g))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        theta = theta - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(values, theta, rtol=1e-6)


def test_short_gradients_are_not_cut():
    first, second = (Adam(np.ones(3), 0.01) for _ in range(2))
    first.step(np.full(3, 0.1), most=1.0)
    second.step(np.full(3, 0.1))
    np.testing.assert_array_equal(first.m, second.m)


def test_moments_of_inactive_units_become_zero():
    adam = Adam(np.ones(4, np.float32), 0.01)
    adam.step(np.full(4, 1e-3, np.float32))
    for _ in range(1000):
        adam.step(np.zeros(4, np.float32))
    assert (adam.m == 0).all()
    assert (adam.v > 0).all()


def test_a_time_limit_is_no_end_for_dqn_and_exploration_falls_linearly():
    class Short(Walk):
        def reset(self, *, seed=None, options=None):
            found = super().reset(seed=seed)
            self.left = 9
            return found

    agent = DQN(hidden=(4,), first=10**9, exploring=100, epsilon=0.1, random_state=0)
    agent.train(Short(), 20, seed=0)
    assert 0 < agent.replay.ended.sum() < 20  # some walks end, and some are cut off
    ended = agent.replay.ended[: agent.seen]
    places = agent.replay.after[: agent.seen, 0]
    np.testing.assert_array_equal(ended, places == 4)
    actions = []
    agent.seen = 50  # half of the way: 0.55 of the actions are random, of which half are greedy, too
    greedy = int(forward(agent.network.layers, np.zeros((1, 1), np.float32))[-1].argmax())
    actions = [agent._act(np.zeros(1)) for _ in range(4000)]
    assert np.mean(np.array(actions) == greedy) == pytest.approx(1 - 0.55 / 2, abs=0.03)


def test_learners_by_name():
    assert comparison.learner("one set", "cart-pole", 0).gamma == 0.99
    assert comparison.learner("mixture", "cart-pole", 0).gamma == 0.98
    assert (
        comparison.learner("one set", "acrobot", 0).get_params()
        == comparison.learner("mixture", "acrobot", 0).get_params()
    )
    with pytest.raises(InputError, match="no learner"):
        comparison.learner("TRPO", "acrobot", 0)


def test_the_target_moves_its_share_of_the_way():
    agent = DQN(hidden=(4,), first=10**9, period=3, tau=0.25, exploring=100, random_state=0)
    agent.train(Walk(), 1, seed=0)
    agent.network.layers[0].W[:] += 1.0
    before = agent.target.layers[0].W.copy()
    agent.seen = 2
    agent._observe(0.0, np.zeros(1), False, False)
    np.testing.assert_allclose(
        agent.target.layers[0].W, before + 0.25 * (agent.network.layers[0].W - before), rtol=1e-5
    )
    agent._observe(0.0, np.zeros(1), False, False)  # the fourth step is not the end of a period
    np.testing.assert_allclose(
        agent.target.layers[0].W, before + 0.25 * (agent.network.layers[0].W - before), rtol=1e-5
    )
