"""everlearn doctor: what is installed, and whether it works."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
import time
from typing import Any

import click
import numpy as np
from rich.console import Console

import everlearn
from everlearn.reporting.tables import Table

_EXAMPLES = """
Examples:

\b
  everlearn doctor

\b
Exit status 1 says that learning does not work here.
"""
_CORE = ("numpy", "scipy", "scikit-learn", "numba", "safetensors", "click", "rich")
_EXTRAS = {
    "plot": ("plotly",),
    "streams": ("pyarrow", "redis", "confluent_kafka", "paho"),
    "serve": ("fastapi", "uvicorn"),
    "cluster": ("dask", "distributed"),
    "torch": ("torch",),
    "rl": ("gymnasium",),
    "river": ("river",),
    "peers": ("river", "gmr"),
}


@click.command(name="doctor", epilog=_EXAMPLES)
def command() -> None:
    """Show versions, BLAS, threads and extras, and learn a few rows to see whether that works."""
    console = Console(highlight=False)
    _show_versions(console)
    _show_machine(console)
    _show_extras(console)
    try:
        seconds = _try_learning()
    except Exception as error:
        raise click.ClickException(f"Learning does not work here: {error!r}.") from error
    console.print(f"\nLearning works; 1000 rows took {seconds:.2f} s with everything that had to be compiled.")


def _show_versions(console: Console) -> None:
    rows = [("Python", f"{platform.python_version()} ({sys.executable})")]
    rows += [(name, importlib.metadata.version(name)) for name in _CORE]
    Table(("package", "version"), rows, f"everlearn {everlearn.__version__}").show(console)


def _show_machine(console: Console) -> None:
    build: Any = np.show_config(mode="dicts")
    blas = build.get("Build Dependencies", {}).get("blas", {})
    rows = [
        ("system", platform.platform()),
        ("processors", f"{os.cpu_count()}"),
        ("BLAS", f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()),
    ]
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_DISABLE_JIT")
    rows += [(variable, os.environ.get(variable, "not set")) for variable in variables]
    Table(("what", "found"), rows, "Machine").show(console)


def _show_extras(console: Console) -> None:
    rows = []
    for extra, modules in _EXTRAS.items():
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        found = [module for module in modules if module not in missing]
        install = f"pip install 'everlearn[{extra}]'" if missing else ""
        rows.append((extra, ", ".join(found), ", ".join(missing), install))
    Table(("extra", "has", "lacks", "to install"), rows, "Extras").show(console)


def _try_learning() -> float:
    started = time.perf_counter()
    X = np.random.default_rng(0).normal(size=(1000, 3))
    model = everlearn.IncrementalGaussianMixture().partial_fit(X)
    if not np.isfinite(model.score(X)):
        raise ArithmeticError("the log-likelihood is not finite")
    return time.perf_counter() - started
