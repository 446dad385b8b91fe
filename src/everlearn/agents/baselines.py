"""Two rivals to set beside a mixture: Sarsa(lambda) with tile coding, and a deep Q-network.

Both have the face of `MixtureQAgent.train`. They are as textbooks have them; `everlearn.agents.comparison` has their
settings on the three tasks of `everlearn.agents.tasks`. They are for comparison and are not saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.agents import rollout
from everlearn.agents.rollout import Spaces
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
        # Shifts by odd multiples: with equal ones the grids would be offset along the diagonal only.
        steps = 2 * np.arange(d) + 1
        self.shift = (np.arange(n_tilings)[:, None] * steps / n_tilings) % 1.0
        self.side = n_tiles + 1
        self.place = self.side ** np.arange(d)
        self.first = np.arange(n_tilings) * self.side**d
        self.size = n_tilings * self.side**d

    def active(self, observation: Any) -> NDArray[np.int64]:
        """Return the numbers of the active tiles."""
        place = (np.asarray(observation, dtype=np.float64) - self.low) / self.width
        # One tile more than n_tiles along each axis: a shifted grid reaches beyond the box.
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
        # Replacing traces: a tile that is active again gets a new trace, and those of other actions in it are dropped.
        # Traces below a hundredth no longer count.
        kept = (traces > 0.01) & ~np.isin(tiles, active)
        actions, tiles, traces = (
            np.concatenate([old[kept], new])
            for old, new in ((actions, np.full(len(active), action)), (tiles, active), (traces, np.ones(len(active))))
        )
        self.weights[actions, tiles] += self.alpha * error * traces
        self.trail = Trail(actions, tiles, traces)


class Replay(NamedTuple):
    """The latest transitions."""

    states: Any  # arrays in single precision, actions of integers
    actions: Any
    rewards: Any
    after: Any
    ended: Any


class Layer(NamedTuple):
    """Weights of a layer of shape (inputs, outputs), and its biases."""

    W: Array
    b: Array


def init_network(sizes: Sequence[int], generator: np.random.Generator) -> list[Layer]:
    """Draw the weights of a network: uniform, within one over the root of the number of inputs."""
    layers = []
    for n, m in pairwise(sizes):
        bound = 1.0 / np.sqrt(n)
        W, b = generator.uniform(-bound, bound, (n, m)), generator.uniform(-bound, bound, m)
        layers.append(Layer(W.astype(np.float32), b.astype(np.float32)))
    return layers


def forward(layers: Sequence[Layer], X: Array) -> list[Array]:
    """Return the inputs and the output of every layer, rectified but for the last."""
    outputs = [X]
    for i, (W, b) in enumerate(layers):
        out = outputs[-1] @ W + b
        outputs.append(out if i == len(layers) - 1 else np.maximum(out, 0.0, out=out))
    return outputs


def backward(layers: Sequence[Layer], outputs: Sequence[Array], gradient: Array) -> list[Layer]:
    """Return the gradients of all layers from that of the last output."""
    found: list[Layer] = []
    for i in reversed(range(len(layers))):
        found.append(Layer(outputs[i].T @ gradient, gradient.sum(axis=0)))
        if i > 0:
            gradient = (gradient @ layers[i].W.T) * (outputs[i] > 0.0)
    return found[::-1]


class Adam:
    """Adam with its usual decays (Kingma and Ba, 2015), for the layers of a network, in place."""

    def __init__(self, layers: Sequence[Layer], rate: float) -> None:
        self.parts = [part for layer in layers for part in layer]
        self.m, self.v = ([np.zeros_like(part) for part in self.parts] for _ in range(2))
        self.rate, self.t = rate, 0

    def step(self, gradients: Sequence[Layer]) -> None:
        """Move the weights against the gradients."""
        self.t += 1
        # Both bias corrections in one factor: m and v start at zero and are too small at first.
        rate = self.rate * np.sqrt(1.0 - 0.999**self.t) / (1.0 - 0.9**self.t)
        for part, m, v, g in zip(self.parts, self.m, self.v, (g for layer in gradients for g in layer), strict=True):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            part -= rate * m / (np.sqrt(v) + 1e-8)


class DQN:
    """A deep Q-network with a target network, replay (Mnih and others, 2015) and double targets, in NumPy.

    The action that follows is chosen by the network and valued by its target (van Hasselt and others, 2016).

    Parameters
    ----------
    hidden : tuple of int
        Units of the hidden layers.
    rate : float
        Step size of Adam.
    gamma : float
        Discount.
    batch, capacity : int
        Transitions in a step of learning, and in the replay memory.
    first : int
        Steps before learning begins.
    every, steps : int
        After this many steps of the environment, so many steps of learning.
    period : int
        Steps of the environment between two moves of the target network.
    tau : float
        Share of the way that the target then moves towards the network: 1 copies it.
    exploring : int
        Steps over which the probability of a random action falls from 1 to `epsilon`, linearly.
    epsilon : float
        See `exploring`.
    random_state : int or None
        Seed.
    """

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (256, 256),
        rate: float = 2.3e-3,
        gamma: float = 0.99,
        batch: int = 64,
        capacity: int = 100_000,
        first: int = 1000,
        every: int = 256,
        steps: int = 128,
        period: int = 10,
        tau: float = 1.0,
        exploring: int = 8000,
        epsilon: float = 0.04,
        random_state: int | None = None,
    ) -> None:
        self.hidden, self.rate, self.gamma, self.batch = hidden, rate, gamma, batch
        self.capacity, self.first, self.every, self.steps, self.period = capacity, first, every, steps, period
        self.tau, self.exploring, self.epsilon = tau, exploring, epsilon
        self.generator = np.random.default_rng(random_state)

    def train(self, env: Any, episodes: int, *, seed: int | None = None, until: Any = None) -> Array:
        """Play and learn; see `MixtureQAgent.train`."""
        spaces = rollout.spaces_of(env)
        d, n = len(spaces.low), self.capacity
        self.network = init_network((d, *self.hidden, spaces.n_actions), self.generator)
        self.target = [Layer(W.copy(), b.copy()) for W, b in self.network]
        self.adam = Adam(self.network, self.rate)
        self.n_actions, self.seen = spaces.n_actions, 0
        single = np.float32
        self.replay = Replay(
            np.zeros((n, d), single), np.zeros(n, np.int64), np.zeros(n, single), np.zeros((n, d), single),
            np.zeros(n, single),
        )  # fmt: skip
        return rollout.play(env, episodes, self._act, self._observe, seed=seed, until=until)

    def _act(self, observation: Any) -> int:
        self.before: Any = np.asarray(observation, dtype=np.float32)
        if self.generator.random() < max(1.0 - (1.0 - self.epsilon) * self.seen / self.exploring, self.epsilon):
            self.action = int(self.generator.integers(self.n_actions))
        else:
            self.action = int(forward(self.network, self.before[None])[-1].argmax())
        return self.action

    def _observe(self, reward: float, observation: Any, terminated: bool, truncated: bool) -> None:
        row = self.seen % self.capacity
        # A time limit is no end: the value of what follows still counts.
        transition = self.before, self.action, reward, observation, float(terminated)
        for column, value in zip(self.replay, transition, strict=True):
            column[row] = value
        self.seen += 1
        if self.seen > self.first and self.seen % self.every == 0:
            for _ in range(self.steps):
                self._learn()
        if self.seen % self.period == 0:
            for old, new in zip(self.target, self.network, strict=True):
                for there, here in zip(old, new, strict=True):
                    there += self.tau * (here - there)

    def _learn(self) -> None:
        rows = self.generator.integers(min(self.seen, self.capacity), size=self.batch)
        batch = Replay(*(column[rows] for column in self.replay))
        # Double targets: one network chooses the action, the other values it, since a
        # maximum of noisy values is biased upwards.
        best = forward(self.network, batch.after)[-1].argmax(axis=1)
        value = forward(self.target, batch.after)[-1][np.arange(self.batch), best]
        goal = batch.rewards + np.float32(self.gamma) * (1.0 - batch.ended) * value
        self.adam.step(clipped(td_gradients(self.network, batch, goal)))


def td_gradients(network: Sequence[Layer], batch: Replay, goal: Array) -> list[Layer]:
    """Gradients of the mean Huber loss between the values of the actions taken and their goals."""
    outputs = forward(network, batch.states)
    rows = np.arange(len(goal))
    gradient = np.zeros_like(outputs[-1])
    # The derivative of the Huber loss is the error, clipped to one.
    gradient[rows, batch.actions] = np.clip(outputs[-1][rows, batch.actions] - goal, -1.0, 1.0) / len(goal)
    return backward(network, outputs, gradient)


def clipped(gradients: list[Layer], most: float = 10.0) -> list[Layer]:
    """Gradients no longer than `most` altogether."""
    length = float(np.sqrt(sum(float(np.sum(g * g)) for layer in gradients for g in layer)))
    return gradients if length <= most else [Layer(W * (most / length), b * (most / length)) for W, b in gradients]
