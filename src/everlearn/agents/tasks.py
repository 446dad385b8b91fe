"""The three tasks of the FIGMN paper's Table 5, as gymnasium has them, and the settings that solve them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.agents.q_agent import MixtureQAgent
from everlearn.agents.rollout import episodes_to_solve
from everlearn.errors import InputError, require


@dataclass(frozen=True)
class Task:
    """An environment and what it takes to solve it.

    Parameters
    ----------
    title : str
        Its name in words.
    environment : str
        Its name in gymnasium.
    steps : int
        Longest episode.
    threshold : float
        Mean return over 100 episodes that counts as solved.
    settings : dict
        Parameters of `MixtureQAgent` that differ from the default: units of the observations and action repeat.
    """

    title: str
    environment: str
    steps: int
    threshold: float
    settings: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        """Return the gymnasium environment."""
        gymnasium = require("gymnasium", extra="rl")
        return gymnasium.make(self.environment, max_episode_steps=self.steps)

    def agent(self, **parameters: Any) -> MixtureQAgent:
        """Return an agent with the settings for this task, of which some may be changed."""
        return MixtureQAgent(**{**self.settings, **parameters})


TASKS = {
    "cart-pole": Task("Cart-pole", "CartPole-v1", 200, 195.0, {"repeat": 2, "gamma": 0.98, "beta": 0.2}),
    "mountain-car": Task("Mountain car", "MountainCar-v0", 200, -110.0, {"repeat": 5}),
    "acrobot": Task("Acrobot", "Acrobot-v1", 500, -100.0, {"repeat": 3, "scale": (0.7, 0.7, 0.7, 0.7, 2.8, 5.6)}),
}
"""The tasks by name."""


def episodes_of(
    task: str, agent: Any, *, seed: int, max_episodes: int = 1000
) -> tuple[NDArray[np.float64], int | None]:
    """Train an agent until a task is solved.

    Parameters
    ----------
    task : str
        A name of `TASKS`.
    agent : object
        Has ``train(env, episodes, seed=, until=)``, as `MixtureQAgent` does.
    seed : int
        Seed of the environment.
    max_episodes : int, default=1000
        Where to give up.

    Returns
    -------
    returns : ndarray
        The return of each episode.
    start : int or None
        Episodes before the window of 100 that solves the task; None if there was none.
    """
    if task not in TASKS:
        raise InputError(f"There is no task {task!r}; the tasks are {', '.join(TASKS)}.")
    chosen = TASKS[task]

    def solved(returns: Sequence[float]) -> bool:
        return episodes_to_solve(returns[-100:], chosen.threshold) is not None

    with chosen.make() as env:
        returns = agent.train(env, max_episodes, seed=seed, until=solved)
    return returns, episodes_to_solve(returns, chosen.threshold)
