"""MixtureQAgent: Q-learning with a Gaussian mixture as its value function."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions

import everlearn.agents.episode as episode_log
import everlearn.agents.rollout as rollout
import everlearn.agents.value_function as value_function
from everlearn.agents.episode import Episode
from everlearn.agents.rollout import Spaces
from everlearn.agents.value_function import Settings, State
from everlearn.base.estimator import StreamEstimator
from everlearn.errors import InputError
from everlearn.figmn.estimator import FIGMN
from everlearn.figmn.sklearn_conversion import fitted_sklearn
from everlearn.gaussian.mixture import Mixture
from everlearn.persistence.schema import check_state, expect, require
from everlearn.typing import Array

# gymnasium writes "no bound" as infinity or as the largest float32; a wider space than this says nothing about units.
MAX_BOUND = 1e6
MAX_SCALED = 1e6  # scaled observations are clipped to this, so that squared distances stay far from overflow
MAX_REWARD = 1e9  # in units of reward_scale
MAX_ACTIONS = 1000  # that rows of (observations, action, value) may show: each makes K arrays longer
AUTO_FRACTION = 0.125  # scale="auto": this part of the range of a bounded observation


class MixtureQAgent(StreamEstimator):
    """Q-learning agent whose value function is a Gaussian mixture over states, actions and values.

    The value function is an incremental Gaussian mixture [1]_: components are created where states are new, each value
    updates them by its posteriors, and what an action is worth in a state, with an error margin, comes from
    conditioning. A component holds a region of the state space and, for each action, a Gaussian over (state, value).
    Values are learned backwards through each episode towards returns that look ahead (Peng's Q(lambda) [2]_), one
    transition at a time, and old ones are forgotten.

    In states of which nothing is known every action has the prior value; while that is high the agent seeks such
    states. `exploration` adds to it.

    Parameters
    ----------
    scale : "auto" or array-like of shape (n_observations,), default="auto"
        Unit of each observation, about the distance over which values change. "auto" takes an eighth of the range of
        the environment's bounded observations, and 1 for those without bounds.
    delta : float, default=0.1
        Variance of a new component, in squared units of `scale`.
    beta : float, default=0.15
        A state is new when its squared Mahalanobis distance to every component exceeds the upper `beta` quantile of
        chi-square.
    max_components : int, default=200
        Most components that are kept; a new one then replaces the least recently used.
    floor : float, default=0.05
        Share of a new component's variance that every value brings along, so that no component closes up.
    memory : float, default=30
        Forgetting horizon: values count for this many at most in each component and action, so that the weight of
        a value decays by 1 - 1/`memory` with each later one. Infinity forgets nothing.
    gamma : float, default=0.99
        Discount of a step of the environment.
    trace : float, default=0.95
        Lambda: the weight of the return that followed, relative to the value that the mixture predicts.
    repeat : int, default=1
        Number of steps for which each decision is carried out.
    horizon : int, default=1000
        Decisions after which an episode that has not ended is learned as far as it went.
    reward_scale : float, default=1.0
        Size of a typical reward of one step. Error margins are in proportion to it.
    prior_value : "optimistic" or float, default="optimistic"
        What an action is worth where nothing is known: the return of the best reward seen (or none, if that is more)
        at every step for ever, or a given return.
    prior_weight : float, default=0.1
        Weight of the prior value, beside that of one value learned in just this state.
    exploration : {"greedy", "epsilon", "optimistic", "thompson"}, default="greedy"
        "greedy" takes the best expected value, with no other exploration than the prior; "epsilon" takes any action
        with probability `epsilon`; "optimistic" takes the best expected value plus `margin` times its standard error;
        "thompson" draws values from normal distributions with `margin` times these standard errors.
    epsilon : float, default=0.2
        Probability of a random action, for exploration="epsilon".
    margin : float, default=1.0
        Factor of the error margins, for "optimistic" and "thompson".
    fading : float, default=0.97
        Factor by which `prior_weight`, `epsilon` and `margin` decay with each episode.
    random_state : int or None, default=None
        Seed of exploration.

    Attributes
    ----------
    n_actions_ : int
        Number of actions.
    n_components_ : int
        Number of components.
    n_episodes_ : int
        Number of episodes learned.
    n_features_in_ : int
        Number of observations, and one for the action.

    References
    ----------
    .. [1] R. C. Pinto and P. M. Engel, "Scalable and incremental learning of Gaussian mixture models".
    .. [2] J. Peng and R. J. Williams, "Incremental multi-step Q-learning".

    Examples
    --------
    An agent learns in any loop: `act` decides, `observe` takes what came of it.

    >>> from everlearn.agents import MixtureQAgent
    >>> agent = MixtureQAgent(scale=[1.0], random_state=0).begin(n_actions=2)
    >>> for episode in range(40):
    ...     position, ended = 0.0, False
    ...     while not ended:
    ...         position += 1.0 if agent.act([position]) == 1 else -1.0
    ...         ended = abs(position) >= 3
    ...         agent.observe(1.0 if position >= 3 else 0.0, [position], terminated=ended)
    >>> agent.predict([[0.0], [1.0], [2.0]])
    array([1, 1, 1])
    """

    _transient: ClassVar[tuple[str, ...]] = ("_settings_",)
    _why_not_merged: ClassVar[str] = (
        ": its values are those of the policy that it had while it learned, and those of two policies together are the "
        "values of none. Let one agent learn from the transitions of all"
    )
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "scale": [StrOptions({"auto"}), "array-like"],
        "delta": [Interval(Real, 0, None, closed="neither")],
        "beta": [Interval(Real, 0, 1, closed="neither")],
        "max_components": [Interval(Integral, 1, None, closed="left")],
        "floor": [Interval(Real, 0, 1, closed="neither")],
        "memory": [Interval(Real, 1, None, closed="left")],
        "gamma": [Interval(Real, 0, 1, closed="left")],
        "trace": [Interval(Real, 0, 1, closed="both")],
        "repeat": [Interval(Integral, 1, None, closed="left")],
        "horizon": [Interval(Integral, 1, None, closed="left")],
        "reward_scale": [Interval(Real, 0, None, closed="neither")],
        "prior_value": [StrOptions({"optimistic"}), Interval(Real, None, None, closed="neither")],
        "prior_weight": [Interval(Real, 0, None, closed="left")],
        "exploration": [StrOptions({"greedy", "epsilon", "optimistic", "thompson"})],
        "epsilon": [Interval(Real, 0, 1, closed="both")],
        "margin": [Interval(Real, 0, None, closed="left")],
        "fading": [Interval(Real, 0, 1, closed="right")],
        "random_state": [None, Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self,
        *,
        scale: Any = "auto",
        delta: float = 0.1,
        beta: float = 0.15,
        max_components: int = 200,
        floor: float = 0.05,
        memory: float = 30,
        gamma: float = 0.99,
        trace: float = 0.95,
        repeat: int = 1,
        horizon: int = 1000,
        reward_scale: float = 1.0,
        prior_value: Any = "optimistic",
        prior_weight: float = 0.1,
        exploration: str = "greedy",
        epsilon: float = 0.2,
        margin: float = 1.0,
        fading: float = 0.97,
        random_state: int | None = None,
    ) -> None:
        self.scale = scale
        self.delta = delta
        self.beta = beta
        self.max_components = max_components
        self.floor = floor
        self.memory = memory
        self.gamma = gamma
        self.trace = trace
        self.repeat = repeat
        self.horizon = horizon
        self.reward_scale = reward_scale
        self.prior_value = prior_value
        self.prior_weight = prior_weight
        self.exploration = exploration
        self.epsilon = epsilon
        self.margin = margin
        self.fading = fading
        self.random_state = random_state

    # -- beginning ----------------------------------------------------------------------------------

    def begin(self, env: Any = None, *, n_actions: int | None = None) -> MixtureQAgent:
        """Forget everything and get ready for an environment.

        Parameters
        ----------
        env : gymnasium.Env, optional
            An environment of continuous observations and discrete actions.
        n_actions : int, optional
            Number of actions, where there is no `env`; `scale` must be given then.

        Returns
        -------
        self
            The agent, which has learned nothing.
        """
        fresh = self._unfitted()
        fresh._begin(fresh._spaces(env, n_actions))
        self._adopt(fresh)
        return self

    def _spaces(self, env: Any, n_actions: int | None) -> Spaces:
        if env is not None:
            return rollout.spaces_of(env)
        if isinstance(self.scale, str) or n_actions is None or n_actions < 1:
            raise InputError(
                f"Without an environment an agent needs its scale and the number of actions; got scale={self.scale!r} "
                f"and n_actions={n_actions!r}."
            )
        return rollout.unbounded(np.size(self.scale), int(n_actions))

    def _begin(self, spaces: Spaces) -> None:
        scale = self._scale_for(spaces)
        d = len(scale)
        self.n_features_in_ = d + 1
        self.n_actions_ = spaces.n_actions
        self.n_episodes_ = 0
        self._first_action_ = spaces.first_action
        self._scale_ = scale
        self._best_reward_ = 0.0
        self._state_ = value_function.init(d, spaces.n_actions, int(self.max_components))
        self._generator_ = np.random.default_rng(self.random_state)
        self._episode_ = episode_log.empty(int(self.horizon), d)
        self._settings_ = self._make_settings()

    def _scale_for(self, spaces: Spaces) -> Array:
        d = len(spaces.low)
        if isinstance(self.scale, str):
            span = spaces.high - spaces.low
            return np.where(np.isfinite(span) & (span < MAX_BOUND) & (span > 0), AUTO_FRACTION * span, 1.0)
        scale = np.asarray(self.scale, dtype=np.float64)
        if scale.shape != (d,) or not np.all(np.isfinite(scale) & (scale > 0)):
            raise InputError(
                f"scale must be 'auto' or a positive number for each of {d} observations; got {self.scale!r}."
            )
        return scale.copy()

    def _make_settings(self) -> Settings:
        """Constants of the value function, whose values are returns times (1 - gamma) / reward_scale."""
        d = len(self._scale_)
        if isinstance(self.prior_value, str):
            prior = self._best_reward_ / self.reward_scale
        else:
            prior = float(self.prior_value) / self._unit()
        return value_function.make_settings(
            variances=np.full(d + 1, float(self.delta)),
            beta=self.beta,
            max_count=float(self.memory),
            floor=float(self.floor),
            prior_weight=self.prior_weight * self._faded(),
            prior_value=prior,
        )

    def _unit(self) -> float:
        # Discounted returns reach at most reward/(1 - gamma): in this unit
        # values are of the order of one, as states are.
        return float(self.reward_scale) / (1.0 - float(self.gamma))

    def _faded(self) -> float:
        return float(self.fading) ** self.n_episodes_

    # -- acting and observing -----------------------------------------------------------------------

    def act(self, observation: ArrayLike) -> int:
        """Decide what to do, or go on with what was decided before while `repeat` lasts.

        Parameters
        ----------
        observation : array-like of shape (n_observations,)
            What the agent sees.

        Returns
        -------
        int
            The action.
        """
        episode = self._begun()
        if episode.left == 0:
            x = self._check_observation(observation)
            self._episode_ = episode_log.decided(episode, x, self._decide(x), int(self.repeat))
        return self._first_action_ + int(episode.actions[episode.n])

    def _begun(self) -> Episode:
        if not self._is_started():
            raise InputError("The agent does not know its environment yet. Call begin(env) or train(env) first.")
        return self._episode_

    def _check_observation(self, observation: ArrayLike) -> Array:
        x = np.asarray(observation, dtype=np.float64).ravel()
        if len(x) != len(self._scale_):
            raise InputError(f"The observation has {len(x)} numbers; the agent knows {len(self._scale_)}.")
        if not np.isfinite(x).all():
            raise InputError(f"The observation must be finite; number {int(np.argmin(np.isfinite(x)))} is not: {x}.")
        return self._to_internal(x)

    def _decide(self, x: Array) -> int:
        generator = self._generator_
        if self.exploration == "epsilon" and generator.random() < self.epsilon * self._faded():
            return int(generator.integers(self.n_actions_))
        means, variances = value_function.expected_values(self._state_, x[None], self._settings_)
        values = means[0]
        if self.exploration in ("optimistic", "thompson"):
            margins = self.margin * self._faded() * np.sqrt(variances[0])
            draw = 1.0 if self.exploration == "optimistic" else generator.standard_normal(self.n_actions_)
            values = values + margins * draw
        # Ties, which all actions are at first, are broken at random: the first action would never be left.
        best = np.flatnonzero(values == values.max())
        return int(best[0] if len(best) == 1 else generator.choice(best))

    def observe(
        self, reward: float, observation: ArrayLike, *, terminated: bool = False, truncated: bool = False
    ) -> None:
        """Record the outcome of the latest action; at the end of an episode, learn from it.

        Parameters
        ----------
        reward : float
            The reward of this step.
        observation : array-like of shape (n_observations,)
            What the agent sees after it.
        terminated : bool, default=False
            Whether the episode has come to its end, after which there is nothing to gain.
        truncated : bool, default=False
            Whether it was cut off, by a time limit say; the value function then predicts what would have followed.
        """
        episode = self._begun()
        if episode.left == 0:
            raise InputError("There is no action to observe the outcome of. Call act first.")
        if not abs(reward) <= MAX_REWARD * self.reward_scale:
            raise InputError(f"The reward must be finite, and within {MAX_REWARD:g} times reward_scale; got {reward}.")
        ended = bool(terminated or truncated)
        x = self._check_observation(observation) if ended or episode.left == 1 else None
        self._notice(float(reward))
        episode = episode_log.stepped(episode, float(reward) / self._unit(), float(self.gamma))
        self._episode_ = episode if x is None else episode_log.closed(episode, x)
        # An episode longer than the horizon is learned in parts, the value function standing in for what follows.
        if ended or self._episode_.n == len(episode.actions):
            self._learn_episode(bool(terminated), ended)

    def _notice(self, reward: float) -> None:
        """A better reward than any before raises the prior value."""
        if reward > self._best_reward_:
            self._best_reward_ = reward
            self._settings_ = self._make_settings()

    def _learn_episode(self, terminated: bool, ended: bool) -> None:
        self._state_, _ = value_function.learn_episode(
            self._state_,
            episode_log.steps_of(self._episode_),
            self._settings_,
            terminated=terminated,
            trace=float(self.trace),
        )
        # What was learned is dropped; the next decision begins at place 0.
        self._episode_ = self._episode_._replace(n=0, left=0)
        if ended:
            self.n_episodes_ += 1
            self._settings_ = self._make_settings()

    def train(self, env: Any, episodes: int, *, seed: int | None = None, until: Any = None) -> Array:
        """Play episodes and learn from them; an agent that has learned before goes on.

        Parameters
        ----------
        env : gymnasium.Env
            An environment of continuous observations and discrete actions.
        episodes : int
            Number of episodes.
        seed : int, optional
            Seed of the environment.
        until : callable, optional
            Called with the list of returns so far after each episode; training ends early when it says True.

        Returns
        -------
        ndarray of shape (n_episodes,)
            The return (sum of rewards) of each episode.
        """
        if not self._is_started():
            self.begin(env)
        self._check_spaces(env)
        self._episode_ = self._episode_._replace(n=0, left=0)
        return rollout.play(env, episodes, self.act, self._observe_step, seed=seed, until=until)

    def _observe_step(self, reward: float, observation: Any, terminated: bool, truncated: bool) -> None:
        self.observe(reward, observation, terminated=terminated, truncated=truncated)

    # -- asking ---------------------------------------------------------------------------------------

    @property
    def n_components_(self) -> int:
        """Number of components."""
        self._check_started()
        return self._state_.n_regions

    def _to_internal(self, observations: Array) -> Array:
        return np.clip(observations / self._scale_, -MAX_SCALED, MAX_SCALED)

    def values(self, observations: ArrayLike, *, return_std: bool = False) -> Any:
        """Return what each action is expected to bring, discounted, from each of some observations.

        Parameters
        ----------
        observations : array-like of shape (n_samples, n_observations)
            What the agent might see.
        return_std : bool, default=False
            Whether to give the standard errors of the expectations, too.

        Returns
        -------
        values : ndarray of shape (n_samples, n_actions)
            Expected returns.
        std : ndarray of shape (n_samples, n_actions)
            Their standard errors, if asked for.
        """
        self._check_started()
        rows = self._check_observations(observations)
        means, variances = value_function.expected_values(self._state_, rows, self._settings_)
        if return_std:
            return means * self._unit(), np.sqrt(variances) * self._unit()
        return means * self._unit()

    def _check_observations(self, observations: ArrayLike) -> Array:
        rows = np.asarray(observations, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self._scale_) or not np.isfinite(rows).all():
            raise InputError(
                f"observations must be rows of {len(self._scale_)} finite numbers; got an array of shape {rows.shape}."
            )
        return self._to_internal(rows)

    def predict(self, observations: ArrayLike) -> NDArray[np.int64]:
        """Return the action with the best expected value in each of some observations.

        Parameters
        ----------
        observations : array-like of shape (n_samples, n_observations)
            What the agent might see.

        Returns
        -------
        ndarray of shape (n_samples,)
            Actions.
        """
        return self._first_action_ + np.argmax(self.values(observations), axis=1)

    def mixture(self) -> FIGMN:
        """Return the value function as an ordinary mixture over (observations, one value for each action).

        It answers densities and conditions like any other, in the units of the environment. Each component counts
        by the states it has seen; `values` weighs them by what it knows of an action, and has the prior.

        Returns
        -------
        FIGMN
            A copy of what has been learned, component by component.
        """
        self._check_started()
        if self._state_.n_regions == 0:
            raise InputError("The value function is empty: no episode has been learned yet.")
        (weights, means, covariances), total = value_function.joint_mixture(self._state_, self._settings_)
        unit = np.concatenate([self._scale_, np.full(self.n_actions_, self._unit())])
        scaled = Mixture(weights, means * unit, covariances * unit * unit[:, None])
        known = fitted_sklearn(scaled, "full")
        return FIGMN.from_sklearn(known, n_samples=total, max_components=max(len(weights), 1))

    def evaluate(self, env: Any, episodes: int, *, seed: int | None = None) -> Array:
        """Play episodes without exploring or learning.

        Parameters
        ----------
        env : gymnasium.Env
            An environment like that of training.
        episodes : int
            Number of episodes.
        seed : int, optional
            Seed of the environment.

        Returns
        -------
        ndarray of shape (n_episodes,)
            The return of each episode.
        """
        self._check_spaces(env)
        return rollout.play_greedily(env, episodes, self.predict, int(self.repeat), seed=seed)

    def _check_spaces(self, env: Any) -> None:
        self._check_started()
        spaces = rollout.spaces_of(env)
        mine = (len(self._scale_), self.n_actions_, self._first_action_)
        theirs = (len(spaces.low), spaces.n_actions, spaces.first_action)
        if mine != theirs:
            raise InputError(
                f"The environment has {theirs[0]} observations and {theirs[1]} actions from {theirs[2]}; the agent "
                f"knows {mine[0]} and {mine[1]} from {mine[2]}. Call begin(env) to start again."
            )

    # -- learning values, as an estimator -------------------------------------------------------------

    def _start(self, X: Array, *, whole: bool) -> None:
        if isinstance(self.scale, str):
            raise InputError("scale='auto' reads an environment: call begin(env) first, or give the scale.")
        n_actions = max(2, int(np.clip(X[:, -1].max(), 0, MAX_ACTIONS)) + 1)
        self._begin(rollout.unbounded(X.shape[1] - 1, n_actions))

    def _check_y(self, y: Any, n_rows: int) -> Any:
        values = None if y is None else np.asarray(y, dtype=np.float64)
        if values is None or values.shape != (n_rows,) or not np.isfinite(values).all():
            raise InputError(f"y must hold the finite value of each of the {n_rows} rows (observations, action).")
        return values

    def _learn(self, X: Array, y: Any, weights: Array | None) -> None:
        if weights is not None:
            raise InputError("An agent takes no sample_weight: every value counts once.")
        actions = X[:, -1] - self._first_action_
        if not np.isin(actions, range(self.n_actions_)).all():
            raise InputError(
                f"The last column of X must hold actions, whole numbers from {self._first_action_} to "
                f"{self._first_action_ + self.n_actions_ - 1}."
            )
        rows = self._to_internal(X[:, :-1])
        self._state_ = value_function.learn(
            self._state_, rows, actions.astype(np.int64), y / self._unit(), self._settings_
        )

    # -- loading --------------------------------------------------------------------------------------

    def _check_loaded(self) -> None:
        """Refuse a loaded agent in which an array has another shape or a count another range than learning needs."""
        d, A = self.n_features_in_ - 1, self.n_actions_
        require(d >= 1 and type(A) is int and 1 <= A < 2**31, "there are no observations or no actions")
        require(type(self._first_action_) is int, "the first action is no whole number")
        expect(self.n_episodes_, int, {}, "the number of episodes")
        expect(self._scale_, "d", {"d": d}, "the scale")
        expect(self._best_reward_, float, {}, "the best reward")
        require((self._scale_ > 0).all(), "a scale is not positive")
        require(isinstance(self._generator_, np.random.Generator), "there is no random generator")
        self._check_loaded_state(d, A)
        self._check_loaded_episode(d, A)
        self._settings_ = self._make_settings()

    def _check_loaded_state(self, d: int, A: int) -> None:
        sizes = check_state(self._state_, State, {"d": d, "A": A})
        n = self._state_.n_regions
        require(0 < sizes["K"], "the value function has no room for a region")
        require(n <= sizes["K"], "it has more regions than its arrays")
        require((self._state_.counts[:n] > 0).all(), "a region has no count")

    def _check_loaded_episode(self, d: int, A: int) -> None:
        check_state(self._episode_, Episode, {"d": d, "h": int(self.horizon)})
        actions = self._episode_.actions
        require(self._episode_.n < self.horizon, "the episode is longer than the horizon")
        require(((actions >= 0) & (actions < A)).all(), "the episode has an action that does not exist")
