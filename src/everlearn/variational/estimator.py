"""VariationalPPCA: probabilistic PCA learned from a stream by on-line variational Bayes, with adaptive forgetting."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from everlearn.base.draws import generator
from everlearn.errors import InputError, MergeError
from everlearn.forgetting import bank as forgetting_bank
from everlearn.linalg.chunked import to_internal
from everlearn.persistence.schema import Sizes, check_state, expect, require
from everlearn.ppca.base import LIMIT, FittedPPCA, PPCABase, scale_of
from everlearn.ppca.learn import fit_rows
from everlearn.ppca.state import PPCA, factor
from everlearn.typing import Array
from everlearn.variational import ask, learn
from everlearn.variational.merge import merge, rescale
from everlearn.variational.state import (
    Info,
    PaperSettings,
    PaperState,
    Posterior,
    Settings,
    State,
    init,
    init_paper,
    posterior_of_rows,
    warmup_rows,
)

# Limits of a given noise variance in the model's own scale, so that precisions stay finite.
NOISE_LIMITS = 1e-60, 1e60

_MOST_VARIANCE, _LEAST_NOISE = 1e100, 1e-200  # of a state from a file, in the units of its scale
_MOST_LOADING = 1e100  # answers square it; rows are cut at 1e60


class Trace(NamedTuple):
    """Row numbers, and after each of them the forgetting factor and the horizon in use."""

    rows: NDArray[np.int64]
    forgetting: Array
    memory: Array


class VariationalPPCA(PPCABase):
    """Probabilistic PCA learned from a stream by on-line variational Bayes, which finds out how much to forget.

    The model keeps a posterior of the loadings, the mean and the noise [1]_, learned one row at a time in O(nm + m^3)
    for n columns and m components. By default a bank of six such models that remember 5, 10, 30, 100, 300 rows and all
    of them is weighed by how well each predicts the stream, and the heaviest answers: slow drift is followed with a
    short memory, a quiet stream with a long one. A row that a background density would have predicted better starts a
    trial: within ten rows the change is accepted, and the model restarted, or the row is rejected as an outlier. The
    longer nothing has changed, the more evidence a change takes. Outliers, also soon after a change, are left out.

    Parameters
    ----------
    n_components : int, default=2
        Number m of latent axes.
    forgetting : "adaptive", "posterior", float or None, default="adaptive"
        "adaptive" is the bank. A number is the factor by which the past fades with each row, for an effective memory of
        1/(1 - forgetting) rows. None forgets nothing. In mode "paper", "adaptive" is the factor of eq. 10, from the
        evidence of its two end points, and "posterior" the mean of its posterior over all of (0, 1), eq. 9, which the
        paper calls intractable.
    noise_variance : "learn" or float, default="learn"
        Variance of the noise in each column, if it is known.
    mode : {"robust", "paper"}, default="robust"
        "paper" is the rule of [1]_ as printed: no mean, the noise known, and a random start.
    prior_precision : float, default=1e-3
        In mode "paper" the prior precision G0 of the loadings.
    prior_mean : array-like of shape (n_features, n_components), optional
        In mode "paper" the prior mean M0 of the loadings; zero by default.
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
        The last forgetting factor, of the model that answers; 0 for a row that began the trial of a change.
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
    The axis turns at row 500; the model detects the change and restarts.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "forgetting": [None, StrOptions({"adaptive", "posterior"}), Interval(Real, 0, 1, closed="right")],
        "noise_variance": [StrOptions({"learn"}), Interval(Real, 0, None, closed="neither")],
        "mode": [StrOptions({"robust", "paper"})],
        "prior_precision": [Interval(Real, 0, None, closed="neither")],
        "prior_mean": [None, "array-like"],
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
        prior_mean: Any = None,
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
        self.prior_mean = prior_mean
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
        self._check_compound_parameters(X.shape[1])
        self._start_buffer(X.shape[1])
        self._first_noise_ = 1.0
        self._last_ = 1.0
        self._trace_ = np.zeros((2, 0))

    def _check_compound_parameters(self, n: int) -> None:
        if self.mode == "paper":
            if self.noise_variance == "learn":
                raise InputError(
                    "mode='paper' needs a known noise, and noise_variance is 'learn'. Give noise_variance a number, "
                    "or use mode='robust'."
                )
            self._prior_mean(n)
            return
        if self.forgetting == "posterior":
            raise InputError("forgetting='posterior' is the paper's eq. 9 and needs mode='paper'; mode is 'robust'.")
        if self.prior_mean is not None:
            raise InputError("prior_mean needs mode='paper'; mode='robust' starts from the first rows and has no M0.")

    def _prior_mean(self, n: int) -> Array | None:
        """M0, checked."""
        if self.prior_mean is None:
            return None
        M0 = np.asarray(self.prior_mean, dtype=np.float64)
        if M0.shape != (n, self.n_components) or not np.isfinite(M0).all():
            raise InputError(
                f"prior_mean must be finite and of shape (n_features, n_components) = {(n, self.n_components)}; it has "
                f"shape {M0.shape}."
            )
        return M0

    def _warmup_rows(self) -> int:
        return 0 if self.mode == "paper" else warmup_rows(self.n_components)

    def _learn(self, X: Array, y: Any, weights: Array | None) -> None:
        self._cache_.clear()
        start = self._warm_up(X) if self._state_ is None else 0
        self._n_rows_ += start
        if start:
            self._keep_trace(Info(np.ones(start), np.full(start, math.inf)))
        if start == len(X):
            return
        settings, inverse_scale = self.__dict__.get("_settings_") or self._new_settings()
        rows = to_internal(X[start:], inverse_scale, LIMIT)
        if isinstance(settings, PaperSettings):
            self._state_, info = learn.learn_paper(self._state_, rows, settings)
        else:
            self._state_, info = learn.learn(self._state_, rows, settings)
        self._last_ = float(info.forgetting[-1])
        self._keep_trace(info)
        self._n_rows_ += len(rows)

    def _start_state(self, rows: Array, n_used: int) -> None:
        if self.mode == "robust":
            self._set_state(*self._posterior_of_rows(rows), stream_row=n_used)
            return
        # The paper starts from random loadings: the row gives no more than the scale.
        self._scale_ = scale_of(rows)
        # Unit normals in the unit of the data, as in the paper; the limits keep the square of the unit a normal number.
        unit = min(max(1.0 / self._scale_, 2.0**-90), 2.0**90)
        M = generator(self.random_state).standard_normal((rows.shape[1], self.n_components)) * unit
        self._state_ = init_paper(M, float(self.noise_variance))

    def _posterior_of_rows(self, rows: Array) -> tuple[Posterior, float]:
        """Posterior of a few rows, and the scale that it is in."""
        scale = scale_of(rows)
        seen = np.count_nonzero(~np.isnan(rows), axis=0).astype(np.float64)
        return posterior_of_rows(self._model_of_rows(rows, scale), len(rows), seen), scale

    def _model_of_rows(self, rows: Array, scale: float) -> PPCA:
        model = fit_rows(rows / scale, self.n_components)
        tau = self._precision(scale)
        return model._replace(sigma2=1.0 / tau) if tau else model

    def _precision(self, scale: float) -> float:
        """Noise precision of rows divided by `scale` if it is known, else 0."""
        if self.noise_variance == "learn":
            return 0.0
        return 1.0 / min(max(float(self.noise_variance) / scale / scale, NOISE_LIMITS[0]), NOISE_LIMITS[1])

    def _set_state(self, posterior: Posterior, scale: float, *, stream_row: int) -> None:
        self._state_ = init(posterior, adaptive=self.forgetting == "adaptive", stream_row=stream_row)
        self._scale_ = scale
        self._first_noise_ = float(posterior.sigma2)
        self._drop_buffer()
        self.__dict__.pop("_settings_", None)

    def _new_settings(self) -> tuple[Settings | PaperSettings, Array]:
        """Constants of the stream and 1/scale of its columns, kept because a batch may be a single row."""
        n, m, tau = self.n_features_in_, self.n_components, self._precision(self._scale_)
        constants: Settings | PaperSettings
        if self.mode == "paper":
            M0 = self._prior_mean(n)
            constants = learn.paper_settings(
                m,
                n,
                forgetting=1.0 if self.forgetting is None else self.forgetting,
                k0=self._prior_K(),
                tau=tau,
                keep_probability=self.keep_probability,
                prior_mean=None if M0 is None else M0 / self._scale_,
            )
        else:
            adaptive = self.forgetting == "adaptive"
            factor = None if adaptive else 1.0 if self.forgetting is None else float(self.forgetting)
            constants = learn.settings(n, m, forgetting=factor, tau=tau, sigma2=self._first_noise_)
        self._settings_ = constants, np.full(n, 1.0 / self._scale_)
        return self._settings_

    def _prior_K(self) -> float:
        """Precision of the loadings' prior, in units of the noise's."""
        return learn.K0 if self.mode == "robust" else self.prior_precision * float(self.noise_variance)

    def _keep_trace(self, info: Info) -> None:
        if self.trace:
            self._trace_ = np.concatenate([self._trace_, np.stack(info)], axis=1)[:, -self.trace :]

    # -- asking -----------------------------------------------------------------------------------

    def _new_fitted(self) -> FittedPPCA:
        if isinstance(self._state_, State):
            return FittedPPCA.of(ask.model_of(self._state_, self._precision(self._scale_)), self._scale_)
        if isinstance(self._state_, PaperState):
            known = self._posterior()
            return FittedPPCA.of(factor(PPCA(known.mu, known.M, known.sigma2)), self._scale_)
        rows = self._first_rows()
        scale = scale_of(rows)
        return FittedPPCA.of(factor(self._model_of_rows(rows, scale)), scale)

    def _posterior(self) -> Posterior:
        """What the model knows, in its own scale."""
        if isinstance(self._state_, State):
            known, tau = ask.posterior(self._state_), self._precision(self._scale_)
            return known._replace(a=tau, b=1.0) if tau else known
        if isinstance(self._state_, PaperState):
            return ask.paper_posterior(self._state_, self._precision(self._scale_))
        return self._posterior_of_rows(self._first_rows())[0]

    @property
    def loadings_std_(self) -> Array:
        """Posterior standard deviations of `loadings_`."""
        fitted, known = self._fitted(), self._posterior()
        rotation = np.linalg.svd(known.M, full_matrices=False)[2].T
        return ask.loadings_std(known, rotation) * fitted.scale

    @property
    def forgetting_(self) -> float:
        """The last forgetting factor."""
        self._check_started()
        return self._last_

    @property
    def memory_(self) -> float | None:
        """Rows that the model which answers may remember; None when it forgets nothing."""
        self._check_started()
        if self.forgetting == "adaptive":
            if not isinstance(self._state_, State):
                return None
            horizon = float(self._state_.bank.horizons[forgetting_bank.best_member(self._state_.bank)[1]])
            return horizon if math.isfinite(horizon) else None
        if self.forgetting in (None, "posterior") or float(self.forgetting) >= 1.0:
            return None
        return 1.0 / (1.0 - float(self.forgetting))

    @property
    def effective_samples_(self) -> float:
        """Rows that the model which answers remembers."""
        self._check_started()
        return float(self._posterior().N) if self._state_ is not None or self._buffered_ else 0.0

    @property
    def changes_(self) -> NDArray[np.int64]:
        """Rows with which an accepted change began."""
        self._check_started()
        if not isinstance(self._state_, State):
            return np.zeros(0, dtype=np.int64)
        return forgetting_bank.accepted_changes(self._state_.bank)

    @property
    def trace_(self) -> Trace:
        """Forgetting factor and horizon after each of the last rows."""
        self._check_started()
        if not self.trace:
            raise AttributeError("trace_ is kept with trace=N, for the last N rows; this model has trace=0.")
        forgetting, memory = self._trace_.copy()
        return Trace(np.arange(self._n_rows_ - len(memory), self._n_rows_), forgetting, memory)

    # -- merging ----------------------------------------------------------------------------------

    def _merge(self, others: list[Self], *, method: str, weights: ArrayLike | None, n_components: int | None) -> Self:
        if method not in ("auto", "bayes", "mode"):
            raise MergeError(
                f"method={method!r} does not apply to VariationalPPCA: the moments of several posteriors of loadings "
                "are those of no one posterior with a precision shared by all columns. Use method='bayes' (posteriors "
                "from different rows multiply) or 'mode' (their weighted geometric mean)."
            )
        if n_components not in (None, self.n_components):
            raise MergeError(f"n_components={n_components!r}: a merge keeps the {self.n_components} latent axes.")
        models = [self, *others]
        shares = np.ones(len(models)) if weights is None else np.asarray(weights) * len(models) / np.sum(weights)
        # In an order of their own, so that the order in which models are given makes no difference.
        pairs = sorted(zip(models, shares, strict=True), key=lambda pair: pair[0]._sort_key())
        started = [(model, share) for model, share in pairs if model._state_ is not None]
        waiting = [model._buffer_[: model._buffered_] for model, _ in pairs if model._state_ is None]
        merged: Self = (started[0][0] if started else self).copy()
        # Rows of models that are still warming up have no posterior: they are learned like any others, after the merge.
        rows = np.concatenate([*waiting, np.empty((0, self.n_features_in_))])
        if len(started) > 1:
            merged._become([model for model, _ in started], np.array([share for _, share in started]), method)
        if not started:
            merged._start(rows, whole=False)
        if len(rows):
            merged._learn(rows, None, None)
        merged._n_rows_ = sum(model._n_rows_ for model in models)
        merged._cache_ = {}
        return merged

    def _sort_key(self) -> tuple[int, bytes]:
        known = self._buffer_ if self._state_ is None else self._posterior().M
        return self._n_rows_, known.tobytes()

    def _become(self, models: list[Self], shares: Array, method: str) -> None:
        """Take on the product of several posteriors in place, in the largest of their scales."""
        scale = max(model._scale_ for model in models)
        # In the largest of the scales, so that no part grows when it changes units.
        parts = [rescale(model._posterior(), model._scale_ / scale) for model in models]
        known = merge(parts, shares / shares.sum() if method == "mode" else shares, self._prior_K())
        if self.mode == "robust":
            self._set_state(known, scale, stream_row=sum(model._n_rows_ for model in models))
            return
        B = np.ascontiguousarray(known.K @ known.M.T)
        self._state_, self._scale_ = PaperState(B, known.K, B @ B.T), scale
        self.__dict__.pop("_settings_", None)

    # -- loading ----------------------------------------------------------------------------------

    def _check_loaded(self) -> None:
        n, m = self.n_features_in_, self.n_components
        sizes: Sizes = {"n": n, "m": m}
        self._check_compound_parameters(n)
        require(m <= n, "it has more components than columns")
        waiting = 0 if self._state_ is not None else self._warmup_rows()
        expect(self._buffer_, f"gaps {waiting} n", sizes, "the first rows")
        expect(self._trace_, "any 2 t", sizes, "the trace")
        for count in (self._buffered_, self._n_rows_):
            expect(count, int, sizes, "a number of rows")
        for number in (self._scale_, self._first_noise_, self._last_):
            expect(number, float, sizes, "a number")
        require(self._scale_ > 0 and self._first_noise_ > 0, "its scale is not positive")
        require(self._buffered_ <= waiting, "it has more first rows than it may keep")
        require(sizes["t"] <= self.trace, "its trace is longer than it may be")
        if self._state_ is not None and self.mode == "paper":
            check_state(self._state_, PaperState, sizes)
        elif self._state_ is not None:
            self._check_bank(sizes)
        self._cache_ = {}

    def _check_bank(self, sizes: Sizes) -> None:
        """Refuse a loaded bank whose arrays do not fit each other, or whose counts a kernel could not index with."""
        adaptive, m = self.forgetting == "adaptive", self.n_components
        r = warmup_rows(m) if adaptive else 0
        slots, J = (2, len(forgetting_bank.HORIZONS)) if adaptive else (1, 1)
        check_state(self._state_, State, {**sizes, "s": slots, "J": J, "p": m + 1, "r": r})
        state, bank = self._state_, self._state_.bank
        # K is at least the prior's precision, and b at least what the rounding of the rows leaves: an answer multiplies
        # the first and divides by the second.
        require((np.abs(state.K_inv) <= _MOST_VARIANCE).all(), "its loadings are far too uncertain")
        with np.errstate(over="ignore", invalid="ignore"):
            loadings = np.abs(state.K_inv @ state.B)
        require((loadings <= _MOST_LOADING).all(), "its loadings are far too large")
        require((state.b >= _LEAST_NOISE).all(), "its noise is far too small")
        require(forgetting_bank.is_consistent(bank), "its bank has counts out of range")
        require(bank.active[0] < slots and (bank.trial_rows[0] == 0 or adaptive), "its bank has no such slot")
        require(((state.burn_in >= -1) & (state.burn_in < max(r, 1))).all(), "its burn-in has counts out of range")
