"""IncrementalGaussianMixture: a Gaussian mixture of a stream that finds its number of components."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtri
from sklearn.utils._param_validation import Interval, StrOptions

from everlearn.base.columns import Indices
from everlearn.base.draws import check_draws, generator
from everlearn.base.estimator import check_min_rows
from everlearn.base.mixture_answers import MixtureAnswers
from everlearn.base.privacy import MIN_ROWS
from everlearn.base.redo_log import UNDO_ROWS
from everlearn.base.snapshot import copied
from everlearn.errors import EverlearnError, InputError, MergeError
from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.conditional import ConditionalMixture
from everlearn.gaussian.factor_analysers import FactorMixture
from everlearn.linalg.backend_torch import device_failure, torch_device
from everlearn.mixture import ask, loading
from everlearn.mixture.adaptive import Bank
from everlearn.mixture.answers import FullAnswers
from everlearn.mixture.ask import Look
from everlearn.mixture.core import AdaptiveCore, Donor, FullCore
from everlearn.mixture.keep import schedule
from everlearn.mixture.keep.by_moments import PARTS
from everlearn.mixture.keep.forgetting import fading_of
from everlearn.mixture.shrinkage import conditional_mixture
from everlearn.mixture.state import Array, Settings
from everlearn.monitoring import event_log
from everlearn.monitoring.event_log import UNWATCHED, Watch
from everlearn.monitoring.page_hinkley import PageHinkley, check
from everlearn.persistence.answers import Answers, FactorAnswers
from everlearn.persistence.schema import require

if TYPE_CHECKING:
    from everlearn.figmn.estimator import FIGMN
    from everlearn.low_rank.ask import Look as LowRankLook
    from everlearn.low_rank.core import LowRankCore

# Squared distance beyond which a row opens a component: the share of a component's own rows that lie farther.
CREATION_LEVEL = 1e-6
# Factors are renewed when their component has grown by this share.
GROWTH = 0.1
# Most components unless told otherwise, or what this many numbers of factors hold.
MAX_COMPONENTS, MAX_NUMBERS = 64, 2**24
# From this many columns on, covariance_type="auto" is "low_rank": a full covariance costs the square of the columns and
# means little before there are more rows than columns (benchmarks/wide.py compares them).
WIDE_COLUMNS = 256
# Numbers of a part of a long batch that is learned on a device, which hears of interrupts by itself.
DEVICE_PART_CELLS = 2**28
# Weights of a row on its own; a view of it saves an allocation.
_ONES = np.ones(1024)
_ONE = _ONES[:1]
# One for all calls: to make a context takes a tenth of the time that a single row takes.
_WITHOUT_DEVICE = nullcontext()


@contextmanager
def _naming(device: str) -> Iterator[None]:
    """Whatever fails within is an error that names the device."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, EverlearnError):
            raise
        raise device_failure(device, error) from error


