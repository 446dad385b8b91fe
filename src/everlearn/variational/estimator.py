"""VariationalPPCA: probabilistic PCA learned from a stream by on-line variational Bayes, with adaptive forgetting."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from everlearn.base.density import generator
from everlearn.errors import InputError
from everlearn.forgetting import bank as memories
from everlearn.linalg.chunked import to_internal
from everlearn.ppca import learn as online_em
from everlearn.ppca.base import LIMIT, FittedPPCA, scale_of
from everlearn.ppca.state import PPCA, factor
from everlearn.variational import learn as variational
from everlearn.variational.learn import PaperState, Posterior, Settings, State
from everlearn.variational.values import VariationalValues

Array = NDArray[np.float64]

# Limits of a given noise variance in the model's own scale, so that precisions stay finite.
NOISE_LIMITS = 1e-60, 1e60


class Tools(NamedTuple):
    """What learning needs beside the state, made anew after loading."""

    settings: Settings
    inverse_scale: Array


class VariationalPPCA(VariationalValues):
    """Probabilistic PCA learned from a stream by on-line variational Bayes, which finds out how much to forget.

    The model keeps a posterior of the loadings, the mean and the noise [1]_, learned one row at a time in O(nm + m^3)
    for n columns and m components. By default a bank of six such models that remember 5, 10, 30, 100, 300 rows and all
    of them is weighed by how well each predicts the stream, and the heaviest answers: slow drift is followed with a
    short memory, a quiet stream with a long one. A row that ignorance would have predicted better puts a change on
    trial; within ten rows it is accepted, and learned anew, or taken back as an outlier. The longer nothing has
    changed, the more evidence that takes. Outliers, also those soon after a change, are left out.

    Parameters
    ----------
    n_components : int, default=2
        Number m of latent axes.
    forgetting : "adaptive", float or None, default="adaptive"
        "adaptive" is the bank. A number is the factor by which the past fades with each row, for an effective memory of
        1/(1 - forgetting) rows. None forgets nothing.
    noise_variance : "learn" or float, default="learn"
        Variance of the noise in each column, if it is known.
    mode : {"robust", "paper"}, default="robust"
        "paper" is the rule of [1]_ as printed: no mean, the noise known, a random start, and with
        `forgetting="adaptive"` a factor for each row from the evidence of its two end points.
    prior_precision : float, default=1e-3
        In mode "paper" the prior precision G0 of the loadings.
    keep_probability : float, default=0.5
        In mode "paper" the prior probability that nothing is forgotten.
    trace : int, default=0
        For how many of the last rows `trace_` keeps the forgetting factor and the memory.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of `sample`, and of the first loadings in mode "paper".
    verbose : int, default=0
        Whether `fit` shows a progress bar.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Principal axes, orthonormal, the one of largest variance first.
    loadings_ : ndarray of shape (n_features, n_components)
        Posterior mean of the loadings, along the principal axes.
    loadings_std_ : ndarray of shape (n_features, n_components)
        Their posterior standard deviations.
    mean_ : ndarray of shape (n_features,)
        Mean.
    noise_variance_ : float
        Variance of the noise in each column.
    explained_variance_, explained_variance_ratio_ : ndarray of shape (n_components,)
        Variance along each axis, noise included, and its share of the total.
    forgetting_ : float
        The last forgetting factor, of the model that answers; 0 for a row that put a change on trial.
    memory_ : float or None
        Rows that the model which answers may remember; None when it forgets nothing.
    effective_samples_ : float
        Rows that it remembers.
    changes_ : ndarray of int
        Rows, counted from 0, with which an accepted change began; the last 1000.
    trace_ : Trace
        Row numbers, forgetting factors and memories (infinite when nothing is forgotten) of the last rows, with
        `trace`.
    n_samples_seen_ : int
        Number of rows learned.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where the data had names.

    References
    ----------
    .. [1] J. Hirayama, J. Yoshimoto and S. Ishii, "Balancing plasticity and stability of on-line learning based on
       hierarchical Bayesian adaptation of forgetting factors", Neurocomputing, 2006.

    Examples
    --------
    The axis turns at row 500; the model notices and begins anew.

    >>> import numpy as np
    >>> from everlearn import VariationalPPCA
    >>> rng = np.random.default_rng(0)
    >>> before = rng.normal(size=(500, 1)) * [5.0, 0.0, 0.0] + rng.normal(size=(500, 3))
    >>> after = rng.normal(size=(500, 1)) * [0.0, 3.0, 4.0] + rng.normal(size=(500, 3))
    >>> model = VariationalPPCA(n_components=1).fit(np.vstack([before, after]))
    >>> np.abs(model.components_).round(1)
    array([[0. , 0.6, 0.8]])
    >>> bool(500 <= model.changes_[0] < 505)
    True
    """

    _transient: ClassVar[tuple[str, ...]] = (*VariationalValues._transient, "_tools_")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "forgetting": [None, StrOptions({"adaptive"}), Interval(Real, 0, 1, closed="right")],
        "noise_variance": [StrOptions({"learn"}), Interval(Real, 0, None, closed="neither")],
        "mode": [StrOptions({"robust", "paper"})],
        "prior_precision": [Interval(Real, 0, None, closed="neither")],
        "keep_probability": [Interval(Real, 0, 1, closed="neither")],
        "trace": [Interval(Integral, 0, None, closed="left")],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        forgetting: Any = "adaptive",
        noise_variance: Any = "learn",
        mode: str = "robust",
        prior_precision: float = 1e-3,
        keep_probability: float = 0.5,
        trace: int = 0,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.forgetting = forgetting
        self.noise_variance = noise_variance
        self.mode = mode
        self.prior_precision = prior_precision
        self.keep_probability = keep_probability
        self.trace = trace
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, n_components: int = 1, *, noise_variance: float = 1.0, **parameters: Any) -> Self:
        """Return a model with the paper's rule and its settings of section 3.1.

        Parameters
        ----------
        n_components : int, default=1
            Number of latent axes.
        noise_variance : float, default=1.0
            The noise, which the paper takes as known.
        **parameters : dict
            Other parameters of the constructor.

        Returns
        -------
        VariationalPPCA
            A model in mode "paper".
        """
        return cls(n_components, **{"noise_variance": noise_variance, "mode": "paper", **parameters})

    def fit(self, X: ArrayLike, y: Any = None) -> Self:  # type: ignore[override]
        """Forget everything, then learn the rows of X in their order.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows to learn; NaN where a value was not observed.
        y : ignored
            Present for the scikit-learn interface.

        Returns
        -------
        self
            The fitted estimator.
        """
        return super().fit(X, y)

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Self:  # type: ignore[override]
        """Go on learning from the rows of X in their order.

        Any split of a stream into batches gives the same model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The next rows of the stream; NaN where a value was not observed.
        y : ignored
            Present for the scikit-learn interface.

        Returns
        -------
        self
            The estimator, further on in the stream.
        """
        return super().partial_fit(X, y)

    # -- learning ---------------------------------------------------------------------------------

    def _start(self, X: Array, *, whole: bool) -> None:
        n = X.shape[1]
        self._check_compound_parameters(n)
        self._buffer_ = np.zeros((self._warmup_rows(), n))
        self._buffered_ = 0
        self._state_ = None
        self._scale_ = 1.0
        self._first_noise_ = 1.0
        self._last_ = 1.0
        self._n_rows_ = 0
        self._trace_ = np.zeros((2, 0))
        self._cache_ = {}

    def _check_compound_parameters(self, n: int) -> None:
        if self.n_components > n:
            raise InputError(f"n_components={self.n_components} must be at most n_features={n}, the number of columns.")
        if self.mode == "paper" and self.noise_variance == "learn":
            raise InputError(
                "mode='paper' needs a known noise, and noise_variance is 'learn'. Give noise_variance a number, "
                "or use mode='robust'."
            )

    def _warmup_rows(self) -> int:
        return 0 if self.mode == "paper" else variational.warmup_rows(self.n_components)

    def _learn(self, X: Array, y: Any, weights: Array | None) -> None:
        self._cache_.clear()
        start = self._warm_up(X) if self._state_ is None else 0
        self._n_rows_ += start
        if self.trace and start:
            self._keep_trace(np.array([[1.0], [math.inf]]).repeat(start, axis=1))
        if start < len(X):
            self._go_on(X[start:])
            self._n_rows_ += len(X) - start

    def _warm_up(self, X: Array) -> int:
        """Use the first rows to start from; returns how many of X are done with."""
        rows = np.flatnonzero(~np.isnan(X).all(axis=1))
        if self.mode == "paper":
            return self._start_as_paper(X, rows)
        rows = rows[: len(self._buffer_) - self._buffered_]
        self._buffer_[self._buffered_ : self._buffered_ + len(rows)] = X[rows]
        self._buffered_ += len(rows)
        if self._buffered_ < len(self._buffer_):
            return len(X)
        used = int(rows[-1]) + 1
        self._set_state(*self._of_rows(self._buffer_), stream_row=self._n_rows_ + used)
        return used

    def _start_as_paper(self, X: Array, rows: NDArray[np.intp]) -> int:
        """Start from random loadings; no row is used for that."""
        if len(rows) == 0:
            return len(X)
        self._scale_ = scale_of(X[rows[0]])
        rng = generator(self.random_state)
        unit = min(max(1.0 / self._scale_, 2.0**-90), 2.0**90)
        M = rng.standard_normal((X.shape[1], self.n_components)) * unit
        self._state_ = variational.init_paper(M, float(self.noise_variance))
        return int(rows[0])

    def _of_rows(self, rows: Array) -> tuple[Posterior, float]:
        """Posterior of a few rows, and the scale that it is in."""
        scale = scale_of(rows)
        model = self._model_of_rows(rows, scale)
        seen = np.count_nonzero(~np.isnan(rows), axis=0).astype(np.float64)
        return variational.of_rows(model, len(rows), seen), scale

    def _model_of_rows(self, rows: Array, scale: float) -> PPCA:
        model = online_em.fit_rows(rows / scale, self.n_components)
        tau = self._precision(scale)
        return model._replace(sigma2=1.0 / tau) if tau else model

    def _precision(self, scale: float) -> float:
        """Noise precision of rows divided by `scale` if it is known, else 0."""
        if self.noise_variance == "learn":
            return 0.0
        return 1.0 / min(max(float(self.noise_variance) / scale / scale, NOISE_LIMITS[0]), NOISE_LIMITS[1])

    def _set_state(self, posterior: Posterior, scale: float, *, stream_row: int) -> None:
        adaptive = self.forgetting == "adaptive"
        self._state_ = variational.init(posterior, adaptive=adaptive, stream_row=stream_row)
        self._scale_ = scale
        self._first_noise_ = float(posterior.sigma2)
        self._buffer_ = self._buffer_[:0].copy()
        self._buffered_ = 0
        self.__dict__.pop("_tools_", None)

    def _go_on(self, X: Array) -> None:
        """Learn rows with the state that the first rows have given."""
        tools = self.__dict__.get("_tools_") or self._new_tools()
        rows = to_internal(X, tools.inverse_scale, LIMIT)
        state = self._state_
        if isinstance(state, State):
            self._last_, trace = variational.learn(state, rows, tools.settings, trace=self.trace > 0)
        elif isinstance(state, PaperState):
            self._last_, trace = variational.learn_paper(
                state, rows,
                forgetting=self._fixed_factor(),
                K0=self.prior_precision * float(self.noise_variance),
                tau=tools.settings.tau,
                p1=self.keep_probability,
                trace=self.trace > 0,
            )  # fmt: skip
        if self.trace:
            self._keep_trace(trace)

    def _new_tools(self) -> Tools:
        settings = variational.settings(
            self.n_features_in_,
            self.n_components,
            forgetting=self._fixed_factor(),
            tau=self._precision(self._scale_),
            sigma2=self._first_noise_,
        )
        self._tools_ = Tools(settings, np.full(self.n_features_in_, 1.0 / self._scale_))
        return self._tools_

    def _fixed_factor(self) -> float | None:
        if self.forgetting == "adaptive":
            return None
        return 1.0 if self.forgetting is None else float(self.forgetting)

    def _keep_trace(self, trace: Array) -> None:
        self._trace_ = np.concatenate([self._trace_, trace], axis=1)[:, -self.trace :]

    # -- asking -----------------------------------------------------------------------------------

    def _new_fitted(self) -> FittedPPCA:
        if isinstance(self._state_, State):
            return FittedPPCA.of(variational.answer(self._state_, self._precision(self._scale_)), self._scale_)
        if isinstance(self._state_, PaperState):
            known = self._posterior()
            return FittedPPCA.of(factor(PPCA(known.mu, known.M, known.sigma2)), self._scale_)
        if self._buffered_ == 0:
            raise InputError("The model has learned nothing yet: every row so far was NaN in all columns.")
        rows = self._buffer_[: self._buffered_]
        scale = scale_of(rows)
        return FittedPPCA.of(factor(self._model_of_rows(rows, scale)), scale)

    def _posterior(self) -> Posterior:
        """What the model knows, in its own scale."""
        if isinstance(self._state_, State):
            known, tau = variational.posterior(self._state_), self._precision(self._scale_)
            return known._replace(a=tau, b=1.0) if tau else known
        if isinstance(self._state_, PaperState):
            return variational.paper_posterior(self._state_, self._precision(self._scale_))
        return self._of_rows(self._buffer_[: self._buffered_])[0]

    def _changes(self) -> NDArray[np.int64]:
        state = self._state_
        return memories.accepted_changes(state.bank) if isinstance(state, State) else np.zeros(0, dtype=np.int64)

    def _cap(self) -> float:
        """Rows that the model which answers may remember."""
        state = self._state_
        if self.forgetting == "adaptive":
            return float(state.bank.caps[memories.answer(state.bank)[1]]) if isinstance(state, State) else math.inf
        factor = self._fixed_factor()
        return math.inf if factor is None or factor >= 1.0 else 1.0 / (1.0 - factor)
