"""States of the anomaly detector to test its kernels with, made without learning a stream."""

import numpy as np

from everlearn.anomaly.estimator import settings_of
from everlearn.anomaly.kernels import rows as kernels
from everlearn.anomaly.kernels.memory import remember
from everlearn.anomaly.kernels.sample import refresh_sample
from everlearn.anomaly.learn import _factorised, _of_factors, init, init_past, scratch_for
from everlearn.anomaly.state import Task, Units
from everlearn.gaussian.factor_analysers import FactorMixture

SETTINGS = settings_of("guarded", 1e-3, 50, 100, 0, 4)


def random_mixture(rng, K=3, D=4):
    A = rng.normal(size=(K, D, D))
    return rng.dirichlet(np.ones(K)), rng.normal(size=(K, D)), A @ A.transpose(0, 2, 1) + 0.5 * np.eye(D)


def frozen_density(rng, D=4):
    """A density of three components, and its weights, means and covariances."""
    weights, means, covariances = random_mixture(rng, D=D)
    units = Units(np.zeros(D), np.ones(D))
    return _factorised(units, weights, means, covariances.copy(), np.ones(D)), (weights, means, covariances)


def low_rank_density(rng, D=4, Q=2):
    """A density of three low-rank components, and the dense one of the same covariances; the broad one is behind."""
    weights, means = rng.dirichlet(np.ones(3)), rng.normal(size=(3, D))
    W, noise = rng.normal(size=(3, Q, D)), rng.uniform(0.5, 2.0, (3, D))
    units = Units(rng.normal(size=D), rng.uniform(0.5, 2.0, D))
    low = _of_factors(units, FactorMixture(weights, means, W, noise), 100.0)
    covariances = low.covariances.swapaxes(1, 2) @ low.covariances
    covariances[:, np.arange(D), np.arange(D)] += 1.0 / low.factors[:, 0]
    return low, _factorised(units, np.exp(low.log_weights), low.means.copy(), covariances, np.full(D, 1e-9))


def state_with_sample(rows):
    """A fresh state whose sample holds these rows."""
    state = init(rows.shape[1], SETTINGS)
    state.sample.rows[: len(rows)] = rows
    state.sample.size[0] = len(rows)
    refresh_sample(state.sample, len(rows))
    return state


def task_of(state, settings=SETTINGS):
    """A task and the handle that the kernels take; both see the same arrays."""
    task = Task(state, settings, scratch_for(state))
    return task, kernels.unpack(task)


def prepared_state(rng, D=3, remembered=40):
    """A state that can score rows: a density, a sample, a past of 60 rows, and memories of exponential values."""
    rows = rng.normal(size=(60, D))
    state = state_with_sample(rows)
    density, _ = frozen_density(rng, D)
    state = state._replace(density=density, past=init_past(Units(np.zeros(D), np.ones(D))))
    state.clock.next_units[0], state.clock.next_sample[0] = 1, 10**6
    kernels.replay(rows, task_of(state)[1])
    for memory in (state.memory, state.combined):
        for i in range(len(memory.size)):
            for value in rng.exponential(size=remembered):
                remember(memory, i, value)
    return state
