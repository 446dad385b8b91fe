"""What states and actions are worth, learned one value at a time: the memory of an agent.

A mixture over (state, action, value): regions of the state space are Gaussians, learned by the rule of
`everlearn.figmn.learn`, and in each region every action has a Gaussian over (state, value), whose conditional
is a linear regression. Novelty and posteriors come from the states alone. Coordinates are those of the caller, who
hands in states and values of about unit spread.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from everlearn.agents.kernels import value_function as kernels
from everlearn.gaussian.mixture import Mixture

Array = NDArray[np.float64]


class MemoryState(NamedTuple):
    """What the next value needs: K places for regions, of which `n_regions` are in use, and A actions.

    `used` is the row at which a region last learned. The last three arrays and `precisions` and `heights` (log
    density at the mean) follow from the moments, and are kept because every answer needs them.
    """

    means: Array  # (K, d), of states
    covariances: Array  # (K, d, d)
    counts: Array  # (K,)
    used: Array  # (K,)
    precisions: Array  # (K, d, d)
    heights: Array  # (K,)
    value_means: Array  # (K, A, d + 1), of (state, value) where the action was taken
    value_covariances: Array  # (K, A, d + 1, d + 1)
    value_counts: Array  # (K, A)
    gains: Array  # (K, A, d), slopes of the regression of value on state
    spreads: Array  # (K, A), variances around it
    n_regions: int
    n_rows: int


class Rule(NamedTuple):
    """The constants of one memory."""

    variances: Array  # of a new component: d of the state, one of the value
    threshold: float  # squared distance from which a state is new
    memory: float  # largest count of a value
    floor: float  # share of `variances` that comes with every row
    log_background: float  # log density of "nothing is known here", beside components weighed by their counts
    prior_value: float  # what is expected there


class Steps(NamedTuple):
    """Transitions of one episode in their order: n + 1 states, and n times action, reward and discount."""

    states: Array
    actions: NDArray[np.int64]
    rewards: Array
    discounts: Array


def rule(
    *, variances: Array, beta: float, memory: float, floor: float, prior_weight: float, prior_value: float
) -> Rule:
    """Constants from what a user says.

    Parameters
    ----------
    variances : ndarray of shape (d + 1,)
        Variances of a new component, that of the value last.
    beta : float
        A state is new outside the central 1 - `beta` of every region.
    memory : float
        Values learned lately count for this many at most.
    floor : float
        Share of `variances` below which no component narrows.
    prior_weight : float
        Weight of the prior value, in units of a component of count one at its mean.
    prior_value : float
        What an action is worth in a state of which nothing is known.

    Returns
    -------
    Rule
        The constants.
    """
    d = len(variances) - 1
    height = -0.5 * float(np.log(2.0 * np.pi * variances[:d]).sum())
    background = np.log(prior_weight) + height if prior_weight > 0.0 else -np.inf
    return Rule(variances, float(chdtri(d, beta)), memory, floor, float(background), prior_value)


def empty(n_columns: int, n_actions: int, capacity: int) -> MemoryState:
    """A memory that has learned nothing."""
    K, A, d, D = capacity, n_actions, n_columns, n_columns + 1
    zeros = np.zeros
    return MemoryState(
        zeros((K, d)), zeros((K, d, d)), zeros(K), zeros(K), zeros((K, d, d)), zeros(K),
        zeros((K, A, D)), zeros((K, A, D, D)), zeros((K, A)), zeros((K, A, d)), zeros((K, A)), 0, 0,
    )  # fmt: skip


def answer(state: MemoryState, X: Array, constants: Rule) -> tuple[Array, Array]:
    """Expected value of every action in the states X, and the variance of each expectation, (n, A)."""
    shape = (len(X), state.value_counts.shape[1])
    means, variances = np.empty(shape), np.empty(shape)
    kernels.answer_rows(X, state, state.n_regions, constants, means, variances)
    return means, variances


def learn(state: MemoryState, X: Array, actions: NDArray[np.int64], values: Array, constants: Rule) -> MemoryState:
    """Learn the values of actions in states, in order. The arrays of `state` are used up: go on with the result."""
    n = kernels.learn_rows(X, actions, values, state, state.n_regions, constants)
    return state._replace(n_regions=int(n), n_rows=state.n_rows + len(X))


def learn_episode(
    state: MemoryState, steps: Steps, *, terminated: bool, trace: float, constants: Rule
) -> tuple[MemoryState, Array]:
    """Learn the transitions of an episode from the last to the first, by Peng's Q(lambda).

    Each is learned towards G = r + discount ((1 - trace) max Q(s') + trace G'), where G' is that of the transition
    after it; the last has G = r if the episode terminated, and else r + discount max Q(s'). The arrays of `state` are
    used up. Returns the new state and the targets G.
    """
    targets = np.empty(len(steps.actions))
    n = kernels.learn_episode(*steps, terminated, trace, state, state.n_regions, constants, targets)
    return state._replace(n_regions=int(n), n_rows=state.n_rows + len(targets)), targets


def joint(state: MemoryState, constants: Rule) -> tuple[Mixture, float]:
    """The memory as a mixture over (state, one value for each action), and the number of rows it stands for.

    Given the state, the values of different actions are independent: no row has shown two of them. An action that
    a region has not seen has the prior value and the variance of a new component there.
    """
    n, (_, A, d) = state.n_regions, state.gains.shape
    known = state.value_counts[:n] > 0
    gains = np.where(known[:, :, None], state.gains[:n], 0.0)
    spreads = np.where(known, state.spreads[:n], constants.variances[d])
    offset = state.means[:n, None] - state.value_means[:n, :, :d]
    values = state.value_means[:n, :, d] + np.einsum("kad,kad->ka", gains, offset)
    means = np.concatenate([state.means[:n], np.where(known, values, constants.prior_value)], axis=1)
    M = np.concatenate([np.broadcast_to(np.eye(d), (n, d, d)), gains], axis=1)
    covariances = M @ state.covariances[:n] @ M.transpose(0, 2, 1)
    covariances[:, range(d, d + A), range(d, d + A)] += spreads
    total = float(state.counts[:n].sum())
    return Mixture(state.counts[:n] / total, means, covariances), total
