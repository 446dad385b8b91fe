"""MixtureQAgent: playing, learning, saving, refusing."""

import itertools

import gymnasium
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import everlearn
from everlearn.agents import TASKS, MixtureQAgent, episodes_of, episodes_to_solve, play
from everlearn.agents.value_function import joint_mixture
from everlearn.errors import InputError, MergeError, ModelFileError


class Corridor(gymnasium.Env):
    """Walk to the right end within a time limit; actions are 5 (left) and 6 (right)."""

    observation_space = gymnasium.spaces.Box(-4.0, 4.0, (1,))
    action_space = gymnasium.spaces.Discrete(2, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.left = float(self.np_random.integers(-2, 3)), 30
        return self._see(), {}

    def _see(self):
        return np.array([self.position], dtype=np.float32)

    def step(self, action):
        assert action in (5, 6)
        self.position += 1.0 if action == 6 else -1.0
        self.position = max(self.position, -4.0)
        self.left -= 1
        return self._see(), -1.0, self.position >= 4.0, self.left == 0, {}


def an_agent(**parameters):
    return MixtureQAgent(**{"scale": [1.0], "random_state": 0} | parameters)


@pytest.mark.slow
@pytest.mark.parametrize("exploration", ["greedy", "epsilon", "optimistic", "thompson"])
@pytest.mark.parametrize("repeat", [1, 2])
def test_learns_the_way_out(exploration, repeat):
    agent = an_agent(exploration=exploration, repeat=repeat)
    returns = agent.train(Corridor(), 60, seed=1)
    assert len(returns) == agent.n_episodes_ == 60
    assert returns[-20:].mean() > -6.0 > returns[:5].mean()
    np.testing.assert_array_equal(agent.predict([[0.0], [2.0], [3.0]]), [6, 6, 6])
    assert agent.evaluate(Corridor(), 10, seed=5).mean() > -6.0
    assert agent.n_episodes_ == 60


def test_values_are_discounted_returns_with_margins():
    agent = an_agent(memory=10)
    agent.train(Corridor(), 100, seed=0)
    values, std = agent.values([[3.0], [1.0]], return_std=True)
    np.testing.assert_allclose(values[:, 1], [-1.0, -(1 - 0.99**3) / 0.01], rtol=0.2)
    assert (std > 0).all()
    assert agent.values([[400.0]])[0] == pytest.approx([0.0, 0.0], abs=1e-9)  # nothing known: the prior


@pytest.mark.slow
def test_margins_shrink_with_what_is_learned():
    agent = an_agent(memory=100)
    agent.fit([[0.0, 0], [0.0, 1]], [1.0, 2.0])
    before = agent.values([[0.0]], return_std=True)[1]
    agent.partial_fit([[0.0, 0], [0.0, 1]] * 50, [1.0, 2.0] * 50)
    values, after = agent.values([[0.0]], return_std=True)
    assert (after < before / 3).all()
    np.testing.assert_allclose(values, [[1.0, 2.0]], rtol=0.01)


def test_saved_in_the_middle_of_an_episode_it_goes_on_the_same(tmp_path):
    agent = an_agent(exploration="thompson", repeat=3)
    agent.train(Corridor(), 5, seed=0)
    env = Corridor()
    observation, _ = env.reset(seed=3)
    for _ in range(4):
        observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
        agent.observe(reward, observation, terminated=terminated, truncated=truncated)
    agent.save(tmp_path / "agent.evl")
    other = everlearn.load(tmp_path / "agent.evl")
    for position in itertools.islice(itertools.cycle(np.linspace(-3.0, 3.0, 7)), 100):
        actions = [each.act([position]) for each in (agent, other)]
        assert actions[0] == actions[1]
        for each in (agent, other):
            each.observe(-1.0, [position + 1.0], terminated=position > 2.0)
    np.testing.assert_array_equal(agent.values([[0.5]]), other.values([[0.5]]))
    for a, b in zip(agent._state_, other._state_, strict=True):
        np.testing.assert_array_equal(a, b)


def test_training_in_parts_is_training_at_once():
    env = Corridor()
    whole = an_agent()
    whole.train(env, 20, seed=4)
    parts, env = an_agent(), Corridor()
    parts.train(env, 12, seed=4)
    parts.copy().train(Corridor(), 3)
    parts.train(env, 8)
    np.testing.assert_array_equal(whole.values([[0.0]]), parts.values([[0.0]]))


def test_an_endless_episode_is_learned_as_it_goes():
    agent = an_agent(horizon=10).begin(n_actions=2)
    for t in range(55):
        agent.observe(float(agent.act([0.0]) == 1), [0.0])
        assert agent._state_.n_rows == 10 * ((t + 1) // 10)
    assert agent.predict([[0.0]]) == 1
    assert agent.n_episodes_ == 0


def test_a_repeated_action_is_one_decision():
    agent = an_agent(repeat=3, gamma=0.5, trace=1.0, fading=1.0).begin(n_actions=1)
    for t in range(7):
        agent.act([float(t)])
        agent.observe(1.0, [t + 1.0], terminated=t == 6)
    values = agent.values([[0.0], [3.0], [6.0]])[:, 0]
    assert agent._state_.n_rows == 3
    known = agent.copy()
    known.prior_weight = 0.0
    known._settings_ = known._make_settings()
    np.testing.assert_allclose(known.values([[0.0], [3.0], [6.0]])[:, 0], [2 - 0.5**6, 2 - 0.5**3, 1.0])
    assert (values <= 2.0).all()


def test_a_time_limit_is_no_end():
    """What follows a cut is worth what the memory says of it, what follows an end nothing."""
    values = []
    for ending in ({"terminated": True}, {"truncated": True}):
        agent = an_agent(prior_value=50.0, gamma=0.9).begin(n_actions=1)
        agent.act([0.0])
        agent.observe(0.0, [3.0], **ending)
        values.append(agent._state_.value_means[0, 0, 1] * agent._unit())
    assert values == [0.0, pytest.approx(45.0)]


def test_the_value_function_is_an_ordinary_mixture():
    """Its conditional means are the regressions of the regions, weighed by their responsibilities for the state."""
    agent = an_agent()
    agent.train(Corridor(), 60, seed=0)
    mixture = agent.mixture()
    assert mixture.n_features_in_ == 3
    X = np.array([[-1.5], [0.0], [1.0], [2.7]])
    rows = np.column_stack([X, np.full((4, 2), np.nan)])
    joint, _ = joint_mixture(agent._state_, agent._settings_)
    density = joint.weights * norm.pdf(X, joint.means[:, 0], np.sqrt(joint.covariances[:, 0, 0]))
    slopes = joint.covariances[:, 0, 1:] / joint.covariances[:, 0, :1]
    values = joint.means[:, 1:] + slopes * (X[:, :, None] - joint.means[:, :1])
    expected = np.einsum("nk,nka->na", density / density.sum(axis=1, keepdims=True), values) * agent._unit()
    np.testing.assert_allclose(np.asarray(mixture.predict_columns(rows, [1, 2])), expected, rtol=1e-8)
    np.testing.assert_allclose(mixture.score_samples(rows), np.log(density.sum(axis=1)), rtol=1e-8)


def test_unbounded_observations_are_taken_to_the_limit():
    agent = an_agent().begin(n_actions=2)
    for value in (1e300, -1e300, 0.0):
        agent.act([value])
        agent.observe(1e6, [value], terminated=True)
    assert np.isfinite(agent.values([[1e300], [0.0]])).all()


def test_scale_from_the_spaces():
    agent = MixtureQAgent().begin(gymnasium.make("CartPole-v1"))
    np.testing.assert_allclose(agent._scale_, [1.2, 1.0, 0.1047, 1.0], rtol=1e-3)
    assert agent.n_actions_ == 2


def test_it_is_an_estimator():
    agent = an_agent(memory=50)
    assert clone(agent).get_params() == agent.get_params()
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=200), rng.integers(3, size=200)])
    whole = an_agent().fit(X, X[:, 0])
    parts = an_agent().partial_fit(X[:70], X[:70, 0])
    assert parts.n_actions_ == whole.n_actions_ == 3
    parts.partial_fit(X[70:], X[70:, 0])
    np.testing.assert_array_equal(whole.values(X[:, :1]), parts.values(X[:, :1]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: a.act([0.0, 1.0]), "has 2 numbers"),
        (lambda a: a.act([np.nan]), "must be finite"),
        (lambda a: a.observe(0.0, [0.0]), "Call act first"),
        (lambda a: (a.act([0.0]), a.observe(np.nan, [0.0])), "reward must be finite"),
        (lambda a: (a.act([0.0]), a.observe(1.0, [np.inf], terminated=True)), "must be finite"),
        (lambda a: a.values([0.0]), "rows of 1 finite"),
        (lambda a: a.partial_fit([[0.0, 2.0]], [1.0]), "whole numbers from 0 to 1"),
        (lambda a: a.partial_fit([[0.0, 0.5]], [1.0]), "whole numbers from 0 to 1"),
        (lambda a: a.partial_fit([[0.0, 1.0]]), "y must hold"),
        (lambda a: a.partial_fit([[0.0, 1.0]], [1.0], [2.0]), "no sample_weight"),
        (lambda a: a.mixture(), "value function is empty"),
        (lambda a: a.train(gymnasium.make("CartPole-v1"), 1), "has 4 observations"),
        (lambda a: a.begin(), "needs its scale and the number of actions"),
    ],
)
def test_refusals_teach_and_change_nothing(call, words):
    agent = an_agent().begin(n_actions=2)
    with pytest.raises(InputError, match=words):
        call(agent)
    assert agent._state_.n_rows == 0
    assert agent._best_reward_ == 0.0


