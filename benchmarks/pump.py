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

SEEDS = (271828, 141421, 577215, 161803, 299792)
HEALTHY = 6600.0  # seconds
EARLY = 300.0  # seconds by which an episode may begin before a fault
BATCH = 1000
LEARNABLE = ("bearing fault", "regime change", "cavitation", "drift")  # the others leave no values to be learned


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


def overlaps(episode: Episode, fault: PumpFault) -> bool:
    """Whether an episode and a fault share some time."""
    return episode.begin <= fault.end and episode.end >= fault.begin


def is_of(episode: Episode, fault: PumpFault) -> bool:
    """Whether an episode tells of a fault: in its time, with one of its sensors among the first two."""
    blamed = {COLUMNS.index(name) for name in episode.blamed[:2] if name in COLUMNS}
    right = bool(blamed & set(fault.columns)) if fault.columns else episode.kind == "no data"
    return right and fault.begin - EARLY <= episode.begin and overlaps(episode, fault)


def accepted_early(episode: Episode, faults: tuple[PumpFault, ...]) -> bool:
    """Whether an episode was accepted as normal less than an hour after it, or a fault within it, began."""
    begins = [
        episode.begin,
        *(f.begin for f in faults if f.kind in LEARNABLE and episode.begin <= f.begin <= episode.end),
    ]
    return episode.status == ACCEPTED and episode.end - max(begins) < 3600.0


def main() -> None:
    """Watch each seed, and write the page."""
    quick = _page.parser(__doc__).parse_args().quick
    runs = {seed: watched(seed, 10 if quick else 1) for seed in (SEEDS[:1] if quick else SEEDS)}
    faults = next(iter(runs.values())).stream.faults
    head = ["fault", *(f"seed {seed}" for seed in runs)]
    lines = [
        "# A pump of eight sensors, watched for twelve hours", "",
        "A fault is found when an episode of its time has one of its sensors among the first two to blame; the table "
        "says how many minutes after the fault that began. False episodes share no time with a fault; those that do "
        "and blame other sensors are counted in a line of their own. The defaults of `Watcher` (one false alarm a day, "
        "accepted after an hour), the first 1:50 known to be healthy. Nothing was chosen on these seeds.", "",
        "| " + " | ".join(head) + " |", "|---" * len(head) + "|",
    ]  # fmt: skip
    missed = 0
    for k, fault in enumerate(faults):
        cells = []
        for run in runs.values():
            episode = next((e for e in run.episodes if is_of(e, run.stream.faults[k])), None)
            missed += episode is None
            cells.append(
                "missed" if episode is None else f"{(episode.begin - run.stream.faults[k].begin) / 60:.1f} min"
            )
        lines.append(f"| {fault.kind} | " + " | ".join(cells) + " |")
    kept = [(run.episodes, run.stream.faults) for run in runs.values()]
    false = [sum(not any(overlaps(e, f) for f in faults) for e in episodes) for episodes, faults in kept]
    beside = [
        sum(any(overlaps(e, f) for f in faults) and not any(is_of(e, f) for f in faults) for e in episodes)
        for episodes, faults in kept
    ]
    early = [sum(accepted_early(e, run.stream.faults) for e in run.episodes) for run in runs.values()]
    rates = [len(run.stream.X) / run.seconds for run in runs.values()]
    counts = {"false episodes": false, "episodes in the time of a fault, of other sensors": beside,
              "accepted before an hour": early, "episodes": [len(run.episodes) for run in runs.values()]}  # fmt: skip
    for name, values in counts.items():
        lines.append(f"| {name} | " + " | ".join(map(str, values)) + " |")
    lines.append("| rows a second of CPU | " + " | ".join(f"{rate:,.0f}" for rate in rates) + " |")
    n = len(faults) * len(runs)
    lines += ["", f"{n - missed} of {n} faults are found; {sum(false)} false episodes in {12 * len(runs)} hours."]
    _page.write_page("pump", "\n".join(lines), quick=quick)


if __name__ == "__main__":
    main()
