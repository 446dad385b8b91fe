"""FIGMN: the fast incremental Gaussian mixture network of Pinto and Engel, as an estimator."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc
from sklearn.utils._param_validation import Interval, StrOptions

from everlearn.base.columns import Indices
from everlearn.base.conditioning import LIMIT
from everlearn.base.draws import check_draws, generator
from everlearn.base.mixture_answers import MixtureAnswers
from everlearn.base.scaling import Frame, frame_of_rows, frame_of_spread
from everlearn.errors import DivergenceWarning, InputError, MergeError
from everlearn.figmn import ask, keep, learn, merge
from everlearn.figmn.sklearn_conversion import fitted_sklearn, mixture_of_sklearn
from everlearn.figmn.state import (
    Info,
    Scores,
    Settings,
    State,
    Warmup,
    copied,
    covariances_of,
    empty,
    from_components,
    is_diagonal,
    mixture_of,
    novelty_thresholds,
    with_capacity,
)
from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.conditional import ConditionalMixture
from everlearn.gaussian.gaussian import moment_match
from everlearn.gaussian.mixture import Mixture, variances, with_matrices
from everlearn.gaussian.pooling import pool
from everlearn.linalg.backend import HOST, Backend
from everlearn.linalg.backend_torch import device_failure, torch_device
from everlearn.linalg.chunked import to_internal, to_internal_with_gaps
from everlearn.monitoring import event_log, page_hinkley
from everlearn.monitoring.event_log import MonitorState
from everlearn.monitoring.kernels.page_hinkley import TestSettings
from everlearn.monitoring.page_hinkley import PageHinkley
from everlearn.persistence.answers import Answers
from everlearn.persistence.schema import check_state, expect, expect_fields, require
from everlearn.typing import Array

# max_components="auto" keeps the precisions within 2^24 numbers (128 MiB).
MAX_COMPONENTS = 200
MAX_NUMBERS = 2**24
# Under forgetting the count of a component fades; below this it is pruned.
FADED = 0.05
# Rows of a part of a long batch, and its numbers on a device: an interrupt is heard after seconds at most.
PART_ROWS = 2048
DEVICE_PART_CELLS = 2**25
# Spreads of one column in two models that differ by more than this are taken for different units.
MAX_SCALE_RATIO = 1000.0
# From this many rows on, a model that is warming up estimates the scale of its columns.
MIN_ROWS_FOR_SCALE = 20
# Rows of the warm-up: a standard deviation from 200 rows is within 5 % of its own, and all rows are learned when it
# ends, which the row that ends it waits for (1.5 s of 512 columns, benchmarks/latency.py).
WARMUP_ROWS = 200


class Provisional(NamedTuple):
    """The mixture that answers while the scale is estimated: the rows so far, in the scale of the first of them."""

    state: State
    constants: StreamConstants
    n_scaled: int  # rows that the scale is estimated from
    n: int  # rows learned


def rows_of_scale(n: int) -> int:
    """Number of the first rows whose scale answers are given in after n rows: 1, 2, 3, 4, 6, 9, ..., half as many more
    each time.

    A rule of the rows alone, so that answers do not depend on what was asked before. All rows are learned anew in
    another scale: at each of these numbers and not after each row, the cost is linear in the rows and not quadratic.
    """
    rows = 1
    while (more := max(rows + 1, rows + rows // 2)) <= n:
        rows = more
    return rows


class StreamConstants(NamedTuple):
    """Constants derived from a mixture's parameters and the scale of its columns."""

    frame: Frame
    inverse_scale: Array  # (D,)
    log_scale: Array  # (D,)
    settings: Settings
    alarm: Array  # (D + 1,), squared distance from which a row with d observed columns is recorded as a novelty
    detector: TestSettings


def fewest_missing_first(X: Array, n: int) -> NDArray[np.intp] | None:
    """Order in which to learn the first n rows of a stream: those with fewer missing values come first.

    A missing value is filled by what its component knows, and a new component knows only the variance it was created
    with: rows filled from that would confirm it. None where the rows are in order already.
    """
    missing = np.isnan(X[:n]).sum(axis=1)
    return np.argsort(missing, kind="stable") if np.any(missing[1:] < missing[:-1]) else None


def reordered(values: Array, order: NDArray[np.intp]) -> Array:
    """A copy of the values, the first of them in another order."""
    moved = values.copy()
    moved[: len(order)] = values[order]
    return moved


def check_prune(prune: Any) -> tuple[float, float]:
    """The two numbers of the parameter `prune`."""
    if len(prune) != 2 or not all(isinstance(value, Real) and float(value) >= 0 for value in prune):
        raise InputError(f"prune must be None or (min_age, min_count), two numbers from 0 on; got {prune!r}.")
    return float(prune[0]), float(prune[1])