def test_before_it_begins():
    with pytest.raises(InputError, match="begin"):
        an_agent().act([0.0])
    with pytest.raises(NotFittedError):
        an_agent().values([[0.0]])
    with pytest.raises(InputError, match="scale must be"):
        an_agent(scale=[1.0, -1.0]).begin(n_actions=2)
    with pytest.raises(MergeError):
        an_agent().begin(n_actions=2) + an_agent().begin(n_actions=2)


@pytest.mark.parametrize(("environment", "words"), [("Blackjack-v1", "needs a Box"), ("Pendulum-v1", "needs Discrete")])
def test_environments_it_cannot_play(environment, words):
    env = gymnasium.make(environment)
    with pytest.raises(InputError, match=words):
        MixtureQAgent().begin(env)


def test_a_damaged_file_is_refused(tmp_path):
    agent = an_agent().begin(n_actions=2)
    agent._episode_ = agent._episode_._replace(actions=agent._episode_.actions + 7)
    with pytest.raises(InputError, match="action that does not exist"):
        agent.save(tmp_path / "agent.evl")
    agent = an_agent().begin(n_actions=2)
    agent._state_ = agent._state_._replace(slopes=agent._state_.slopes[:, :1])
    with pytest.raises(ModelFileError):
        agent._check_loaded()


def test_counting_of_episodes():
    assert episodes_to_solve(np.ones(100), 1.0) == 0
    assert episodes_to_solve(np.ones(99), 1.0) is None
    assert episodes_to_solve(np.r_[np.zeros(7), np.ones(100)], 0.99) == 6
    assert episodes_to_solve(np.zeros(300), 0.5) is None


def test_play_stops_when_told():
    returns = play(Corridor(), 10, lambda _: 6, seed=0, until=lambda returns: len(returns) == 3)
    assert len(returns) == 3


@pytest.mark.slow
def test_balances_a_pole():
    agent = TASKS["cart-pole"].agent(random_state=1)
    returns, start = episodes_of("cart-pole", agent, seed=1, max_episodes=60)
    assert start is None  # a window has a hundred episodes
    assert returns[:3].mean() < 50 < 150 < returns[40:].mean()
    with pytest.raises(InputError, match="no task"):
        episodes_of("pong", agent, seed=0)
