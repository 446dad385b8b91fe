"""Estimates of `everlearn reproduce`: what the items took in a run.

    python tools/estimates.py docs/reproduction.json [QUICK.json]

Takes the processor seconds of each item from records that `everlearn reproduce --json` has written, quick or full, and
writes them where the program looks. Processor time and not the clock: other programs of the machine would count.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

PLACE = Path(__file__).resolve().parent.parent / "src" / "everlearn" / "experiments" / "papers" / "seconds.json"
SKIPPED = "skipped"
LEAST = 1.0  # second: shorter ones are told as that


def with_record(known: dict[str, dict[str, float]], record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Estimates after a run; an item that it did not run, or whose processor time is not known, keeps its own."""
    size = "quick" if record["quick"] else "full"
    found = {key: dict(seconds) for key, seconds in known.items()}
    for key, section in record["sections"].items():
        if section["verdict"] != SKIPPED and section["cpu_seconds"] is not None:
            found.setdefault(key, {})[size] = max(round(section["cpu_seconds"]), LEAST)
    return found


def main() -> None:
    """Read records, write the estimates."""
    parser = argparse.ArgumentParser(description="Estimates of `everlearn reproduce` from the records of runs.")
    parser.add_argument("records", nargs="+", type=Path, help="files that `everlearn reproduce --json` has written")
    estimates = json.loads(PLACE.read_text(encoding="utf-8")) if PLACE.exists() else {}
    for path in parser.parse_args().records:
        estimates = with_record(estimates, json.loads(path.read_text(encoding="utf-8")))
    PLACE.write_text(json.dumps(estimates, indent=1) + "\n", encoding="utf-8")
    for size in ("quick", "full"):
        print(f"{size}: {sum(seconds.get(size, 0.0) for seconds in estimates.values()) / 60:.0f} minutes of one core")


if __name__ == "__main__":
    main()
