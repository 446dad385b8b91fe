"""What everlearn withstands: hostile inputs (tools/fuzz.py), and kills, full disks and a lost broker (tools/soak.py).

    python benchmarks/withstand.py [--seconds 1800] [--minutes 30] [--jobs 1] [--seed 0] [--quick]

Both run side by side. The status is 1 if there was a finding, a row was lost or one was learned twice.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _page import parser, write_page

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import fuzz
import soak


def page(seconds: float, minutes: float, tallies: dict[str, fuzz.Tally], findings: set[str], run: soak.Outcome) -> str:
    """The page, whose sentences say what was found."""
    tried = sum(each.inputs for each in tallies.values())
    said = "None was answered with anything but a refusal or a sound result." if not findings else (
        f"**{len(findings)} findings**: something else than our own errors, or a broken promise."
    )  # fmt: skip
    rows = sum(part.rows for part in run.parts)
    lost, doubled = (sum(getattr(part, field) for part in run.parts) for field in ("lost", "doubled"))
    kept = f"Of {rows:,} rows {lost} were lost and {doubled} were learned twice, in spite of {run.kills} kills."
    noise = "No program printed a traceback." if not run.complaints else f"**{len(run.complaints)} complaints.**"
    return f"""# What it withstands

## Hostile inputs

{tried:,} inputs in {seconds:.0f} s, mutated from sound ones and guided by the lines of code that they reach. {said}

{fuzz.table(tallies)}

## Kills, full disks and a lost broker

`serve`, `watch` and two runs of `learn` for {minutes:g} minutes under load. {kept} {noise}

{soak.table(run)}
"""


def main() -> int:
    """Run both, and write the page."""
    made = parser(__doc__)
    made.add_argument("--seconds", type=float, default=1800.0, help="of fuzzing")
    made.add_argument("--minutes", type=float, default=30.0, help="of the soak")
    made.add_argument("--jobs", type=int, default=1, help="processes of the fuzzer")
    made.add_argument("--seed", type=int, default=0)
    asked = made.parse_args()
    if asked.quick:
        asked.seconds, asked.minutes, asked.jobs = 20.0, 0.5, 1
    with ThreadPoolExecutor() as pool:
        attacks = pool.submit(fuzz.fuzz, list(fuzz.TARGETS), asked.seconds, workers=asked.jobs, seed=asked.seed)
        run = soak.soak(asked.minutes, asked.seed)
        for each in run.complaints:
            print(each, file=sys.stderr, flush=True)
        tallies, findings = attacks.result()
    figures = {
        "inputs": sum(each.inputs for each in tallies.values()),
        "findings": len(findings),
        "kills": run.kills,
        "rows": sum(part.rows for part in run.parts),
        "lost": sum(part.lost for part in run.parts),
        "doubled": sum(part.doubled for part in run.parts),
        "full disks": run.full_disks,
        "lost brokers": run.lost_brokers,
        "hostile requests": run.hostile,
        "complaints": len(run.complaints),
    }
    body = page(asked.seconds, asked.minutes, tallies, findings, run)
    write_page("withstand", body, figures=figures, quick=asked.quick)
    return 0 if run.passed and not findings else 1


if __name__ == "__main__":
    sys.exit(main())
