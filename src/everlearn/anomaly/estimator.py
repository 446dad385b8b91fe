"""AnomalyDetector: which rows of a stream are strange, how surely, and which column is to blame."""

from __future__ import annotations

import functools
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import OutlierMixin, clone
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from everlearn.anomaly import ask, checked, keep, learn, merge
from everlearn.anomaly.state import STATISTICS, TIME_SCALES, VIEWS, Info, Settings, State
from everlearn.base.estimator import StreamEstimator
from everlearn.base.interrupts import HeldInterrupts
from everlearn.base.privacy import MIN_ROWS
from everlearn.base.redo_log import drop_log
from everlearn.errors import InputError, ModelFileError
from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.persistence.answers import Answers, DetectorAnswers, FactorAnswers
from everlearn.typing import Array

MAX_EVENTS = 1000
KINDS = ("anomaly", "new_normal")
FIRST_EVENT = 200  # rows that raise no alarm
GAP = 10  # rows without alarm after which the next alarm is another event
# With `contamination`: scores that are remembered, every how many rows the threshold is taken from them, and from how
# many on: of fewer the quantile is hardly better than the contamination itself.
SCORES, THRESHOLD_ROWS, ENOUGH_SCORES = 10_000, 100, 200
MOST_HELD_BYTES = 2**31  # of rows that may be held back
# Rows less probable than this are held back, whatever rate of alarms is asked for: benchmarks/anomaly.py compares.
GUARD_LEVEL = 1e-2
# Weights of the views where the past of a row says nothing about it, and where it predicts it: chosen on all groups of
# benchmarks/anomaly.py but the streams kept aside. A p-value of 1e-8 is seen at any of these weights; views in time
# that weigh twice as much give three times the alarms that were asked for on clean streams in time.
WEIGHTS = {
    "mixture": (1.0, 1.0), "columns": (1.0, 0.5), "neighbours": (1.0, 1.0),
    "surprise": (0.003, 1.0), "level": (0.03, 0.5), "activity": (0.003, 0.5),
}  # fmt: skip
# Heaviness of the tails of statistics on Gaussian rows of one, two, and more columns: of four columns, and with a
# hundred three quarters of that.
USUAL_HEAVINESS = {"columns": (0.76, 0.66, 0.62), "neighbours": (1.52, 0.69, 0.50), "group": (0.76, 0.56, 0.49)}
SHARPNESS = 1.0
# Weight of the mean score of the rows before, how many of them, and nats that one counts at most: chosen on all groups
# of benchmarks/anomaly.py but the streams kept aside. With the weights 2.5 and 5 the ROC-AUC is 0.676 and 0.681 on NAB
# realKnownCause, 0.684 and 0.691 on its other folders, 0.847 and 0.844 on synthetic faults.
PERSISTENCE, PERSISTENCE_ROWS, MOST_PERSISTENT = 5.0, 40.0, 10.0


class AnomalyEvent(NamedTuple):
    """Alarms that followed each other, or rows that became a new normal."""

    kind: str
    """"anomaly" or "new_normal"."""
    row: int
    """First row."""
    last: int
    """Last row."""
    value: float
    """Smallest p-value of the rows; of a new normal, how many rows were learned."""
    column: int
    """Column to blame in the row of the smallest p-value; -1 for a new normal."""


class EventLog(NamedTuple):
    """The latest events, in a ring."""

    kinds: NDArray[np.int64]  # (MAX_EVENTS,)
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    values: Array  # smallest log p-value, or number of rows
    columns: NDArray[np.int64]
    size: int  # events so far


