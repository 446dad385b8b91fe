"""The pump of everlearn.datasets, watched: which faults are found as episodes, with which sensor, and what is false.

    python benchmarks/pump.py [--quick] [PART ...]

The parts: `judged`, twelve seeds on which nothing was chosen; `earlier`, thirteen that were judged before, and what was
missed on them was mended.

Twelve hours of eight sensors at one row a second; the first 1:50 are known to be healthy. Each seed is written as a CSV
file and watched by `everlearn watch`, as a user would. Each part writes `results/pump_PART.json`, and then the page of
all parts that are there; `page` writes the page alone. Without a part all of them run.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import _page  # first: it asks commit and machine before the run

from everlearn.datasets.pump import COLUMNS, PumpFault, PumpStream, pump_stream, write_csv
from everlearn.streams.store.store import Store
from everlearn.watch.episodes import ACCEPTED, ALARM, Episode
from everlearn.watch.session import stored_episodes

PARTS = {
    "judged": (618033, 302775, 236067, 645751, 828427, 538516, 728010, 824621, 662607, 137035, 980665, 110752),
    "earlier": (
        271828,
        141421,
        577215,
        161803,
        299792,
        173205,
        223606,
        264575,
        314159,
        693147,
        412310,
        905538,
        602214,
    ),
}
TITLES = {
    "judged": "Seeds on which nothing was chosen",
    "earlier": "Seeds on which what was missed was mended",
}
HEALTHY_UNTIL = "2026-11-05T01:50"
EARLY = 300.0  # seconds by which an episode may begin before a fault
LEARNABLE = ("bearing fault", "regime change", "cavitation", "drift")  # the others leave no values to be learned


class Run(NamedTuple):
    """One seed: its episodes, as they ended, and the seconds of processor time that the program took."""

    stream: PumpStream
    episodes: list[Episode]
    seconds: float
    n_rows: int


def watched(seed: int, every: int, folder: Path) -> Run:
    """Watch the pump of a seed, of which each `every`-th row is taken, by the program."""
    stream = pump_stream(seed=seed)
    log, state = folder / f"{seed}.csv", folder / f"{seed}.db"
    write_csv(stream._replace(times=stream.times[::every], X=stream.X[::every]), log)
    command = [sys.executable, "-m", "everlearn", "watch", str(log), "--healthy-until", HEALTHY_UNTIL,
               "--state", str(state), "--episodes", str(folder / f"{seed}.jsonl"), "--quiet"]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with Store(state) as store:
        return Run(stream, stored_episodes(store, "model"), seconds, len(stream.X[::every]))


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


def section(part: str, runs: dict[int, Run]) -> tuple[str, dict[str, float]]:
    """The part of the page about these runs, and its figures."""
    faults = next(iter(runs.values())).stream.faults
    head = ["fault", *(f"seed {seed}" for seed in runs)]
    lines = [f"## {TITLES[part]}", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    missed = 0
    for k, fault in enumerate(faults):
        cells = []
        for run in runs.values():
            own = run.stream.faults[k]
            episode = next((e for e in run.episodes if is_of(e, own)), None)
            missed += episode is None
            delay = 0.0 if episode is None else max(0.0, (episode.begin - own.begin) / 60)
            cells.append("missed" if episode is None else f"{delay:.1f} min, {episode.severity}")
        lines.append(f"| {fault.kind} | " + " | ".join(cells) + " |")
    kept = [(run.episodes, run.stream.faults) for run in runs.values()]
    false = [sum(not any(overlaps(e, f) for f in faults) for e in episodes) for episodes, faults in kept]
    beside = [
        sum(any(overlaps(e, f) for f in faults) and not any(is_of(e, f) for f in faults) for e in episodes)
        for episodes, faults in kept
    ]
    early = [sum(accepted_early(e, run.stream.faults) for e in run.episodes) for run in runs.values()]
    counts = {"false episodes": false, "episodes in the time of a fault, of other sensors": beside,
              "accepted before an hour": early, "episodes": [len(run.episodes) for run in runs.values()],
              "alarms among them": [sum(e.severity == ALARM for e in run.episodes) for run in runs.values()],
              }  # fmt: skip
    for name, values in counts.items():
        lines.append(f"| {name} | " + " | ".join(map(str, values)) + " |")
    rates = [run.n_rows / run.seconds for run in runs.values()]
    lines.append("| rows a second of processor time | " + " | ".join(f"{rate:,.0f}" for rate in rates) + " |")
    n = len(faults) * len(runs)
    lines += ["", f"{n - missed} of {n} faults are found; {sum(false)} false episodes in {12 * len(runs)} hours; "
                  f"{sum(early)} accepted before an hour."]  # fmt: skip
    figures = {f"{part} found": n - missed, f"{part} faults": n, f"{part} false": sum(false),
               f"{part} accepted early": sum(early), f"{part} slowest rows a second": round(min(rates))}  # fmt: skip
    return "\n".join(lines), figures


ABOUT = f"""A pump of eight sensors, watched for twelve hours

Each seed is a file of 43,020 rows, watched by `everlearn watch FILE --healthy-until {HEALTHY_UNTIL} --state ...
--episodes ...` with its defaults (one false alarm a day, accepted after an hour). A fault is found when an episode of
its time has one of its sensors among the first two to blame; the table says how many minutes after the fault that
began, and the severity that it reached. False episodes share no time with a fault; those that do and blame other
sensors are counted in a line of their own. Rows a second are of the whole program on one core, from its start to its
end, reading the file and writing the state included; kernels were compiled before, as after the first run."""


def main() -> None:
    """Watch the seeds of some parts or of all, and write the page."""
    made = _page.parser(__doc__)
    made.add_argument("parts", nargs="*", choices=[*PARTS, "all", "page"], default="all", help="page: of what is there")
    options = made.parse_args()
    for part in PARTS if "all" in options.parts else options.parts:
        if part in PARTS:
            run_part(part, quick=options.quick)
    if not options.quick:
        _page.write_page_of_parts("pump", ABOUT, list(PARTS))


def run_part(part: str, *, quick: bool) -> None:
    """Watch the seeds of one part, and write what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        watched(0, 20, Path(folder))  # not timed: the first run of a machine compiles the kernels
        seeds = PARTS[part][: 1 if quick else None]
        runs = {seed: watched(seed, 10 if quick else 1, Path(folder)) for seed in seeds}
    body, figures = section(part, runs)
    _page.write_part("pump", part, body, figures=figures, quick=quick)


if __name__ == "__main__":
    main()
