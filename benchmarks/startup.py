"""Processor time of short commands: `show` and `ask` of every kind of model, first and second run of the demonstration.

python benchmarks/startup.py [--quick]
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _page import others_at_work, parser, write_page

import everlearn

MODELS = {
    "IncrementalGaussianMixture": {},
    "IncrementalGaussianMixture, low rank": {"covariance_type": "low_rank"},
    "FIGMN": {},
    "OnlinePPCA": {"n_components": 2},
    "VariationalPPCA": {"n_components": 2},
    "AnomalyDetector": {},
    "IncrementalGaussianMixtureClassifier": {},
    "IncrementalGaussianMixtureRegressor": {},
    "FIGMNClassifier": {},
    "StreamImputer": {},
}
ROWS, COLUMNS = 2000, 5


def seconds(arguments: list[str], environment: dict[str, str]) -> float:
    """Processor seconds of one call of the program, those of the system included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "everlearn", *arguments]
    # `ask` of a classifier says that it is not asked this way, with status 1.
    subprocess.run(command, env=environment, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def least(arguments: list[str], environment: dict[str, str], repeats: int) -> float:
    """The least of some calls: other programs on the machine only add."""
    return min(seconds(arguments, environment) for _ in range(repeats))


def fitted(name: str, settings: dict[str, Any]) -> Any:
    """A model of two groups."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS)) + 6.0 * rng.integers(2, size=(ROWS, 1))
    target = (X[:, 0] > 3.0,) if "Classifier" in name else (X[:, 0],) if "Regressor" in name else ()
    return getattr(everlearn, name.partition(",")[0])(**settings).fit(X, *target)


def main() -> None:
    """Write the page."""
    options = parser(__doc__).parse_args()
    repeats, busy = 1 if options.quick else 3, others_at_work()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    lines = ["| model | `show` | `ask` | `show` of a file without answers |", "|---|---:|---:|---:|"]
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in list(MODELS.items())[: 2 if options.quick else None]:
            model, path, plain = fitted(name, settings), str(Path(folder, "m.evl")), str(Path(folder, "plain.evl"))
            everlearn.save(model, path, answers=True)
            everlearn.save(model, plain)
            times = [least([verb, path], environment, repeats) for verb in ("show", "ask")]
            slowest = max(slowest, *times)
            lines.append(f"| {name} | {times[0]:.2f} | {times[1]:.2f} | {least(['show', plain], environment, 1):.2f} |")
        demo = ["learn", "--demo", "--model-file", str(Path(folder, "d.evl")), "--report", str(Path(folder, "d.html"))]
        demo += ["--rows", "1000"] if options.quick else []
        cold = {**environment, "NUMBA_CACHE_DIR": str(Path(folder, "kernels"))}
        first, second = seconds(demo, cold), least(demo, cold, repeats)
    body = [
        "# Start-up", "",
        f"Processor seconds, user and system, of a call; the least of {repeats}. Each model has learned {ROWS:,} rows "
        f"of {COLUMNS} columns. The program writes files with answers (`save(answers=True)`).", busy, "", *lines, "",
        f"`everlearn learn --demo` with a model file and a report takes {first:.1f} s when its kernels have never been "
        f"compiled, and {second:.1f} s from then on.",
    ]  # fmt: skip
    figures = {"slowest": round(slowest, 2), "demo, first": round(first, 1), "demo, second": round(second, 1)}
    write_page("startup", "\n".join(body), figures=figures, quick=options.quick)


if __name__ == "__main__":
    main()