class AnomalyDetector(OutlierMixin, StreamEstimator):
    """Anomalies in a stream of rows, with p-values by rank among the rows before.

    A row is looked at in six ways: how far out it lies in the components of a Gaussian mixture of all that was learned,
    each by its share of the rows; how rare its columns are, each by itself; how far its neighbours are in a uniform
    sample of the stream, at a resolution too coarse to follow a small group that keeps coming; the surprise that it is
    after the rows before; the level of the latest rows; their activity, which a frozen or noisy sensor changes. Each
    view becomes a p-value by its rank among the latest rows, with a generalised Pareto tail beyond them; the harmonic
    mean of the p-values [1]_, calibrated once more in the same way, is the p-value of the row.

    Where the past of a row predicts it, the p-value of a row that is not suspicious, above 1 in 100, also counts the
    scores of some forty rows before: of two rows that look alike, the one in the middle of strange ones is stranger.
    Alarms at 1 in 100 or less are of single rows.

    Rows that are too strange are held back. They are learned when they have lasted for `patience` rows. The longer they
    last, the more they may be a new normal: when half of `patience` is held back, no p-value is below 1 in 100,000 (an
    80th of `false_alarm_rate` where that is less).

    Memory is bounded: a detector holds about 1.2 MB at 3 columns, 1.5 MB at 8 and 5.4 MB at 60, beside its mixture.

    p-values are empirical, not exact. Below 1 in 500 they are calibrated by the far rows of the last 128,000 rows: how
    many there were, and how far they went. So alarms at one in 10,000 take some 10,000 rows to be right, and are too
    many at any rate on a stream that wanders slowly or without end; benchmarks/anomaly.py counts alarms on clean
    streams of eleven kinds.

    Parameters
    ----------
    false_alarm_rate : float, default=1e-3
        Share of usual rows that may raise an alarm.
    contamination : None or float, default=None
        Share of the rows that are anomalies, where it is known: the threshold is then that quantile of the scores. None
        takes it from `false_alarm_rate`. After `fit` it is the quantile over the training rows, as of other outlier
        detectors of scikit-learn. Rows that are learned later bring their scores: every 100 rows the threshold is the
        quantile of the latest 10,000 (of 200 at least; before, the logarithm of the contamination).
    learning : {"guarded", "always", "never"}, default="guarded"
        "guarded" holds suspicious rows back, "always" learns every row, "never" learns in `fit` only: later rows are
        scored in their order and teach nothing.
    patience : int, default=500
        Number of suspicious rows after which they are a new normal. A usual row takes a tenth of a row off. So many
        rows can be held back, which takes 8 (D + 19) bytes each at D columns.
    grace_period : int, default=500
        Number of rows that are learned whatever they are: long enough for a stream to show its regimes and the ways
        between them. What comes later and is too strange is held back.
    model : estimator, optional
        The mixture, of which a clone is learned; ``IncrementalGaussianMixture()`` by default.
    random_state : int, default=0
        Seed of the sample of rows.

    Attributes
    ----------
    offset_ : float
        Threshold of `score_samples`: rows below it raise an alarm. ``set_params`` of a rate or share changes it.
    mixture_ : estimator
        The mixture that the density comes from.
    events_ : list of AnomalyEvent
        The latest anomalies and new normals, at most 1000.
    n_samples_seen_ : int
        Number of rows of its stream; a merged detector goes on in that of the first.
    n_held_ : int
        Number of rows that are held back.
    held_rows_ : ndarray of shape (n_held_, n_features_in_)
        The rows that are held back, in their order: what `explain` can be asked about.
    keeps_rows_ : bool
        Always true: a sample of rows, the latest rows and those held back are part of the model and of its file.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where the data had names.

    References
    ----------
    .. [1] D. J. Wilson, The harmonic mean p-value for combining dependent tests, PNAS 116(4), 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from everlearn import AnomalyDetector
    >>> X = np.random.default_rng(0).normal(size=(2000, 3))
    >>> X[1500, 1] = 8.0
    >>> detector = AnomalyDetector()
    >>> scores = detector.prequential(X)
    >>> int(scores.argmin())
    1500
    >>> event = min(detector.events_, key=lambda event: event.value)
    >>> event.kind, event.row, event.column
    ('anomaly', 1500, 1)
    """

    _allow_nan: ClassVar[bool] = True
    _transient: ClassVar[tuple[str, ...]] = ("_prepared_",)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "false_alarm_rate": [Interval(Real, 0, 0.5, closed="neither")],
        "contamination": [None, Interval(Real, 0, 0.5, closed="right")],
        "learning": [StrOptions({"guarded", "always", "never"})],
        "patience": [Interval(Integral, 1, None, closed="left")],
        "grace_period": [Interval(Integral, 20, None, closed="left")],
        "model": [None, HasMethods(["partial_fit", "get_params"])],
        "random_state": [Interval(Integral, 0, None, closed="left")],
    }

    _state_: State
    _events_: EventLog
    _scores_: Array

    def __init__(
        self,
        false_alarm_rate: float = 1e-3,
        *,
        contamination: float | None = None,
        learning: str = "guarded",
        patience: int = 500,
        grace_period: int = 500,
        model: Any = None,
        random_state: int = 0,
    ) -> None:
        self.false_alarm_rate = false_alarm_rate
        self.contamination = contamination
        self.learning = learning
        self.patience = patience
        self.grace_period = grace_period
        self.model = model
        self.random_state = random_state

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as scikit-learn does; rows learned from now on are learned with them.

        Of a detector that has begun, `false_alarm_rate` and `contamination` move the threshold at once, and with
        another `patience` so many of the rows that are held back stay, the latest ones. `model` is for the next `fit`.

        Parameters
        ----------
        **params : dict
            Names and values.

        Returns
        -------
        self
            The detector.
        """
        before = self.get_params(deep=False)
        super().set_params(**params)
        if self._is_started():
            try:
                self._validate_params()
                self._resize_guard()
            except ValueError:
                self.__dict__.update(before)
                raise
            # A quantile of scores does not depend on the rate of alarms.
            if "contamination" in params or ("false_alarm_rate" in params and self.contamination is None):
                self._set_threshold()
        return self

    def _set_threshold(self) -> None:
        """The threshold by the parameters: the log of the rate of alarms, or the quantile of the remembered scores."""
        share = self.contamination
        self.offset_ = float(np.log(self.false_alarm_rate if share is None else share))
        if share is not None:
            self._scores_ = self._scores_ if len(self._scores_) else np.full(SCORES, np.nan)
            self._take_quantile(share)

    def _resize_guard(self) -> None:
        """As many places for rows that are held back as `patience` says; the latest rows stay."""
        guard, room = self._state_.guard, int(self.patience)
        if len(guard.rows) == room:
            return
        self._validate_params()
        _check_patience(room, self.n_features_in_)
        held = int(guard.held[0])
        kept = np.arange(max(0, held - min(room, len(guard.rows))), held)
        fresh = [np.zeros((room, *values.shape[1:]), values.dtype) for values in guard[:3]]
        for new, old in zip(fresh, guard[:3], strict=True):
            new[: len(kept)] = old[kept % len(old)]
        guard = guard._replace(held=np.full(1, len(kept), np.int64))
        self._state_ = self._state_._replace(guard=guard._replace(rows=fresh[0], statistics=fresh[1], numbers=fresh[2]))

    # -- learning ---------------------------------------------------------------------------------

    # Rows cannot be weighted: no parameter says so before the data do, to scikit-learn as well.
    def fit(self, X: ArrayLike, y: Any = None) -> Self:  # type: ignore[override]
        """Forget everything, then learn the rows of X in their order.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows; NaN where a value was not observed.
        y : ignored
            Present for the scikit-learn interface.

        Returns
        -------
        self
            The fitted detector.
        """
        super().fit(X)
        if self.contamination is not None:
            scores = self.score_samples(X)
            self.offset_ = _quantile(scores, self.contamination)
            # As the model scores them that has learned them all: later rows move the threshold from here.
            rows = np.arange(max(0, len(scores) - SCORES), len(scores))
            self._scores_[rows % SCORES] = scores[rows]
        return self

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Self:  # type: ignore[override]
        """Go on learning from the rows of X in their order, or hold them back.

        Any split of a stream into batches gives the same detector.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The next rows of the stream; NaN where a value was not observed.
        y : ignored
            Present for the scikit-learn interface.

        Returns
        -------
        self
            The detector, further on in the stream.
        """
        return super().partial_fit(X)

    def prequential(self, X: ArrayLike, *, return_columns: bool = False) -> Any:
        """Score each row of X, then learn it or hold it back.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The next rows of the stream.
        return_columns : bool, default=False
            Whether to say which column is to blame.

        Returns
        -------
        scores : ndarray of shape (n_samples,)
            Scores as of `score_samples`, each taken before the row was learned.
        columns : ndarray of shape (n_samples,)
            With `return_columns`: the number of the column to blame for rows whose p-value is below
            `false_alarm_rate`, -1 for the others.
        """
        found = self._advance(X, None, None).reshape(-1, 3)
        return (found[:, 0].copy(), found[:, 1].astype(np.int64)) if return_columns else found[:, 0].copy()

    def _prequential_undiscounted(self, X: ArrayLike) -> Array:
        """As `prequential`, without the chance that rows which are held back will stay.

        It is for callers that judge by themselves what lasts, as `everlearn.watch` does: rows of one fault keep the
        order of how strange they are, and another fault that begins meanwhile stands out.
        """
        return np.array(self._advance(X, None, None).reshape(-1, 3)[:, 2])

    def accept_held(self) -> Self:
        """Learn the rows that are held back now, as if they had lasted for `patience` rows.

        Returns
        -------
        self
            The detector, to which they are a new normal.
        """
        self._check_started()
        if self.n_held_:
            # With no patience, what is held back is due at once, in the same way as after waiting.
            settings = self._settings("guarded")._replace(patience=0.0)
            with HeldInterrupts() as held, self._undone_if_it_fails(held):
                self._state_, released = learn.keep_up(self._state_, settings, self.mixture_)
                for one in released:
                    self._events_ = _with_event(self._events_, 1, one.first, one.last, float(one.rows), -1)
        return self

    def discard_held(self) -> Self:
        """Forget the rows that are held back now: a fault that is over will not become a new normal.

        Returns
        -------
        self
            The detector, without them.
        """
        self._check_started()
        drop_log(self)
        guard: Any = self._state_.guard
        guard.held[0], guard.pressure[0] = 0, 0.0
        return self

    def _check_batch(self, X: ArrayLike, y: Any, sample_weight: Any, *, first: bool) -> Any:
        return self._check_X(X, first=first), None, None

    def _start(self, X: Array, *, whole: bool) -> None:
        if self.learning == "never" and not whole:
            raise InputError('learning="never" learns in `fit` only. Call `fit` with usual rows first.')
        _check_patience(int(self.patience), X.shape[1])
        self.mixture_ = IncrementalGaussianMixture() if self.model is None else clone(self.model)
        self._state_ = learn.init(X.shape[1], self._settings("guarded"))
        self._events_ = _no_events()
        self._prepared_ = learn.Prepared()
        self._scores_ = np.empty(0)
        self._set_threshold()
        self._fitting_ = whole

    def _learn(self, X: Array, y: Any, weights: Any) -> Array:
        # "never" learns the rows of `fit`, as "guarded" does, and holds all later ones back.
        rule = "guarded" if self.learning == "never" and self._fitting_ else self.learning
        self._fitting_ = False
        self._resize_guard()  # `patience` may have been assigned
        before = int(self._state_.clock.rows[0])
        self._state_, info, released = learn.learn(
            self._state_, X, self._settings(rule), self.mixture_, self._prepared_
        )
        self._record(info, released, before, learns=rule != "never")
        found = np.empty((len(X), 3))
        found[:, 0], found[:, 1], found[:, 2] = info.log_p, info.blamed, info.undiscounted
        # Rows without a p-value have the score 0, as of `_scores`.
        found[found != found] = 0.0
        return found

    def _settings(self, rule: str) -> Settings:
        rate, seed = float(self.false_alarm_rate), int(self.random_state)
        return settings_of(rule, rate, int(self.patience), int(self.grace_period), seed, self.n_features_in_)

    def _record(self, info: Info, released: list[keep.Release], before: int, *, learns: bool) -> None:
        below = info.log_p < self.offset_
        if self.contamination is not None and learns:
            below = self._judged(_scores(info), before, self.contamination)
        # Not `below.any()`: it takes three times as long, and rows may come one at a time.
        if not np.count_nonzero(below) and not released:
            return
        log, alarmed = self._events_, np.flatnonzero(below)
        alarmed = alarmed[alarmed + before >= min(self.grace_period, FIRST_EVENT)]
        # In their order: an alarm behind a new normal belongs to no anomaly before it, however rows come in batches.
        for one in [*released, None]:
            n = len(alarmed) if one is None else int(np.searchsorted(alarmed, one.last - before, side="right"))
            for t in alarmed[:n]:
                log = _with_alarm(log, before + int(t), float(info.log_p[t]), int(info.blamed[t]))
            alarmed = alarmed[n:]
            if one is not None:
                log = _with_event(log, 1, one.first, one.last, float(one.rows), -1)
        self._events_ = log

    def _judged(self, scores: Array, before: int, share: float) -> NDArray[np.bool_]:
        """Whether rows lie below the threshold of their time, which moves on at multiples of 100 rows of the stream.

        So any split of a stream gives the same thresholds and events.
        """
        if not len(self._scores_):
            self._scores_ = np.full(SCORES, np.nan)
        below, start = np.zeros(len(scores), np.bool_), 0
        while start < len(scores):
            end = min(len(scores), start + THRESHOLD_ROWS - (before + start) % THRESHOLD_ROWS)
            below[start:end] = scores[start:end] < self.offset_
            self._scores_[np.arange(before + start, before + end) % SCORES] = scores[start:end]
            if (before + end) % THRESHOLD_ROWS == 0:
                self._take_quantile(share)
            start = end
        return below

    def _take_quantile(self, share: float) -> None:
        """Take the threshold from the remembered scores, once there are enough."""
        known = self._scores_[~np.isnan(self._scores_)]
        if len(known) >= ENOUGH_SCORES:
            self.offset_ = _quantile(known, share)

    # -- answers ----------------------------------------------------------------------------------

    def score_samples(self, X: ArrayLike) -> Array:
        """Log p-value of each row, as if it were the next of the stream; lower is stranger.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN where a value was not observed.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log p-values; 0 while too little was learned.
        """
        return _scores(self._asked(X)[1])

    def p_value(self, X: ArrayLike) -> Array:
        """Probability that a usual row is at least as strange as each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, each taken as the next of the stream.

        Returns
        -------
        ndarray of shape (n_samples,)
            p-values: about uniform on rows of the same law as those learned.
        """
        return np.exp(self.score_samples(X))

    def decision_function(self, X: ArrayLike) -> Array:
        """Score above the threshold: negative for rows that raise an alarm.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, each taken as the next of the stream.

        Returns
        -------
        ndarray of shape (n_samples,)
            ``score_samples(X) - offset_``.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Whether each row is usual.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, each taken as the next of the stream.

        Returns
        -------
        ndarray of shape (n_samples,)
            -1 for rows that raise an alarm, +1 for the others.
        """
        return np.where(self.decision_function(X) < 0.0, -1, 1)

    def explain(self, X: ArrayLike) -> ask.Explanation:
        """What makes each row strange, column by column.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, each taken as the next of the stream.

        Returns
        -------
        Explanation
            Of each row the p-value and the views; of each column the blame, the exact p-value, mean and 90 % interval
            given the other columns, and the prediction from its own past. ``text(i)`` puts row i into words.

        Examples
        --------
        >>> import numpy as np
        >>> from everlearn import AnomalyDetector
        >>> rng = np.random.default_rng(0)
        >>> heat = rng.normal(50, 5, 3000)
        >>> X = np.column_stack([heat, heat / 2 + rng.normal(0, 1, 3000)])
        >>> detector = AnomalyDetector().fit(X)
        >>> found = detector.explain([[50.0, 40.0]])
        >>> int(found.blame[0].argmax())
        1
        >>> bool(23 < found.low[0, 1] < found.high[0, 1] < 27)
        True
        """
        self._check_started()
        rows = self._check_X(X)
        return ask.explain(self._state_, rows, self._settings(self.learning), self._column_names(), self._prepared_)

    def _explain_seen(self, row: int) -> ask.Explanation | None:
        """As `explain`, of a row of the stream after the rows before it; None if it is not among the latest 2,048."""
        return ask.explain_seen(self._state_, row, self._settings(self.learning), self._column_names())

    def _column_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"column {j}" for j in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    def _asked(self, X: ArrayLike) -> tuple[Array, Info]:
        self._check_started()
        rows = self._check_X(X)
        return rows, ask.score(self._state_, rows, self._settings(self.learning), self._prepared_)

    @property
    def events_(self) -> list[AnomalyEvent]:
        """The latest anomalies and new normals, in their order."""
        self._check_started()
        log = self._events_
        slots = np.arange(max(0, log.size - MAX_EVENTS), log.size) % MAX_EVENTS
        return [
            AnomalyEvent(
                KINDS[log.kinds[i]], int(log.first[i]), int(log.last[i]),
                float(np.exp(log.values[i]) if log.kinds[i] == 0 else log.values[i]), int(log.columns[i]),
            )
            for i in slots
        ]  # fmt: skip

    def _answers(self) -> DetectorAnswers | None:
        mixture = self.mixture_._answers() if self.mixture_._is_started() else None
        if not isinstance(mixture, Answers | FactorAnswers):
            return None
        events = self.events_
        numbers = np.array([(e.row, e.last, e.column) for e in events], dtype=np.int64).reshape(-1, 3).T.copy()
        return DetectorAnswers(
            *self._identity(), mixture, float(self.false_alarm_rate), self.n_held_,
            np.array([event.kind != "anomaly" for event in events], dtype=bool), numbers[0], numbers[1],
            np.array([event.value for event in events], dtype=np.float64), numbers[2],
        )  # fmt: skip

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows of its stream; a merged detector goes on in that of the first."""
        self._check_started()
        return int(self._state_.clock.rows[0])

    @property
    def n_held_(self) -> int:
        """Number of rows that are held back."""
        self._check_started()
        return int(min(self._state_.guard.held[0], len(self._state_.guard.rows)))

    @property
    def held_rows_(self) -> Array:
        """The rows that are held back, in their order; the latest `patience` of them."""
        self._check_started()
        guard, n = self._state_.guard, self.n_held_
        held = int(guard.held[0])
        return guard.rows[np.arange(held - n, held) % len(guard.rows)]

    @property
    def keeps_rows_(self) -> bool:
        """Whether the model, and with it its file, holds rows of the stream."""
        return True

    def _rows_inside(self) -> int:
        # Beside those of the mixture: a sample, rows of the season, those held back and those of the warm-up.
        state = self._state_
        sets = (state.sample.rows, state.season.ring, state.guard.rows, state.pending.rows)
        inside = self.mixture_._rows_inside() + sum(int((rows != 0.0).any(axis=1).sum()) for rows in sets)
        return min(inside, self.n_samples_seen_)  # a row may be in several of them

    def _rows_of_components(self) -> Array:
        return self.mixture_._rows_of_components()

    def anonymised(self, min_rows: int = MIN_ROWS) -> Self:
        """Refused: p-values are ranks among rows that the detector keeps. Its mixture has a copy without rows.

        Parameters
        ----------
        min_rows : int, default=20
            Rows that a component stands for at least.

        Returns
        -------
        AnomalyDetector
            Never.
        """
        raise InputError(
            "AnomalyDetector has no copy without its rows: its p-values are ranks among rows that it keeps. Its "
            f"mixture has one: model.mixture_.anonymised(min_rows={min_rows})."
        )

    # -- values -----------------------------------------------------------------------------------

    def _merge(self, others: list[Self], *, method: str, weights: Any, n_components: int | None) -> Self:
        new = self.copy()
        mixtures = [other.mixture_ for other in others]
        new.mixture_ = self.mixture_.merge(*mixtures, method=method, weights=weights, n_components=n_components)
        for other in others:
            new._state_ = merge.merged(new._state_, other._state_, new._settings("guarded"), new.mixture_)
        return new

    def _to_save(self) -> dict[str, Any]:
        if self._is_started():
            self._resize_guard()  # a file has as many places as its `patience` says
        return super()._to_save()

    def _check_loaded(self) -> None:
        state = getattr(self, "_state_", None)
        if not isinstance(state, State) or not isinstance(getattr(self, "_events_", None), EventLog):
            raise ModelFileError("the file holds no state of an anomaly detector.")
        if not isinstance(self.offset_, float) or not np.isfinite(self.offset_):
            raise ModelFileError(f"the file holds no level of alarms: offset_ is {self.offset_!r}, no number.")
        checked.check_events(self._events_, _no_events())
        scores = self.__dict__.setdefault("_scores_", np.empty(0))  # files of an earlier version have none
        known = isinstance(scores, np.ndarray) and scores.dtype == np.float64
        if not known or scores.shape not in ((0,), (SCORES,)):
            raise ModelFileError(f"the detector's scores must be float64 of shape (0,) or ({SCORES},).")
        if state.far is None:
            state = state._replace(far=learn.init_far())
        if state.recent is None:
            recent, lasting = learn.init_lasting()
            state = state._replace(recent=recent, lasting=lasting)
        if state.among is None:
            state = state._replace(among=learn.init_among())
        self._prepared_ = learn.Prepared()
        # A sample is uniform in the room in which it began: that of an earlier version's file stays smaller.
        fresh = learn.init(
            self.n_features_in_, self._settings("guarded"), checked.sample_room(state, learn.SAMPLE_ROWS)
        )
        state = checked.with_diagonal_errors(checked.with_least_independent(state, fresh))
        self._state_ = state
        checked.check_state(state, fresh)


