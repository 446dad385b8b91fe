"""Q-function of an agent: what an action is worth in a state, learned one value at a time.

A mixture over (state, action, value): regions of the state space are Gaussians, learned by the incremental rule of
the FIGMN paper, and in each region every action has a Gaussian over (state, value), whose conditional mean is a linear
regression. Novelty and responsibilities come from the states alone. States and values are expected in units in which
their spread is about one.

References
----------
R. C. Pinto and P. M. Engel, "Scalable and incremental learning of Gaussian mixture models", section 4.1.
J. Peng and R. J. Williams, "Incremental multi-step Q-learning".
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from everlearn.agents.kernels import value_function as kernels
from everlearn.gaussian.mixture import Mixture
from everlearn.typing import Array


class State(NamedTuple):
    """What the next value needs: K places for regions, of which the first `n_regions` are in use, and A actions."""

    means: Annotated[Array, "K d"]  # of states
    covariances: Annotated[Array, "K d d"]
    counts: Annotated[Array, "nonnegative K"]  # sums of responsibilities
    used: Annotated[Array, "K"]  # the row at which a region last learned
    precisions: Annotated[Array, "K d d"]  # inverses of `covariances`; kept because every answer needs them
    heights: Annotated[Array, "K"]  # log density at the mean; kept for the same reason
    value_means: Annotated[Array, "K A d+1"]  # of (state, value) where the action was taken
    value_covariances: Annotated[Array, "K A d+1 d+1"]
    value_counts: Annotated[Array, "nonnegative K A"]
    slopes: Annotated[Array, "K A d"]  # of the regression of value on state
    residual_variances: Annotated[Array, "nonnegative K A"]  # around that regression
    n_regions: int
    n_rows: int


class Settings(NamedTuple):
    """Constants of one value function."""

    variances: Array  # (d + 1,) of a new component: d of the state, one of the value
    threshold: float  # squared Mahalanobis distance from which a state is new
    max_count: float  # largest count of a value: the forgetting horizon
    floor: float  # share of `variances` that comes with every row, so that no component collapses
    log_background: float  # log density of "nothing is known here", beside components weighed by their counts
    prior_value: float  # what is expected there


class Info(NamedTuple):
    """What was seen while learning an episode."""

    targets: Array  # (n,), the return G that each transition was learned towards


class Steps(NamedTuple):
    """Transitions of one episode in their order: n + 1 states, and n times action, reward and discount."""

    states: Array  # (n + 1, d)
    actions: NDArray[np.int64]  # (n,)
    rewards: Array  # (n,)
    discounts: Array  # (n,)


def make_settings(
    *, variances: Array, beta: float, max_count: float, floor: float, prior_weight: float, prior_value: float
) -> Settings:
    """Constants from what a user says.

    Parameters
    ----------
    variances : ndarray of shape (d + 1,)
        Variances of a new component, that of the value last.
    beta : float
        A state is new outside the central 1 - `beta` of every region.
    max_count : float
        Values learned lately count for this many at most.
    floor : float
        Share of `variances` below which no component narrows.
    prior_weight : float
        Weight of the prior value, in units of a component of count one at its mean.
    prior_value : float
        What an action is worth in a state of which nothing is known.

    Returns
    -------
    Settings
        The constants.
    """
    d = len(variances) - 1
    # Log density of a new component at its mean: the unit in which the weight of the prior is given.
    height = -0.5 * float(np.log(2.0 * np.pi * variances[:d]).sum())
    background = np.log(prior_weight) + height if prior_weight > 0.0 else -np.inf
    return Settings(variances, float(chdtri(d, beta)), max_count, floor, float(background), prior_value)


def init(n_columns: int, n_actions: int, capacity: int) -> State:
    """A value function that has learned nothing, with room for `capacity` regions."""
    K, A, d, D = capacity, n_actions, n_columns, n_columns + 1
    zeros = np.zeros
    return State(
        zeros((K, d)), zeros((K, d, d)), zeros(K), zeros(K), zeros((K, d, d)), zeros(K),
        zeros((K, A, D)), zeros((K, A, D, D)), zeros((K, A)), zeros((K, A, d)), zeros((K, A)), 0, 0,
    )  # fmt: skip


def expected_values(state: State, X: Array, settings: Settings) -> tuple[Array, Array]:
    """Expected value of every action in the states X, and the variance of each expectation, (n, A)."""
    shape = (len(X), state.value_counts.shape[1])
    means, variances = np.empty(shape), np.empty(shape)
    kernels.fill_expected_values(X, state, settings, means, variances)
    return means, variances


def learn(state: State, X: Array, actions: NDArray[np.int64], values: Array, settings: Settings) -> State:
    """Learn the values of actions in states, in order. `state` is consumed: use the one that is returned."""
    n = kernels.learn_rows(X, actions, values, state, settings)
    return state._replace(n_regions=int(n), n_rows=state.n_rows + len(X))


def learn_episode(
    state: State, steps: Steps, settings: Settings, *, terminated: bool, trace: float
) -> tuple[State, Info]:
    """Learn the transitions of an episode from the last to the first, by Peng's Q(lambda).

    Each is learned towards G = r + discount ((1 - trace) max Q(s') + trace G'), where G' is that of the transition
    after it; the last has G = r if the episode terminated, and else r + discount max Q(s'). `state` is consumed: its
    arrays are updated in place; use the one that is returned.
    """
    targets = np.empty(len(steps.actions))
    n = kernels.learn_episode(steps, terminated, trace, state, settings, targets)
    return state._replace(n_regions=int(n), n_rows=state.n_rows + len(targets)), Info(targets)


def joint_mixture(state: State, settings: Settings) -> tuple[Mixture, float]:
    """The value function as a mixture over (state, one value for each action), and the rows it stands for.

    Given the state, the values of different actions are independent: no row has shown two of them. An action that
    a region has not seen has the prior value and the variance of a new component there.
    """
    n, (_, A, d) = state.n_regions, state.slopes.shape
    known = state.value_counts[:n] > 0
    slopes = np.where(known[:, :, None], state.slopes[:n], 0.0)
    residuals = np.where(known, state.residual_variances[:n], settings.variances[d])
    offset = state.means[:n, None] - state.value_means[:n, :, :d]
    values = state.value_means[:n, :, d] + np.einsum("kad,kad->ka", slopes, offset)
    means = np.concatenate([state.means[:n], np.where(known, values, settings.prior_value)], axis=1)
    # (state, values) = M state + independent residuals, so that Cov = M Sigma M' + diag(0, residuals).
    M = np.concatenate([np.broadcast_to(np.eye(d), (n, d, d)), slopes], axis=1)
    covariances = M @ state.covariances[:n] @ M.transpose(0, 2, 1)
    covariances[:, range(d, d + A), range(d, d + A)] += residuals
    total = float(state.counts[:n].sum())
    return Mixture(state.counts[:n] / total, means, covariances), total
