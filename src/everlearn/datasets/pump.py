"""A pump over twelve hours: eight sensors, one row per second, with known faults and labels.

The physics is simple and the statistics are those of a plant: strong autocorrelation, sensors that depend on each
other, an ambient temperature that follows the day, and faults of which a density of single rows sees only some.
"""

from __future__ import annotations

import csv
import datetime
import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError
from everlearn.typing import Array

COLUMNS = (
    "suction [bar]",
    "discharge [bar]",
    "flow [m3/h]",
    "speed [rpm]",
    "current [A]",
    "motor temp [°C]",
    "bearing temp [°C]",
    "vibration [mm/s]",
)
SUCTION, DISCHARGE, FLOW, SPEED, CURRENT, MOTOR, BEARING, VIBRATION = range(len(COLUMNS))
START = datetime.datetime(2026, 11, 5, tzinfo=datetime.UTC)
_HOUR = 3600
_SECONDS = 12 * _HOUR
_MISSING = (6 * _HOUR, 6 * _HOUR + 180)  # seconds for which nothing was written
_NOISE = np.array([0.01, 0.02, 0.25, 1.5, 0.12, 0.05, 0.06, 0.04])  # of the sensors, in their units
_LAG_SECONDS = {MOTOR: 600.0, BEARING: 300.0}


class PumpFault(NamedTuple):
    """Something that happened to the pump or to a sensor of it."""

    kind: str
    begin: float
    """Seconds since 1970."""
    end: float
    columns: tuple[int, ...]
    """Numbers of the sensors that show it, the clearest first; none for rows that are missing."""


class PumpStream(NamedTuple):
    """The rows of the stream, and the truth about them."""

    times: Array
    """Seconds since 1970 (n,), in UTC."""
    X: Array
    """What the sensors said (n, 8), NaN where one was out."""
    faults: tuple[PumpFault, ...]

    def is_healthy(self) -> NDArray[np.bool_]:
        """Rows during which no fault was there; the new regime counts as healthy an hour after it began."""
        healthy = np.ones(len(self.times), dtype=bool)
        for fault in self.faults:
            healthy &= ~((self.times >= fault.begin) & (self.times < fault.end))
        return healthy


