"""OnlinePPCA: probabilistic PCA learned from a stream by online EM, with the natural constraint."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from everlearn.base.draws import generator
from everlearn.base.redo_log import drop_log
from everlearn.errors import DivergenceWarning, InputError, MergeError
from everlearn.linalg.chunked import to_internal
from everlearn.monitoring.page_hinkley import current_memory
from everlearn.persistence.schema import check_state, expect, require, require_finite
from everlearn.ppca import keep, learn
from everlearn.ppca.base import LIMIT, FittedPPCA, PPCABase, find_stack_level, scale_of
from everlearn.ppca.keep import NaturalConstraint, OnChange
from everlearn.ppca.merge import ScaledPPCA, merge
from everlearn.ppca.schedules import PowerSchedule, as_schedule
from everlearn.ppca.state import Flags, Info, Settings, State, factor, init, init_paper, parameters
from everlearn.typing import Array

# Accepted changes that `changes_` remembers, so that memory stays bounded.
CHANGES_KEPT = 100


class OnlinePPCA(PPCABase):
    """Probabilistic PCA learned from a stream in one pass, one row at a time, gaps included.

    Each row updates the expected statistics of the model x = W z + mu + noise by stochastic approximation and then the
    parameters [1]_, in O(d q^2) for d columns and q components. A natural constraint can hold the model to what it knew
    when a class ended or the stream changed [2]_; docs/errata.md says where it differs from the printed one.

    Parameters
    ----------
    n_components : int, default=2
        Number q of principal axes.
    learning_rate : PowerSchedule or float, default=PowerSchedule(0.9, 0.9)
        Weight of row k. `PowerSchedule(1.0, 1.0)` weighs all rows alike, for a stationary stream; a number such as 0.01
        is a constant rate, for tracking.
    constraint : NaturalConstraint or None, default=None
        What holds the model back, see :class:`everlearn.NaturalConstraint`.
    warmup : "auto" or int, default="auto"
        Number of rows that are kept to start from; until they are there, the model answers from all of them at once.
        "auto" is 50, or five a component if that is more.
    mode : {"robust", "plain", "paper"}, default="robust"
        "robust" is online EM with parameter expansion: the latent variable is brought back to unit variance at every
        row, so that the lengths of the axes are found fast however small the noise. "plain" is without it. "paper"
        keeps the statistics of [2]_ as printed (equations 9 to 15), which start at zero with random axes and no
        warm-up; its constraint is `NaturalConstraint(form="paper")`.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of `sample`, and of the first axes in mode "paper".
    verbose : int, default=0
        Whether `fit` shows a progress bar.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Principal axes, orthonormal, the one of largest variance first.
    explained_variance_ : ndarray of shape (n_components,)
        Variance along each of them, noise included.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        The same as shares of the total variance.
    loadings_ : ndarray of shape (n_features, n_components)
        The matrix W.
    mean_ : ndarray of shape (n_features,)
        Mean.
    noise_variance_ : float
        Variance of the noise in each column.
    n_samples_seen_ : int
        Number of rows learned.
    changes_ : ndarray of int
        Rows, counted from 0, before which a change was detected (with `OnChange`; the last 100).
    divergence_ : ndarray of shape (3,)
        With the paper's constraint: how many weights beta/F were above one, how many noise variances were not positive,
        how many rows overflowed.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where the data had names.

    References
    ----------
    .. [1] O. Cappe and E. Moulines, "Online EM algorithm for latent data models", 2009.
    .. [2] D. Pamplona and A. Manzanera, "Naturally constrained online expectation maximization", 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from everlearn import OnlinePPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 1)) * [3.0, 4.0, 0.0] + rng.normal(size=(1000, 3))
    >>> model = OnlinePPCA(n_components=1).fit(X)
    >>> model.components_.round(1)
    array([[0.6, 0.8, 0. ]])
    >>> model.impute([[3.0, np.nan, 0.0]]).round(0)
    array([[3., 4., 0.]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [PowerSchedule, Interval(Real, 0, 1, closed="right")],
        "constraint": [None, NaturalConstraint],
        "warmup": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "mode": [StrOptions({"robust", "plain", "paper"})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        learning_rate: PowerSchedule | float = PowerSchedule(0.9, 0.9),  # noqa: B008 (it is frozen)
        constraint: NaturalConstraint | None = None,
        warmup: Any = "auto",
        mode: str = "robust",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.constraint = constraint
        self.warmup = warmup
        self.mode = mode
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, n_components: int = 3, *, reference: Any = "step", **parameters: Any) -> Self:
        """Return a model with the settings of the NAT-oEM paper's Table I.

        Parameters
        ----------
        n_components : int, default=3
            Number of principal axes.
        reference : "step", "class" or None, default="step"
            The policy; None is online EM without a constraint.
        **parameters : dict
            Other parameters of the constructor.

        Returns
        -------
        OnlinePPCA
            A model in mode "paper", with rate 0.9 k^-0.9 (0.5 k^-0.9 for "class") and strength k^-0.9.
        """
        constraint = None if reference is None else NaturalConstraint(reference=reference, fisher="body", form="paper")
        rate = PowerSchedule(0.5 if reference == "class" else 0.9, 0.9)
        return cls(n_components, **{"learning_rate": rate, "constraint": constraint, "mode": "paper", **parameters})

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:  # type: ignore[override]
        """Forget everything, then learn the rows of X in their order.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows to learn; NaN where a value was not observed.
        y : array-like of shape (n_samples,), optional
            Labels; where they change, a class has ended. Used by `NaturalConstraint(reference="class")`.

        Returns
        -------
        self
            The fitted estimator.
        """
        return super().fit(X, y)

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:  # type: ignore[override]
        """Go on learning from the rows of X in their order.

        Any split of a stream into batches gives the same model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The next rows of the stream; NaN where a value was not observed.
        y : array-like of shape (n_samples,), optional
            Labels; where they change, a class has ended. Used by `NaturalConstraint(reference="class")`.

        Returns
        -------
        self
            The estimator, further on in the stream.
        """
        return super().partial_fit(X, y)

    def end_class(self) -> Self:
        """Say that a class has ended: from now on the model is held to what it knows.

        Returns
        -------
        self
            The estimator.
        """
        self._check_started()
        if not self._has_classes():
            raise InputError(
                "end_class() needs constraint=NaturalConstraint(reference='class'); this model has "
                f"constraint={self.constraint!r}."
            )
        drop_log(self)
        self._ended_ = True
        return self

    # -- learning ---------------------------------------------------------------------------------

    def _has_classes(self) -> bool:
        return self.constraint is not None and self.constraint.reference == "class"

    def _start(self, X: Array, *, whole: bool) -> None:
        self._check_compound_parameters()
        self._start_buffer(X.shape[1])
        self._label_: Any = None
        self._ended_ = False
        self._changes_ = np.zeros(0, dtype=np.int64)
        self._divergence_ = np.zeros(3, dtype=np.int64)

    def _check_compound_parameters(self) -> None:
        as_schedule(self.learning_rate, "learning_rate", most=1.0)
        if self.constraint is not None:
            keep.check(self.constraint)

    def _warmup_rows(self) -> int:
        if self.mode == "paper":
            return 0
        return max(50, 5 * self.n_components) if self.warmup == "auto" else int(self.warmup)

    def _check_y(self, y: Any, n_rows: int) -> Any:
        if y is None or not self._has_classes():
            return None
        labels = np.asarray(y)
        if labels.shape != (n_rows,):
            raise InputError(f"y has shape {labels.shape}; X has {n_rows} rows. Give one label per row.")
        return labels

    def _learn(self, X: Array, y: Any, weights: Array | None) -> None:
        self._cache_.clear()
        ends = self._class_ends(y, len(X))
        if self._state_ is None:
            start = self._warm_up(X)
            # A class that ended among the first rows is honoured at the first row that is learned from here on.
            self._ended_ = self._ended_ or bool(ends[:start].any())
            self._n_rows_ += start
            X, ends = X[start:], ends[start:]
        if len(X) == 0:
            return
        if self._ended_:
            ends[0], self._ended_ = True, False
        settings, inverse_scale = self.__dict__.get("_settings_") or self._new_settings()
        rows = to_internal(X, inverse_scale, LIMIT)
        self._state_, info = learn.learn(self._state_, rows, settings, ends)
        self._record(info)
        self._n_rows_ += len(X)

    def _class_ends(self, y: Any, n_rows: int) -> Flags:
        """Mask of the rows before which a class ended."""
        ends = np.zeros(n_rows, dtype=np.bool_)
        if y is not None:
            # The first label of a batch is compared with the last one of the batch before.
            ends[0] = self._label_ is not None and bool(y[0] != self._label_)
            ends[1:] = y[1:] != y[:-1]
            self._label_ = y[-1].item() if isinstance(y[-1], np.generic) else y[-1]
        return ends

    def _start_state(self, rows: Array, n_used: int) -> None:
        if self.mode == "paper":
            # The paper starts from random axes: the row gives no more than the scale.
            self._scale_, (d, q) = scale_of(rows), (rows.shape[1], self.n_components)
            rng, constrained = generator(self.random_state), self.constraint is not None
            self._state_ = init_paper(d, q, rng, self._scale_, constrained=constrained)
            self._take_reference()
        else:
            self._set_state(self._fit_rows(rows), k=len(rows))

    def _fit_rows(self, rows: Array) -> ScaledPPCA:
        """Maximum likelihood of a few rows."""
        scale = scale_of(rows)
        seen: Flags = np.any(~np.isnan(rows), axis=0)
        return ScaledPPCA(learn.fit_rows(rows / scale, self.n_components), scale, seen)

    def _set_state(self, part: ScaledPPCA, k: int) -> None:
        self._state_ = init(part.model, k, part.seen, constrained=self.constraint is not None)
        self._scale_ = part.scale
        self._drop_buffer()

    def _take_reference(self) -> None:
        if self.constraint is not None:
            keep.take_reference(self._state_, body=self.constraint.fisher == "body")

    def _new_settings(self) -> tuple[Settings, Array]:
        """Constants of the stream and 1/scale of its columns, kept because a batch may be a single row."""
        gain = as_schedule(self.learning_rate, "learning_rate", most=1.0)
        settings = learn.settings(gain, self.constraint, mode=self.mode, scale=self._scale_)
        self._settings_ = settings, np.full(self.n_features_in_, 1.0 / self._scale_)
        return self._settings_

    def _record(self, info: Info) -> None:
        """Keep the changes of a batch and, for the printed constraint, how often it left its bounds."""
        if self.constraint is None:
            return
        if isinstance(self.constraint.reference, OnChange):
            changes = np.flatnonzero(info.taken) + self._n_rows_
            self._changes_ = np.concatenate([self._changes_, changes])[-CHANGES_KEPT:]
        if self.constraint.form == "paper":
            diverged = np.concatenate([info.overshot, info.not_positive, info.overflowed])
            if diverged.any() and not self._divergence_.any():
                warnings.warn(
                    "NaturalConstraint(form='paper') left its bounds: a weight beta/F above 1 (the step overshoots its "
                    "reference), or a noise variance that is not positive; divergence_ counts them. Use clip=True or "
                    "form='proximal'.",
                    DivergenceWarning,
                    stacklevel=find_stack_level(),
                )
            self._divergence_ = self._divergence_ + diverged

    # -- asking -----------------------------------------------------------------------------------

    def _new_fitted(self) -> FittedPPCA:
        if self._state_ is not None:
            return FittedPPCA.of(self._state_.model, self._scale_)
        part = self._fit_rows(self._first_rows())
        return FittedPPCA.of(factor(part.model), part.scale)

    @property
    def changes_(self) -> NDArray[np.int64]:
        """Rows before which a change was detected."""
        self._check_started()
        return self._changes_.copy()

    @property
    def divergence_(self) -> NDArray[np.int64]:
        """Counts of what the paper's constraint did out of bounds."""
        self._check_started()
        return self._divergence_.copy()

    # -- merging ----------------------------------------------------------------------------------

    def _merge(self, others: list[Self], *, method: str, weights: ArrayLike | None, n_components: int | None) -> Self:
        if method not in ("auto", "mean", "mode"):
            raise MergeError(
                f"method={method!r} does not apply to OnlinePPCA, which estimates the data's distribution and keeps "
                "no posterior of its parameters. Use method='mean' (moments of all data) or 'mode' (product of the "
                "densities); VariationalPPCA and StreamingPosterior have 'bayes'."
            )
        q: Any = self.n_components if n_components is None else n_components
        if not isinstance(q, Integral) or not 1 <= int(q) <= self.n_features_in_:
            raise InputError(f"n_components must be from 1 to {self.n_features_in_}; got {n_components!r}.")
        models = [self, *others]
        shares = np.ones(len(models)) if weights is None else np.asarray(weights)
        known = [(model, share) for model, share in zip(models, shares, strict=True) if model._count() > 0]
        merged = known[0][0].copy() if known else self.copy()
        if len(known) > 1 or n_components is not None:
            merged.n_components = int(q)
            trust = None if weights is None else np.array([share for _, share in known])
            merged._become([model for model, _ in known], trust, "mode" if method == "mode" else "mean")
        merged._n_rows_ = sum(model._n_rows_ for model in models)
        return merged

    def _count(self) -> int:
        """Rows that the model rests on."""
        return self._buffered_ if self._state_ is None else int(self._state_.k[0])

    def _become(self, models: list[Self], trust: Array | None, method: str) -> None:
        """Take on what several models know together, each by its trust or its number of rows, in place."""
        self._start(np.empty((0, self.n_features_in_)), whole=False)
        self._divergence_ = np.sum([model._divergence_ for model in models], axis=0)
        if trust is None and method == "mean" and all(model._state_ is None for model in models):
            # First rows of several models are the first rows of one: nothing is lost by waiting for more.
            rows = np.concatenate([model._buffer_[: model._buffered_] for model in models])
            if len(rows) < len(self._buffer_):
                self._buffer_[: len(rows)] = rows
                self._buffered_ = len(rows)
            else:
                self._set_state(self._fit_rows(rows), k=len(rows))
            return
        # Pooled moments weigh every model by its rows, unless the caller says how far to trust each.
        counts = [model._count() for model in models]
        parts = [model._part() for model in models]
        self._set_state(merge(parts, counts if trust is None else trust, self.n_components, method), k=sum(counts))
        # What the parts were held to is not comparable; the merged model is held to itself.
        if any(model._state_ is not None and model._state_.reference.is_active[0] for model in models):
            self._take_reference()

    def _part(self) -> ScaledPPCA:
        """What there is to merge."""
        if self._state_ is None:
            return self._fit_rows(self._first_rows())
        return ScaledPPCA(parameters(self._state_.model), self._scale_, self._state_.seen)

    # -- loading ----------------------------------------------------------------------------------

    def _check_loaded(self) -> None:
        sizes = {"d": self.n_features_in_, "q": self.n_components}
        self._check_compound_parameters()
        require(self.n_components <= self.n_features_in_, "it has more components than columns")
        if self._state_ is not None:
            r, s = (0, 0) if self.constraint is None else (self.n_features_in_, self.n_components)
            if type(self._state_) is State:
                self._state_ = self._state_._replace(detector=current_memory(self._state_.detector))
            check_state(self._state_, State, {**sizes, "r": r, "s": s})
            if self.mode == "robust":  # the formulas as printed may leave the finite numbers
                require_finite(self._state_, "State")
                require(self._state_.sigma2[0] > 0 and self._state_.S0[0] >= 0, "its noise is not positive")
        waiting = 0 if self._state_ is not None else self._warmup_rows()
        expect(self._buffer_, f"gaps {waiting} d", sizes, "the first rows")
        expect(self._changes_, "int64 c", sizes, "the changes")
        expect(self._divergence_, "int64 3", sizes, "the divergence")
        for count in (self._buffered_, self._n_rows_):
            expect(count, int, sizes, "a number of rows")
        expect(self._scale_, float, sizes, "the scale")
        require(self._scale_ > 0, "its scale is not positive")
        require(self._buffered_ <= waiting, "it has more first rows than it may keep")
        require(type(self._ended_) is bool and np.ndim(self._label_) == 0, "its label is no single value")
        self._cache_ = {}
