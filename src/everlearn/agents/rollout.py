"""Episodes in gymnasium environments: what an environment must be, playing, and when a task is solved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everlearn.errors import InputError, require
from everlearn.typing import Array


class Spaces(NamedTuple):
    """Bounds of the observations, and the actions `first_action` to `first_action + n_actions - 1`."""

    low: Array
    high: Array
    n_actions: int
    first_action: int


def unbounded(n_columns: int, n_actions: int) -> Spaces:
    """Spaces of which no more is known than their sizes."""
    return Spaces(np.full(n_columns, -np.inf), np.full(n_columns, np.inf), n_actions, 0)


def spaces_of(env: Any) -> Spaces:
    """Read the spaces of an environment, refusing those without continuous observations or discrete actions."""
    gymnasium = require("gymnasium", extra="rl")
    observations, actions = env.observation_space, env.action_space
    if not isinstance(observations, gymnasium.spaces.Box):
        raise InputError(
            f"The observations are {observations}; an agent needs a Box of numbers. "
            "gymnasium.wrappers.FlattenObservation turns many other spaces into one."
        )
    if not isinstance(actions, gymnasium.spaces.Discrete):
        raise InputError(f"The actions are {actions}; an agent needs Discrete ones. Offer it a choice of them.")
    low, high = (np.asarray(bound, dtype=np.float64).ravel() for bound in (observations.low, observations.high))
    return Spaces(low, high, int(actions.n), int(actions.start))


def play(
    env: Any,
    episodes: int,
    act: Callable[[Any], int],
    observe: Callable[[float, Any, bool, bool], None] | None = None,
    *,
    seed: int | None = None,
    until: Callable[[Sequence[float]], bool] | None = None,
) -> Array:
    """Play episodes and return the sum of rewards of each.

    Parameters
    ----------
    env : gymnasium.Env
        The environment.
    episodes : int
        Number of episodes.
    act : callable
        Gives the action for an observation.
    observe : callable, optional
        Told of reward, observation, termination and truncation after each step.
    seed : int, optional
        Seed of the environment.
    until : callable, optional
        Called with the returns so far after each episode; playing ends when it says True.

    Returns
    -------
    ndarray of shape (n_episodes,)
        Returns.
    """
    returns: list[float] = []
    for _ in range(episodes):
        observation, _ = env.reset(seed=seed)
        # Only the first reset is seeded: the same seed every time would play one episode again and again.
        seed, total, ended = None, 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            total += float(reward)
            ended = terminated or truncated
            if observe is not None:
                observe(float(reward), observation, terminated, truncated)
        returns.append(total)
        if until is not None and until(returns):
            break
    return np.array(returns)


def play_greedily(
    env: Any, episodes: int, predict: Callable[[Any], NDArray[np.int64]], repeat: int, *, seed: int | None = None
) -> Array:
    """Play episodes with decisions that last `repeat` steps and are never explored or learned from."""
    held = [0, 0]  # the action, and the steps that it still lasts

    def act(observation: Any) -> int:
        if held[1] == 0:
            held[:] = [int(predict(np.asarray(observation, dtype=np.float64).reshape(1, -1))[0]), repeat]
        held[1] -= 1
        return held[0]

    def observe(reward: float, observation: Any, terminated: bool, truncated: bool) -> None:
        if terminated or truncated:
            held[1] = 0

    return play(env, episodes, act, observe, seed=seed)


def episodes_to_solve(returns: ArrayLike, threshold: float, *, window: int = 100) -> int | None:
    """Return how many episodes came before the first window whose mean return reaches the threshold.

    Parameters
    ----------
    returns : array-like of shape (n_episodes,)
        Sums of rewards.
    threshold : float
        The mean that counts as solved.
    window : int, default=100
        Number of consecutive episodes.

    Returns
    -------
    int or None
        Start of the window; None if there is none.

    Examples
    --------
    >>> from everlearn.agents import episodes_to_solve
    >>> episodes_to_solve([0, 0, 1, 1, 1], 1.0, window=2)
    2
    """
    values = np.asarray(returns, dtype=np.float64)
    if len(values) < window:
        return None
    sums = np.cumsum(np.concatenate([[0.0], values]))
    # The start of the window, as the paper must have counted (docs/errata.md, Table
    # 5); the slack is the rounding of the sums.
    solved = np.flatnonzero((sums[window:] - sums[:-window]) / window >= threshold - 1e-9)
    return int(solved[0]) if len(solved) else None
