"""The pump of everlearn.datasets, watched: which faults are found as episodes, with which sensor, and what is false.

Twelve hours of eight sensors at one row a second; the first 1:50 are known to be healthy. Nothing was chosen on the
seeds used here.

python benchmarks/pump.py
"""

from __future__ import annotations

import time
from typing import NamedTuple

import _page  # first: it asks commit and machine before the run
import numpy as np

from everlearn.datasets.pump import COLUMNS, PumpFault, PumpStream, pump_stream
from everlearn.watch.episodes import ACCEPTED, Episode
from everlearn.watch.watcher import Watcher

SEEDS = (4711, 90125, 31337, 65537, 8128)
HEALTHY = 6600.0  # seconds
EARLY, LATE = 300.0, 600.0  # seconds by which an episode may begin before a fault, and last after it
BATCH = 1000


class Run(NamedTuple):
    """One seed: its episodes, as they ended, and the seconds of CPU that it took."""

    stream: PumpStream
    episodes: list[Episode]
    seconds: float


def watched(seed: int, every: int) -> Run:
    """Watch the pump of a seed, of which each `every`-th row is taken."""
    stream = pump_stream(seed=seed)
    X, times = stream.X[::every], stream.times[::every]
    watcher, found, begun = Watcher(COLUMNS), {}, time.process_time()
    start = int(np.searchsorted(times, times[0] + HEALTHY))
    watcher.learn(X[:start], times[:start])
    for i in range(start, len(X), BATCH):
        for episode in watcher.watch(X[i : i + BATCH], times[i : i + BATCH]):
            found[episode.number] = episode
    return Run(stream, list(found.values()), time.process_time() - begun)


def belongs(episode: Episode, fault: PumpFault) -> bool:
    """Whether an episode is one of a fault: in its time, whatever the sensor."""
    return fault.begin - EARLY <= episode.begin <= fault.end and episode.end >= fault.begin


def found_by(fault: PumpFault, episodes: list[Episode]) -> Episode | None:
    """The first episode of a fault that has one of its sensors among the first two."""
    for episode in episodes:
        blamed = {COLUMNS.index(name) for name in episode.blamed[:2] if name in COLUMNS}
        right = bool(blamed & set(fault.columns)) if fault.columns else episode.kind == "no data"
        if belongs(episode, fault) and right:
            return episode
    return None


def is_false(episode: Episode, faults: tuple[PumpFault, ...]) -> bool:
    """Whether an episode lies outside of all faults."""
    return not any(episode.begin <= fault.end + LATE and episode.end >= fault.begin - EARLY for fault in faults)


def main() -> None:
    """Watch each seed, and write the page."""
    quick = _page.parser(__doc__).parse_args().quick
    runs = {seed: watched(seed, 10 if quick else 1) for seed in (SEEDS[:1] if quick else SEEDS)}
    faults = next(iter(runs.values())).stream.faults
    head = ["fault", *(f"seed {seed}" for seed in runs)]
    lines = [
        "# A pump of eight sensors, watched for twelve hours", "",
        "A fault is found when an episode of its time has one of its sensors among the first two to blame; the table "
        "says how many minutes after the fault that began. False episodes lie outside of all faults. The defaults of "
        "`Watcher` (one false alarm a day, accepted after an hour), the first 1:50 known to be healthy. Nothing was "
        "chosen on these seeds.", "",
        "| " + " | ".join(head) + " |", "|---" * len(head) + "|",
    ]  # fmt: skip
    missed = 0
    for k, fault in enumerate(faults):
        cells = []
        for run in runs.values():
            episode = found_by(run.stream.faults[k], run.episodes)
            missed += episode is None
            cells.append(
                "missed" if episode is None else f"{(episode.begin - run.stream.faults[k].begin) / 60:.1f} min"
            )
        lines.append(f"| {fault.kind} | " + " | ".join(cells) + " |")
    false = [sum(is_false(e, run.stream.faults) for e in run.episodes) for run in runs.values()]
    early = [sum(e.status == ACCEPTED and e.end - e.begin < 3600 for e in run.episodes) for run in runs.values()]
    rates = [len(run.stream.X) / run.seconds for run in runs.values()]
    counts = {"false episodes": false, "accepted before an hour": early,
              "episodes": [len(run.episodes) for run in runs.values()]}  # fmt: skip
    for name, values in counts.items():
        lines.append(f"| {name} | " + " | ".join(map(str, values)) + " |")
    lines.append("| rows a second of CPU | " + " | ".join(f"{rate:,.0f}" for rate in rates) + " |")
    n = len(faults) * len(runs)
    lines += ["", f"{n - missed} of {n} faults are found; {sum(false)} false episodes in {12 * len(runs)} hours."]
    _page.write_page("pump", "\n".join(lines), quick=quick)


if __name__ == "__main__":
    main()
