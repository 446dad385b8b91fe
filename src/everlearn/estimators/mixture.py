"""IncrementalGaussianMixture: a Gaussian mixture that learns from a stream, one row at a time."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from everlearn.core import incremental
from everlearn.core import mixture as mixtures
from everlearn.core.frame import Frame, frame_of_rows, frame_of_spread
from everlearn.core.incremental import MixtureState, Settings
from everlearn.errors import DivergenceWarning, InputError, ModelFileError
from everlearn.estimators.base import StreamEstimator
from everlearn.kernels import mixture as kernels

Array = NDArray[np.float64]

# Beyond this many scales a value is kept at the limit, so that its square stays finite.
LIMIT = 1e60
# `max_components="auto"` keeps the precisions within 2^24 numbers (128 MiB).
MAX_COMPONENTS = 200
MAX_NUMBERS = 2**24


class Warmup(NamedTuple):
    """The first rows of a stream, kept until they say how wide the columns are."""

    rows: Array
    weights: Array
    n: int


class IncrementalGaussianMixture(DensityMixin, StreamEstimator):
    """Gaussian mixture learned from a stream in one pass, creating components where data is new.

    Each row updates the components by its posterior probabilities in O(K D^2), or opens a new component when it is
    farther than the novelty threshold from all of them. The update is exact recursive estimation, after the fast
    incremental Gaussian mixture network [1]_; docs/errata.md says where it differs from the printed one.

    Parameters
    ----------
    delta : float, default=1.0
        Variance of a new component, in units of the variance of each column.
    beta : float, default=0.5
        A row is novel when its squared Mahalanobis distance to every component exceeds the upper `beta` quantile of
        chi-square; 0 creates a single component.
    scale : "auto" or array-like of shape (n_features,), default="auto"
        Standard deviation of each column. "auto" estimates it: `fit` from all rows it is given, `partial_fit` from
        the first `warmup` rows, which are kept until then.
    warmup : "auto" or int, default="auto"
        Number of rows from which `partial_fit` estimates the scale; "auto" takes 200, or five a column if that is
        more, and at most 2000.
    max_components : "auto" or int, default="auto"
        Most components that are kept. "auto" is 200, or what 128 MiB of precision matrices hold. When a new component
        has no room, components that cost little likelihood are merged.
    merging : bool, default=True
        Whether a full mixture merges all pairs that cost less than a tenth of a BIC penalty (and down to half of
        `max_components` if need be), or the cheapest pair only.
    prune : None or tuple (min_age, min_count), default=None
        Remove components that are older than `min_age` rows and have gathered less than `min_count`.
    update : {"exact", "paper"}, default="exact"
        "paper" keeps the covariance update as printed in [1]_, eq. 11.
    forgetting : float or None, default=None
        Factor by which every count fades with each row, for an effective memory of 1/(1 - forgetting) rows.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of `sample`.
    verbose : int, default=0
        Whether `fit` shows a progress bar.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components_,)
        Mixture weights.
    means_ : ndarray of shape (n_components_, n_features)
        Means of the components.
    covariances_ : ndarray of shape (n_components_, n_features, n_features)
        Covariances of the components.
    precisions_ : ndarray of shape (n_components_, n_features, n_features)
        Inverses of the covariances.
    n_components_ : int
        Number of components.
    n_samples_seen_ : int
        Number of rows learned.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where the data had names.

    References
    ----------
    .. [1] R. C. Pinto and P. M. Engel, "Scalable and incremental learning of Gaussian mixture models".

    Examples
    --------
    >>> import numpy as np
    >>> from everlearn import IncrementalGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (500, 2)), rng.normal(9, 1, (500, 2))])
    >>> model = IncrementalGaussianMixture(beta=0.001).fit(X)
    >>> model.n_components_
    2
    >>> model.score_samples([[0.0, 0.0]]).round(1)
    array([-2.5])
    """

    _allow_nan: ClassVar[bool] = True
    _transient: ClassVar[tuple[str, ...]] = ("_settings_", "_answer_")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "delta": [Interval(Real, 0, None, closed="neither")],
        "beta": [Interval(Real, 0, 1, closed="left")],
        "scale": [StrOptions({"auto"}), "array-like", Interval(Real, 0, None, closed="neither")],
        "warmup": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_components": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "merging": ["boolean"],
        "prune": [None, tuple, list],
        "update": [StrOptions({"exact", "paper"})],
        "forgetting": [None, Interval(Real, 0, 1, closed="right")],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        delta: float = 1.0,
        beta: float = 0.5,
        scale: Any = "auto",
        warmup: Any = "auto",
        max_components: Any = "auto",
        merging: bool = True,
        prune: tuple[float, float] | None = None,
        update: str = "exact",
        forgetting: float | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.delta = delta
        self.beta = beta
        self.scale = scale
        self.warmup = warmup
        self.max_components = max_components
        self.merging = merging
        self.prune = prune
        self.update = update
        self.forgetting = forgetting
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, **parameters: Any) -> Self:
        """Return a mixture with the settings of the FIGMN paper's experiments, as its author's code reads them.

        delta = 0.5 times the variance, beta = 2e-6 (the printed 4.9e-324 cannot be taken literally, see
        docs/errata.md), no merging and the exact update, which is the one that reproduces the paper's tables.
        """
        return cls(**{"delta": 0.5, "beta": 2e-6, "merging": False, **parameters})

    # -- learning ---------------------------------------------------------------------------------

    def _start(self, X: Array, *, whole: bool) -> None:
        D = X.shape[1]
        self._state_ = incremental.empty(D)
        self._warmup_: Warmup | None = None
        self._frame_: Frame | None = None
        if not isinstance(self.scale, str):
            self._frame_ = frame_of_spread(self._given_scale(D))
        elif whole:
            self._frame_ = frame_of_rows(X)
        else:
            n = self._warmup_rows(D)
            self._warmup_ = Warmup(np.empty((n, D)), np.empty(n), 0)
        self._settle()

    def _given_scale(self, D: int) -> Array:
        scale = np.asarray(self.scale, dtype=np.float64)
        if scale.shape not in ((), (D,)) or not np.all(np.isfinite(scale) & (scale > 0)):
            raise InputError(
                f"scale must be 'auto' or one positive standard deviation for each of the {D} columns; got {self.scale!r}."
            )
        return np.broadcast_to(scale, (D,)).copy()

    def _warmup_rows(self, D: int) -> int:
        return min(max(200, 5 * D), 2000) if self.warmup == "auto" else int(self.warmup)

    def _settle(self) -> None:
        """Derive the constants of the stream from the parameters and the frame."""
        if self._frame_ is not None:
            self._settings_ = self._settings_for(self._frame_)
        self._answer_ = None

    def _settings_for(self, frame: Frame) -> Settings:
        D = len(frame.scale)
        auto = max(2, min(MAX_COMPONENTS, MAX_NUMBERS // D**2))
        min_age, min_count = (np.inf, 0.0) if self.prune is None else map(float, self.prune)
        return Settings(
            centre=frame.centre,
            initial_variance=self.delta * frame.variance,
            thresholds=incremental.novelty_thresholds(self.beta, D),
            paper=self.update == "paper",
            forgetting=1.0 if self.forgetting is None else float(self.forgetting),
            min_age=min_age,
            min_count=min_count,
            max_components=auto if self.max_components == "auto" else int(self.max_components),
            max_merge_cost=incremental.COMPACTION_COST if self.merging else 0.0,
        )

    def _learn(self, X: Array, y: Any, weights: Array | None) -> None:
        weights = np.ones(len(X)) if weights is None else weights
        self._answer_ = None
        if self._warmup_ is not None:
            X, weights = self._warm_up(self._warmup_, X, weights)
            if len(X) == 0:
                return
        self._state_ = self._learned(self._state_, X, weights, self._frame_, self._settings_)

    def _warm_up(self, warmup: Warmup, X: Array, weights: Array) -> tuple[Array, Array]:
        """Put rows into the buffer; once it is full, set the frame and return every row to be learned."""
        taken = min(len(warmup.rows) - warmup.n, len(X))
        end = warmup.n + taken
        warmup.rows[warmup.n : end] = X[:taken]
        warmup.weights[warmup.n : end] = weights[:taken]
        self._warmup_ = warmup._replace(n=end)
        if end < len(warmup.rows):
            return X[:0], weights[:0]
        self._warmup_ = None
        self._frame_ = frame_of_rows(warmup.rows)
        self._settle()
        return np.concatenate([warmup.rows, X[taken:]]), np.concatenate([warmup.weights, weights[taken:]])

    def _learned(
        self, state: MixtureState, X: Array, weights: Array, frame: Frame, settings: Settings
    ) -> MixtureState:
        state, info = incremental.learn(state, kernels.to_internal(X, 1.0 / frame.scale, LIMIT), weights, settings)
        if info.skipped_updates:
            warnings.warn(
                f"update='paper': {info.skipped_updates} updates would have made a covariance indefinite and were "
                "skipped (FIGMN eq. 11; see docs/errata.md). update='exact' has no such rows.",
                DivergenceWarning,
                stacklevel=4,
            )
        return state

    # -- asking -----------------------------------------------------------------------------------

    def _answer(self) -> tuple[MixtureState, Frame, Array]:
        """State, frame and log of the scales to answer from: while warming up, what the buffer would give."""
        if self._answer_ is None:
            self._check_started()
            state, frame = self._state_, self._frame_
            if self._warmup_ is not None:
                rows, weights = self._warmup_.rows[: self._warmup_.n], self._warmup_.weights[: self._warmup_.n]
                frame = frame_of_rows(rows)
                nothing = incremental.empty(self.n_features_in_)
                state = self._learned(nothing, rows, weights, frame, self._settings_for(frame))
            if state.n_components == 0:
                raise InputError("The model has no component yet: every row so far was NaN in all columns.")
            self._answer_ = state, frame, np.log(frame.scale)
        return self._answer_

    def _ask(self, X: ArrayLike, posteriors: bool = False) -> tuple[Array, Array, Array]:
        self._check_started()
        rows = self._check_X(X)
        state, frame, log_scale = self._answer()
        n, K = len(rows), state.n_components
        log_density, distance, posterior = np.empty(n), np.empty(n), np.empty((n if posteriors else 0, K))
        rows = kernels.to_internal(rows, 1.0 / frame.scale, LIMIT)
        kernels.ask_rows(rows, *state[:4], K, log_scale, log_density, distance, posterior)
        return log_density, distance, posterior

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
        return self._ask(X)[0]

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean log-density of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to score.
        y : ignored
            Present for the scikit-learn interface.

        Returns
        -------
        float
            Mean of `score_samples(X)`.
        """
        return float(self.score_samples(X).mean())

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
        return self._ask(X, posteriors=True)[2]

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
        if n_samples < 1:
            raise InputError(f"n_samples must be at least 1; got {n_samples}.")
        state, frame, _ = self._answer()
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        X, labels = mixtures.sample(incremental.mixture_of(state), n_samples, rng)
        return X * frame.scale, labels

    @property
    def weights_(self) -> Array:
        """Mixture weights."""
        state, _, _ = self._answer()
        counts = state.counts[: state.n_components]
        return counts / counts.sum()

    @property
    def means_(self) -> Array:
        """Means of the components."""
        state, frame, _ = self._answer()
        return state.means[: state.n_components] * frame.scale

    @property
    def covariances_(self) -> Array:
        """Covariances of the components."""
        state, frame, _ = self._answer()
        return incremental.covariances_of(state) * frame.scale * frame.scale[:, None]

    @property
    def precisions_(self) -> Array:
        """Inverses of the covariances."""
        state, frame, _ = self._answer()
        return state.precisions[: state.n_components] / frame.scale / frame.scale[:, None]

    @property
    def n_components_(self) -> int:
        """Number of components."""
        return int(self._answer()[0].n_components)

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows learned."""
        self._check_started()
        return int(self._state_.n_rows + (self._warmup_.n if self._warmup_ is not None else 0))
