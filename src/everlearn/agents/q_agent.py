"""MixtureQAgent: Q-learning with a Gaussian mixture as its memory."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from everlearn.agents import episode as episodes
from everlearn.agents import rollout as playing
from everlearn.agents import value_function as memory
from everlearn.agents.answers import MemoryAnswers
from everlearn.agents.episode import Episode
from everlearn.agents.loading import check_agent
from everlearn.agents.rollout import Spaces
from everlearn.agents.value_function import Rule
from everlearn.errors import InputError

Array = NDArray[np.float64]

BOUND = 1e6  # an observation is bounded if its space says so within this
MAX_REWARD = 1e9  # in units of reward_scale
MAX_ACTIONS = 1000  # that rows of values may show
FRACTION = 0.125  # scale="auto": this part of the range of a bounded observation


class MixtureQAgent(MemoryAnswers):
    """Q-learning agent whose memory is a Gaussian mixture over states, actions and values.

    The memory is an incremental Gaussian mixture [1]_: components are created where states are new, each value
    updates them by its posteriors, and what an action is worth in a state, with an error margin, comes from
    conditioning. A component holds a region of the state space and, for each action, a Gaussian over (state, value).
    Values are learned backwards through each episode towards returns that look ahead (Peng's Q(lambda) [2]_), one
    transition at a time, and old ones fade.

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
        Most components that are kept; a new one then takes the place of that which has been idle longest.
    floor : float, default=0.05
        Share of a new component's variance that every value brings along, so that no component closes up.
    memory : float, default=30
        Values count for this many at most in each component and action: the fixed forgetting of the library, where
        it is needed; a value fades by 1 - 1/`memory` with each that comes after it. Infinity forgets nothing.
    gamma : float, default=0.99
        Discount of a step of the environment.
    trace : float, default=0.95
        Lambda: the weight of the return that followed beside the value that the memory expects.
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
        Factor by which `prior_weight`, `epsilon` and `margin` fade with each episode.
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

    _transient: ClassVar[tuple[str, ...]] = ("_rule_",)
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
            return playing.spaces_of(env)
        if isinstance(self.scale, str) or n_actions is None or n_actions < 1:
            raise InputError(
                f"Without an environment an agent needs its scale and the number of actions; got scale={self.scale!r} "
                f"and n_actions={n_actions!r}."
            )
        return playing.unbounded(np.size(self.scale), int(n_actions))

    def _begin(self, spaces: Spaces) -> None:
        scale = self._scale_for(spaces)
        d = len(scale)
        self.n_features_in_ = d + 1
        self.n_actions_ = spaces.n_actions
        self.n_episodes_ = 0
        self._first_action_ = spaces.first_action
        self._scale_ = scale
        self._best_reward_ = 0.0
        self._state_ = memory.empty(d, spaces.n_actions, int(self.max_components))
        self._generator_ = np.random.default_rng(self.random_state)
        self._episode_ = episodes.empty(int(self.horizon), d)
        self._rule_ = self._make_rule()

    def _scale_for(self, spaces: Spaces) -> Array:
        d = len(spaces.low)
        if isinstance(self.scale, str):
            span = spaces.high - spaces.low
            return np.where(np.isfinite(span) & (span < BOUND) & (span > 0), FRACTION * span, 1.0)
        scale = np.asarray(self.scale, dtype=np.float64)
        if scale.shape != (d,) or not np.all(np.isfinite(scale) & (scale > 0)):
            raise InputError(
                f"scale must be 'auto' or a positive number for each of {d} observations; got {self.scale!r}."
            )
        return scale.copy()

    def _make_rule(self) -> Rule:
        """The constants of the memory, whose values are returns times (1 - gamma) / reward_scale."""
        d = len(self._scale_)
        if isinstance(self.prior_value, str):
            prior = self._best_reward_ / self.reward_scale
        else:
            prior = float(self.prior_value) / self._unit()
        return memory.rule(
            variances=np.full(d + 1, float(self.delta)),
            beta=self.beta,
            memory=float(self.memory),
            floor=float(self.floor),
            prior_weight=self.prior_weight * self._faded(),
            prior_value=prior,
        )

    def _unit(self) -> float:
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
            self._episode_ = episodes.decided(episode, x, self._decide(x), int(self.repeat))
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
        means, variances = memory.answer(self._state_, x[None], self._rule_)
        values = means[0]
        if self.exploration in ("optimistic", "thompson"):
            margins = self.margin * self._faded() * np.sqrt(variances[0])
            draw = 1.0 if self.exploration == "optimistic" else generator.standard_normal(self.n_actions_)
            values = values + margins * draw
        best = np.flatnonzero(values == values.max())
        return int(best[0] if len(best) == 1 else generator.choice(best))

    def observe(
        self, reward: float, observation: ArrayLike, *, terminated: bool = False, truncated: bool = False
    ) -> None:
        """Take what came of the latest action; at the end of an episode, learn from it.

        Parameters
        ----------
        reward : float
            The reward of this step.
        observation : array-like of shape (n_observations,)
            What the agent sees after it.
        terminated : bool, default=False
            Whether the episode has come to its end, after which there is nothing to gain.
        truncated : bool, default=False
            Whether it was cut off, by a time limit say; the memory says what might have followed.
        """
        episode = self._begun()
        if episode.left == 0:
            raise InputError("There is no action to observe the outcome of. Call act first.")
        if not abs(reward) <= MAX_REWARD * self.reward_scale:
            raise InputError(f"The reward must be finite, and within {MAX_REWARD:g} times reward_scale; got {reward}.")
        ended = bool(terminated or truncated)
        x = self._check_observation(observation) if ended or episode.left == 1 else None
        self._notice(float(reward))
        episode = episodes.stepped(episode, float(reward) / self._unit(), float(self.gamma))
        self._episode_ = episode if x is None else episodes.closed(episode, x)
        if ended or self._episode_.n == len(episode.actions):
            self._learn_episode(bool(terminated), ended)

    def _notice(self, reward: float) -> None:
        """A better reward than any before raises the prior value."""
        if reward > self._best_reward_:
            self._best_reward_ = reward
            self._rule_ = self._make_rule()

    def _learn_episode(self, terminated: bool, ended: bool) -> None:
        self._state_, _ = memory.learn_episode(
            self._state_,
            episodes.steps_of(self._episode_),
            terminated=terminated,
            trace=float(self.trace),
            constants=self._rule_,
        )
        self._episode_ = self._episode_._replace(n=0, left=0)
        if ended:
            self.n_episodes_ += 1
            self._rule_ = self._make_rule()

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
        return playing.play(env, episodes, self.act, self._observe_step, seed=seed, until=until)

    def _observe_step(self, reward: float, observation: Any, terminated: bool, truncated: bool) -> None:
        self.observe(reward, observation, terminated=terminated, truncated=truncated)

    # -- learning values, as an estimator -------------------------------------------------------------

    def _start(self, X: Array, *, whole: bool) -> None:
        if isinstance(self.scale, str):
            raise InputError("scale='auto' reads an environment: call begin(env) first, or give the scale.")
        n_actions = max(2, int(np.clip(X[:, -1].max(), 0, MAX_ACTIONS)) + 1)
        self._begin(playing.unbounded(X.shape[1] - 1, n_actions))

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
        self._state_ = memory.learn(self._state_, rows, actions.astype(np.int64), y / self._unit(), self._rule_)

    def _check_loaded(self) -> None:
        check_agent(self)
        self._rule_ = self._make_rule()
