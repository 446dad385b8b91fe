"""everlearn doctor: whether this machine is fine, on one screen."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import socket
import time
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import everlearn

_EXAMPLES = """
Examples:

\b
  everlearn doctor
  NUMBA_CACHE_DIR=/var/cache/everlearn everlearn doctor --compile

\b
Exit status 1 says that learning does not work here.
"""
_EXTRAS = {
    "plot": ("plotly",),
    "streams": ("pyarrow", "redis", "confluent_kafka", "paho"),
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
    "cluster": ("dask", "distributed"),
    "torch": ("torch",),
    "rl": ("gymnasium",),
    "river": ("river",),
    "onnx": ("onnx",),
    "peers": ("river", "gmr"),
}
_BROKERS = {"Redis": 6379, "Kafka": 9092, "MQTT": 1883}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox", "microsoft-edge", "safari")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_MIB = 2**20
_LOGO = "▁▁▃▇█▇▃▂▃▅▆▄▁▁"  # docs/logo.py


class Finding(NamedTuple):
    """One line: what was looked at, what was found, and what to do about it."""

    what: str
    found: str
    advice: str = ""  # empty where all is well
    optional: bool = False  # whether the program works without it


@click.command(name="doctor", epilog=_EXAMPLES)
@click.option("--compile", "compile_all", is_flag=True, help="Compile the loops of all models now, and keep them.")
def command(compile_all: bool) -> None:
    """Say on one screen whether this machine is fine: versions, BLAS, threads, cache, GPU, brokers, browser.

    The last line learns a few rows to see whether that works. With --compile, nothing else is done than to compile
    what learning and serving need, into NUMBA_CACHE_DIR where that is set: for images and first starts.
    """
    console = Console(highlight=False)
    if compile_all:
        _compile(console)
        return
    findings = [_versions(), _blas(), _threads(), _room(), _gpu(), _extras(), _brokers(), _browser(), _compiler()]
    try:
        # Last: everything else is shown even where learning fails, and the cache is only known once something was
        # compiled.
        findings += [_learning(), _cache()]
    except Exception as error:
        _show(console, findings)
        raise click.ClickException(f"Learning does not work here: {error!r}.") from error
    _show(console, findings)


def _compile(console: Console) -> None:
    from everlearn.cli.compiling import compile_kernels

    started = time.perf_counter()
    for kind in compile_kernels():
        console.print(f"{time.perf_counter() - started:5.0f} s  {kind}", markup=False)
    where = _cache()
    console.print(f"{time.perf_counter() - started:5.0f} s  compiled loops are in {where.found}", markup=False)
    if where.advice:
        raise click.ClickException(where.advice)


def _show(console: Console, findings: list[Finding]) -> None:
    table = Table(box=None, show_header=False, padding=(0, 1), title=f"{_LOGO}  everlearn {everlearn.__version__}")
    for what, found, advice, optional in findings:
        sign = "[green]ok[/]" if not advice else ("[dim]--[/]" if optional else "[yellow]![/]")
        table.add_row(sign, f"[bold]{what}[/]", escape(found))
    console.print(table)
    for finding in findings:
        if finding.advice:
            style = "dim" if finding.optional else "yellow"
            console.print(f"{finding.what}: {finding.advice}", style=style, markup=False)
    wrong = sum(bool(finding.advice) and not finding.optional for finding in findings)
    console.print("This machine is fine." if not wrong else f"{wrong} of {len(findings)} lines need attention.")


def _versions() -> Finding:
    """Python, and the packages that everlearn requires, beside the oldest versions that will do."""
    found, old = [f"Python {platform.python_version()}"], []
    for requirement in importlib.metadata.requires("everlearn") or []:
        # From the metadata of the package, so that there is no second list; requirements of extras have a marker, and
        # do not match.
        match = re.match(r"([\w.-]+)\s*>=\s*([\d.]+)\s*$", requirement)
        if match:
            name, least = match.groups()
            version = importlib.metadata.version(name)
            found.append(f"{name} {version}")
            old += [f"{name} {least} or newer"] if _numbers(version) < _numbers(least) else []
    return Finding("versions", ", ".join(found), f"pip install: {', '.join(old)}." if old else "")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _blas() -> Finding:
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))  # a library is listed once it is loaded
    libraries = [entry for entry in threadpool_info() if entry["user_api"] == "blas"]
    shown = [f"{e['internal_api']} {e.get('version') or ''}, {e['num_threads']} threads" for e in libraries]
    return Finding("BLAS", "; ".join(shown) or "not recognised; products of matrices may be slow")


def _threads() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = [f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ]
    found = f"{usable} of {os.cpu_count()} processors usable; {', '.join(given) or 'no limit given'}"
    too_many = [text for text in given if text.rpartition("=")[2].isdigit() and int(text.rpartition("=")[2]) > usable]
    return Finding("threads", found, f"{too_many[0]} is more than the {usable} processors." if too_many else "")


def _room() -> Finding:
    free = shutil.disk_usage(".").free
    found = f"{platform.system()} {platform.machine()}; {free / _MIB / 1024:.1f} GiB free in this folder"
    return Finding("machine", found, "make room on the disk before you keep a state file." if free < 256 * _MIB else "")


def _gpu() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("GPU", "not looked for: torch is not installed", "pip install 'everlearn[torch]'", optional=True)
    import torch

    if not torch.cuda.is_available():
        return Finding("GPU", f"none that torch {torch.__version__} can use", "FIGMN(device='cuda') needs one.", True)
    return Finding("GPU", f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}")


def _extras() -> Finding:
    lacks = {
        extra for extra, modules in _EXTRAS.items() if any(importlib.util.find_spec(name) is None for name in modules)
    }
    has, missing = ([extra for extra in _EXTRAS if (extra in lacks) == wanted] for wanted in (False, True))
    found = f"installed: {', '.join(has) or 'none'}" + (f"; not installed: {', '.join(missing)}" if lacks else "")
    advice = f"pip install 'everlearn[{','.join(missing)}]'" if lacks else ""
    return Finding("extras", found, advice, optional=True)


def _brokers() -> Finding:
    found = [f"{name} on port {port}" for name, port in _BROKERS.items() if _listens(port)]
    if found:
        return Finding("brokers", ", ".join(found))
    advice = "only needed for streams from brokers; others are given by their address."
    return Finding("brokers", "none on this machine at the usual ports", advice, optional=True)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        # This machine only: a broker that is not here refuses at once.
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _browser() -> Finding:
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path:
        return Finding("browser", path)
    return Finding("browser", "none found", "open reports and the live page on another machine.", optional=True)


def _compiler() -> Finding:
    path = shutil.which("cc") or shutil.which("clang") or shutil.which("cl")
    advice = "" if path else "`everlearn export --to c` works; compile its file elsewhere."
    return Finding("C compiler", path or "none found", advice, optional=True)


def _learning() -> Finding:
    """Learn rows and ask about them, from an empty model."""
    started = time.perf_counter()
    X = np.random.default_rng(0).normal(size=(1000, 3))
    model = everlearn.IncrementalGaussianMixture().partial_fit(X)
    if not np.isfinite(model.score(X)):
        raise ArithmeticError("the log-likelihood is not finite")
    seconds = time.perf_counter() - started
    return Finding("learning", f"works; 1000 rows took {seconds:.2f} s, compiling included where it was needed")


def _cache() -> Finding:
    """Where compiled loops are kept; without such a place they are compiled in each process."""
    from everlearn.mixture.kernels.rows import learn_rows

    statistics: Any = getattr(learn_rows, "stats", None)
    if statistics is None:
        return Finding("cache", "loops are not compiled", "unset NUMBA_DISABLE_JIT: everything is slow with it.")
    folder = statistics.cache_path
    if folder is None or not os.access(folder, os.W_OK):
        where = "no folder to keep compiled loops in" if folder is None else f"{folder} cannot be written to"
        return Finding("cache", where, "set NUMBA_CACHE_DIR; without it each start compiles for up to a minute.")
    return Finding("cache", f"{folder}")
