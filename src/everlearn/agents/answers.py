"""What an agent can be asked: values with error margins, actions, its memory as a mixture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everlearn.agents import rollout as playing
from everlearn.agents import value_function as memory
from everlearn.agents.value_function import MemoryState, Rule
from everlearn.base.estimator import StreamEstimator
from everlearn.errors import InputError
from everlearn.figmn.estimator import IncrementalGaussianMixture
from everlearn.figmn.sklearn_conversion import fitted_sklearn
from everlearn.gaussian.mixture import Mixture

Array = NDArray[np.float64]

LIMIT = 1e6  # scaled observations beyond this are taken for this


class MemoryAnswers(StreamEstimator):
    """The questions of `MixtureQAgent`."""

    repeat: int
    n_actions_: int
    _first_action_: int
    _scale_: Array
    _state_: MemoryState
    _rule_: Rule

    def _unit(self) -> float:
        """The return that a value of one in the memory stands for."""
        raise NotImplementedError

    @property
    def n_components_(self) -> int:
        """Number of components."""
        self._check_started()
        return self._state_.n_regions

    def _to_internal(self, observations: Array) -> Array:
        return np.clip(observations / self._scale_, -LIMIT, LIMIT)

    def values(self, observations: ArrayLike, *, return_std: bool = False) -> Any:
        """Return what each action is expected to bring, discounted, from each of some observations.

        Parameters
        ----------
        observations : array-like of shape (n_samples, n_observations)
            What the agent might see.
        return_std : bool, default=False
            Whether to give the standard errors of the expectations, too.

        Returns
        -------
        values : ndarray of shape (n_samples, n_actions)
            Expected returns.
        std : ndarray of shape (n_samples, n_actions)
            Their standard errors, if asked for.
        """
        self._check_started()
        rows = self._check_observations(observations)
        means, variances = memory.answer(self._state_, rows, self._rule_)
        if return_std:
            return means * self._unit(), np.sqrt(variances) * self._unit()
        return means * self._unit()

    def _check_observations(self, observations: ArrayLike) -> Array:
        rows = np.asarray(observations, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self._scale_) or not np.isfinite(rows).all():
            raise InputError(
                f"observations must be rows of {len(self._scale_)} finite numbers; got an array of shape {rows.shape}."
            )
        return self._to_internal(rows)

    def predict(self, observations: ArrayLike) -> NDArray[np.int64]:
        """Return the action with the best expected value in each of some observations.

        Parameters
        ----------
        observations : array-like of shape (n_samples, n_observations)
            What the agent might see.

        Returns
        -------
        ndarray of shape (n_samples,)
            Actions.
        """
        return self._first_action_ + np.argmax(self.values(observations), axis=1)

    def mixture(self) -> IncrementalGaussianMixture:
        """Return the memory as an ordinary mixture over (observations, one value for each action).

        It answers densities and conditions like any other, in the units of the environment. Each component counts
        by the states it has seen; `values` weighs them by what it knows of an action, and has the prior.

        Returns
        -------
        IncrementalGaussianMixture
            A copy of what has been learned.
        """
        self._check_started()
        if self._state_.n_regions == 0:
            raise InputError("The memory is empty: no episode has been learned yet.")
        (weights, means, covariances), total = memory.joint(self._state_, self._rule_)
        unit = np.concatenate([self._scale_, np.full(self.n_actions_, self._unit())])
        scaled = Mixture(weights, means * unit, covariances * unit * unit[:, None])
        return IncrementalGaussianMixture.from_sklearn(
            fitted_sklearn(scaled, "full"), n_samples=total, max_components=max(len(weights), 1)
        )

    def evaluate(self, env: Any, episodes: int, *, seed: int | None = None) -> Array:
        """Play episodes without exploring or learning.

        Parameters
        ----------
        env : gymnasium.Env
            An environment like that of training.
        episodes : int
            Number of episodes.
        seed : int, optional
            Seed of the environment.

        Returns
        -------
        ndarray of shape (n_episodes,)
            The return of each episode.
        """
        self._check_spaces(env)
        return playing.play_greedily(env, episodes, self.predict, int(self.repeat), seed=seed)

    def _check_spaces(self, env: Any) -> None:
        self._check_started()
        spaces = playing.spaces_of(env)
        mine = (len(self._scale_), self.n_actions_, self._first_action_)
        theirs = (len(spaces.low), spaces.n_actions, spaces.first_action)
        if mine != theirs:
            raise InputError(
                f"The environment has {theirs[0]} observations and {theirs[1]} actions from {theirs[2]}; the agent "
                f"knows {mine[0]} and {mine[1]} from {mine[2]}. Call begin(env) to start anew."
            )
