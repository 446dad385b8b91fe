"""The check of an agent that came from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from everlearn.agents.episode import Episode
from everlearn.agents.value_function import MemoryState
from everlearn.persistence.schema import expect, expect_fields, require

if TYPE_CHECKING:
    from everlearn.agents.q_agent import MixtureQAgent


def check_agent(agent: MixtureQAgent) -> None:
    """Refuse a loaded agent in which an array has another shape or a count another range than learning needs."""
    d, A = agent.n_features_in_ - 1, agent.n_actions_
    require(d >= 1 and type(A) is int and 1 <= A < 2**31, "there are no observations or no actions")
    require(type(agent._first_action_) is int, "the first action is no whole number")
    expect(agent.n_episodes_, int, {}, "the number of episodes")
    expect(agent._scale_, "d", {"d": d}, "the scale")
    expect(agent._best_reward_, float, {}, "the best reward")
    require((agent._scale_ > 0).all(), "a scale is not positive")
    require(isinstance(agent._generator_, np.random.Generator), "there is no random generator")
    check_memory(agent._state_, d, A)
    check_episode(agent._episode_, d, A, int(agent.horizon))


def check_memory(state: Any, d: int, A: int) -> None:
    """Refuse a loaded memory whose arrays do not fit each other, the observations or the actions."""
    expect_fields(
        state, MemoryState, {"d": d, "A": A, "D": d + 1},
        means="K d", covariances="K d d", counts="K", used="K", precisions="K d d", heights="K",
        value_means="K A D", value_covariances="K A D D", value_counts="K A", gains="K A d", spreads="K A",
        n_regions=int, n_rows=int,
    )  # fmt: skip
    require(0 < len(state.counts), "the memory has no room")
    require(state.n_regions <= len(state.counts), "it has more components than its arrays")
    require((state.counts[: state.n_regions] > 0).all(), "a component has no count")
    require((state.value_counts >= 0).all() and (state.spreads >= 0).all(), "a count or a variance is negative")


def check_episode(episode: Any, d: int, A: int, h: int) -> None:
    """Refuse a loaded episode that does not fit the observations, the actions or the horizon."""
    expect_fields(
        episode, Episode, {"d": d, "h": h, "h1": h + 1},
        states="h1 d", actions="int64 h", rewards="h", discounts="h", n=int, left=int, reward=float, discount=float,
    )  # fmt: skip
    require(episode.n < h, "the episode is longer than the horizon")
    require(((episode.actions >= 0) & (episode.actions < A)).all(), "the episode has an action that does not exist")
