"""Change detectors on streams of numbers: false signals on stationary ones, and the delay after a drop of the mean.

Each detector is tried with several settings. Its best one signals at most once in 10,000 rows of the stationary streams
for calibration, and finds a drop by one standard deviation soonest in those. What is reported are other streams.

python benchmarks/changes.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import _page  # first: it asks commit and machine before the run
import numpy as np
import scipy.signal

from everlearn import PageHinkley
from everlearn.monitoring import page_hinkley
from river import drift

RATE = 1e-4  # signals a row that a stationary stream may have
THRESHOLDS = (8, 10, 11, 12, 13, 14, 16, 18, 20, 25)
OWN_THRESHOLDS = (6.5, 7, 7.5, 8, 9, 10, 11)  # ours are scaled to the values
BEFORE, AFTER = 1000, 1000  # rows before and after the drop


def gaussian(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Gaussian values."""
    return rng.normal(size=shape)


def log_densities(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Standardised log-densities of Gaussian rows of four columns: a long tail to the left."""
    return (4.0 - rng.chisquare(4.0, size=shape)) / np.sqrt(8.0)


def heavy_tails(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Log-densities of rows of a Student t with three degrees of freedom: heavy tails."""
    return (0.579 - np.log1p(rng.standard_t(3, size=shape) ** 2 / 3.0) * 1.5) / 0.807


def autocorrelated(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Gaussian values, each correlated with the one before by 0.3."""
    return scipy.signal.lfilter([np.sqrt(1.0 - 0.3**2)], [1.0, -0.3], rng.normal(size=shape), axis=-1)


def strongly_autocorrelated(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Gaussian values, each correlated with the one before by 0.6."""
    return scipy.signal.lfilter([0.8], [1.0, -0.6], rng.normal(size=shape), axis=-1)


class Detector(NamedTuple):
    """A detector with its settings: which rows of a stream signal a change."""

    name: str
    settings: str
    signals: Callable[[np.ndarray], np.ndarray]


def everlearn_detectors() -> Iterator[Detector]:
    """Our test, by default and with other settings."""

    def signals(test: PageHinkley, x: np.ndarray) -> np.ndarray:
        return np.flatnonzero(page_hinkley.detect(test, page_hinkley.ChangeState(), x)[1])

    defaults = PageHinkley()
    settings = f"drift={defaults.drift:g}, threshold={defaults.threshold:g}, limit={defaults.limit:g}"
    yield Detector("everlearn, default", settings, lambda x: signals(defaults, x))
    for allowed, threshold, limit in itertools.product((0.4, 0.5), OWN_THRESHOLDS, (2.0, 2.5)):
        test = PageHinkley(drift=allowed, threshold=threshold, limit=limit)
        settings = f"drift={allowed}, threshold={threshold}, limit={limit:g}"
        yield Detector("everlearn, calibrated", settings, lambda x, test=test: signals(test, x))


def river_detectors() -> Iterator[Detector]:
    """river's detectors; values go in negative where a detector looks for a rise."""

    def signals(make: Callable[[], object], x: np.ndarray) -> np.ndarray:
        found, detector = [], make()
        for t, value in enumerate(x.tolist()):
            detector.update(value)
            if detector.drift_detected:
                found.append(t)
        return np.array(found, dtype=int)

    for allowed, threshold in itertools.product((0.25, 0.35, 0.5), THRESHOLDS):
        make = lambda a=allowed, h=threshold: drift.PageHinkley(delta=a, threshold=h, mode="down", alpha=1.0)  # noqa: E731
        yield Detector("river PageHinkley", f"delta={allowed}, threshold={threshold}", lambda x, m=make: signals(m, x))
    for delta in (1e-2, 2e-3):
        make = lambda d=delta: drift.ADWIN(delta=d, clock=8)  # noqa: E731
        yield Detector("river ADWIN", f"delta={delta:g}, clock=8", lambda x, m=make: signals(m, x))


def false_signals(detector: Detector, streams: np.ndarray) -> float:
    """Signals a row on stationary streams."""
    return sum(len(detector.signals(x)) for x in streams) / streams.size


def delays(detector: Detector, streams: np.ndarray) -> np.ndarray:
    """Rows from the drop to the first signal after it; the length of the stream where there is none."""
    found = []
    for x in streams:
        after = detector.signals(x)
        after = after[after >= BEFORE]
        found.append(after[0] - BEFORE if len(after) else AFTER)
    return np.array(found)


def main() -> None:
    """Measure, and write the page."""
    quick = _page.parser(__doc__).parse_args().quick
    n_streams, n_rows, n_drops = (2, 2000, 4) if quick else (40, 10_000, 150)
    lines = [
        "# Change detectors: false signals, and the delay after a drop by one standard deviation",
        "",
        f"{n_streams} stationary streams of {n_rows:,} values, and {n_drops} whose mean drops by one standard "
        f"deviation at row {BEFORE:,}. The best setting of each detector signals at most once in {1 / RATE:,.0f} "
        "rows of as many other streams, and is the quickest there. everlearn's test standardises the values itself, "
        "and scales its threshold to their autocovariance and skewness; river's are given values of unit variance. A "
        "signal just before the drop makes any of them miss it, which counts as 1,000 rows: the median tells of the "
        "others.",
    ]  # fmt: skip
    for make in (log_densities, heavy_tails, gaussian, autocorrelated, strongly_autocorrelated):
        calibration, test = (np.random.default_rng(seed) for seed in (1, 2))
        chosen: dict[str, tuple[float, Detector]] = {}
        still, dropped = make(calibration, (n_streams, n_rows)), make(calibration, (n_drops, BEFORE + AFTER))
        dropped[:, BEFORE:] -= 1.0
        for detector in (*everlearn_detectors(), *river_detectors()):
            if detector.name.endswith("default"):
                chosen[detector.name] = (0.0, detector)
            elif false_signals(detector, still) <= RATE:
                delay = float(delays(detector, dropped).mean())
                if delay < chosen.get(detector.name, (np.inf, detector))[0]:
                    chosen[detector.name] = (delay, detector)
        still, dropped = make(test, (n_streams, n_rows)), make(test, (n_drops, BEFORE + AFTER))
        dropped[:, BEFORE:] -= 1.0
        head = "| detector | setting | signals in 10,000 rows | mean delay, rows | median | 90 % within |"
        lines += ["", f"## {(make.__doc__ or '').rstrip('.')}", "", head, "|---|---|---|---|---|---|"]
        for name, (_, detector) in chosen.items():
            rate, found = false_signals(detector, still), delays(detector, dropped)
            row = f"{1e4 * rate:.2f} | {found.mean():.1f} | {np.median(found):.0f} | {np.quantile(found, 0.9):.0f}"
            lines.append(f"| {name} | {detector.settings} | {row} |")
    _page.write_page("changes", "\n".join(lines), quick=quick)


if __name__ == "__main__":
    main()
