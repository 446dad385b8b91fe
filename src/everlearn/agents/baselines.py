"""Two rivals to set beside a mixture: Sarsa(lambda) with tile coding, and a deep Q-network.

Both have the face of `MixtureQAgent.train`. They are as textbooks have them; `everlearn.agents.comparison` has their
settings on the three tasks of `everlearn.agents.tasks`. They are for comparison and are not saved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import everlearn.agents.rollout as rollout
from everlearn.agents.kernels import networks as network_kernels
from everlearn.agents.kernels import tiles as kernels
from everlearn.agents.kernels.tiles import Error, Grids, Trail
from everlearn.agents.rollout import Spaces
from everlearn.typing import Array

UNBOUNDED = 3.0  # observations without bounds are taken to lie within this
MAX_LENGTH = 10.0  # of the gradient of the network: a longer one is cut


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
        low = np.where(bounded, spaces.low, -UNBOUNDED)
        width = (np.where(bounded, spaces.high, UNBOUNDED) - low) / n_tiles
        # Shifts by odd multiples: with equal ones the grids would be offset along the diagonal only.
        steps = 2 * np.arange(len(low)) + 1
        shift = (np.arange(n_tilings)[:, None] * steps / n_tilings) % 1.0
        # One tile more than n_tiles along each axis: a shifted grid reaches beyond the box.
        self.grids = Grids(low, width, shift, n_tiles + 1)
        self.size = n_tilings * (n_tiles + 1) ** len(low)

    def active(self, observation: Any) -> NDArray[np.int64]:
        """Return the numbers of the active tiles."""
        active = np.empty(len(self.grids.shift), np.int64)
        kernels.fill_active(np.asarray(observation, dtype=np.float64), self.grids, active)
        return active


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
        # A tile has one trace at most: no more than that are ever kept.
        self.trail = Trail(*(np.empty(self.tiles.size, kind) for kind in (np.int64, np.int64, np.float64)))
        self.values = np.empty(spaces.n_actions)
        self.before: tuple[NDArray[np.int64], int, float] | None = None
        return rollout.play(env, episodes, self._act, self._observe, seed=seed, until=until)

    def _act(self, observation: Any) -> int:
        if self.before is None:
            self.before, self.n_traces = self._decide(observation), 0
        return self.before[1]

    def _decide(self, observation: Any) -> tuple[NDArray[np.int64], int, float]:
        """Tiles that are active, the action to take, and its value."""
        active = np.empty(self.n_tilings, np.int64)
        x = np.asarray(observation, dtype=np.float64)
        kernels.fill_values(x, self.tiles.grids, self.weights, active, self.values)
        if self.generator.random() < self.epsilon:
            action = int(self.generator.integers(len(self.values)))
        else:
            best = np.flatnonzero(self.values == self.values.max())
            action = int(best[self.generator.integers(len(best))])
        return active, action, float(self.values[action])

    def _observe(self, reward: float, observation: Any, terminated: bool, truncated: bool) -> None:
        assert self.before is not None
        active, action, _ = self.before
        after = self._decide(observation)
        ahead = 0.0 if terminated else self.gamma * after[2]
        # Not the value that was decided by: the step before has changed the weights of these tiles.
        error = reward + ahead - self.weights[action, active].sum()
        step = Error(active, action, self.alpha * error, self.gamma * self.trace)
        self.n_traces = kernels.learn_step(step, self.trail, self.n_traces, self.weights)
        self.before = after
        if terminated or truncated:
            self.before = None
            self.epsilon *= self.fading


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


class Network(NamedTuple):
    """Layers, whose weights and biases are parts of one vector: what treats all of them alike does so at once."""

    values: Array
    layers: list[Layer]


def empty_network(sizes: Sequence[int], dtype: Any) -> Network:
    """A network of zeros, with so many units in its layers, the inputs first."""
    shapes = [shape for n, m in pairwise(sizes) for shape in ((n, m), (m,))]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    values = np.zeros(ends[-1], dtype)
    parts = [part.reshape(shape) for part, shape in zip(np.split(values, ends[:-1]), shapes, strict=True)]
    return Network(values, [Layer(W, b) for W, b in zip(parts[::2], parts[1::2], strict=True)])


def init_network(sizes: Sequence[int], generator: np.random.Generator, dtype: Any = np.float32) -> Network:
    """Draw the weights of a network: uniform, within one over the root of the number of inputs."""
    network = empty_network(sizes, dtype)
    for W, b in network.layers:
        bound = 1.0 / np.sqrt(len(W))
        W[:], b[:] = generator.uniform(-bound, bound, W.shape), generator.uniform(-bound, bound, b.shape)
    return network


class Workspace(NamedTuple):
    """Arrays for a step of learning, made once: new ones of this size are pages that the system has to clear."""

    outputs: list[Array]  # of every layer
    deltas: list[Array]  # derivatives by the inputs of every layer but the first
    gradients: Network


def make_workspace(layers: Sequence[Layer], n_rows: int) -> Workspace:
    """Arrays for a batch of so many rows."""
    dtype = layers[0].W.dtype
    sizes = [len(layers[0].W), *(len(b) for _, b in layers)]
    outputs, deltas = ([np.empty((n_rows, m), dtype) for m in widths] for widths in (sizes[1:], sizes[1:-1]))
    return Workspace(outputs, deltas, empty_network(sizes, dtype))


def forward(layers: Sequence[Layer], X: Array, into: Sequence[Array] | None = None) -> list[Array]:
    """Return the inputs and the output of every layer, rectified but for the last; these are written `into` arrays."""
    outputs = [X]
    for i, (W, b) in enumerate(layers):
        out = np.matmul(outputs[-1], W, out=None if into is None else into[i])
        if i < len(layers) - 1:
            network_kernels.add_and_rectify(out, b)
        else:
            out += b
        outputs.append(out)
    return outputs


def backward(layers: Sequence[Layer], outputs: Sequence[Array], gradient: Array, work: Workspace) -> None:
    """Fill the gradients of all layers from that of the last output."""
    found = work.gradients.layers
    np.sum(gradient, axis=0, out=found[-1].b)
    for i in reversed(range(len(layers))):
        np.matmul(outputs[i].T, gradient, out=found[i].W)
        if i > 0:
            gradient = np.matmul(gradient, layers[i].W.T, out=work.deltas[i - 1])
            network_kernels.mask_and_sum(gradient, outputs[i], found[i - 1].b)


class Adam:
    """Adam with its usual decays (Kingma and Ba, 2015), in place."""

    def __init__(self, values: Array, rate: float) -> None:
        self.values, self.m, self.v = values, np.zeros_like(values), np.zeros_like(values)
        self.rate, self.t = rate, 0

    def step(self, gradients: Array, most: float = np.inf) -> None:
        """Move the values against the gradients, which are cut to the length `most` where they are longer."""
        self.t += 1
        # Both bias corrections in one factor: m and v start at zero and are too small at first.
        rate = self.rate * math.sqrt(1.0 - 0.999**self.t) / (1.0 - 0.9**self.t)
        length = math.sqrt(float(gradients @ gradients))
        scale = 1.0 if length <= most else most / length
        network_kernels.adam_step(self.values, gradients, self.m, self.v, rate, scale)


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
        sizes = (d, *self.hidden, spaces.n_actions)
        self.network, self.target = init_network(sizes, self.generator), empty_network(sizes, np.float32)
        self.target.values[:] = self.network.values
        self.adam = Adam(self.network.values, self.rate)
        self.work = make_workspace(self.network.layers, self.batch)
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
            self.action = int(forward(self.network.layers, self.before[None])[-1].argmax())
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
            network_kernels.move_towards(self.target.values, self.network.values, self.tau)

    def _learn(self) -> None:
        rows = self.generator.integers(min(self.seen, self.capacity), size=self.batch)
        batch = Replay(*(column[rows] for column in self.replay))
        # Double targets: one network chooses the action, the other values it, since a
        # maximum of noisy values is biased upwards.
        best = forward(self.network.layers, batch.after, self.work.outputs)[-1].argmax(axis=1)
        value = forward(self.target.layers, batch.after, self.work.outputs)[-1][np.arange(self.batch), best]
        goal = batch.rewards + np.float32(self.gamma) * (1.0 - batch.ended) * value
        td_gradients(self.network.layers, batch, goal, self.work)
        self.adam.step(self.work.gradients.values, MAX_LENGTH)


def td_gradients(layers: Sequence[Layer], batch: Replay, goal: Array, work: Workspace) -> None:
    """Fill the gradients of the mean Huber loss between the values of the actions taken and their goals."""
    outputs = forward(layers, batch.states, work.outputs)
    rows = np.arange(len(goal))
    gradient = np.zeros_like(outputs[-1])
    # The derivative of the Huber loss is the error, clipped to one.
    gradient[rows, batch.actions] = np.clip(outputs[-1][rows, batch.actions] - goal, -1.0, 1.0) / len(goal)
    backward(layers, outputs, gradient, work)