@functools.lru_cache(maxsize=64)
def settings_of(rule: str, rate: float, patience: int, grace: int, seed: int, D: int) -> Settings:
    """Settings of the kernels; the same object for the same parameters, so that what was made with it stays."""
    names = list(STATISTICS)
    usual = {name: values[min(D, len(values)) - 1] for name, values in USUAL_HEAVINESS.items()}
    slow = {f"{kind}_{int(tau)}": int(0.4 * tau) for kind in ("level", "drift", "own", "joint") for tau in TIME_SCALES}
    return Settings(
        false_alarm_rate=rate,
        guard_level=max(GUARD_LEVEL, rate),
        patience=float(patience),
        learning=("never", "guarded", "always").index(rule),
        grace=grace,
        time_scales=np.array(TIME_SCALES),
        strides=np.array([slow.get(name, 1) for name in names]),
        views=np.array([VIEWS.index(STATISTICS[name]) for name in names]),
        weights=np.array([WEIGHTS[view] for view in VIEWS]),
        usual_heaviness=np.array([usual.get(name, 0.0) for name in names]),
        sharpness=SHARPNESS,
        persistence=PERSISTENCE,
        persistence_rows=PERSISTENCE_ROWS,
        most_persistent=MOST_PERSISTENT,
        seed=seed,
    )


