"""What a Gaussian mixture answers about whole rows: densities, components, novelty, samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc

from everlearn.base.conditioning import LIMIT as LIMIT
from everlearn.base.density import check_draws, generator
from everlearn.figmn import ask as scoring
from everlearn.figmn import learn as incremental
from everlearn.figmn.estimator_conditioning import MixtureConditioning
from everlearn.figmn.learn import MixtureState
from everlearn.figmn.state import is_diagonal, mixture_of
from everlearn.gaussian import mixture as mixtures
from everlearn.linalg.backend import HOST, Backend
from everlearn.linalg.backend_torch import device_failure, torch_device
from everlearn.linalg.chunked import to_internal

if TYPE_CHECKING:
    from everlearn.figmn.settings import Constants

Array = NDArray[np.float64]


class MixtureAnswers(MixtureConditioning):
    """Questions to a mixture; the estimator provides `_answer` and `_readout`."""

    if TYPE_CHECKING:
        n_features_in_: int
        device: str | None
        random_state: Any

        def _answer(self) -> tuple[MixtureState, Constants]: ...
        def _readout(self) -> tuple[MixtureState, Constants]: ...
        def _check_X(self, X: ArrayLike, *, first: bool = False) -> Array: ...
        def _check_started(self) -> None: ...

    # -- densities --------------------------------------------------------------------------------

    def score_samples(self, X: ArrayLike) -> Array:
        """Log-density of each row; of its observed part where it has gaps.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log-densities.
        """
        rows, state, constants = self._question(X)
        return self._ask(state, rows, constants)[0]

    def novelty(self, X: ArrayLike) -> Array:
        """How usual each row is: a p-value, small for a novelty.

        It is the probability that a row of the nearest component lies farther from it, by the chi-square distribution
        of squared Mahalanobis distances over the observed columns. The nearest component may be one of few rows: a row
        like one that came before is not new, however rare; `score_samples` tells how rare it is.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to judge.

        Returns
        -------
        ndarray of shape (n_samples,)
            p-values; 1 for a row without any observed column.

        Examples
        --------
        >>> import numpy as np
        >>> from everlearn.figmn.first_edition import IncrementalGaussianMixture
        >>> model = IncrementalGaussianMixture().fit(np.random.default_rng(0).normal(size=(1000, 2)))
        >>> model.novelty([[0.5, 0.5], [9.0, 9.0], [0.5, np.nan]]) > 1e-4
        array([ True, False,  True])
        """
        rows, state, constants = self._question(X)
        distance = self._ask(state, rows, constants)[1]
        observed = (~np.isnan(rows)).sum(axis=1)
        p_values: Array = np.where(observed > 0, chdtrc(np.maximum(observed, 1), np.maximum(distance, 0.0)), 1.0)
        return p_values

    def _device(self) -> Backend:
        return HOST if self.device is None else torch_device(self.device)

    def _ask(
        self, state: MixtureState, rows: Array, constants: Constants, *, posteriors: bool = False
    ) -> tuple[Array, Array, Array]:
        """Log-densities, squared distances and posteriors, worked out where `device` says."""
        device = self._device()
        try:
            return scoring.score(state, rows, constants.log_scale, posteriors=posteriors, backend=device)
        except RuntimeError as error:
            if device is HOST:
                raise
            raise device_failure(self.device, error) from error

    def _question(self, X: ArrayLike) -> tuple[Array, MixtureState, Constants]:
        self._check_started()
        rows = self._check_X(X)
        state, constants = self._answer()
        return to_internal(rows, constants.inverse_scale, LIMIT), state, constants

    # -- components -------------------------------------------------------------------------------

    def predict_proba(self, X: ArrayLike) -> Array:
        """Posterior probability of each component for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to assign.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
            Probabilities; each row sums to one.
        """
        self._check_started()
        rows = self._check_X(X)
        state, constants = self._readout()
        rows = to_internal(rows, constants.inverse_scale, LIMIT)
        return self._ask(state, rows, constants, posteriors=True)[2]

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """Component with the highest posterior probability for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to assign.

        Returns
        -------
        ndarray of shape (n_samples,)
            Component numbers.
        """
        return np.argmax(self.predict_proba(X), axis=1)

    def sample(self, n_samples: int = 1) -> tuple[Array, NDArray[np.intp]]:
        """Draw rows from the mixture.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The rows.
        labels : ndarray of shape (n_samples,)
            The component that each row came from.
        """
        check_draws(n_samples)
        self._check_started()
        state, constants = self._readout()
        X, labels = mixtures.sample(mixture_of(state), n_samples, generator(self.random_state))
        return X * constants.frame.scale, labels

    @property
    def weights_(self) -> Array:
        """Mixture weights."""
        self._check_started()
        state, _ = self._readout()
        counts = state.counts[: state.n_components]
        return counts / counts.sum()

    @property
    def means_(self) -> Array:
        """Means of the components."""
        self._check_started()
        state, constants = self._readout()
        return state.means[: state.n_components] * constants.frame.scale

    @property
    def covariances_(self) -> Array:
        """Covariances of the components; their variances if covariance="diag"."""
        self._check_started()
        state, constants = self._readout()
        return incremental.covariances_of(state) * _squares(state, constants.frame.scale)

    @property
    def precisions_(self) -> Array:
        """Inverses of the covariances."""
        self._check_started()
        state, constants = self._readout()
        return state.precisions[: state.n_components] / _squares(state, constants.frame.scale)

    @property
    def n_components_(self) -> int:
        """Number of components."""
        self._check_started()
        return int(self._readout()[0].n_components)


def _squares(state: MixtureState, scale: Array) -> Array:
    return scale * scale if is_diagonal(state) else scale * scale[:, None]
