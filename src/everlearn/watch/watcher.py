"""Watcher: rows and their times in, episodes out."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from everlearn.anomaly.estimator import AnomalyDetector
from everlearn.errors import InputError
from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.streams.prequential import restored_count
from everlearn.streams.sources.times import TimeFormat
from everlearn.typing import Array
from everlearn.watch.drift import LASTING, DriftCheck
from everlearn.watch.episodes import ACCEPTED, ALARM, OVER, SEVERITIES, Blame, Episode
from everlearn.watch.evidence import BEYOND_DOUBT, LEAST_SHARE, UNKNOWN, Unusual
from everlearn.watch.expectation import Expectation, explanation_of
from everlearn.watch.json_arrays import array_of, json_list, json_value
from everlearn.watch.rates import parse_rate
from everlearn.watch.sensors import FIRST_STEPS, GAP_FACTOR, PaceCheck, SensorChecks, Steps
from everlearn.watch.sentences import sentence
from everlearn.watch.severity import is_sure, severity_of_absence, severity_of_departure
from everlearn.watch.state import SensorMarks
from everlearn.watch.verdicts import Verdict, departure, restored_verdict

CHUNK = 32  # rows between two explanations: each takes as long as several rows
QUIET_SECONDS = 300.0  # without an alarm, after which an episode is over
QUIET_ROWS = 10
# Rows of an open episode may be ten times as probable as those that begin one: it does not flicker.
HYSTERESIS = 10.0
LEAST_INTERVAL, MOST_INTERVAL = 1e-6, 1e9  # seconds between two rows that can be meant
WARM_UP_ROWS = 600
MOST_WAITING = 10_000  # rows whose pace is not known
# The detector keeps the rows of an episode until they are accepted or over: at most so many.
MOST_HELD = 50_000
CONFIRMED_ROWS = 3
MOST_MARKS = 200
# A drift is looked for in episodes of twenty minutes; it is over when the value is off by no more than three usual
# errors.
DRIFT_SECONDS, DRIFT_BACK, DRIFT_LEFT = 1200.0, 3.0, 0.6
FIRST_PROBE = 200  # row, when the detector has learned what it learns in any case
PROBE_SECONDS = 20.0  # between two questions what is expected of each sensor
# Where a value has jumped, by so many usual changes from a probe to the next or within five minutes, the long-run
# relation between the sensors is not asked: two sensors that go together look like a new range.
JUMP = 8.0
LEAST_DOF = 4.0  # degrees of freedom from which the relation is asked
# A sensor that appears is watched with the others after so many rows: the units of the detector's view of the past are
# fixed at row 640, of which 400 are the sample of what was known before.
GROWING_ROWS = 700
GUARD = math.log(1e-2)  # rows less probable than this are not learned for a sensor that appeared
LEAST_SILENCE = 10.0  # seconds without rows that a live stream may have at any pace
FORMAT = 2  # of what a state file keeps of a watcher
_MOST_BANDS = 1000  # answers that are kept for a history
SAME_ROWS = 10  # between the beginnings of what is one episode


class Row(NamedTuple):
    """Place of a row in the stream."""

    number: int
    time: float


class Band(NamedTuple):
    """What was expected of each sensor at a row: 90 % of its values given the others; NaN while unknown."""

    row: int
    low: Array
    high: Array


class Fault:
    """An episode of a sensor, or of the pace of the stream, that lasts."""

    def __init__(self, kind: str, columns: list[int], episode: Episode) -> None:
        self.kind, self.columns, self.episode = kind, columns, episode


class Watcher:
    """Watches a stream of rows and tells what happened, in episodes.

    Unusual rows are found by an `AnomalyDetector` that learns usual rows only; sensors that are frozen or gone, missing
    rows and a changed sampling rate are found by checks of their own. The values of a faulty sensor are kept from the
    detector, which goes on with the other sensors.

    Parameters
    ----------
    columns : sequence of str
        Names of the sensors.
    false_alarms : str, default="1/day"
        False alarms that may be raised, such as "1/day", "2/week" or "1/10000rows".
    accept_after : float, default=3600.0
        Seconds (rows, where there are no times) after which what lasts is accepted as a new normal.
    time_format : TimeFormat, optional
        How the times of the stream are shown.
    random_state : int, default=0
        Seed of the detector.

    Attributes
    ----------
    detector : AnomalyDetector
        The detector.
    started : bool
        Whether the pace of the stream is known, which the detector waits for.
    n_rows : int
        Rows seen.
    rows_before : int
        Rows that were learned before the stream: those of episodes are counted from behind them.
    interval : float or None
        Usual seconds from a row to the next; None for a stream without times.

    Examples
    --------
    >>> import numpy as np
    >>> from everlearn.watch.watcher import Watcher
    >>> rng = np.random.default_rng(0)
    >>> load = rng.normal(50, 5, 4000)
    >>> X = np.column_stack([load, load / 2 + rng.normal(0, 1, 4000)])
    >>> X[3000:3100, 1] += 15.0
    >>> watcher = Watcher(["load", "heat"], false_alarms="1/day")
    >>> episodes = watcher.watch(X, times=np.arange(4000.0))
    >>> [(episode.kind, episode.first_row, episode.blamed[0]) for episode in episodes]
    [('unusual', 3000, 'heat')]
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        false_alarms: str = "1/day",
        accept_after: float = 3600.0,
        time_format: TimeFormat | None = None,
        random_state: int = 0,
    ) -> None:
        if not accept_after > 0:
            raise InputError(f"accept_after must be a number of seconds above 0; got {accept_after!r}.")
        self.columns = list(columns)
        self.false_alarms = parse_rate(false_alarms)
        self.accept_after = float(accept_after)
        self.time_format = time_format
        self.random_state = random_state
        self.detector = AnomalyDetector()
        self.started = False
        self.interval: float | None = None
        self.n_rows = self.n_episodes = self.rows_before = 0
        self._sensors = SensorChecks(len(self.columns))
        self._pace = PaceCheck()
        self._waiting: list[tuple[Array, Array | None]] = []  # rows before the pace is known
        self._unusual: Unusual | None = None
        self._faults: list[Fault] = []
        self._expectation = Expectation(len(self.columns))
        self._bands: deque[Band] = deque(maxlen=_MOST_BANDS)
        self._drift = DriftCheck(len(self.columns))
        self._next_drift: DriftCheck | None = None  # of all sensors, while it learns those that appeared
        self._steps = Steps(len(self.columns))
        self._probe_rows = 1  # until the pace of the stream is known
        self._disturbed = -(1 << 62)  # row at which a sensor's fault began or ended
        self._normal: list[Verdict] = []  # marked as normal by a person
        self._fault: list[Verdict] = []  # marked as a fault
        self._changed: dict[int, Episode] = {}  # episodes that began, changed or ended in this call
        self._growing = 0  # columns, the last ones, that the detector does not see yet
        self._gathered: list[Array] = []  # usual rows since they appeared

    # -- rows in ----------------------------------------------------------------------------------

    def learn(self, X: Array, times: Array | None = None) -> None:
        """Learn rows that are known to be healthy: all of them, without alarms.

        Parameters
        ----------
        X : ndarray of shape (n, D)
            Rows, NaN where a value was not observed.
        times : ndarray of shape (n,), optional
            Seconds since 1970 of each row.
        """
        for rows, moments in self._ready(X, times):
            for moment in [] if moments is None else moments.tolist():
                self._pace.step(moment)
            for start in range(0, len(rows), CHUNK):
                whole = rows[start : start + CHUNK]
                # Before the detector and on all columns: what a frozen sensor usually does is learned for those that
                # have just appeared, too.
                self._sensors.check(whole, self._rate)
                part = whole[:, : self._n_watched]
                scores = self._advance(part, "always")
                self._probe(part, learns=True)
                for i in self._probe_places(part):
                    self._compare(part[i], learns=True, renews=True)
                self._steps.take(part, learns=True)
                self._gather(whole, scores > -math.inf)  # last: the detector may see more columns behind it

    def watch(self, X: Array, times: Array | None = None) -> list[Episode]:
        """Take the next rows; returns the episodes that began, changed or ended, each as it is now.

        Parameters
        ----------
        X : ndarray of shape (n, D)
            Rows, NaN where a value was not observed.
        times : ndarray of shape (n,), optional
            Seconds since 1970 of each row.
        """
        self._changed = {}
        for rows, moments in self._ready(X, times):
            for start in range(0, len(rows), CHUNK):
                part = slice(start, start + CHUNK)
                self._watch_chunk(rows[part], None if moments is None else moments[part])
        return [self._told(episode) for episode in self._changed.values()]

    def silence(self, seconds: float) -> list[Episode]:
        """Take note that no row came for so long; returns the episode of it when it begins or becomes an alarm.

        Parameters
        ----------
        seconds : float
            Time since the latest row came, by the clock of this machine.
        """
        self._changed = {}
        longest = math.inf if self.interval is None else max(LEAST_SILENCE, GAP_FACTOR * self.interval)
        silence = self._fault_of_stream("no data")
        if silence is not None and silence.episode.severity != (now := severity_of_absence(seconds, QUIET_SECONDS)):
            silence.episode = self._change(silence.episode._replace(severity=now))
        elif seconds > longest and silence is None:
            last = Row(max(self.n_rows - 1, 0), self._pace.last)
            episode = Episode(self._new_number(), "no data", *2 * (last.number,), *2 * (last.time,), p_value=0.0)
            self._faults.append(Fault("no data", [], self._change(episode)))
        return [self._told(episode) for episode in self._changed.values()]

    @property
    def expected(self) -> tuple[Array, Array]:
        """Where 90 % of the values of each sensor are expected given the others, of late; NaN while unknown."""
        unknown = np.full(self._growing, np.nan)
        low, high = (np.concatenate([x, unknown]) for x in (self._expectation.low, self._expectation.high))
        return low, high

    def take_bands(self) -> list[Band]:
        """What was expected since the last call, as often as it was asked: at most the latest thousand answers."""
        found = list(self._bands)
        self._bands.clear()
        return found

    @property
    def n_stream_rows(self) -> int:
        """Rows of the stream that is watched, those included that wait for its pace to be known."""
        return self.n_rows + sum(len(X) for X, _ in self._waiting) - self.rows_before

    # -- sensors that appear ----------------------------------------------------------------------

    @property
    def _n_watched(self) -> int:
        """Columns that the detector sees."""
        return len(self.columns) - self._growing

    def grow(self, columns: Sequence[str]) -> None:
        """Take sensors that appeared: all later rows have them behind the others.

        They are checked for frozen and missing values at once. The detector goes on with the others until there are
        700 usual rows with the new ones, of which, and of its sample of the rows before, it then learns anew.

        Parameters
        ----------
        columns : sequence of str
            Names of the new sensors.
        """
        if known := [column for column in columns if column in self.columns]:
            raise InputError(f"The sensors {', '.join(known)} are watched already. Give names of new ones.")
        n = len(columns)
        self.columns += columns
        self._sensors.grow(n)
        self._waiting = [(_padded(X, len(self.columns)), times) for X, times in self._waiting]
        if self.n_rows == 0:  # nothing was learned that would have to be kept
            self._expectation.grow(n)
            self._steps.grow(n)
            self._drift = DriftCheck(len(self.columns))
            return
        self._growing += n
        self._gathered = []

    def _gather(self, X: Array, usual: Any) -> None:
        """Keep the usual rows since a sensor appeared; the detector is made anew when there are enough."""
        if not self._growing:
            return
        seen = ~np.isnan(X[:, self._n_watched :]).all(axis=1)
        self._gathered += list(X[usual & seen])
        if len(self._gathered) < GROWING_ROWS or self._unusual is not None:
            return
        sample: Any = self.detector._state_.sample
        before, gathered = sample.rows[: int(sample.size[0])], np.array(self._gathered)
        # What the new sensors would have said before is drawn given the others. Gaps there would be the most usual
        # thing of all, and the first values after them an outlier that nothing else stands out beside.
        model = IncrementalGaussianMixture(random_state=self.random_state).fit(gathered)
        fresh = list(range(self._n_watched, len(self.columns)))
        drawn = model.sample_columns(_padded(before, len(self.columns)), fresh)[:, 0]
        self.detector = self._new_detector()
        self._advance(np.concatenate([np.column_stack([before, drawn]), gathered]), "always")
        self._expectation.grow(self._growing)
        self._steps.grow(self._growing)
        self._next_drift = DriftCheck(len(self.columns))
        self._growing, self._gathered = 0, []

    def _ready(self, X: Array, times: Array | None) -> list[tuple[Array, Array | None]]:
        """Rows that can be taken: those that waited for the pace of the stream to be known, and the new ones."""
        if self.started:
            return [(X, times)]
        self._waiting.append((X, times))
        known = np.concatenate([moments for _, moments in self._waiting if moments is not None] or [np.empty(0)])
        # The rate of false alarms is given per day and needs the seconds between rows: until ten steps are known, rows
        # wait.
        steps = np.diff(known[~np.isnan(known)])
        steps = steps[steps > 0]
        if times is not None and len(steps) < FIRST_STEPS:
            if sum(len(rows) for rows, _ in self._waiting) > MOST_WAITING:
                raise InputError(
                    f"The times of the first {MOST_WAITING:,} rows do not rise, so that their pace is not known. Name "
                    "another column with --time, or --time '' for none, with a rate in rows (--false-alarms "
                    "1/10000rows)."
                )
            return []
        usual = float(np.median(steps[:100])) if len(steps) else None
        self._start(None if usual is None else min(max(usual, LEAST_INTERVAL), MOST_INTERVAL))
        ready, self._waiting = self._waiting, []
        return ready

    def _start(self, interval: float | None) -> None:
        self.interval, self.started = interval, True
        self._rate = self.false_alarms.per_row(interval)
        self._quiet = QUIET_ROWS if interval is None else max(QUIET_ROWS, math.ceil(QUIET_SECONDS / interval))
        self._accept_rows = math.ceil(self.accept_after / (interval or 1.0)) + 1
        self._probe_rows = max(1, round(PROBE_SECONDS / (interval or 1.0)))
        self._drift_rows = math.ceil(DRIFT_SECONDS / (interval or 1.0))
        self._steps.stride = self._probe_rows
        self.detector = self._new_detector()

    def _new_detector(self) -> AnomalyDetector:
        patience = min(self._accept_rows, MOST_HELD)
        return AnomalyDetector(min(self._rate, 1e-3), patience=patience, random_state=self.random_state)

    def _advance(self, X: Array, learning: str) -> Array:
        """Scores of rows, which the detector learns by a rule."""
        self.detector.learning = learning
        # What lasts is judged here, by episodes. Discounted p-values would order the rows of an episode by their time
        # and hide a fault that begins while the rows of another one are held back (benchmarks/pump.py).
        return self.detector._prequential_undiscounted(X)

    def _probe(self, X: Array, *, learns: bool) -> None:
        """Count rows, and ask now and then what is expected of each sensor."""
        before, self.n_rows = self.n_rows, self.n_rows + len(X)
        if self.n_rows >= FIRST_PROBE and self.n_rows // self._probe_rows > before // self._probe_rows:
            self._expectation.take(self.detector.explain(X[-1:]), learns=learns)
            self._bands.append(Band(self.n_rows - 1, *self.expected))

    def _probe_places(self, X: Array) -> range:
        """Rows of a chunk that was counted which are probes: the same ones, whatever the batches are."""
        # `_probe` has counted the chunk already.
        first = self.n_rows - len(X)
        return range(-first % self._probe_rows, len(X), self._probe_rows)

    def _compare(self, x: Array, *, learns: bool, renews: bool) -> int | None:
        """Compare a row with what was learned an hour or two ago; returns the sensor that drifts."""
        for check in (self._drift, self._next_drift):
            if check is not None and renews:
                check.renew(math.ceil(self._accept_rows / self._probe_rows))
        if self._next_drift is not None:
            self._next_drift.take(x[: self._next_drift.n_columns], learns=learns)
            if self._next_drift.is_ready:
                self._drift, self._next_drift = self._next_drift, None
        return self._drift.take(x[: self._drift.n_columns], learns=learns)

    def _errors(self, x: Array, steps: Array) -> Array:
        """How far each value is from its long-run relation to the others, in standard errors.

        One that jumped is off beyond doubt, and so is any that the relation does not know yet.
        """
        known = self._drift.n_columns
        errors = np.full(len(x), UNKNOWN)
        if self._drift.relation.dof > LEAST_DOF:
            errors[:known] = np.abs(self._drift.relation.errors(x[:known]))
        return np.where((steps > JUMP).any(axis=0), np.maximum(errors, BEYOND_DOUBT), errors)

    # -- one chunk --------------------------------------------------------------------------------

    def _watch_chunk(self, X: Array, times: Array | None) -> None:
        rows = [Row(self.n_rows + i, math.nan if times is None else float(times[i])) for i in range(len(X))]
        self._follow_pace(rows)
        marks = self._sensors.check(X, self._rate)
        self._follow_sensors(marks, X, rows)
        # The detector sees a faulty sensor as a gap: it neither learns its values nor blames others for them.
        whole = np.where(marks.frozen | marks.gone, np.nan, X)
        seen, X = whole[:, : self._n_watched].copy(), X[:, : self._n_watched]
        self._follow_drift(seen, rows)
        seen[:, [j for fault in self._faults if fault.kind == "drift" for j in fault.columns]] = np.nan
        held = self._n_held
        scores = self._advance(seen, "guarded")
        released = self._n_held < held
        calm = self._unusual is None
        self._probe(seen, learns=calm)
        self._check_drift(X, seen, rows)
        self._follow_alarms(seen, scores, rows)
        self._steps.take(seen, learns=calm)
        if released and self._unusual is not None:
            self._end_unusual(ACCEPTED, rows[-1])
        elif self._unusual is not None and self.n_rows - self._unusual.episode.last_row > self._quiet:
            self._end_unusual(OVER, None)
        self._gather(whole, scores > GUARD)

    @property
    def _n_held(self) -> int:
        return self.detector.n_held_ if self.n_rows else 0

    def _new_number(self) -> int:
        self.n_episodes += 1
        return self.n_episodes

    def _change(self, episode: Episode) -> Episode:
        self._changed[episode.number] = episode
        return episode

    # -- unusual rows -----------------------------------------------------------------------------

    def _follow_alarms(self, X: Array, scores: Array, rows: list[Row]) -> None:
        """Begin an episode at the first alarm, or go on with the one that lasts."""
        begins = np.flatnonzero(scores < math.log(self._rate))
        # The detector scores from its first rows on; what it knows by then says nothing about what is usual.
        begins = begins[begins + rows[0].number >= WARM_UP_ROWS]
        if self._unusual is None:
            if not len(begins) or not self._begin_unusual(X, scores, rows, int(begins[0])):
                return
            first = int(begins[0])
        else:
            first = 0
        # With the rate of an open episode, which is easier to reach than that which begins one.
        alarmed = first + np.flatnonzero(scores[first:] < math.log(HYSTERESIS * self._rate))
        if len(alarmed):
            self._extend_unusual(X, scores, rows, alarmed)

    def _begin_unusual(self, X: Array, scores: Array, rows: list[Row], i: int) -> bool:
        """Begin an episode at row i, unless a sensor failed or came back just now, which disturbs the detector."""
        if rows[i].number - self._disturbed <= self._quiet:
            return False
        explanation = self.detector.explain(X[i : i + 1])
        column = int(np.argmax(explanation.blame[0]))
        found = Blame(self.columns[column], 1.0, *(float(values[0, column]) for values in explanation_of(explanation)))
        # Asked before an episode begins: what a person called normal leaves no trace, not even an untold episode.
        if any(known.holds(found) for known in self._normal):
            return False
        episode = Episode(0, "unusual", rows[i].number, rows[i].number, rows[i].time, rows[i].time)
        self._unusual = Unusual(episode._replace(n_alarms=0), self._n_watched)
        sizes, errors = self._expectation.sizes(explanation), self._errors(X[i], self._steps.sizes(X)[:, i])
        self._unusual.take(explanation, rows[i].number, float(scores[i]), sizes, errors)
        # From here on the rows that are held back are those of this episode: only they may become a new normal.
        self.detector.discard_held()
        return True

    def _extend_unusual(self, X: Array, scores: Array, rows: list[Row], alarmed: Any) -> None:
        """Go on with the episode that lasts, or, from the row on in which another sensor jumps, with another one."""
        steps = self._steps.sizes(X)
        another = self._first_of_another(X, steps[0], scores, rows, alarmed)
        if another is not None:
            before, alarmed = alarmed[alarmed < another], alarmed[alarmed >= another]
            if len(before):
                self._add_evidence(X, scores, rows, before, steps)
            if self._unusual is not None:
                self._end_unusual(OVER, None)
            if not self._begin_unusual(X, scores, rows, another):
                return
        self._add_evidence(X, scores, rows, alarmed, steps)

    def _first_of_another(self, X: Array, steps: Array, scores: Array, rows: list[Row], alarmed: Any) -> int | None:
        """The first row of another episode: a sensor has jumped that this one does not blame, and not as it began."""
        assert self._unusual is not None
        episode = self._unusual.episode
        # What was not told of yet is soon given up: it would take its age along when it is accepted as normal.
        age = self._quiet if episode.number else CHUNK
        jumped = steps > JUMP
        jumped[:, self._unusual.order()[:2]] = False
        some = np.asarray(jumped.any(axis=1))
        begins = alarmed[some[alarmed] & (scores[alarmed] < math.log(self._rate))]
        for i in begins[begins + rows[0].number - episode.first_row > age].tolist():
            blame = self.detector.explain(X[i : i + 1]).blame[0]
            if (jumped[i] & (blame > LEAST_SHARE * blame.sum())).any():
                return int(i)
        return None

    def _add_evidence(self, X: Array, scores: Array, rows: list[Row], alarmed: Any, steps: Array) -> None:
        """Add the worst of the unusual rows to the evidence of the episode, if they belong to it."""
        assert self._unusual is not None
        worst = int(alarmed[np.argmin(scores[alarmed])])
        explanation = self.detector.explain(X[worst : worst + 1])
        sizes, errors = self._expectation.sizes(explanation), self._errors(X[worst], steps[:, worst])
        if self._unusual.episode.number and not self._unusual.lasts(explanation, sizes, errors):
            return
        self._unusual.take(explanation, rows[worst].number, float(scores[worst]), sizes, errors)
        before, last = self._unusual.episode, rows[int(alarmed[-1])]
        p, n = min(before.p_value, math.exp(float(scores[worst]))), before.n_alarms + len(alarmed)
        severity = severity_of_departure(n, self._unusual.size, sure=is_sure(p, self._rate))
        self._unusual.episode = before._replace(
            last_row=last.number, end=last.time, p_value=p, n_alarms=n,
            severity=ALARM if self._like_a_fault() else max(before.severity, severity, key=SEVERITIES.index),
            sensors=self._unusual.sensors(self.columns),
        )  # fmt: skip
        if not before.number and self._is_confirmed(self._unusual):
            self._confirm(rows[worst])
        if self._unusual.episode.number:
            self._change(self._unusual.episode)
            if last.number - before.first_row >= self._drift_rows:
                self._look_for_drift()

    def _confirm(self, row: Row) -> None:
        """Give the episode its number, now that it is told: those that are not confirmed leave no holes."""
        assert self._unusual is not None
        episode = self._unusual.episode._replace(number=self._new_number())
        if row.number - episode.first_row > self._quiet:
            # Rows that were unusual for long, and no sensor off, are not the beginning of this: it must not be accepted
            # as normal by their age.
            episode = episode._replace(first_row=row.number, begin=row.time)
            self.detector.discard_held()
        self._unusual.episode = episode

    def _like_a_fault(self) -> bool:
        """Whether the episode looks like one that a person marked as a fault."""
        assert self._unusual is not None
        first = self._unusual.sensors(self.columns)[0]
        away = departure(first)
        return any(known.sensor == first.sensor and known.departure * away > 0 for known in self._fault)

    def _is_confirmed(self, unusual: Unusual) -> bool:
        """Whether an episode is told.

        One row alone may be a glitch of the line; two are enough beyond doubt. And a sensor to blame must be off by
        more than its expectation usually is.
        """
        beyond_doubt = is_sure(unusual.episode.p_value, self._rate)
        enough = unusual.episode.n_alarms >= (CONFIRMED_ROWS - 1 if beyond_doubt else CONFIRMED_ROWS)
        return enough and bool(unusual.off.any())

    def _end_unusual(self, status: str, row: Row | None) -> None:
        """End the episode of unusual rows; those of a fault that is over will not be learned."""
        assert self._unusual is not None
        episode = self._unusual.episode._replace(status=status)
        if row is not None:
            episode = episode._replace(last_row=row.number, end=row.time)
        if episode.number:
            self._change(episode)
        self._unusual = None
        if status == OVER:
            self.detector.discard_held()
            if episode.number:
                self._drift.restart_averages()
        elif episode.number:
            for check in (self._drift, self._next_drift):
                if check is not None:
                    check.suspend(math.ceil(1.5 * self._accept_rows / self._probe_rows))

    # -- sensors ----------------------------------------------------------------------------------

    def _follow_sensors(self, marks: SensorMarks, X: Array, rows: list[Row]) -> None:
        """Begin, extend and end the episodes of sensors that are frozen or gone."""
        for kind in ("frozen", "gone"):
            marked = getattr(marks, kind)
            for j in np.flatnonzero(marked.any(axis=0)).tolist():
                found = np.flatnonzero(marked[:, j])
                fault = self._fault_of(kind, j) or self._begin_fault(kind, j, marks, X, rows[found[0]])
                last = rows[found[-1]]
                severity = severity_of_absence(last.number - fault.episode.first_row, self._quiet)
                fault.episode = self._change(
                    fault.episode._replace(last_row=last.number, end=last.time, severity=severity)
                )
            # A copy of the list, because ending a fault takes it out.
            for fault in [fault for fault in self._faults if fault.kind == kind]:
                fault.columns = [j for j in fault.columns if marked[-1, j]]
                if not fault.columns:
                    self._end_fault(fault, rows[-1])

    def _fault_of(self, kind: str, column: int) -> Fault | None:
        return next((fault for fault in self._faults if fault.kind == kind and column in fault.columns), None)

    def _begin_fault(self, kind: str, column: int, marks: SensorMarks, X: Array, row: Row) -> Fault:
        """Begin an episode, or add a sensor to one of the same kind that began with it."""
        i = row.number - self.n_rows
        first = int(marks.begin[i, column])
        blame = Blame(self.columns[column], 1.0, float(X[i, column]))
        for fault in self._faults:
            if fault.kind == kind and abs(fault.episode.first_row - first) <= SAME_ROWS:
                fault.columns.append(column)
                sensors = (*(b for b in fault.episode.sensors if b.sensor != blame.sensor), blame)
                fault.episode = fault.episode._replace(sensors=sensors)
                return fault
        # A run is known to be too long only after a while: the episode begins where the run began.
        begin = row.time - (row.number - first) * (self.interval or 0.0)
        # The detector may have been first: a run of equal values is unusual before it is surely frozen.
        number = 0
        if self._unusual is not None and self._unusual.episode.first_row >= first - SAME_ROWS:
            number, self._unusual = self._unusual.episode.number, None
        number = number or self._new_number()
        episode = Episode(number, kind, first, row.number, begin, row.time, p_value=0.0, sensors=(blame,))
        self._faults.append(Fault(kind, [column], episode))
        self._disturbed = row.number
        return self._faults[-1]

    def _end_fault(self, fault: Fault, row: Row) -> None:
        self._faults.remove(fault)
        self._change(fault.episode._replace(status=OVER))
        self._disturbed = row.number

    def _look_for_drift(self) -> None:
        """Turn an episode of one sensor that departs ever farther into one of drift: the sensor is kept out."""
        assert self._unusual is not None
        column = self._unusual.drifting()
        if column is None:
            return
        episode = self._unusual.episode._replace(kind="drift")
        self._faults.append(Fault("drift", [column], self._change(episode)))
        self._unusual = None
        self.detector.discard_held()

    def _check_drift(self, X: Array, seen: Array, rows: list[Row]) -> None:
        """Compare the sensors with what was learned an hour or two ago; begin an episode for one that drifts."""
        drifting = any(fault.kind == "drift" for fault in self._faults)
        quiet = not drifting and rows[-1].number - self._disturbed > self._quiet
        told = self._unusual is not None and self._unusual.episode.number > 0
        found: list[tuple[int, Array, Row]] = []
        for i in self._probe_places(X):
            # The values themselves for a sensor that drifts already, which the detector does not see.
            x = X[i] if drifting else seen[i]
            column = self._compare(x, learns=quiet and not told, renews=not drifting)
            found += [] if column is None else [(column, x, rows[i])]
        if not found or not quiet or told:
            return
        # Unusual rows that were not enough to tell of them are those of the drift.
        self._unusual = None
        self.detector.discard_held()
        column, x, row = found[0]
        low, high = self._expectation.low[column], self._expectation.high[column]
        blame = Blame(self.columns[column], 1.0, float(x[column]), float(low), float(high))
        first = row.number - LASTING * self._probe_rows
        begin = row.time - (row.number - first) * (self.interval or 0.0)
        episode = Episode(self._new_number(), "drift", first, row.number, begin, row.time, sensors=(blame,))
        self._faults.append(Fault("drift", [column], self._change(episode._replace(p_value=0.0))))

    def _follow_drift(self, X: Array, rows: list[Row]) -> None:
        """Go on with sensors that drift: over when they are back, accepted when they have been off for long."""
        for fault in [fault for fault in self._faults if fault.kind == "drift"]:
            explanation = self.detector.explain(X[-1:])
            j, episode, last = fault.columns[0], fault.episode, rows[-1]
            known = self._drift.n_columns
            error = float(self._drift.relation.errors(X[-1, :known])[j]) if j < known else math.nan
            away = float(self._expectation.sizes(explanation)[j])
            # Both must say so: while the sensor is kept out, the mixture does not follow it where it belongs.
            off = away > DRIFT_BACK and not abs(error) <= DRIFT_BACK
            if off or (j < known and self._drift.is_off(j, DRIFT_LEFT)):
                before = episode.sensors[0]
                now = Blame(
                    before.sensor, before.share, *(float(values[0, j]) for values in explanation_of(explanation))
                )
                severity = severity_of_departure(last.number - episode.first_row, away)
                fault.episode = episode = self._change(
                    episode._replace(
                        last_row=last.number, end=last.time, sensors=(now, *episode.sensors[1:]),
                        severity=max(episode.severity, severity, key=SEVERITIES.index),
                    )
                )  # fmt: skip
            long = last.number - episode.first_row > self._accept_rows
            if long or last.number - episode.last_row > self._quiet:
                self._faults.remove(fault)
                self._change(episode._replace(status=ACCEPTED if long else OVER))
                self._disturbed = last.number

    # -- pace -------------------------------------------------------------------------------------

    def _follow_pace(self, rows: list[Row]) -> None:
        """Tell of rows that are missing, and of a sampling rate that changed."""
        for row in rows:
            before = self._pace.last
            step = self._pace.step(row.time)
            fault = self._fault_of_stream("sampling")
            if silence := self._fault_of_stream("no data"):
                self._faults.remove(silence)
                end = max(row.time, silence.episode.begin)
                severity = severity_of_absence(end - silence.episode.begin, QUIET_SECONDS)
                self._change(silence.episode._replace(status=OVER, last_row=row.number, end=end, severity=severity))
            elif step.missing:
                episode = Episode(self._new_number(), "no data", row.number - 1, row.number, before, row.time)
                severity = severity_of_absence(row.time - before, QUIET_SECONDS)
                self._change(episode._replace(status=OVER, p_value=0.0, severity=severity))
            elif step.off_pace:
                self._extend_sampling(fault, row)
            elif fault is not None:
                self._faults.remove(fault)
                self._change(fault.episode._replace(status=OVER))

    def _fault_of_stream(self, kind: str) -> Fault | None:
        return next((fault for fault in self._faults if fault.kind == kind), None)

    def _extend_sampling(self, fault: Fault | None, row: Row) -> None:
        if fault is None:
            blame = Blame("sampling", 1.0, self._pace.present, self._pace.interval, self._pace.interval)
            episode = Episode(self._new_number(), "sampling", row.number, row.number, row.time, row.time, p_value=0.0)
            fault = Fault("sampling", [], episode._replace(sensors=(blame,)))
            self._faults.append(fault)
        fault.episode = self._change(fault.episode._replace(last_row=row.number, end=row.time))
        if row.time - fault.episode.begin >= self.accept_after:
            self._pace.accept()
            self._faults.remove(fault)
            self._change(fault.episode._replace(status=ACCEPTED))

    def _told(self, episode: Episode) -> Episode:
        first, last = (max(0, row - self.rows_before) for row in (episode.first_row, episode.last_row))
        shown = episode._replace(first_row=first, last_row=last)
        return shown._replace(sentence=sentence(shown, self.time_format))

    # -- feedback ---------------------------------------------------------------------------------

    def mark(self, episode: Episode, verdict: str) -> list[Episode]:
        """Take what a person said of an episode; returns the episodes that ended by it.

        Parameters
        ----------
        episode : Episode
            The episode, which may be over.
        verdict : {"normal", "fault", "seen"}
            "normal" ends an episode that lasts, learns its rows, and does not tell of the like again; "fault" makes the
            like an alarm at once; "seen" changes nothing here.
        """
        self._changed = {}
        if episode.sensors and verdict in ("normal", "fault"):
            said = Verdict(episode.number, episode.sensors[0].sensor, departure(episode.sensors[0]))
            kept = self._normal if verdict == "normal" else self._fault
            # A second verdict on an episode takes the place of the first.
            kept[:] = [*(known for known in kept if known.number != said.number), said][-MOST_MARKS:]
        if verdict == "normal":
            self._accept(episode.number)
        return [self._told(found) for found in self._changed.values()]

    def _accept(self, number: int) -> None:
        """End an episode that lasts and take its rows, or its sensor's run, as usual."""
        if self._unusual is not None and self._unusual.episode.number == number:
            self.detector.accept_held()
            self._end_unusual(ACCEPTED, None)
        for fault in [fault for fault in self._faults if fault.episode.number == number]:
            for column in fault.columns:
                self._sensors.forgive(column)
            if fault.kind == "sampling":
                self._pace.accept()
            self._faults.remove(fault)
            self._change(fault.episode._replace(status=ACCEPTED))

    # -- memory -----------------------------------------------------------------------------------

    def memory(self) -> dict[str, Any]:
        """All but the detector, as JSON values."""
        return {
            "format": FORMAT,
            "rows": self.n_rows,
            "episodes": self.n_episodes,
            "started": self.started,
            "interval": self.interval,
            "disturbed": self._disturbed,
            "sensors": self._sensors.memory(),
            "expectation": self._expectation.memory(),
            "drift": [None if check is None else check.memory() for check in (self._drift, self._next_drift)],
            "steps": self._steps.memory(),
            "pace": self._pace.memory(),
            "waiting": [[json_list(X), None if times is None else json_list(times)] for X, times in self._waiting],
            "unusual": None if self._unusual is None else self._unusual.memory(),
            "faults": [[fault.kind, fault.columns, fault.episode.record()] for fault in self._faults],
            "growing": [self._growing, *(json_list(row) for row in self._gathered)],
            "marks": [[list(map(json_value, known)) for known in kept] for kept in (self._normal, self._fault)],
        }

    def restore(self, memory: Any, detector: AnomalyDetector) -> None:
        """Go on from what `memory` gave, with the detector as it was; raises TypeError, ValueError or KeyError.

        Parameters
        ----------
        memory : dict
            What `memory` gave.
        detector : AnomalyDetector
            The detector of the same moment.
        """
        D = len(self.columns)
        growing, *gathered = memory["growing"]
        self._growing = restored_count(growing)
        if not 0 < self._n_watched <= D:
            raise ValueError(f"{growing} of {D} sensors cannot have appeared")
        self._gathered = [array_of(row).reshape(D) for row in gathered]
        self._expectation = Expectation(self._n_watched)
        drift, successor = memory["drift"]
        self._drift = DriftCheck(restored_count(drift["columns"]))
        self._next_drift = None if successor is None else DriftCheck(restored_count(successor["columns"]))
        self.n_rows, self.n_episodes = restored_count(memory["rows"]), restored_count(memory["episodes"])
        self._sensors.restore(memory["sensors"])
        self._pace.restore(memory["pace"])
        self._expectation.restore(memory["expectation"])
        self._drift.restore(drift)
        if self._next_drift is not None:
            self._next_drift.restore(successor)
        self._waiting = [
            (array_of(X).reshape(-1, D), None if times is None else array_of(times)) for X, times in memory["waiting"]
        ]
        if type(memory["started"]) is not bool or (detector._is_started() and not memory["started"]):
            raise ValueError("the detector is not of the moment of the other parts")
        if memory["started"]:
            interval = None if memory["interval"] is None else float(memory["interval"])
            if interval is not None and not LEAST_INTERVAL <= interval <= MOST_INTERVAL:
                raise ValueError(f"{interval} s are no time between two rows")
            self._start(interval)
            self.detector = detector
        self._steps = Steps(self._n_watched, self._probe_rows)
        self._steps.restore(memory["steps"])
        never = -(1 << 62)
        self._disturbed = never if memory["disturbed"] == never else restored_count(memory["disturbed"])
        self._unusual = None if memory["unusual"] is None else Unusual.of(memory["unusual"], self._n_watched)
        self._faults = [Fault(str(kind), [range(D)[j] for j in js], Episode.of(e)) for kind, js, e in memory["faults"]]
        self._normal, self._fault = ([restored_verdict(known) for known in kept] for kept in memory["marks"])
        # Texts for numbers, lists that are too long, fractions for counts: what was read is not what was written.
        if json.loads(json.dumps(self.memory(), allow_nan=False)) != memory:
            raise ValueError("a value is of another kind than belongs there")


def _padded(X: Array, n_columns: int) -> Array:
    """Rows with gaps in the columns behind theirs."""
    return np.column_stack([X, np.full((len(X), n_columns - X.shape[1]), np.nan)])