def _check_patience(patience: int, D: int) -> None:
    """Refuse to hold back more rows than fit into memory."""
    needed = 8 * patience * (D + len(STATISTICS) + 1)
    if needed > MOST_HELD_BYTES:
        most = MOST_HELD_BYTES // (8 * (D + len(STATISTICS) + 1))
        raise InputError(
            f"patience={patience:,} is too many: so many rows of {D} columns that are held back take "
            f"{needed / 2**30:,.1f} GiB. Give {most:,} or fewer; or call `discard_held` when a fault is over, or take "
            'learning="never", so that nothing becomes a new normal.'
        )


def _scores(info: Info) -> Array:
    return np.where(np.isnan(info.log_p), 0.0, info.log_p)


def _quantile(scores: Array, share: float) -> float:
    return float(np.quantile(scores, share))


def _no_events() -> EventLog:
    kinds, first, last, columns = (np.zeros(MAX_EVENTS, np.int64) for _ in range(4))
    return EventLog(kinds, first, last, np.zeros(MAX_EVENTS), columns, 0)


def _with_event(log: EventLog, kind: int, first: int, last: int, value: float, column: int) -> EventLog:
    """The log with one more event; its arrays change in place."""
    i = log.size % MAX_EVENTS
    log.kinds[i], log.first[i], log.last[i], log.values[i], log.columns[i] = kind, first, last, value, column
    return log._replace(size=log.size + 1)


def _with_alarm(log: EventLog, row: int, log_p: float, column: int) -> EventLog:
    """The log with one more alarm: part of the last event if that is an anomaly of a few rows ago."""
    i = (log.size - 1) % MAX_EVENTS
    if log.size == 0 or log.kinds[i] != 0 or row > log.last[i] + GAP:
        return _with_event(log, 0, row, row, log_p, column)
    log.last[i] = row
    if log_p < log.values[i]:
        log.values[i], log.columns[i] = log_p, column
    return log