class IncrementalGaussianMixture(MixtureAnswers):
    """Gaussian mixture of a stream, learned in one pass, that finds how many components there are.

    Each row updates few components by its posterior probabilities. A bounded sample of the rows is kept beside them,
    and at row counts that double the structure is reconsidered on it: expectation-maximisation with split and merge
    moves, accepted by leave-one-out likelihood less a price for each component that rows of one Gaussian do not
    pay [1]_. A search that is due at row n is adopted some rows later and its work is done in slices between rows, so
    that no single row waits for it. Any split of the stream into batches gives the same model.

    NaN means "not observed": a row teaches what its observed columns say.

    Asking never changes what is learned. When the rows have grown by 5 % since the last search and the last question,
    an answer is preceded by a search of its own, which takes up to a second in many columns and is kept beside the
    model; who asks after every row does not pay for that, and gets the components as they are between searches.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of components; None finds it.
    max_components : "auto" or int, default="auto"
        Most components that are kept; "auto" is 64, or fewer where covariances of many columns would fill 128 MiB.
    reservoir : "auto" or int, default="auto"
        Number of rows that are kept for the searches. "auto" is 1000 to 2800, by the number of columns. With 0 no row
        is kept after the warm-up of 500 rows (50 a column, if that is more; 2000 at most): searches then work on the
        moments of the components, which find less than rows do (docs/structure.md).
    covariance_type : {"auto", "full", "diag", "low_rank"}, default="auto"
        Shape of the covariances. "auto" is "low_rank" from 256 columns on and "full" below, or with
        forgetting="adaptive"; `covariance_type_` says which. "low_rank", for hundreds to thousands of columns, is a few
        directions and a noise of each column: its cost is linear in the columns, and it is right also with fewer rows
        than columns [2]_.
    rank : "auto" or int, default="auto"
        With covariance_type="low_rank": most directions that a component keeps. It bounds the memory; how many are
        used follows from the rows (`ranks_`). "auto" is 16, or an eighth of the columns if that is less.
    forgetting : None, float or "adaptive", default=None
        Factor by which what was learned fades with each row. None forgets nothing.
    scale : "auto" or array-like of shape (n_features,), default="auto"
        Standard deviation of each column. "auto" estimates it from the first rows.
    novelty_level : float, default=1e-4
        A row farther from all components than this share of their own rows would be is recorded as a novelty.
    change_detector : PageHinkley, optional
        The test that records changes, on the log-density of rows before they are learned; PageHinkley() by default.
    device : None or str, default=None
        Where large batches are worked on: None, this machine's memory and BLAS; or a device of torch's, such as "cuda",
        which needs the extra ``torch``. Rows are learned and scored there; the sample that searches work on is scored
        there with covariance_type="low_rank", and stays with the processor with full or diagonal covariances, which
        are learned on the device from 256 columns on. Answers agree with those of the processor up to rounding. Rows
        with gaps and batches of few rows are left to the processor.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of `sample` and `sample_columns`. An int also seeds the sample of rows and the random
        starts of the searches, which are always reproducible.
    verbose : int, default=0
        Whether `fit` shows a progress bar.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components_,)
        Mixture weights.
    means_ : ndarray of shape (n_components_, n_features)
        Means of the components.
    covariances_ : ndarray of shape (n_components_, n_features, n_features)
        Covariances of the components; with covariance_type="diag" variances, of shape (n_components_, n_features).
    precisions_ : ndarray of the same shape
        Inverses of the covariances.
    n_components_ : int
        Number of components.
    n_samples_seen_ : int
        Number of rows learned.
    effective_samples_ : float
        Weight of the rows that the model remembers.
    prequential_score_ : float or None
        Mean log-density of the rows, each taken before it was learned; None while warming up.
    events_ : list of Event
        The latest novelties and changes, at most 1000: row number, kind and value.
    covariance_type_ : {"full", "diag", "low_rank"}
        Shape of the covariances: what "auto" stands for with these columns.
    ranks_ : ndarray of shape (n_components_,)
        Directions that each component uses; only with covariance_type="low_rank".
    loadings_ : ndarray of shape (n_components_, rank, n_features)
        With covariance_type="low_rank": covariances are ``loadings_[k].T @ loadings_[k] + diag(noise_variances_[k])``.
    noise_variances_ : ndarray of shape (n_components_, n_features)
        With covariance_type="low_rank": variance of each column that the directions do not explain.
    keeps_rows_ : bool
        Whether the model, and with it its file, holds rows of the stream: with reservoir=0 only during the warm-up.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where the data had names.

    References
    ----------
    .. [1] docs/structure.md: how the number of components is found.
    .. [2] Z. Ghahramani and G. Hinton, "The EM algorithm for mixtures of factor analyzers", 1996.

    Examples
    --------
    >>> import numpy as np
    >>> from everlearn import IncrementalGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (500, 2)), rng.normal(9, 1, (500, 2))])
    >>> model = IncrementalGaussianMixture().fit(rng.permutation(X))
    >>> model.n_components_
    2
    >>> model.score_samples([[0.0, 0.0], [9.0, 9.0], [4.5, 4.5]]).round(1)
    array([ -2.5,  -2.6, -12.7])
    """

    _allow_nan: ClassVar[bool] = True
    _transient: ClassVar[tuple[str, ...]] = ("_core_", "_alarm_", "_detector_", "_watch_")
    _merges_by_name: ClassVar[bool] = True
    _merge_free: ClassVar[dict[str, str]] = MixtureAnswers._merge_free | {
        **dict.fromkeys(
            ("n_components", "max_components", "scale", "novelty_level", "change_detector"), "that of the first holds"
        ),
        "reservoir": "no row is kept where one of them keeps none, else that of the first holds",
    }
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [None, Interval(Integral, 1, None, closed="left")],
        "max_components": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "reservoir": [StrOptions({"auto"}), Interval(Integral, 0, None, closed="left")],
        "covariance_type": [StrOptions({"auto", "full", "diag", "low_rank"})],
        "rank": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "forgetting": [None, StrOptions({"adaptive"}), Interval(Real, 0, 1, closed="right")],
        "scale": [StrOptions({"auto"}), "array-like", Interval(Real, 0, None, closed="neither")],
        "novelty_level": [Interval(Real, 0, 1, closed="neither")],
        "change_detector": [None, PageHinkley],
        "device": [None, str],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        max_components: Any = "auto",
        reservoir: Any = "auto",
        covariance_type: str = "auto",
        rank: Any = "auto",
        forgetting: Any = None,
        scale: Any = "auto",
        novelty_level: float = 1e-4,
        change_detector: PageHinkley | None = None,
        device: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.max_components = max_components
        self.reservoir = reservoir
        self.covariance_type = covariance_type
        self.rank = rank
        self.forgetting = forgetting
        self.scale = scale
        self.novelty_level = novelty_level
        self.change_detector = change_detector
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, **parameters: Any) -> FIGMN:
        """Return an unfitted `FIGMN`: the incremental mixture of the paper, by its own rule.

        Parameters
        ----------
        **parameters
            Parameters of FIGMN that are to differ from the paper's.

        Returns
        -------
        FIGMN
            An unfitted mixture.
        """
        from everlearn.figmn.estimator import FIGMN  # its kernels take a third of a second to import

        return FIGMN(**parameters)

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
            A mixture with the same components.
        """
        from everlearn.mixture.interchange import from_sklearn

        return from_sklearn(cls, mixture, n_samples, parameters)

    def to_sklearn(self) -> Any:
        """Return a fitted scikit-learn mixture with the same densities.

        Its last component is the broad Gaussian behind the others, which counts for half a row.

        Returns
        -------
        sklearn.mixture.GaussianMixture
            A fitted mixture.

        Examples
        --------
        >>> import numpy as np
        >>> from everlearn import IncrementalGaussianMixture
        >>> X = np.random.default_rng(0).normal(size=(500, 2))
        >>> model = IncrementalGaussianMixture().fit(X)
        >>> bool(np.allclose(model.to_sklearn().score_samples(X), model.score_samples(X)))
        True
        """
        from everlearn.figmn.sklearn_conversion import fitted_sklearn

        new = fitted_sklearn(ask.whole_mixture(self._look()), self.covariance_type_)
        if hasattr(self, "feature_names_in_"):
            new.feature_names_in_ = self.feature_names_in_.copy()
        new.random_state = self.random_state
        return new

    # -- learning ---------------------------------------------------------------------------------

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Go on learning from the rows of X in their order.

        Any split of a stream into batches gives the same model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The next rows of the stream; NaN where a value was not observed.
        y : ignored
            Present for the scikit-learn interface.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows; a weight of two is two rows, a weight of zero leaves a row out.

        Returns
        -------
        self
            The estimator, further on in the stream.
        """
        self._advance(X, None, sample_weight)
        return self

    def _start(self, X: Array, *, whole: bool) -> None:
        D = X.shape[1]
        if self.device is not None:
            torch_device(self.device)  # refused now if it is not there, not after the warm-up
        self._monitor_ = event_log.init()
        self._rows_ = 0
        self._prepare(D)
        self._state_: Any = self._core_.init(D, None if isinstance(self.scale, str) else self._given_scale(D))

    def _prepare(self, D: int) -> None:
        """Constants and caches: what is not saved."""
        self._alarm_ = event_log.alarm_thresholds(self.novelty_level, D)
        self._detector_ = event_log.detector_settings(check(self.change_detector or PageHinkley(), "change_detector"))
        self._core_: Any = self._make_core(D)
        self._watch_: Watch | None = None

    def _make_core(self, D: int) -> FullCore | LowRankCore:
        """What learns and answers: the one place that looks at the parameters for it."""
        seed = int(self.random_state) if isinstance(self.random_state, Integral) else 0
        is_adaptive = self.forgetting == "adaptive"
        if self._shape_of_covariances(D) == "low_rank":
            if is_adaptive:
                raise InputError(
                    "forgetting='adaptive' was given, but a mixture with covariance_type='low_rank' forgets by a "
                    "fixed factor; give for instance forgetting=0.999, for a memory of a thousand rows."
                )
            # Imported where it is used: 0.06 s of every start of a program, for few of its models.
            from everlearn.low_rank.core import LowRankCore

            return LowRankCore.of(D, self, seed)
        reservoir = schedule.reservoir_rows(D) if isinstance(self.reservoir, str) else int(self.reservoir)
        warmup = schedule.warmup_rows(D, reservoir)
        most = min(MAX_COMPONENTS, max(1, MAX_NUMBERS // D**2))
        settings = Settings(
            thresholds=chdtri(np.maximum(np.arange(D + 1.0), 1.0), CREATION_LEVEL),
            growth=GROWTH,
            seed=seed,
            fixed=int(self.n_components or 0),
            most=most if self.max_components == "auto" else int(self.max_components),
            warmup=warmup,
            diagonal=self.covariance_type == "diag",
            fading=fading_of(1.0 if self.forgetting is None or is_adaptive else float(self.forgetting), warmup),
            parts=0 if reservoir else PARTS,
        )
        return AdaptiveCore(settings, reservoir, D) if is_adaptive else FullCore(settings, reservoir)

    def _shape_of_covariances(self, D: int) -> str:
        """The shape that "auto" stands for. Low-rank components that find no direction are diagonal ones."""
        if self.covariance_type != "auto":
            return self.covariance_type
        return "low_rank" if D >= WIDE_COLUMNS and self.forgetting != "adaptive" else "full"

    def _given_scale(self, D: int) -> Array:
        scale = np.asarray(self.scale, dtype=np.float64)
        scale = np.full(D, float(scale)) if scale.ndim == 0 else scale
        if scale.shape != (D,) or not (np.isfinite(scale).all() and (scale > 0.0).all()):
            raise InputError(
                f"scale must be 'auto', a positive number, or one positive number for each of the {D} columns; got "
                f"{self.scale!r}."
            )
        return scale

    def _learn(self, X: Array, y: Any, weights: Array | None) -> Array:
        """Learn rows; returns the log-density of each before it was learned, NaN while warming up."""
        n = len(X)
        if weights is None:
            # A slice takes a hundredth of the time that a single row takes.
            return self._learn_rows(X, _ONE if n == 1 else _ONES[:n] if n <= len(_ONES) else np.ones(n))
        if weights.all():
            return self._learn_rows(X, weights)
        out, kept = np.full(n, np.nan), np.flatnonzero(weights)
        if len(kept):
            out[kept] = self._learn_rows(np.ascontiguousarray(X[kept]), weights[kept])
        return out

    def _takes_long(self, n_rows: int) -> bool:
        return n_rows >= UNDO_ROWS or self._core_.searches_within(self._state_, n_rows)

    def _rows_of_a_part(self, n_features: int) -> int:
        # Components travel to a device and back for each part.
        cells = 0 if self.device is None else DEVICE_PART_CELLS
        return max(super()._rows_of_a_part(n_features), cells // n_features)

    def _is_searching(self, n_rows: int) -> bool:
        """Whether a search is under way after so many more rows: they are then best given one by one."""
        return hasattr(self, "_core_") and self._core_.is_searching(self._state_, n_rows)

    def _learn_rows(self, X: Array, weights: Array) -> Array:
        """Learn rows of positive weight; those without any value are counted and teach nothing."""
        # A single row is looked at by Python: NumPy's ways cost as much as learning it.
        first_is_gap = math.isnan(X[0, 0]) if len(X) == 1 else np.isnan(X[:, 0]).any()
        observed = np.flatnonzero(~np.isnan(X).all(axis=1)) if first_is_gap else None
        watch = self._watch_
        if watch is None or watch.log.totals is not self._monitor_.totals:
            watch = self._watch_ = event_log.watching(self._monitor_, self._alarm_, self._detector_)
        watch.counts[0] = self._rows_
        core = self._core_
        core.device = self.device  # which `set_params` may have changed
        if observed is None or len(observed) == len(X):
            # A context that does nothing would take a fiftieth of the time that a single row takes.
            if self.device is None:
                self._state_, told = core.learn(self._state_, X, weights, watch)
            else:
                with self._device_named():
                    self._state_, told = core.learn(self._state_, X, weights, watch)
        else:
            told = np.full((2, len(X)), np.nan)
            if len(observed):
                rows = np.ascontiguousarray(X[observed])
                self._state_, told[:, observed] = core.learn(self._state_, rows, weights[observed], UNWATCHED)
            event_log.watch_rows(watch, X, *told)
        n_events = watch.counts.item(1)
        if n_events != self._monitor_.n_events:
            self._monitor_ = event_log.with_events(self._monitor_, X, self._rows_, n_events)
        self._rows_ += len(X)
        return told[0]  # type: ignore[no-any-return]

    def _device_named(self) -> AbstractContextManager[None]:
        """Whatever fails on a device, for want of memory, is an error that names the parameter."""
        return _WITHOUT_DEVICE if self.device is None else _naming(self.device)

    # -- densities --------------------------------------------------------------------------------

    def _look(self) -> Look:
        """The mixture with matrices that answers come from."""
        self._check_learned()
        return self._core_.look(self._state_)

    def _answering(self) -> FullAnswers | LowRankLook:
        """What questions are passed on to."""
        self._check_learned()
        return self._core_.answers(self._state_)  # type: ignore[no-any-return]

    def _check_learned(self) -> None:
        self._check_started()
        self._core_.device = self.device
        if self._core_.rows_seen(self._state_) == 0:
            raise InputError("The model has no component yet: every row so far was NaN in all columns.")

    def _ask_without_search(self) -> None:
        # As if a question had been asked at the last row: none that follows is preceded by a search, except during the
        # warm-up, when there are no components yet.
        self._core_.asked.last = self._core_.rows_seen(self._state_)

    def mixture_between_searches(self) -> mixtures.Mixture | None:
        """Components as the rows have left them, the broad Gaussian last; no search precedes the answer.

        For those who ask often: `weights_`, `means_` and `covariances_` are preceded by a search when rows have grown.

        Returns
        -------
        Mixture or None
            Weights, means and covariances in the units of the data; None before the first search is adopted.
        """
        self._check_started()
        return self._core_.between_searches(self._state_)

    def factors_between_searches(self) -> FactorMixture | None:
        """Return the components of a low-rank mixture as `mixture_between_searches` does: loadings and noise.

        Returns
        -------
        FactorMixture or None
            Weights, means, loadings and noise variances in the units of the data, during the warm-up those of one
            component of its rows; None without covariance_type="low_rank", or before any row.
        """
        self._check_started()
        return self._core_.factors_between_searches(self._state_)  # type: ignore[no-any-return]

    def _n_components_so_far(self) -> int | None:
        """`n_components_` without a search; None before the first one is adopted."""
        self._check_learned()
        return self._core_.n_between_searches(self._state_)  # type: ignore[no-any-return]

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
        self._check_started()
        rows = self._check_X(X)
        with self._device_named():
            return self._answering().log_density(rows)

    def p_value(self, X: ArrayLike) -> Array:
        """How usual each row is: a p-value, small for a novelty.

        It is the probability that a row of the same law has a density as low or lower, over the columns that are
        observed: uniform on rows like those learned, whether components overlap or not. The law is that of the sampled
        rows, each scored without itself; below the lowest of them the mixture's own tail goes on.

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
        >>> from everlearn import IncrementalGaussianMixture
        >>> model = IncrementalGaussianMixture().fit(np.random.default_rng(0).normal(size=(1000, 2)))
        >>> model.p_value([[0.5, 0.5], [9.0, 9.0], [0.5, np.nan]]) > 1e-4
        array([ True, False,  True])
        """
        self._check_started()
        rows = self._check_X(X)
        with self._device_named():
            return self._answering().p_values(rows)

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
        with self._device_named():
            return self._answering().responsibilities(rows)

    def predict(self, X: ArrayLike, *, by: str = "component") -> NDArray[np.intp]:
        """Component with the highest posterior probability for each row, or the mode of the density it belongs to.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to assign.
        by : {"component", "mode"}, default="component"
            "mode" gives components from whose means one climbs to the same mode of the density one number: the
            clusters of the rows, where a cluster that is no Gaussian has several components (see `everlearn.modes`).

        Returns
        -------
        ndarray of shape (n_samples,)
            Component numbers, or those of the modes.

        Examples
        --------
        >>> import numpy as np
        >>> from everlearn import IncrementalGaussianMixture
        >>> rng = np.random.default_rng(0)
        >>> x = rng.gamma(2.0, size=2000) + 30 * rng.integers(2, size=2000)  # two skewed groups
        >>> model = IncrementalGaussianMixture().fit(x[:, None])
        >>> model.n_components_ > 2, len(np.unique(model.predict(x[:, None], by="mode")))
        (True, 2)
        """
        if by not in ("component", "mode"):
            raise InputError(f"by must be 'component' or 'mode'; got {by!r}.")
        labels = np.argmax(self.predict_proba(X), axis=1)
        return labels if by == "component" else ask.modes_of_components(self._look())[labels]

    def _n_parameters(self) -> float:
        return self._answering().n_parameters

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Array, NDArray[np.intp]]:
        """Draw rows from the components.

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
        source = generator(self.random_state if random_state is None else random_state)
        return self._answering().sample(n_samples, source)

    # -- any columns from any others, see `MixtureAnswers` ------------------------------------------

    def _conditional(self, rows: Array, columns: Indices) -> tuple[ConditionalMixture, Array]:
        return self._answering().condition(rows, columns)

    def _conditional_mean(self, rows: Array, columns: Indices) -> Array:
        answers = self._answering()
        if not isinstance(answers, FullAnswers):
            return answers.expected_columns(rows, columns)
        return super()._conditional_mean(rows, columns)

    def _expected_gaps(self, rows: Array) -> tuple[Array, Array]:
        return self._answering().impute(rows)

    # -- what was learned -----------------------------------------------------------------------------

    @property
    def weights_(self) -> Array:
        """Mixture weights."""
        return self._answering().weights

    @property
    def means_(self) -> Array:
        """Means of the components."""
        return self._answering().means

    @property
    def covariances_(self) -> Array:
        """Covariances of the components."""
        return self._answering().covariances

    @property
    def precisions_(self) -> Array:
        """Inverses of the covariances."""
        return self._answering().precisions

    @property
    def covariance_type_(self) -> str:
        """Shape of the covariances: what "auto" stands for with these columns."""
        self._check_started()
        return self._shape_of_covariances(self.n_features_in_)

    @property
    def ranks_(self) -> NDArray[np.int64]:
        """Directions that each component uses."""
        return self._low_rank_answers("ranks_").readout.rank.copy()

    @property
    def loadings_(self) -> Array:
        """Directions of each component, each as long as its standard deviation above the noise."""
        return self._low_rank_answers("loadings_").mixture.loadings.copy()

    @property
    def noise_variances_(self) -> Array:
        """Variance of each column that the directions do not explain."""
        return self._low_rank_answers("noise_variances_").mixture.noise.copy()

    def _low_rank_answers(self, name: str) -> LowRankLook:
        self._check_started()
        answers = self._answering()
        if isinstance(answers, FullAnswers):
            raise AttributeError(f"{name} is there only with covariance_type='low_rank'; use covariances_.")
        return answers

    @property
    def n_components_(self) -> int:
        """Number of components."""
        return self._answering().n_components

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows learned."""
        self._check_started()
        return self._rows_

    @property
    def effective_samples_(self) -> float:
        """Weight of the rows that the model remembers."""
        self._check_started()
        return self._core_.effective_samples(self._state_)

    @property
    def keeps_rows_(self) -> bool:
        """Whether the model, and with it its file, holds rows of the stream."""
        self._check_started()
        return self._core_.keeps_rows(self._state_)

    def _rows_inside(self) -> int:
        return self._core_.rows_inside(self._state_)

    def _rows_of_components(self) -> Array:
        return self._core_.rows_of_components(self._state_)

    def anonymised(self, min_rows: int = MIN_ROWS) -> Self:
        """Return a copy without rows of the stream, whose components stand for `min_rows` rows or more each.

        Small components are joined with their nearest neighbours, by their moments. The sample of rows, rows of the
        warm-up and the log of events are left behind; the copy has ``reservoir=0`` and goes on learning without keeping
        rows, and may open components of few rows again. What is left are means, covariances and counts of groups: that
        is no differential privacy, as no noise is added, and a row that lies far out still shows in the covariance of
        its group.

        Parameters
        ----------
        min_rows : int, default=20
            Rows that a component stands for at least.

        Returns
        -------
        IncrementalGaussianMixture
            The copy.
        """
        check_min_rows(min_rows)
        self._check_started()
        if self.effective_samples_ < min_rows:
            raise InputError(
                f"The model has learned {self._rows_} rows; a copy with components of {min_rows} rows or more needs at "
                "least as many."
            )
        new = self._successor(keeps_rows=False, fields=("_origin_", "_last_row_"))
        new._state_ = new._core_.aggregated(self._core_.part(self._state_, 1.0), self._core_, int(min_rows))
        new._rows_ = self._rows_
        new._monitor_.totals[:] = self._monitor_.totals
        return new

    def _successor(self, *, keeps_rows: bool, fields: tuple[str, ...] = ()) -> Self:
        """A model with the same parameters and columns that has learned nothing."""
        new = self._unfitted()
        if not keeps_rows:
            new.reservoir = 0
        for name in ("n_features_in_", "feature_names_in_", *fields):
            if hasattr(self, name):
                setattr(new, name, getattr(self, name))
        new._start(np.empty((0, self.n_features_in_)), whole=False)
        return new

    def _column_moments(self) -> tuple[Array, Array] | None:
        return self._core_.column_moments(self._state_)

    # -- copies and files -----------------------------------------------------------------------------

    def _snapshot(self) -> dict[str, Any]:
        """Attributes to go back to; a search that was under way would begin again."""
        core = self._core_
        # The others are exchanged and never changed: with a copy of each, 1,000 rows would take a tenth longer.
        own = {"_core_": core.fresh(), "_state_": core.snapshot(self._state_), "_monitor_": copied(self._monitor_)}
        return vars(self) | own

    def _merge(self, others: list[Self], *, method: str, weights: ArrayLike | None, n_components: int | None) -> Self:
        """What all know; see `everlearn.mixture.merge`. The order in which models are given makes no difference."""
        if method not in ("auto", "mean", "mode"):
            raise MergeError(
                f"method={method!r} does not apply to mixtures, which keep no posterior of their parameters. Use "
                "'auto', which searches the structure of the merged rows and components, 'mean', whose density is "
                "the average of the models' densities, or 'mode', which pools the components that stand for the same; "
                "VariationalPPCA and StreamingPosterior have 'bayes'."
            )
        asked: Any = n_components
        if asked is not None and (not isinstance(asked, Integral) or int(asked) < 1):
            raise InputError(f"n_components must be an integer from 1 on; got {n_components!r}.")
        models = [self, *others]
        trust = np.ones(len(models)) if weights is None else np.asarray(weights, dtype=np.float64)
        shares = trust * (len(models) / math.fsum(trust))
        pairs = sorted(zip(models, shares, strict=True), key=lambda pair: (pair[0]._content(), pair[1]))
        # A model that was to keep no rows must not lose that by a merge: the search then works on moments.
        whole = self._successor(keeps_rows=all(model._core_.reservoir for model in models))
        most = None if n_components is None else int(n_components)
        if method == "mode":
            from everlearn.mixture.interchange import pooled

            pooled(whole, [model for model, _ in pairs], [float(share) for _, share in pairs], most)
        else:
            parts = [model._core_.part(model._state_, float(share)) for model, share in pairs]
            whole._state_ = whole._core_.merge(parts, self._names(), search=method == "auto", most=most)
        whole._rows_ = sum(model._rows_ for model in models)
        whole._monitor_.totals[:] = sum(model._monitor_.totals for model, _ in pairs)
        return whole

    def _content(self) -> tuple[int, bytes]:
        """What models are ordered by before they are merged."""
        return self._rows_, self._core_.content(self._state_)

    def _over_columns(self, names: list[Any], donors: list[Self]) -> Self:
        own = list(self.feature_names_in_)
        if names == own and not donors:
            return self
        if np.ndim(self.scale):
            raise MergeError("Models with a scale= for each column are merged only if they have the same columns.")
        kinds = {self._shape_of_covariances(len(columns)) for columns in (own, names)}
        if len(kinds) > 1:
            raise MergeError(
                f"covariance_type='auto' is 'full' below {WIDE_COLUMNS} columns and 'low_rank' from there on; a model "
                f"has {len(own)} columns, and all have {len(names)} together. Give all of them "
                "covariance_type='low_rank'."
            )
        known = [Donor(list(d.feature_names_in_), d._core_, d._state_, d._rows_) for d in donors]
        state = self._core_.over_columns(self._state_, own, names, known)
        new = self._unfitted()
        new.n_features_in_, new.feature_names_in_ = len(names), np.array(names, dtype=object)
        new._start(np.empty((0, len(names))), whole=False)
        new._state_ = new._core_.adopted(state)
        new._rows_, new._monitor_ = self._rows_, event_log.copied(self._monitor_)
        return new

    def _check_loaded(self) -> None:
        D = self.n_features_in_
        self._prepare(D)
        self._monitor_ = event_log.upgraded(self._monitor_)
        loading.check_monitor(self._monitor_)
        require(type(self._rows_) is int and self._rows_ >= 0, "it does not know how many rows it has learned")
        # Files have a place of its own for a bank of memories.
        bank = self.__dict__.pop("_bank_", None)
        self._state_ = self._state_ if bank is None else bank
        self._core_.check_loaded(self._state_, D)

    def _answers(self) -> Answers | FactorAnswers | None:
        if self._core_.rows_seen(self._state_) == 0:
            return None
        if self.covariance_type_ == "low_rank":
            factors, factor_scale = self._low_rank_answers("loadings_").scaled_mixture()
            moments = self._column_moments()
            no_axes = (None, None)
            known = None if moments is None else (*self._identity(), *factors, factor_scale, *moments, *no_axes)
            return None if known is None else FactorAnswers(*known)
        look = self._look()
        mixture, scale = conditional_mixture(look)
        return Answers(*self._identity(), *mixture, scale, ask.shown_components(look).astype(np.int64))

    def _to_save(self) -> dict[str, Any]:
        attributes = super()._to_save()
        if "_state_" in attributes:
            bank = attributes.pop("_state_") if isinstance(self._state_, Bank) else None
            attributes["_bank_"] = bank
        return attributes