def squared_scale(scale: Array, *, diagonal: bool) -> Array:
    """Factor from internal to the data's units of covariances (D, D), or of variances (D,)."""
    return scale * scale if diagonal else scale * scale[:, None]


class FIGMN(MixtureAnswers):
    """Fast incremental Gaussian mixture network [1]_: a mixture learned in one pass, one row at a time.

    A row that is near a component (its squared Mahalanobis distance is below the upper `beta` quantile of chi-square)
    updates all components by its posterior probabilities in O(K D^2), for K components and D columns; any other row
    opens a new component of variance `delta`. The defaults are the settings of the paper's experiments as its author's
    code reads them, with the exact recursive update in place of the printed one; docs/errata.md says where they
    differ. For a mixture that finds its number of components by itself see
    :class:`everlearn.IncrementalGaussianMixture`.

    NaN means "not observed": a row teaches what its observed columns say. Precisions are kept and not covariances, as
    in the paper: where columns are nearly copies of each other, the density of a row with a gap is a small difference
    of large numbers, 0.0003 nats off at a condition of 4e10 and 0.03 at 4e12. IncrementalGaussianMixture keeps
    covariances and has no such loss.

    A `sample_weight` of w counts as the row w times, also for the row that opens a component.

    Parameters
    ----------
    delta : float, default=0.5
        Variance of a new component, in units of the variance of each column.
    beta : float, default=2e-6
        Share of a component's own rows that lie farther from it than a row that opens a new component. Near 0 only
        rows far from everything do; 0 keeps a single component. (The printed 4.9e-324 cannot be taken literally.)
    scale : "auto" or array-like of shape (n_features,), default="auto"
        Standard deviation of each column. "auto" estimates it: `fit` from all rows it is given, `partial_fit` from
        the first `warmup` rows, which are kept until then. Of these the rows with the fewest missing values are
        learned first.
    warmup : "auto" or int, default="auto"
        Number of rows from which `partial_fit` estimates the scale; "auto" takes 200. Take more where a column rarely
        varies. Questions meanwhile are answered by a mixture in the scale of the rows so far, which is estimated anew
        when there are half as many rows more.
    max_components : "auto" or int, default="auto"
        Most components that are kept. "auto" is 200, or what 128 MiB of precision matrices hold. When a new component
        has no room, the pair that costs the least likelihood is merged.
    prune : None or tuple (min_age, min_count), default=None
        Remove components that are older than `min_age` rows and to which fewer than `min_count` rows belong (posterior
        probabilities summed).
    update : {"exact", "paper"}, default="exact"
        "paper" keeps the covariance update as printed in [1]_, eq. 11.
    forgetting : None or float, default=None
        Factor by which what was learned fades with each row, for a memory of about 1/(1 - forgetting) rows: 0.99 is 100
        rows. None forgets nothing.
    covariance_type : {"full", "diag"}, default="full"
        Shape of the covariances; "diag" costs O(D) a row and component, for very wide data.
    novelty_level : float, default=1e-4
        A row farther from all components than this share of their own rows would be is recorded as a novelty.
    change_detector : PageHinkley, optional
        The test that records changes, on the log-density of rows before they are learned; PageHinkley() by default.
    device : None or str, default=None
        Where the matrices of large batches live: None, this machine's memory and BLAS; or a device of torch's, such as
        "cuda" (needs the extra `torch`). Diagonal covariances, rows with missing values and single rows are always
        worked on here. Answers are the same up to rounding.
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
        Covariances of the components; (n_components_, n_features) with covariance_type="diag".
    precisions_ : ndarray of the same shape
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
    keeps_rows_ : bool
        Whether the model, and with it its file, holds rows of the stream: only while warming up.
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
    >>> from everlearn import FIGMN
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (500, 2)), rng.normal(9, 1, (500, 2))])
    >>> model = FIGMN(delta=0.1, beta=1e-5).fit(rng.permutation(X))
    >>> model.n_components_
    2
    >>> model.weights_.round(2)
    array([0.5, 0.5])
    """

    _allow_nan: ClassVar[bool] = True
    _transient: ClassVar[tuple[str, ...]] = ("_constants_", "_provisional_")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "delta": [Interval(Real, 0, None, closed="neither")],
        "beta": [Interval(Real, 0, 1, closed="left")],
        "scale": [StrOptions({"auto"}), "array-like", Interval(Real, 0, None, closed="neither")],
        "warmup": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_components": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "prune": [None, tuple, list],
        "update": [StrOptions({"exact", "paper"})],
        "forgetting": [None, Interval(Real, 0, 1, closed="right")],
        "covariance_type": [StrOptions({"full", "diag"})],
        "novelty_level": [Interval(Real, 0, 1, closed="neither")],
        "change_detector": [None, PageHinkley],
        "device": [None, str],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        delta: float = 0.5,
        beta: float = 2e-6,
        scale: Any = "auto",
        warmup: Any = "auto",
        max_components: Any = "auto",
        prune: tuple[float, float] | None = None,
        update: str = "exact",
        forgetting: float | None = None,
        covariance_type: str = "full",
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
        self.prune = prune
        self.update = update
        self.forgetting = forgetting
        self.covariance_type = covariance_type
        self.novelty_level = novelty_level
        self.change_detector = change_detector
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # -- from and to scikit-learn -----------------------------------------------------------------

    @classmethod
    def from_sklearn(cls, mixture: Any, *, n_samples: float, **parameters: Any) -> Self:
        """Return a mixture with the components of a fitted scikit-learn mixture, which goes on learning.

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
        FIGMN
            A mixture with the same densities.

        Examples
        --------
        >>> import numpy as np
        >>> from everlearn import FIGMN
        >>> from sklearn.mixture import GaussianMixture
        >>> X = np.random.default_rng(0).normal(size=(500, 2))
        >>> batch = GaussianMixture(3, random_state=0).fit(X)
        >>> model = FIGMN.from_sklearn(batch, n_samples=500)
        >>> bool(np.allclose(model.score_samples(X), batch.score_samples(X)))
        True
        >>> model.partial_fit(X + 9.0).n_samples_seen_
        1000
        """
        given: Any = n_samples
        if not isinstance(given, Real) or not 0.0 < float(given) < np.inf:
            raise InputError(
                f"n_samples must be the positive number of rows that the mixture stands for; got {n_samples!r}."
            )
        known = mixture_of_sklearn(mixture)
        model = cls(**{"covariance_type": "diag" if known.is_diagonal else "full", **parameters})
        model._validate_params()
        if model.covariance_type == "diag" and not known.is_diagonal:
            raise InputError(
                "covariance_type='diag' cannot hold the full covariances of this mixture. Leave the parameter out, or "
                "fit the mixture with covariance_type='diag'."
            )
        known = with_matrices(known) if model.covariance_type == "full" else known
        model.n_features_in_ = known.means.shape[1]
        if hasattr(mixture, "feature_names_in_"):
            model.feature_names_in_ = mixture.feature_names_in_.copy()
        return model._knowing(known, float(n_samples))

    def _knowing(self, known: Mixture, n_samples: float) -> Self:
        """A model with the same parameters and columns that has the components of a mixture."""
        mean, variance = moment_match(known.weights, known.means, variances(known))
        std = np.sqrt(variance) if isinstance(self.scale, str) else self._given_scale(len(mean))
        frame = frame_of_spread(std, mean)
        state = from_components(
            known.weights * n_samples,
            known.means / frame.scale,
            known.covariances / squared_scale(frame.scale, diagonal=known.is_diagonal),
            np.full(len(known.weights), n_samples),
        )._replace(n_rows=round(n_samples))
        # Neither a batch fit nor a pool has a creation prior: nothing is to be taken off when components are merged.
        limit = self._settings(frame).max_components
        return self._with_state(merge.reduced(state, limit), frame, holds_prior=False)

    def to_sklearn(self) -> Any:
        """Return a fitted scikit-learn mixture with the same densities.

        Returns
        -------
        sklearn.mixture.GaussianMixture
            A fitted mixture.
        """
        weights, means, covariances = self.weights_, self.means_, self.covariances_
        new = fitted_sklearn(Mixture(weights, means, covariances), self.covariance_type)
        if hasattr(self, "feature_names_in_"):
            new.feature_names_in_ = self.feature_names_in_.copy()
        new.random_state = self.random_state
        return new

    # -- learning ---------------------------------------------------------------------------------

    def _start(self, X: Array, *, whole: bool) -> None:
        D = X.shape[1]
        self._check_compound_parameters()
        self._state_ = empty(D, diagonal=self.covariance_type == "diag")
        self._holds_prior_ = True
        self._monitor_ = event_log.init()
        self._warmup_: Warmup | None = None
        self._frame_: Frame | None = None
        self._provisional_: Provisional | None = None
        if not isinstance(self.scale, str):
            self._fix_scale(frame_of_spread(self._given_scale(D)))
        elif whole:
            self._fix_scale(frame_of_rows(X))
        else:
            n = self._warmup_rows(D)
            self._warmup_ = Warmup(np.zeros((n, D)), np.zeros(n), 0)

    def _check_compound_parameters(self) -> None:
        """Refuse at the start what would otherwise fail when the warm-up ends."""
        if self.prune is not None:
            check_prune(self.prune)
        if self.change_detector is not None:
            page_hinkley.check(self.change_detector, "change_detector")
        self._backend()

    def _warmup_rows(self, D: int) -> int:
        return WARMUP_ROWS if self.warmup == "auto" else int(self.warmup)

    def _given_scale(self, D: int) -> Array:
        scale = np.asarray(self.scale, dtype=np.float64)
        if scale.shape not in ((), (D,)) or not np.all(np.isfinite(scale) & (scale > 0)):
            raise InputError(
                f"scale must be 'auto' or a positive standard deviation for each of {D} columns; got {self.scale!r}."
            )
        return np.broadcast_to(scale, (D,)).copy()

    def _fix_scale(self, frame: Frame) -> None:
        """Fix the coordinates of the stream, and with them its constants."""
        self._frame_ = frame
        self._constants_ = self._derive_constants(frame)

    def _derive_constants(self, frame: Frame) -> StreamConstants:
        D = len(frame.scale)
        return StreamConstants(
            frame,
            1.0 / frame.scale,
            np.log(frame.scale),
            self._settings(frame),
            event_log.alarm_thresholds(self.novelty_level, D),
            event_log.detector_settings(self.change_detector or PageHinkley()),
        )

    def _settings(self, frame: Frame) -> Settings:
        D = len(frame.scale)
        auto = max(2, min(MAX_COMPONENTS, MAX_NUMBERS // (D if self.covariance_type == "diag" else D * D)))
        forgetting = 1.0 if self.forgetting is None else float(self.forgetting)
        # Without forgetting counts never fall, and nothing is pruned unless asked for. With it, components that get no
        # more rows fade to counts that are worth nothing.
        min_age, min_count = (0.0, FADED) if forgetting < 1.0 else (np.inf, 0.0)
        if self.prune is not None:
            min_age, min_count = check_prune(self.prune)
        return Settings(
            centre=frame.centre,
            initial_variance=self.delta * frame.variance,
            thresholds=novelty_thresholds(self.beta, D),
            paper=self.update == "paper",
            forgetting=forgetting,
            min_age=min_age,
            min_count=min_count,
            max_components=auto if self.max_components == "auto" else int(self.max_components),
            log_scale=np.log(frame.scale),
        )

    def _rows_of_a_part(self, n_features: int) -> int:
        # Each part copies K matrices of D^2 numbers, which costs as much as learning some tens of rows; on a device
        # they travel there and back, and blocks begin short each time.
        rows, cells = (PART_ROWS, 0) if self.device is None else (0, DEVICE_PART_CELLS)
        return max(super()._rows_of_a_part(n_features), rows, cells // n_features)

    def _learn(self, X: Array, y: Any, weights: Array | None) -> Array:
        """Buffer rows while warming up, learn the others; returns the log-density of each before it was learned."""
        if weights is None:
            weights = np.ones(len(X))
        if self._warmup_ is None:
            return self._learn_scaled(X, weights)
        # Once the buffer is full, all of its rows are learned at once. Those of earlier calls have been answered with
        # NaN then; the answer of this call is about its own rows only.
        n, taken = len(X), min(len(X), len(self._warmup_.rows) - self._warmup_.n)
        X, weights = self._fill_warmup(self._warmup_, X, weights, taken)
        log_density = self._learn_scaled(X, weights) if len(X) else np.empty(0)
        return np.concatenate([np.full(taken, np.nan), log_density[len(log_density) - (n - taken) :]])

    def _fill_warmup(self, warmup: Warmup, X: Array, weights: Array, taken: int) -> tuple[Array, Array]:
        """Put rows into the buffer; once it is full, fix the scale and return every row to be learned."""
        end = warmup.n + taken
        warmup.rows[warmup.n : end] = X[:taken]
        warmup.weights[warmup.n : end] = weights[:taken]
        self._warmup_ = warmup._replace(n=end)
        if end < len(warmup.rows):
            return X[:0], weights[:0]
        self._warmup_ = self._provisional_ = None
        self._fix_scale(frame_of_rows(warmup.rows))
        return np.concatenate([warmup.rows, X[taken:]]), np.concatenate([warmup.weights, weights[taken:]])

    def _learn_scaled(self, X: Array, weights: Array) -> Array:
        """Learn rows in the coordinates of the stream, and watch what they were to the mixture."""
        rows, gaps = to_internal_with_gaps(X, self._constants_.inverse_scale, LIMIT)
        first_row = self._state_.n_rows
        order = self._first_rows_order(rows) if gaps and first_row == 0 else None
        if order is not None:
            rows[: len(order)] = rows[order]
            weights = reordered(weights, order)
        backend, settings = self._backend(), self._constants_.settings
        # A device that fails in the middle, for want of memory, leaves the model as it was.
        spare = None if backend is HOST else copied(self._state_)
        try:
            self._state_, info = learn.learn(self._state_, rows, weights, settings, backend, gaps=gaps)
        except RuntimeError as error:
            if spare is None:
                raise
            self._state_ = spare
            raise device_failure(self.device, error) from error
        if order is not None:
            # Events name rows by their place in the stream: back to its order before they are recorded.
            back = np.argsort(order)
            rows[: len(order)] = rows[back]
            info = info._replace(log_density=reordered(info.log_density, back), distance=reordered(info.distance, back))
        self._watch(rows, info, first_row)
        return info.log_density

    def _first_rows_order(self, rows: Array) -> NDArray[np.intp] | None:
        """Order of the rows that a stream starts with: only those of the warm-up may change places."""
        if not isinstance(self.scale, str):
            return None
        return fewest_missing_first(rows, self._warmup_rows(rows.shape[1]))

    def _backend(self) -> Backend:
        return HOST if self.device is None else torch_device(self.device)

    def _watch(self, rows: Array, info: Info, first_row: int) -> None:
        constants = self._constants_
        self._monitor_ = event_log.watch(
            self._monitor_, rows, info.log_density, info.distance,
            first_row=first_row, alarm=constants.alarm, detector=constants.detector,
        )  # fmt: skip
        if info.skipped_updates:
            warnings.warn(
                f"update='paper': {info.skipped_updates} updates would have made a covariance indefinite and were "
                "skipped (FIGMN eq. 11; see docs/errata.md). update='exact' has no such rows.",
                DivergenceWarning,
                stacklevel=2,
            )

    # -- what answers come from -------------------------------------------------------------------

    def _current(self) -> tuple[State, StreamConstants]:
        """The state that answers, and its constants: while warming up, what the buffered rows would give."""
        self._check_started()
        if self._warmup_ is None:
            state, constants = self._state_, self._constants_
        else:
            self._provisional_ = self._learn_provisionally(self._warmup_, self._provisional_)
            state, constants = self._provisional_[:2]
        if state.n_components == 0:
            raise InputError("The model has no component yet: every row so far was NaN in all columns.")
        return state, constants

    def _learn_provisionally(self, warmup: Warmup, known: Provisional | None) -> Provisional:
        """The mixture of the buffered rows: the one of the last question with the rows since, while its scale holds."""
        n_scaled = rows_of_scale(warmup.n)
        if known is None or known.n_scaled != n_scaled:
            known = self._in_scale_of(warmup, n_scaled)
        internal = to_internal(warmup.rows[known.n : warmup.n], known.constants.inverse_scale, LIMIT)
        state = known.state
        # One by one, so that a loaded model, which was not asked before, answers with the same bits.
        for i, row in enumerate(internal, start=known.n):
            state = learn.learn(state, row[None], warmup.weights[i : i + 1], known.constants.settings)[0]
        return known._replace(state=state, n=warmup.n)

    def _in_scale_of(self, warmup: Warmup, n: int) -> Provisional:
        """The mixture of the first n buffered rows in their own scale."""
        rows, weights = warmup.rows[:n], warmup.weights[:n]
        constants = self._derive_constants(frame_of_rows(rows))
        internal = to_internal(rows, constants.inverse_scale, LIMIT)
        order = self._first_rows_order(internal)
        if order is not None:
            internal, weights = internal[order], weights[order]
        state = empty(self.n_features_in_, diagonal=self.covariance_type == "diag")
        return Provisional(learn.learn(state, internal, weights, constants.settings)[0], constants, n, n)

    def _score(self, X: ArrayLike, *, posteriors: bool = False) -> tuple[Array, Scores]:
        """Rows in internal coordinates, and what they are to the mixture."""
        rows = self._check_X(X)
        state, constants = self._current()
        rows, gaps = to_internal_with_gaps(rows, constants.inverse_scale, LIMIT)
        backend = self._backend()
        try:
            return rows, ask.score(state, rows, constants.log_scale, posteriors=posteriors, backend=backend, gaps=gaps)
        except RuntimeError as error:
            if backend is HOST:
                raise
            raise device_failure(self.device, error) from error

    # -- densities and components -----------------------------------------------------------------

    def score_samples(self, X: ArrayLike) -> Array:
        """Log-density of each row; of its observed part where values are missing.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log-densities.
        """
        return self._score(X)[1].log_density

    def p_value(self, X: ArrayLike) -> Array:
        """Probability that a row of the nearest component lies farther from it than each row: small for a novelty.

        By the chi-square distribution of squared Mahalanobis distances over the observed columns. The nearest component
        may be one of few rows: a row like one that came before is not new, however rare; `score_samples` tells how rare
        it is.

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
        >>> from everlearn import FIGMN
        >>> model = FIGMN().fit(np.random.default_rng(0).normal(size=(1000, 2)))
        >>> model.p_value([[0.5, 0.5], [9.0, 9.0], [0.5, np.nan]]) > 1e-4
        array([ True, False,  True])
        """
        rows, scores = self._score(X)
        observed = (~np.isnan(rows)).sum(axis=1)
        tail = chdtrc(np.maximum(observed, 1), np.maximum(scores.distance, 0.0))
        return np.asarray(np.where(observed > 0, tail, 1.0))

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
        return self._score(X, posteriors=True)[1].posterior

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

    def _n_parameters(self) -> float:
        K, D = self.n_components_, self.n_features_in_
        # Means and covariances of the components, and the weights, which sum to one.
        return K * (2.0 * D if self.covariance_type == "diag" else D + 0.5 * D * (D + 1)) + K - 1.0

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Array, NDArray[np.intp]]:
        """Draw rows from the mixture.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState instance or None, default=None
            Source of randomness; None takes that of the model.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The rows.
        labels : ndarray of shape (n_samples,)
            The component that each row came from.
        """
        check_draws(n_samples)
        state, constants = self._current()
        source = generator(self.random_state if random_state is None else random_state)
        X, labels = mixtures.sample(mixture_of(state), n_samples, source)
        return X * constants.frame.scale, labels

    # -- any columns from any others, see `MixtureAnswers` ------------------------------------------

    def _conditional(self, rows: Array, columns: Indices) -> tuple[ConditionalMixture, Array]:
        state, constants = self._current()
        mixture = ask.condition(state, to_internal(rows, constants.inverse_scale, LIMIT), columns)
        return mixture, constants.frame.scale[columns]

    def _answers(self) -> Answers:
        state, constants = self._current()
        K = state.n_components
        mixture = (state.counts[:K] / state.counts[:K].sum(), state.means[:K].copy(), covariances_of(state))
        return Answers(*self._identity(), *mixture, constants.frame.scale, np.arange(K))

    def _conditional_mean(self, rows: Array, columns: Indices) -> Array:
        # Means of a few rows come straight from the precisions.
        state, constants = self._current()
        internal = to_internal(rows, constants.inverse_scale, LIMIT)
        return ask.conditional_mean(state, internal, columns) * constants.frame.scale[columns]

    def _expected_gaps(self, rows: Array) -> tuple[Array, Array]:
        state, constants = self._current()
        mean, std = ask.impute(state, to_internal(rows, constants.inverse_scale, LIMIT))
        return mean * constants.frame.scale, std * constants.frame.scale

    # -- what was learned -------------------------------------------------------------------------

    @property
    def weights_(self) -> Array:
        """Mixture weights."""
        state, _ = self._current()
        counts = state.counts[: state.n_components]
        return counts / counts.sum()

    @property
    def means_(self) -> Array:
        """Means of the components."""
        state, constants = self._current()
        return state.means[: state.n_components] * constants.frame.scale

    @property
    def covariances_(self) -> Array:
        """Covariances of the components; their variances if covariance_type="diag"."""
        state, constants = self._current()
        return covariances_of(state) * squared_scale(constants.frame.scale, diagonal=is_diagonal(state))

    @property
    def precisions_(self) -> Array:
        """Inverses of the covariances."""
        state, constants = self._current()
        square = squared_scale(constants.frame.scale, diagonal=is_diagonal(state))
        return state.precisions[: state.n_components] / square

    @property
    def n_components_(self) -> int:
        """Number of components."""
        return int(self._current()[0].n_components)

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows learned."""
        self._check_started()
        return int(self._state_.n_rows + (self._warmup_.n if self._warmup_ is not None else 0))

    @property
    def effective_samples_(self) -> float:
        """Rows that the model remembers: all, or those that forgetting has left."""
        state, _ = self._current()
        return float(state.counts[: state.n_components].sum())

    @property
    def keeps_rows_(self) -> bool:
        """Whether the model, and with it its file, holds rows of the stream."""
        self._check_started()
        return self._warmup_ is not None

    def _rows_inside(self) -> int:
        return 0 if self._warmup_ is None else int(self._warmup_.n)

    def _rows_of_components(self) -> Array:
        return np.asarray(self._state_.counts[: self._state_.n_components])

    # -- merging ----------------------------------------------------------------------------------

    def _merge(self, others: list[Self], *, method: str, weights: ArrayLike | None, n_components: int | None) -> Self:
        """Join the components of models that have a scale; models that are warming up still hold their rows, which
        are learned. The order in which models are given makes no difference.
        """
        if method not in ("auto", "mean", "mode"):
            raise MergeError(
                f"method={method!r} does not apply to mixtures, which keep no posterior of their parameters. Use "
                "'auto', which joins the components and merges them by their moments, or 'mode', which pools those "
                "that stand for the same; VariationalPPCA and StreamingPosterior have 'bayes'."
            )
        models = [self, *others]
        check_same_units(models)
        trust = np.ones(len(models)) if weights is None else np.asarray(weights, dtype=np.float64)
        # Shares of one on average: equal weights leave the counts as they are. fsum does not depend on the order.
        shares = trust * (len(models) / math.fsum(trust))
        # Sums of floats depend on their order: a canonical one makes merging commutative to the last bit.
        pairs = sorted(zip(models, shares, strict=True), key=lambda pair: pair[0]._content())
        if method == "mode":
            return self._pooled(pairs, n_components)
        scaled = [pair for pair in pairs if pair[0]._warmup_ is None]
        whole = join(self, *zip(*scaled, strict=True)) if scaled else self._restarted()
        for part, share in pairs:
            if part._warmup_ is not None:
                rows, row_weights, n = part._warmup_
                whole._learn(rows[:n].copy(), None, row_weights[:n] * share)
        return whole if n_components is None else whole.reduced(n_components)

    def _pooled(self, pairs: list[tuple[Self, float]], n_components: int | None) -> Self:
        """The pool of several models, each with its share of trust (mode-IMM)."""
        parts = []
        for model, share in pairs:
            state, _ = model._current()
            counts = share * state.counts[: state.n_components]
            parts.append(Mixture(counts, model.means_, model.covariances_))
        # beta=0 promises a single component.
        known = pool(parts, n_components=1 if self.beta == 0 else n_components)
        total = float(known.weights.sum())
        whole = self._knowing(known._replace(weights=known.weights / total), total)
        whole._state_ = whole._state_._replace(n_rows=sum(model.n_samples_seen_ for model, _ in pairs))
        whole._monitor_.totals[:] = sum(model._monitor_.totals for model, _ in pairs)
        return whole

    def reduced(self, n_components: int) -> Self:
        """Return a copy with at most `n_components` components.

        Pairs are merged greedily by Runnalls' bound, then the assignment is refined (Goldberger and Roweis).

        Parameters
        ----------
        n_components : int
            Most components of the copy.

        Returns
        -------
        FIGMN
            The copy, which goes on learning.
        """
        if not isinstance(n_components, int | np.integer) or n_components < 1:
            raise InputError(f"n_components must be an integer from 1 on; got {n_components!r}.")
        state, constants = self._current()
        fewer = self._restarted()._with_state(copied(state), constants.frame, holds_prior=self._holds_prior_)
        fewer._monitor_ = event_log.copied(self._monitor_)
        priors = keep.creation_priors(state.n_components, constants.settings) if self._holds_prior_ else None
        fewer._state_ = trimmed(merge.reduced(fewer._state_, int(n_components), priors))
        return fewer

    def _restarted(self) -> Self:
        """A model with the same parameters and columns that has learned nothing."""
        new = self._unfitted()
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(new, name, getattr(self, name))
        new._start(np.empty((0, self.n_features_in_)), whole=False)
        return new

    def _with_state(self, state: State, frame: Frame, *, holds_prior: bool = True) -> Self:
        """A model with the same parameters and columns that has learned `state`, in the coordinates of `frame`."""
        new = self._restarted()
        new._warmup_ = None
        new._state_, new._holds_prior_ = state, holds_prior
        new._fix_scale(frame)
        return new

    def _content(self) -> tuple[int, bytes]:
        """What models are ordered by before they are merged."""
        content = self._state_.means if self._warmup_ is None else self._warmup_.rows
        return self.n_samples_seen_, content.tobytes()

    def _check_loaded(self) -> None:
        """Refuse a loaded model in which an array has another shape or a count another range than learning needs."""
        self._check_compound_parameters()
        D = self.n_features_in_
        require(type(self._holds_prior_) is bool, "it does not say whether its components hold their prior")
        check_loaded_state(self._state_, self.covariance_type, D)
        self._monitor_ = event_log.upgraded(self._monitor_)
        check_state(self._monitor_, MonitorState)
        known_kinds = (self._monitor_.kinds >= 0) & (self._monitor_.kinds < len(event_log.KINDS))
        require(len(self._monitor_.rows) > 0 and known_kinds.all(), "it has events of an unknown kind")
        has_scale, has_rows = self._frame_ is not None, self._warmup_ is not None
        require(has_scale != has_rows, "it has neither a scale nor rows to estimate it from, or both")
        self._provisional_ = None
        if self._frame_ is not None:
            expect_fields(self._frame_, Frame, {"D": D}, scale="D", variance="D", centre="D")
            require((self._frame_.scale > 0).all() and (self._frame_.variance > 0).all(), "a spread is not positive")
            self._fix_scale(self._frame_)
        if self._warmup_ is not None:
            check_state(self._warmup_, Warmup, {"D": D})
            require(0 < self._warmup_.n < len(self._warmup_.rows), "it counts more first rows than it has")
            require((self._warmup_.weights[: self._warmup_.n] > 0).all(), "a first row has no weight")


def check_loaded_state(state: State, covariance_type: str, D: int) -> None:
    """Refuse a loaded state whose arrays do not fit each other, D columns or the shape of the covariances."""
    sizes = check_state(state, State, {"D": D})
    K, diagonal = state.n_components, covariance_type == "diag"
    expect(state.precisions, "C D" if diagonal else "C D D", sizes, "State.precisions")
    require(K <= len(state.counts), "it has more components than its arrays")
    variances = state.precisions[:K] if diagonal else state.precisions[:K].diagonal(axis1=1, axis2=2)
    require((state.counts[:K] > 0).all() and (variances > 0).all(), "a component has no count or no precision")


def trimmed(state: State) -> State:
    """A copy without spare capacity: a model that is sent elsewhere is no larger than what it knows."""
    return with_capacity(state, max(state.n_components, 1))


def join(template: FIGMN, models: tuple[FIGMN, ...], shares: tuple[float, ...]) -> FIGMN:
    """Models that have a scale as one, in common coordinates; merged down to the components that are allowed."""
    trust = np.array(shares)
    frames = [model._constants_.frame for model in models]
    frame = merge.pooled_frame(frames, np.array([model._state_.n_rows for model in models]))
    states = [merge.in_frame(model._state_, old, frame) for model, old in zip(models, frames, strict=True)]
    whole = template._with_state(merge.joined(states, trust), frame)
    if len(models) == 1 and trust[0] == 1.0:
        whole._state_, whole._holds_prior_ = copied(models[0]._state_), models[0]._holds_prior_
    elif whole._state_.n_components:
        # beta=0 promises a single component, also for several models together.
        most = 1 if whole.beta == 0 else whole._constants_.settings.max_components
        priors = joined_priors(models, trust, frame)
        whole._state_ = trimmed(keep.merged_to(whole._state_, max_cost=0.0, max_components=most, priors=priors))
    whole._monitor_.totals[:] = sum(model._monitor_.totals for model in models)
    return whole


def joined_priors(models: tuple[FIGMN, ...], shares: Array, frame: Frame) -> Array | None:
    """Creation prior that each component of each model holds, in the coordinates of `frame`."""
    parts = []
    for model, share in zip(models, shares, strict=True):
        constants = model._constants_
        priors = keep.creation_priors(model._state_.n_components, constants.settings)
        if priors is None:
            return None
        # Counts were multiplied by the share, and with them what count times covariance holds of the prior.
        parts.append(share * priors * (constants.frame.scale / frame.scale) ** 2)
    return np.concatenate(parts)


def check_same_units(models: list[FIGMN]) -> None:
    """Refuse models in which the spreads of a column are so far apart that it must be in different units."""
    known = [scale for scale in map(_column_scale, models) if scale is not None]
    if not known:
        return
    least, most = np.min(known, axis=0), np.max(known, axis=0)
    column = int(np.argmax(most / least))
    if most[column] / least[column] > MAX_SCALE_RATIO:
        name = getattr(models[0], "feature_names_in_", range(len(most)))[column]
        raise MergeError(
            f"Column {name!r} spreads over about {least[column]:.3g} in one model and {most[column]:.3g} in "
            "another. Learn both in the same units, or give both the same scale=."
        )


def _column_scale(model: FIGMN) -> Array | None:
    """Scale of the columns, or None while there are too few rows to tell."""
    if model._warmup_ is None:
        return model._constants_.frame.scale
    rows = model._warmup_.rows[: model._warmup_.n]
    return frame_of_rows(rows).scale if len(rows) >= MIN_ROWS_FOR_SCALE else None
