"""What everlearn withstands: hostile inputs (tools/fuzz.py), and kills, full disks and a lost broker (tools/soak.py).

    python benchmarks/withstand.py fuzz [--seconds 1800] [--jobs 2] [--seed 0] [--quick]
    python benchmarks/withstand.py soak [--minutes 30] [--seed 0] [--quick]
    python benchmarks/withstand.py page
    python benchmarks/withstand.py              both side by side

Each part writes `results/withstand_PART.json`, and then the page of all parts that are there, each with the command,
commit and machine that it comes from: the two may run on different machines. `page` writes the page alone. The status
is 1 if there was a finding, a row was lost or one was learned twice. A run of the fuzzer that is stopped by SIGTERM is
written down with the seconds that it had.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from _page import parser, write_page_of_parts, write_part

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import fuzz
import soak

NAME, PARTS = "withstand", ("fuzz", "soak")


def attack(seconds: float, jobs: int, seed: int) -> tuple[bool, str, dict[str, float]]:
    """Run the fuzzer; returns whether nothing was found, the section of the page, and its figures."""
    outcome = fuzz.fuzz(list(fuzz.TARGETS), seconds, workers=jobs, seed=seed)
    said = "None was answered with anything but a refusal or a sound result." if not outcome.findings else (
        f"**{len(outcome.findings)} findings**: something else than our own errors, or a broken promise."
    )  # fmt: skip
    tried = f"{outcome.inputs:,} inputs by {jobs} processes"
    body = f"""## Hostile inputs

{tried} in {outcome.seconds:.0f} s, mutated from sound ones and guided by the lines of code that they reach. {said}

{fuzz.table(outcome.tallies)}
"""
    figures = {"inputs": outcome.inputs, "findings": len(outcome.findings), "fuzz seconds": round(outcome.seconds)}
    return not outcome.findings and outcome.inputs > 0, body, figures


def endure(minutes: float, seed: int) -> tuple[bool, str, dict[str, float]]:
    """Run the soak; returns whether every row was learned once, the section of the page, and its figures."""
    run = soak.soak(minutes, seed)
    for each in run.complaints:
        print(each, file=sys.stderr, flush=True)
    rows, lost, doubled = (sum(getattr(part, field) for part in run.parts) for field in ("rows", "lost", "doubled"))
    kept = f"Of {rows:,} rows {lost} were lost and {doubled} were learned twice, in spite of {run.kills} kills."
    noise = "No program printed a traceback." if not run.complaints else f"**{len(run.complaints)} complaints.**"
    body = f"""## Kills, full disks and a lost broker

`serve`, `watch` and two runs of `learn` for {minutes:g} minutes under load. {kept} {noise}

{soak.table(run)}
"""
    figures = {
        "minutes": minutes,
        "kills": run.kills,
        "rows": rows,
        "lost": lost,
        "doubled": doubled,
        "full disks": run.full_disks,
        "lost brokers": run.lost_brokers,
        "hostile requests": run.hostile,
        "complaints": len(run.complaints),
    }
    return run.passed, body, figures


@contextlib.contextmanager
def beside(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command beside the block; end it if the block ends early."""
    process = subprocess.Popen(command)
    try:
        yield process
    except BaseException:
        process.terminate()
        raise
    finally:
        process.wait()


def main() -> int:
    """Run what is asked for, and write the page."""
    made = parser(__doc__)
    made.add_argument("part", nargs="?", choices=(*PARTS, "page"))
    made.add_argument("--seconds", type=float, default=1800.0, help="of fuzzing")
    made.add_argument("--minutes", type=float, default=30.0, help="of the soak")
    made.add_argument("--jobs", type=int, default=1, help="processes of the fuzzer")
    made.add_argument("--seed", type=int, default=0)
    asked = made.parse_args()
    if asked.quick:
        asked.seconds, asked.minutes, asked.jobs = 40.0, 0.5, 1
    if asked.part is None:
        # A process of its own for each part: both want the signals that end them.
        command, options = [sys.executable, __file__], sys.argv[1:]
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        with beside([*command, "fuzz", *options]) as attacker, beside([*command, "soak", *options]) as endurer:
            endurer.wait()
            attacker.wait()
        return max(attacker.returncode, endurer.returncode)
    sound = True
    if asked.part in PARTS:
        if asked.part == "fuzz":
            sound, body, figures = attack(asked.seconds, asked.jobs, asked.seed)
        else:
            sound, body, figures = endure(asked.minutes, asked.seed)
        write_part(NAME, asked.part, body, figures=figures, quick=asked.quick)
    if not asked.quick:
        write_page_of_parts(NAME, "What it withstands", PARTS)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