def pump_stream(*, seed: int = 0) -> PumpStream:
    """Twelve hours of a pump: 43,020 rows.

    | hours | what happens |
    |---|---|
    | 2:00 to 2:20 | the sensor of the discharge pressure is frozen |
    | 4:10 to 4:25 | a bearing fails: it gets hot and vibrates |
    | 5:00 to 5:20 | the sensor of the suction pressure is out |
    | 6:00 to 6:03 | no rows |
    | from 7:00 | another regime: the speed is reduced for good |
    | 9:30 to 9:35 | cavitation: the suction pressure drops and flickers, the flow falls |
    | from 10:00 | the sensor of the motor's temperature drifts by six degrees an hour |

    Parameters
    ----------
    seed : int, default=0
        The same seed gives the same stream.

    Returns
    -------
    PumpStream
        Times, rows and faults.

    Examples
    --------
    >>> from everlearn.datasets.pump import pump_stream
    >>> stream = pump_stream(seed=1)
    >>> stream.X.shape
    (43020, 8)
    >>> [fault.kind for fault in stream.faults][:3]
    ['frozen sensor', 'bearing fault', 'sensor out']
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed must be an integer from 0 on; got {seed!r}.")
    rng = np.random.default_rng(seed)
    X = _healthy_rows(rng)
    faults = _apply_faults(X, rng)
    # Rows are dropped after all was simulated: the pump went on while nothing was written.
    written = np.ones(_SECONDS, dtype=bool)
    written[_MISSING[0] : _MISSING[1]] = False
    times = START.timestamp() + np.flatnonzero(written).astype(np.float64)
    return PumpStream(times, X[written], faults)


def write_csv(stream: PumpStream, path: str | os.PathLike[str]) -> None:
    """Write a stream as the CSV file that a logger would: times in ISO 8601, empty cells where a sensor was out.

    Parameters
    ----------
    stream : PumpStream
        What `pump_stream` gave.
    path : path-like
        The file; an existing one is replaced.
    """
    moments = (datetime.datetime.fromtimestamp(t, datetime.UTC).isoformat() for t in stream.times.tolist())
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["timestamp", *COLUMNS])
        for moment, row in zip(moments, stream.X.tolist(), strict=True):
            writer.writerow([moment, *("" if value != value else f"{value:.4f}" for value in row)])


def _healthy_rows(rng: np.random.Generator) -> Array:
    """All seconds without faults: the load wanders, everything else follows from it."""
    second = np.arange(_SECONDS)
    regime = np.where(second < 7 * _HOUR, 1450.0, 1180.0)
    load = 1.0 + 0.05 * _wander(rng, 120.0) + 0.03 * _wander(rng, 1200.0)
    ambient = 18.0 + 4.0 * np.sin(2.0 * np.pi * (second / (24.0 * _HOUR) - 0.3)) + 0.3 * _wander(rng, 900.0)
    X = np.empty((_SECONDS, len(COLUMNS)))
    X[:, SPEED] = regime + 4.0 * _wander(rng, 30.0)
    # Affinity laws of centrifugal pumps: flow goes with the speed, head with its square, power with its cube.
    ratio = X[:, SPEED] / 1450.0
    X[:, FLOW] = 62.0 * ratio * load
    X[:, SUCTION] = 1.8 - 0.35 * (X[:, FLOW] / 62.0) ** 2 + 0.03 * _wander(rng, 300.0)
    X[:, DISCHARGE] = X[:, SUCTION] + 6.5 * ratio**2 - 1.4 * (X[:, FLOW] / 62.0) ** 2
    X[:, CURRENT] = 9.0 + 16.0 * ratio**3 * load
    X[:, MOTOR] = _lagged(ambient + 1.6 * X[:, CURRENT], _LAG_SECONDS[MOTOR])
    X[:, BEARING] = _lagged(ambient + 0.023 * X[:, SPEED], _LAG_SECONDS[BEARING])
    X[:, VIBRATION] = 1.1 + 0.9 * ratio**2 + 0.05 * _wander(rng, 20.0)
    return X + _NOISE * rng.normal(size=X.shape)


def _apply_faults(X: Array, rng: np.random.Generator) -> tuple[PumpFault, ...]:
    """Change the rows in place where something happens; returns what, when and which sensors show it."""
    freeze = _rows(2.0, 2.0 + 20 / 60)
    X[freeze, DISCHARGE] = X[freeze.start, DISCHARGE]

    bearing = _rows(4.0 + 10 / 60, 4.0 + 25 / 60)
    # Gradual, as a bearing fails: the first rows cannot be told from usual ones, and a delay can be measured.
    rise = np.linspace(0.0, 1.0, bearing.stop - bearing.start)
    X[bearing, BEARING] += 18.0 * rise
    X[bearing, VIBRATION] *= 1.0 + 1.5 * rise

    out = _rows(5.0, 5.0 + 20 / 60)
    X[out, SUCTION] = np.nan

    cavitation = _rows(9.5, 9.5 + 5 / 60)
    n = cavitation.stop - cavitation.start
    X[cavitation, SUCTION] += -0.45 + 0.12 * rng.normal(size=n)
    X[cavitation, FLOW] *= 0.9
    X[cavitation, VIBRATION] += 1.5 + 0.4 * rng.normal(size=n)

    drift = _rows(10.0, 12.0)
    X[drift, MOTOR] += np.linspace(0.0, 12.0, drift.stop - drift.start)
    return (
        _fault("frozen sensor", freeze, DISCHARGE),
        _fault("bearing fault", bearing, BEARING, VIBRATION),
        _fault("sensor out", out, SUCTION),
        _fault("rows missing", slice(*_MISSING)),
        _fault("regime change", _rows(7.0, 8.0), SPEED, CURRENT, FLOW, DISCHARGE),
        _fault("cavitation", cavitation, SUCTION, VIBRATION, FLOW),
        _fault("drift", drift, MOTOR),
    )


def _rows(first_hour: float, last_hour: float) -> slice:
    return slice(round(first_hour * _HOUR), round(last_hour * _HOUR))


def _fault(kind: str, seconds: slice, *columns: int) -> PumpFault:
    start = START.timestamp()
    return PumpFault(kind, start + seconds.start, start + seconds.stop, columns)


def _wander(rng: np.random.Generator, seconds: float) -> Array:
    """A stationary AR(1) process of variance one that forgets within so many seconds."""
    keep = np.exp(-1.0 / seconds)
    steps = rng.normal(size=_SECONDS) * np.sqrt(1.0 - keep**2)
    steps[0] /= np.sqrt(1.0 - keep**2)  # begin in the stationary distribution
    return _filtered(steps, keep)


def _lagged(values: Array, seconds: float) -> Array:
    """What a first-order system with this time constant makes of its input, settled at the beginning."""
    keep = np.exp(-1.0 / seconds)
    return values[0] + _filtered((1.0 - keep) * (values - values[0]), keep)


def _filtered(steps: Array, keep: float) -> Array:
    """The recursion y[t] = keep y[t-1] + steps[t]."""
    from scipy.signal import lfilter  # slow to import, and needed here only

    filtered: Array = lfilter([1.0], [1.0, -keep], steps)
    return filtered
