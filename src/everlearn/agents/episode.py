"""What an agent keeps of the episode that it is in."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.agents.value_function import Steps
from everlearn.typing import Array


class Episode(NamedTuple):
    """The transitions that wait to be learned, and the decision that is being carried out.

    Row `n` of `states` is where the agent decided last; `left` counts the steps that the decision still lasts, and
    `reward` and `discount` are what it has brought so far.
    """

    states: Annotated[Array, "h+1 d"]  # h: the horizon, the most decisions that wait
    actions: Annotated[NDArray[np.int64], "int64 h"]
    rewards: Annotated[Array, "h"]
    discounts: Annotated[Array, "h"]
    n: int
    left: int
    reward: float
    discount: float


def empty(horizon: int, n_columns: int) -> Episode:
    """An episode that has not begun, with room for `horizon` decisions."""
    h = horizon
    return Episode(np.zeros((h + 1, n_columns)), np.zeros(h, np.int64), np.zeros(h), np.zeros(h), 0, 0, 0.0, 1.0)


def decided(episode: Episode, x: Array, action: int, repeat: int) -> Episode:
    """The episode after a decision in state x, which lasts `repeat` steps."""
    episode.states[episode.n] = x
    episode.actions[episode.n] = action
    return episode._replace(left=repeat, reward=0.0, discount=1.0)


def stepped(episode: Episode, reward: float, gamma: float) -> Episode:
    """The episode after one more step of the decision that is being carried out."""
    # Rewards within one decision are discounted step by step, and the next decision by all of its steps.
    return episode._replace(
        left=episode.left - 1,
        reward=episode.reward + episode.discount * reward,
        discount=episode.discount * gamma,
    )


def closed(episode: Episode, x: Array) -> Episode:
    """The episode after the decision has been carried out and led to state x."""
    n = episode.n
    episode.rewards[n], episode.discounts[n] = episode.reward, episode.discount
    episode.states[n + 1] = x
    return episode._replace(n=n + 1, left=0)


def steps_of(episode: Episode) -> Steps:
    """The transitions that have been closed."""
    n = episode.n
    return Steps(episode.states[: n + 1], episode.actions[:n], episode.rewards[:n], episode.discounts[:n])
