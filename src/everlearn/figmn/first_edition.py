"""IncrementalGaussianMixture: a Gaussian mixture that learns from a stream, one row at a time."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from everlearn.base.density import Density
from everlearn.base.estimator import StreamEstimator
from everlearn.base.scaling import Frame, frame_of_rows, frame_of_spread
from everlearn.errors import DivergenceWarning, InputError
from everlearn.figmn import adaptive
from everlearn.figmn import consolidate as readout
from everlearn.figmn import refine as second_look
from everlearn.figmn import serving as answering
from everlearn.figmn.estimator_answers import LIMIT, MixtureAnswers
from everlearn.figmn.estimator_merge import merged
from everlearn.figmn.learn import MixtureState
from everlearn.figmn.loading import check_mixture
from everlearn.figmn.serving import Pair, PairSettings
from everlearn.figmn.settings import MAX_NUMBERS, Constants, MixtureSettings
from everlearn.figmn.state import Info, Warmup
from everlearn.linalg.backend import HOST
from everlearn.linalg.backend_torch import device_failure
from everlearn.linalg.chunked import to_internal, to_internal_with_gaps
from everlearn.linalg.column_scan import subtract_observed
from everlearn.monitoring import event_log as monitor
from everlearn.monitoring.event_log import Event
from everlearn.monitoring.kernels.reservoir import sample_rows
from everlearn.monitoring.page_hinkley import PageHinkley

Array = NDArray[np.float64]


class IncrementalGaussianMixture(MixtureAnswers, MixtureSettings, Density, StreamEstimator):
    """Gaussian mixture learned from a stream in one pass, creating components where data is new.

    Each row updates the components by its posterior probabilities in O(K D^2), for K components and D columns, or opens
    a new component when it is far from all of them (`beta`). The update is exact recursive estimation, after the fast
    incremental Gaussian mixture network [1]_; docs/errata.md says where it differs from the printed one. NaN means "not
    observed": a row teaches what its observed columns say.

    Learning keeps many fine components. Answers (`score_samples`, `predict`, `means_`, ...) come from a copy in which
    components that differ little are merged and each takes something of the shape that all have in common. The copy
    learns every row too, and is made anew whenever a quarter more rows have come; so it may be asked after every row.

    Parameters
    ----------
    delta : float, default=1.0
        Variance of a new component, in units of the variance of each column.
    beta : float, default=0.5
        How readily a row opens a component: it does so when it is farther from every component than all but a share
        `beta` of that component's own rows would be. In formulas, its squared Mahalanobis distance to each exceeds the
        upper `beta` quantile of chi-square. Near 0 only what is truly new opens one; 0 keeps a single component.
    scale : "auto" or array-like of shape (n_features,), default="auto"
        Standard deviation of each column. "auto" estimates it: `fit` from all rows it is given, `partial_fit` from
        the first `warmup` rows, which are kept until then. Of these the rows with fewest gaps are learned first:
        gaps are filled by what is known already.
    warmup : "auto" or int, default="auto"
        Number of rows from which `partial_fit` estimates the scale; "auto" takes 200, or five a column if that is
        more, and at most 2000.
    max_components : "auto" or int, default="auto"
        Most components that are kept. "auto" is 200, or what 128 MiB of precision matrices hold. When a new component
        has no room, components that cost little likelihood are merged.
    merging : bool, default=True
        True: answers come from a copy in which components that differ little are merged, and a mixture that has no
        room left merges all pairs that cost less than a tenth of a BIC penalty (and down to half of `max_components` if
        need be). False: answers come from the components as they are learned, and only the cheapest pair is merged when
        there is no room.
    prune : None or tuple (min_age, min_count), default=None
        Remove components that are older than `min_age` rows and to which fewer than `min_count` rows belong (posterior
        probabilities summed).
    update : {"exact", "paper"}, default="exact"
        "paper" keeps the covariance update as printed in [1]_, eq. 11.
    forgetting : None, float or "adaptive", default=None
        Factor by which what was learned fades with each row, for a memory of about 1/(1 - forgetting) rows: 0.99 is 100
        rows. None forgets nothing. "adaptive" runs several mixtures of different memory and answers from the one that
        predicts best.
    covariance : {"full", "diag"}, default="full"
        Shape of the covariances; "diag" costs O(D) a row and component, for very wide data.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the matrix products by which long batches (four rows a column) of many columns are learned.
        "float32" is faster, and squared distances are then right to about six digits. Everything else, and a mixture
        with covariances that single precision cannot hold, stays in double precision.
    second_look : bool, default=False
        Whether to keep a uniform sample of rows (1000, or 100 a column if that is more) and refine the components on
        it before answering. Models that are merged refine what they know together on the samples of all.
    novelty_level : float, default=1e-4
        A row farther from all components than this share of their own rows would be is recorded as a novelty.
    change_detector : PageHinkley, optional
        The test that records changes, on the log-density of rows before they are learned; PageHinkley() by default.
    device : None or str, default=None
        Where the matrices of large batches live: None, this machine's memory and BLAS; or a device of torch's, such as
        "cuda" (needs the extra `torch`). Diagonal covariances, rows with gaps and single rows are always worked on
        here, and so is forgetting="adaptive". Answers are the same up to rounding.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of `sample` and `sample_columns`.
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
    prequential_score_ : float or None
        Mean log-density of the rows, each taken before it was learned; None while warming up.
    events_ : list of Event
        The latest novelties and changes, at most 1000: row number, kind and value.
    effective_samples_ : float
        Rows that the model remembers: all, or those that forgetting has left.
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
    >>> from everlearn.figmn.first_edition import IncrementalGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (500, 2)), rng.normal(9, 1, (500, 2))])
    >>> model = IncrementalGaussianMixture().fit(rng.permutation(X))
    >>> model.score_samples([[0.0, 0.0], [9.0, 9.0], [4.5, 4.5]]).round(1)
    array([ -2.5,  -2.6, -14.6])
    >>> model.weights_[:2].round(2)
    array([0.5 , 0.49])
    """

    _allow_nan: ClassVar[bool] = True
    _transient: ClassVar[tuple[str, ...]] = ("_constants_", "_cache_")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "delta": [Interval(Real, 0, None, closed="neither")],
        "beta": [Interval(Real, 0, 1, closed="left")],
        "scale": [StrOptions({"auto"}), "array-like", Interval(Real, 0, None, closed="neither")],
        "warmup": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_components": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "merging": ["boolean"],
        "prune": [None, tuple, list],
        "update": [StrOptions({"exact", "paper"})],
        "forgetting": [None, StrOptions({"adaptive"}), Interval(Real, 0, 1, closed="right")],
        "covariance": [StrOptions({"full", "diag"})],
        "dtype": [StrOptions({"float64", "float32"})],
        "second_look": ["boolean"],
        "novelty_level": [Interval(Real, 0, 1, closed="neither")],
        "change_detector": [None, PageHinkley],
        "device": [None, str],
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
        forgetting: Any = None,
        covariance: str = "full",
        dtype: str = "float64",
        second_look: bool = False,
        novelty_level: float = 1e-4,
        change_detector: PageHinkley | None = None,
        device: str | None = None,
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
        self.covariance = covariance
        self.dtype = dtype
        self.second_look = second_look
        self.novelty_level = novelty_level
        self.change_detector = change_detector
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, **parameters: Any) -> Self:
        """Return a mixture with the settings of the FIGMN paper's experiments, as its author's code reads them.

        delta = 0.5 times the variance, beta = 2e-6 (the printed 4.9e-324 cannot be taken literally), no merging and
        the exact update: the reading that comes nearest to the paper's tables 2 and 3, see docs/errata.md.

        Parameters
        ----------
        **parameters
            Parameters that are to differ.

        Returns
        -------
        IncrementalGaussianMixture
            An unfitted mixture.
        """
        return cls(**{"delta": 0.5, "beta": 2e-6, "merging": False, **parameters})

    @classmethod
    def from_sklearn(cls, mixture: Any, *, n_samples: float, **parameters: Any) -> Self:
        """Return a mixture that knows what a fitted scikit-learn mixture does, and goes on learning.

        Parameters
        ----------
        mixture : sklearn.mixture.GaussianMixture
            A fitted mixture with covariances of any type.
        n_samples : float
            Number of rows that it was fitted to; says how much new rows change.
        **parameters
            Parameters of the new model.

        Returns
        -------
        IncrementalGaussianMixture
            A mixture with the same densities.

        Examples
        --------
        >>> import numpy as np
        >>> from everlearn.figmn.first_edition import IncrementalGaussianMixture
        >>> from sklearn.mixture import GaussianMixture
        >>> X = np.random.default_rng(0).normal(size=(500, 2))
        >>> batch = GaussianMixture(3, random_state=0).fit(X)
        >>> model = IncrementalGaussianMixture.from_sklearn(batch, n_samples=500)
        >>> bool(np.allclose(model.score_samples(X), batch.score_samples(X)))
        True
        >>> model.partial_fit(X + 9.0).n_samples_seen_
        1000
        """
        from everlearn.figmn.sklearn_conversion import from_sklearn

        return from_sklearn(cls, mixture, n_samples, parameters)

    def to_sklearn(self) -> Any:
        """Return a fitted scikit-learn mixture with the same densities.

        It has all components that densities are answered from; for fewer, see :func:`everlearn.reduce`.

        Returns
        -------
        sklearn.mixture.GaussianMixture
            A fitted mixture.
        """
        from everlearn.figmn.sklearn_conversion import to_sklearn

        return to_sklearn(self)

    # -- learning ---------------------------------------------------------------------------------

    def prequential(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> Array:
        """Learn the rows of X, and return the log-density that each had just before it was learned.

        This is how to score a stream as it comes: one pass, no second look at a row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The next rows of the stream.
        sample_weight : array-like of shape (n_samples,), optional
            Positive weights of the rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log-densities, in nats; NaN for rows that came while the model was warming up.

        Examples
        --------
        >>> import numpy as np
        >>> from everlearn.figmn.first_edition import IncrementalGaussianMixture
        >>> X = np.random.default_rng(0).normal(size=(1000, 2))
        >>> X[700] = 9.0
        >>> log_density = IncrementalGaussianMixture().prequential(X)
        >>> int(np.nanargmin(log_density))
        700
        """
        log_density: Array = self._advance(X, None, sample_weight)
        return log_density

    def _start(self, X: Array, *, whole: bool) -> None:
        D = X.shape[1]
        self._check_compound_parameters()
        self._pair_ = answering.init(self._empty(D))
        self._bank_: adaptive.AdaptiveState | None = None
        self._monitor_ = monitor.init()
        self._warmup_: Warmup | None = None
        self._frame_: Frame | None = None
        if self.second_look:
            self._sample_ = np.zeros((min(max(1000, 100 * D), max(1000, MAX_NUMBERS // D)), D))
            self._sampled_ = 0
        if not isinstance(self.scale, str):
            self._settle(frame_of_spread(self._given_scale(D)))
        elif whole:
            self._settle(frame_of_rows(X))
        else:
            n = self._warmup_rows(D)
            self._warmup_ = Warmup(np.zeros((n, D)), np.zeros(n), 0)
            self._cache_: dict[str, Any] = {}

    def _settle(self, frame: Frame) -> None:
        """Fix the frame, and with it the constants of the stream."""
        self._frame_ = frame
        self._constants_ = self._constants_for(frame)
        self._cache_ = {}
        if self.forgetting == "adaptive" and self._bank_ is None:
            self._bank_ = adaptive.init(self._pair_.learning)

    def _learn(self, X: Array, y: Any, weights: Array | None) -> Array:
        """Learn rows; returns the log-density of each before it was learned, NaN while warming up."""
        self._device()
        weights = np.ones(len(X)) if weights is None else weights
        self._cache_.clear()
        if self._warmup_ is None:
            return self._learn_settled(X, weights)
        n, taken = len(X), min(len(X), len(self._warmup_.rows) - self._warmup_.n)
        X, weights = self._warm_up(self._warmup_, X, weights, taken)
        log_density = self._learn_settled(X, weights) if len(X) else np.empty(0)
        return np.concatenate([np.full(taken, np.nan), log_density[len(log_density) - (n - taken) :]])

    def _warm_up(self, warmup: Warmup, X: Array, weights: Array, taken: int) -> tuple[Array, Array]:
        """Put rows into the buffer; once it is full, set the frame and return every row to be learned."""
        end = warmup.n + taken
        warmup.rows[warmup.n : end] = X[:taken]
        warmup.weights[warmup.n : end] = weights[:taken]
        self._warmup_ = warmup._replace(n=end)
        if end < len(warmup.rows):
            return X[:0], weights[:0]
        self._warmup_ = None
        self._settle(frame_of_rows(warmup.rows))
        return np.concatenate([warmup.rows, X[taken:]]), np.concatenate([warmup.weights, weights[taken:]])

    def _learn_settled(self, X: Array, weights: Array) -> Array:
        rows, gaps = to_internal_with_gaps(X, self._constants_.inverse_scale, LIMIT)
        first_row = self._pair_.learning.n_rows
        order = self._opening_order(rows) if gaps and first_row == 0 else None
        if order is not None:
            rows[: len(order)] = rows[order]
            weights = answering.rearranged(weights, order)
        info = self._learn_in_turn(rows, weights, gaps)
        if order is not None:
            back = np.argsort(order)
            rows[: len(order)] = rows[back]
            density, distance = (answering.rearranged(told, back) for told in info[:2])
            info = Info(density, distance, info.skipped_updates)
        self._watch(rows, info, first_row)
        return info.log_density

    def _opening_order(self, rows: Array) -> NDArray[np.intp] | None:
        """Order of the rows that a stream starts with: those that warm it up may change places."""
        if not isinstance(self.scale, str):
            return None
        return answering.opening_order(rows, self._warmup_rows(rows.shape[1]))

    def _learn_in_turn(self, rows: Array, weights: Array, gaps: bool) -> Info:
        settings = self._constants_.settings
        if self._bank_ is None:
            self._pair_, info = self._learn_on_device(rows, weights, settings, gaps)
            return info
        n_rows = self._pair_.learning.n_rows + len(rows)
        self._bank_, info = adaptive.learn(self._bank_, rows, weights, settings.learning)
        self._pair_ = self._pair_._replace(learning=adaptive.answering(self._bank_)._replace(n_rows=n_rows))
        return info

    def _learn_on_device(self, rows: Array, weights: Array, settings: PairSettings, gaps: bool) -> tuple[Pair, Info]:
        """Learn where `device` says. A device can fail in the middle, for want of memory: then nothing is learned."""
        device = self._device()
        if device is HOST:
            return answering.learn(self._pair_, rows, weights, settings, HOST, gaps=gaps)
        spare = answering.copied(self._pair_)
        try:
            return answering.learn(self._pair_, rows, weights, settings, device, gaps=gaps)
        except RuntimeError as error:
            self._pair_ = spare
            raise device_failure(self.device, error) from error

    def _watch(self, rows: Array, info: Info, first_row: int) -> None:
        constants = self._constants_
        subtract_observed(rows, constants.log_scale, True, info.log_density)
        self._monitor_ = monitor.watch(
            self._monitor_, rows, info.log_density, info.distance,
            first_row=first_row, alarm=constants.alarm, detector=constants.detector,
        )  # fmt: skip
        if self.second_look:
            self._sampled_ = sample_rows(rows, self._sample_, self._sampled_)
        if info.skipped_updates:
            warnings.warn(
                f"update='paper': {info.skipped_updates} updates would have made a covariance indefinite and were "
                "skipped (FIGMN eq. 11; see docs/errata.md). update='exact' has no such rows.",
                DivergenceWarning,
                stacklevel=6,
            )

    # -- what the answers come from ---------------------------------------------------------------

    def _answer(self) -> tuple[MixtureState, Constants]:
        """State and constants that answers come from: while warming up, what the buffer would give."""
        answer: tuple[MixtureState, Constants] | None = self._cache_.get("answer")
        if answer is None:
            pair, constants = self._settled()
            if pair.learning.n_components == 0:
                raise InputError("The model has no component yet: every row so far was NaN in all columns.")
            state = self._refined(pair, constants) if self.second_look else pair.answering or pair.learning
            answer = self._cache_["answer"] = state, constants
            self._cache_["visible"] = self.second_look or not self.merging or pair.answering is not None
        return answer

    def _settled(self) -> tuple[Pair, Constants]:
        if self._warmup_ is None:
            return self._pair_, self._constants_
        rows, weights = self._warmup_.rows[: self._warmup_.n], self._warmup_.weights[: self._warmup_.n]
        constants = self._constants_for(frame_of_rows(rows))
        internal = to_internal(rows, constants.inverse_scale, LIMIT)
        order = self._opening_order(internal)
        if order is not None:
            internal, weights = internal[order], weights[order]
        empty = answering.init(self._empty(self.n_features_in_))
        return answering.learn(empty, internal, weights, constants.settings)[0], constants

    def _refined(self, pair: Pair, constants: Constants) -> MixtureState:
        merged = self._merged(pair, constants)
        if self._warmup_ is None:
            sample = self._sample_[: min(self._sampled_, len(self._sample_))]
        else:
            rows = self._warmup_.rows[: self._warmup_.n]
            sample = to_internal(rows[~np.isnan(rows).all(axis=1)], constants.inverse_scale, LIMIT)
        return second_look.refined(merged, sample)

    def _readout(self) -> tuple[MixtureState, Constants]:
        """State and constants that the visible components come from: what answers, merged where it has many."""
        state, constants = self._answer()
        if self._cache_["visible"]:
            return state, constants
        if "readout" not in self._cache_:
            self._cache_["readout"] = self._merged(self._settled()[0], constants)
        return self._cache_["readout"], constants

    def _merged(self, pair: Pair, constants: Constants) -> MixtureState:
        settings, variance = constants.settings.learning, constants.frame.variance
        return readout.merged_copy(pair.learning, settings, variance, primed=pair.primed)

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows learned."""
        self._check_started()
        return int(self._pair_.learning.n_rows + (self._warmup_.n if self._warmup_ is not None else 0))

    @property
    def prequential_score_(self) -> float | None:
        """Mean log-density of the rows, each taken before it was learned; None while there is none."""
        self._check_started()
        n, total = self._monitor_.totals
        return float(total / n) if n else None

    @property
    def events_(self) -> list[Event]:
        """The latest novelties and changes."""
        self._check_started()
        return monitor.events(self._monitor_)

    @property
    def effective_samples_(self) -> float:
        """Rows that the model remembers: all, or those that forgetting has left."""
        self._check_started()
        state = self._settled()[0].learning
        return float(state.counts[: state.n_components].sum())

    # -- merging and loading ----------------------------------------------------------------------

    def _merge(self, others: list[Self], *, method: str, weights: ArrayLike | None, n_components: int | None) -> Self:
        return merged(self, others, method=method, weights=weights, n_components=n_components)

    def _check_loaded(self) -> None:
        self._check_compound_parameters()
        check_mixture(self)
        self._cache_ = {}
        if self._frame_ is not None:
            self._settle(self._frame_)
