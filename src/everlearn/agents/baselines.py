"""Two rivals to set beside a mixture: Sarsa(lambda) with tile coding, and a small deep Q-network (extra `torch`).

Both have the face of `MixtureQAgent.train`. They are as textbooks have them, with settings that work on the three tasks
of `everlearn.agents.tasks`; they are for comparison and are not saved.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.agents import rollout
from everlearn.agents.rollout import Spaces
from everlearn.errors import require
from everlearn.typing import Array

UNBOUNDED = 3.0  # observations without bounds are taken to lie within this


class Tiles:
    """Tile coding over a box: `n_tilings` grids, each shifted, of which a state activates one tile each.

    Parameters
    ----------
    spaces : Spaces
        Bounds of the observations.
    n_tiles : int
        Tiles along each observation.
    n_tilings : int
        Number of grids.
    """

    def __init__(self, spaces: Spaces, n_tiles: int, n_tilings: int) -> None:
        bounded = (spaces.high - spaces.low) < 1e6
        self.low = np.where(bounded, spaces.low, -UNBOUNDED)
        self.width = (np.where(bounded, spaces.high, UNBOUNDED) - self.low) / n_tiles
        d = len(self.low)
        steps = 2 * np.arange(d) + 1
        self.shift = (np.arange(n_tilings)[:, None] * steps / n_tilings) % 1.0
        self.side = n_tiles + 1
        self.place = self.side ** np.arange(d)
        self.first = np.arange(n_tilings) * self.side**d
        self.size = n_tilings * self.side**d

    def active(self, observation: Any) -> NDArray[np.int64]:
        """Return the numbers of the active tiles."""
        place = (np.asarray(observation, dtype=np.float64) - self.low) / self.width
        index = np.clip(np.floor(place + self.shift), 0, self.side - 1).astype(np.int64)
        active: NDArray[np.int64] = self.first + index @ self.place
        return active


class Trail(NamedTuple):
    """Tiles that were active lately, each once, with the action and the trace that is left."""

    actions: NDArray[np.int64]
    tiles: NDArray[np.int64]
    traces: Array


class SarsaTiles:
    """Sarsa(lambda) with tile coding and replacing traces (Sutton and Barto, section 12.7).

    Parameters
    ----------
    n_tiles, n_tilings : int
        Tiles along each observation, and number of grids.
    alpha : float
        Step size, divided by the number of grids.
    gamma, trace : float
        Discount, and decay of the traces.
    epsilon : float
        Probability of a random action, which fades by `fading` with each episode.
    fading : float
        See `epsilon`.
    random_state : int or None
        Seed of exploration.
    """

    def __init__(
        self,
        *,
        n_tiles: int = 8,
        n_tilings: int = 8,
        alpha: float = 0.5,
        gamma: float = 1.0,
        trace: float = 0.9,
        epsilon: float = 0.0,
        fading: float = 0.99,
        random_state: int | None = None,
    ) -> None:
        self.n_tiles, self.n_tilings = n_tiles, n_tilings
        self.alpha, self.gamma, self.trace = alpha / n_tilings, gamma, trace
        self.epsilon, self.fading = epsilon, fading
        self.generator = np.random.default_rng(random_state)

    def train(self, env: Any, episodes: int, *, seed: int | None = None, until: Any = None) -> Array:
        """Play and learn; see `MixtureQAgent.train`."""
        spaces = rollout.spaces_of(env)
        self.tiles = Tiles(spaces, self.n_tiles, self.n_tilings)
        self.weights = np.zeros((spaces.n_actions, self.tiles.size))
        self.before: tuple[NDArray[np.int64], int] | None = None
        return rollout.play(env, episodes, self._act, self._observe, seed=seed, until=until)

    def _act(self, observation: Any) -> int:
        if self.before is None:
            self.before = self._decide(observation)
            self.trail = Trail(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        return self.before[1]

    def _decide(self, observation: Any) -> tuple[NDArray[np.int64], int]:
        active = self.tiles.active(observation)
        values = self.weights[:, active].sum(axis=1)
        if self.generator.random() < self.epsilon:
            return active, int(self.generator.integers(len(values)))
        return active, int(self.generator.choice(np.flatnonzero(values == values.max())))

    def _observe(self, reward: float, observation: Any, terminated: bool, truncated: bool) -> None:
        assert self.before is not None
        active, action = self.before
        after = self._decide(observation)
        ahead = 0.0 if terminated else self.gamma * self.weights[after[1], after[0]].sum()
        self._learn(active, action, reward + ahead - self.weights[action, active].sum())
        self.before = after
        if terminated or truncated:
            self.before = None
            self.epsilon *= self.fading

    def _learn(self, active: NDArray[np.int64], action: int, error: float) -> None:
        actions, tiles, traces = self.trail
        traces = traces * self.gamma * self.trace
        kept = (traces > 0.01) & ~np.isin(tiles, active)
        actions, tiles, traces = (
            np.concatenate([old[kept], new])
            for old, new in ((actions, np.full(len(active), action)), (tiles, active), (traces, np.ones(len(active))))
        )
        self.weights[actions, tiles] += self.alpha * error * traces
        self.trail = Trail(actions, tiles, traces)


class Replay(NamedTuple):
    """The latest transitions."""

    states: Any
    actions: Any
    rewards: Any
    after: Any
    ended: Any


class SmallDQN:
    """A deep Q-network of two hidden layers with a target network, double targets and replay; needs torch.

    Parameters
    ----------
    width : int
        Units of each hidden layer.
    rate : float
        Step size of Adam.
    gamma : float
        Discount.
    batch, capacity : int
        Transitions in a step of learning, and in the replay memory.
    every, period : int
        Steps between two steps of learning, and between two copies to the target network.
    epsilon : float
        Probability of a random action at first, which fades by `fading` with each episode, down to 0.01.
    fading : float
        See `epsilon`.
    random_state : int or None
        Seed.
    """

    def __init__(
        self,
        *,
        width: int = 64,
        rate: float = 1e-3,
        gamma: float = 0.99,
        batch: int = 64,
        capacity: int = 50_000,
        every: int = 2,
        period: int = 200,
        epsilon: float = 1.0,
        fading: float = 0.97,
        random_state: int | None = None,
    ) -> None:
        self.width, self.rate, self.gamma = width, rate, gamma
        self.batch, self.capacity, self.every, self.period = batch, capacity, every, period
        self.epsilon, self.fading = epsilon, fading
        self.seed = 0 if random_state is None else random_state
        self.generator = np.random.default_rng(random_state)

    def train(self, env: Any, episodes: int, *, seed: int | None = None, until: Any = None) -> Array:
        """Play and learn; see `MixtureQAgent.train`."""
        self.torch = require("torch", extra="torch")
        spaces = rollout.spaces_of(env)
        d = len(spaces.low)
        with self.torch.random.fork_rng():
            self.torch.manual_seed(self.seed)
            self.network, self.target = (self._network(d, spaces.n_actions) for _ in range(2))
        self.target.load_state_dict(self.network.state_dict())
        self.optimiser = self.torch.optim.Adam(self.network.parameters(), lr=self.rate)
        self.n_actions, self.seen = spaces.n_actions, 0
        n, single = self.capacity, np.float32
        self.replay = Replay(
            np.zeros((n, d), single), np.zeros(n, np.int64), np.zeros(n, single), np.zeros((n, d), single),
            np.zeros(n, single),
        )  # fmt: skip
        return rollout.play(env, episodes, self._act, self._observe, seed=seed, until=until)

    def _network(self, d: int, n_actions: int) -> Any:
        nn = self.torch.nn
        return nn.Sequential(
            nn.Linear(d, self.width), nn.ReLU(), nn.Linear(self.width, self.width), nn.ReLU(),
            nn.Linear(self.width, n_actions),
        )  # fmt: skip

    def _act(self, observation: Any) -> int:
        self.before = np.asarray(observation, dtype=np.float32)
        if self.generator.random() < self.epsilon:
            self.action = int(self.generator.integers(self.n_actions))
        else:
            with self.torch.no_grad():
                self.action = int(self.network(self.torch.from_numpy(self.before)).argmax())
        return self.action

    def _observe(self, reward: float, observation: Any, terminated: bool, truncated: bool) -> None:
        row = self.seen % self.capacity
        for column, value in zip(
            self.replay, (self.before, self.action, reward, observation, float(terminated)), strict=True
        ):
            column[row] = value
        self.seen += 1
        if self.seen >= 500 and self.seen % self.every == 0:
            self._learn()
        if self.seen % self.period == 0:
            self.target.load_state_dict(self.network.state_dict())
        if terminated or truncated:
            self.epsilon = max(self.epsilon * self.fading, 0.01)

    def _learn(self) -> None:
        torch = self.torch
        rows = self.generator.integers(min(self.seen, self.capacity), size=self.batch)
        states, actions, rewards, after, ended = (torch.from_numpy(column[rows]) for column in self.replay)
        with torch.no_grad():
            best = self.network(after).argmax(1, keepdim=True)
            goal = rewards + self.gamma * (1.0 - ended) * self.target(after).gather(1, best)[:, 0]
        loss = torch.nn.functional.smooth_l1_loss(self.network(states).gather(1, actions[:, None])[:, 0], goal)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
