"""The demonstration stream: six sensors of a machine, with known regimes, gaps and faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError
from everlearn.typing import Array

COLUMNS = ("rpm", "torque", "power", "current", "temperature", "vibration")
REGIMES = ("idle", "cruise", "heavy", "worn")
FAULTS = ("none", "temperature spike", "vibration burst", "belt slips")

_WORN = REGIMES.index("worn")
_WORN_FROM = 0.7  # share of the stream after which the bearing shows wear
_RPM = np.array([600.0, 1500.0, 2400.0, 1500.0])
_RPM_STD = np.array([20.0, 60.0, 80.0, 60.0])
_TORQUE = np.array([8.0, 40.0, 75.0, 42.0])
_TORQUE_STD = np.array([1.0, 4.0, 6.0, 4.0])
_WEAR = np.array([0.0, 0.0, 0.0, 2.5])  # mm/s of vibration, and as many times four degrees
_THERMAL_ROWS = 5.0
_DWELL = (60, 240)
_GAP_SHARE = 0.02
_OUTAGE_SHARE = 0.15  # share of stays in which the current sensor is lost for a while
_FAULTS_PER_ROW = 0.003


class DemoBatch(NamedTuple):
    """Rows as a machine would send them, and the truth behind them."""

    X: Array
    """What is sent: NaN where a value was lost."""
    complete: Array
    """The same without gaps."""
    regime: NDArray[np.int64]
    """Number of the regime in `REGIMES`."""
    fault: NDArray[np.int64]
    """Number of the fault in `FAULTS`."""


def demo_stream(n_rows: int = 20_000, *, seed: int = 0, batch_rows: int = 500) -> Iterator[DemoBatch]:
    """Yield the demonstration stream in batches.

    The machine stays in a regime for a few hundred rows: idle, cruising or under heavy load; in the last third of the
    stream a worn bearing, never seen before, takes the place of cruising. Power follows speed and torque, current
    follows power, temperature lags behind power, vibration grows with speed. Single values get lost, and now and then
    the current sensor for a while. Faults last a few rows; in a slipping belt each value is usual on its own.

    Parameters
    ----------
    n_rows : int, default=20000
        Length of the stream.
    seed : int, default=0
        The same seed gives the same stream, whatever the size of the batches.
    batch_rows : int, default=500
        Rows in a batch; the last one may be shorter.

    Yields
    ------
    DemoBatch
        Rows in the order of `COLUMNS`, complete rows, regimes and faults.

    Examples
    --------
    >>> from everlearn.datasets.demo import demo_stream
    >>> batch = next(demo_stream(seed=1))
    >>> batch.X.shape
    (500, 6)
    """
    for name, value in (("n_rows", n_rows), ("batch_rows", batch_rows)):
        if value < 1:
            raise InputError(f"{name} must be at least 1; got {value}.")
    waiting: list[DemoBatch] = []
    ready = 0
    # Made stay by stay and cut into batches afterwards: the stream does not depend on `batch_rows`.
    for stay in _stays(n_rows, np.random.default_rng(seed)):
        waiting.append(stay)
        ready += len(stay.X)
        while ready >= batch_rows:
            whole = join(waiting)
            yield rows_of(whole, 0, batch_rows)
            waiting, ready = [rows_of(whole, batch_rows, ready)], ready - batch_rows
    if ready:
        yield join(waiting)


def join(parts: list[DemoBatch]) -> DemoBatch:
    """Batches one after the other."""
    return DemoBatch(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def rows_of(batch: DemoBatch, start: int, stop: int) -> DemoBatch:
    """Some rows of a batch."""
    part = slice(start, stop)
    return DemoBatch(batch.X[part], batch.complete[part], batch.regime[part], batch.fault[part])


def _stays(n_rows: int, rng: np.random.Generator) -> Iterator[DemoBatch]:
    """The stream, one stay in a regime after the other."""
    row, regime, temperature = 0, 0, 30.0
    while row < n_rows:
        n = int(rng.integers(*_DWELL))
        healthy = _healthy(regime, n, temperature, rng)
        temperature = healthy[-1, 4]
        complete, fault = _with_faults(healthy, rng)
        keep = min(n, n_rows - row)
        stay = DemoBatch(_with_gaps(complete, rng), complete, np.full(n, regime), fault)
        yield rows_of(stay, 0, keep)
        row += n
        regime = _next_regime(regime, worn=row >= _WORN_FROM * n_rows, rng=rng)


def _next_regime(regime: int, *, worn: bool, rng: np.random.Generator) -> int:
    # Cruising never comes back once the bearing is worn: the model has to learn a regime late and for good.
    choices = [0, 2, _WORN if worn else 1]
    return int(rng.choice([choice for choice in choices if choice != regime]))


def _healthy(regime: int, n: int, temperature: float, rng: np.random.Generator) -> Array:
    rpm = _RPM[regime] + _RPM_STD[regime] * rng.normal(size=n)
    torque = _TORQUE[regime] + _TORQUE_STD[regime] * rng.normal(size=n)
    # Mechanical power in kW, of rpm and Nm.
    power = rpm * torque * (2 * np.pi / 60_000) * (1 + 0.01 * rng.normal(size=n))
    current = 1.0 + 1.6 * power + 0.1 * rng.normal(size=n)
    settled = 25.0 + 2.5 * _RPM[regime] * _TORQUE[regime] * (2 * np.pi / 60_000) + 4 * _WEAR[regime]
    # A first-order lag from the temperature at the end of the stay before: what single rows cannot show.
    fading = np.exp(-np.arange(1, n + 1) / _THERMAL_ROWS)
    warmth = settled + (temperature - settled) * fading + 0.5 * rng.normal(size=n)
    vibration = 0.5 + 0.4 * (rpm / 1000) ** 2 + _WEAR[regime] + 0.1 * rng.normal(size=n)
    return np.column_stack([rpm, torque, power, current, warmth, vibration])


def _with_faults(healthy: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
    X, fault = healthy.copy(), np.zeros(len(healthy), dtype=np.int64)
    for start in np.flatnonzero(rng.random(len(X)) < _FAULTS_PER_ROW):
        rows = slice(start, start + int(rng.integers(1, 5)))
        fault[rows] = kind = int(rng.integers(1, len(FAULTS)))
        if kind == 1:
            X[rows, 4] = healthy[rows, 4] + rng.uniform(40, 90)
        elif kind == 2:
            X[rows, 5] = healthy[rows, 5] + rng.uniform(3, 9)
        else:
            # Power and current fall together, within the range of other regimes: only their relation to speed and
            # torque is wrong.
            X[rows, 2:4] = healthy[rows, 2:4] * rng.uniform(0.2, 0.7)
    return X, fault


def _with_gaps(complete: Array, rng: np.random.Generator) -> Array:
    X = complete.copy()
    X[rng.random(X.shape) < _GAP_SHARE] = np.nan
    # All three are drawn in any case, so that the rows after it do not depend on whether there was an outage.
    outage, start, length = rng.random(), rng.integers(len(X)), rng.integers(10, 40)
    if outage < _OUTAGE_SHARE:
        X[start : start + length, 3] = np.nan
    return X
