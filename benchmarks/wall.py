"""The page of a machine with a week of history, in a real browser: how soon it shows, and what it costs.

A week of the pump of `everlearn.datasets` at one row a second (fourteen half days, each with its seven faults) is
written as a CSV file and watched by `everlearn watch`, as a user would; `everlearn serve` shows its state file, and
Chromium opens it without a window. Needs chromium and chromedriver.

    python benchmarks/wall.py [--quick] [--keep FOLDER]

With --keep the log and the state file stay in a folder, and a state file that is there is not made again.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _page  # first: it asks commit and machine before the run
import numpy as np
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from everlearn.datasets.pump import COLUMNS, PumpStream, pump_stream, write_csv
from everlearn.streams.store.store import Store
from everlearn.streams.store.trace_table import LEVELS
from everlearn.watch.session import stored_episodes

HALF_DAY = 43200.0
HEALTHY_UNTIL = "2026-11-05T01:50"
HOUR, WEEK = 3600.0, 604800.0
REPEATS = 5
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def write_log(path: Path, half_days: int, every: int) -> int:
    """The log of a pump over so many half days, of which each `every`-th row is taken; returns its rows."""
    parts = [pump_stream(seed=100 + k) for k in range(half_days)]
    times = np.concatenate([part.times + HALF_DAY * k for k, part in enumerate(parts)])[::every]
    write_csv(PumpStream(times, np.concatenate([part.X for part in parts])[::every], ()), path)
    return len(times)


def processor_seconds() -> float:
    """Processor time of all programs that this one has run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def watch(folder: Path, half_days: int, every: int) -> dict[str, float]:
    """Watch the log by the program; returns its rows and the seconds of processor time."""
    made = folder / "week.json"
    if made.exists():
        found: dict[str, float] = json.loads(made.read_text(encoding="utf-8"))
        return found
    n = write_log(folder / "week.csv", half_days, every)
    command = [sys.executable, "-m", "everlearn", "watch", str(folder / "week.csv"), "--healthy-until",
               HEALTHY_UNTIL, "--state", str(folder / "week.db"), "--name", "pump", "--quiet"]  # fmt: skip
    before = processor_seconds()
    subprocess.run(command, check=True, env={**os.environ, **ONE_THREAD})
    found = {"rows": n, "seconds": processor_seconds() - before}
    made.write_text(json.dumps(found), encoding="utf-8")
    return found


def history(path: Path) -> dict[str, Any]:
    """What the state file holds: points of each level, episodes, and whether points lie on their grid."""
    with Store(path) as store:
        cells = {level: store.trace_cells("pump", level) for level in LEVELS}
        episodes = stored_episodes(store, "pump")
        regular = all(int(cell.time // (20.0 * level)) == cell.cell for level in LEVELS for cell in cells[level])
        first = {cell.cell: cell for cell in cells[1]}
        peaks = True
        for cell in cells[60]:
            below = [first[number] for number in range(60 * cell.cell, 60 * cell.cell + 60) if number in first]
            peaks &= np.array_equal(np.fmax.reduce([part.values[2] for part in below]), cell.values[2], equal_nan=True)
    return {"points": {level: len(found) for level, found in cells.items()}, "episodes": len(episodes),
            "regular": regular, "peaks": bool(peaks)}  # fmt: skip


def open_browser(folder: Path) -> Any:
    """Chromium without a window, at the size of a wall."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
                 "--window-size=1920,1080", f"--user-data-dir={folder}/profile"):  # fmt: skip
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def seconds_until(browser: Any, act: Callable[[], object], shown: Callable[[Any], bool]) -> float:
    """Seconds from an action to what it shows."""
    begun = time.perf_counter()
    act()
    WebDriverWait(browser, 120, poll_frequency=0.01).until(shown)
    return time.perf_counter() - begun


DRAWN = """
if (document.querySelector("#sensors")?.getAttribute("aria-busy") !== "false") return null;
const drawings = [...document.querySelectorAll(".sensor svg")];
const points = drawings.map((svg) => (svg.querySelector(".trace")?.getAttribute("d").match(/[ML]/g) ?? []).length);
const [drawing] = performance.getEntriesByName("draw").slice(-1);
return points.length === arguments[0] ? [Math.max(...points), drawing.duration] : null;
"""


def measure(browser: Any, url: str) -> dict[str, list[float]]:
    """Open the page, show the week, go closer and back to the hour; several times."""
    found: dict[str, list[float]] = {}
    acts: dict[str, Callable[[], object]] = {
        "opened": lambda: browser.get(url),
        "week": lambda: browser.find_element(By.ID, "range-1w").click(),
        "closer": lambda: browser.find_element(By.ID, "view-closer").click(),
        "hour": lambda: browser.find_element(By.ID, "range-1h").click(),
    }
    for _ in range(REPEATS):
        for name, act in acts.items():
            seconds = seconds_until(browser, act, lambda b: b.execute_script(DRAWN, len(COLUMNS)) is not None)
            points, milliseconds = browser.execute_script(DRAWN, len(COLUMNS))
            found.setdefault(name, []).append(seconds)
            found.setdefault(f"{name} drawing", []).append(milliseconds / 1000.0)
            found.setdefault(f"{name} points", []).append(points)
        paint = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
        found.setdefault("first paint", []).append(browser.execute_script(paint) / 1000.0)
    return found


def requests(url: str, process: int) -> list[tuple[str, float, int]]:
    """What the page asks for: processor time of the service for each request, and the bytes of its reply."""

    def ask(query: str, tag: str = "") -> tuple[int, str, Any]:
        request = urllib.request.Request(
            f"{url}/models/pump/watch?{query}", headers={"If-None-Match": tag} if tag else {}
        )
        try:
            with urllib.request.urlopen(request) as reply:
                body = reply.read()
                return len(body), reply.headers["ETag"], json.loads(body)
        except urllib.error.HTTPError as error:
            if error.code != 304:
                raise
            return 0, tag, None

    _, tag, week = ask(f"last={WEEK:g}")
    newest = f"last={WEEK:g}&level={week['level']}&after={week['cells'][-2]}&since={week['change']}"
    asked = {"the last hour": (f"last={HOUR:g}", ""), "the week": (f"last={WEEK:g}", ""),
             "what is new of the week": (newest, ""), "the week, while nothing has changed": (newest, tag)}  # fmt: skip
    found = []
    for name, (query, known) in asked.items():
        before, n = service_seconds(process), 20
        sizes = [ask(query, known)[0] for _ in range(n)]
        found.append((name, (service_seconds(process) - before) / n, max(sizes)))
    return found


def service_seconds(process: int) -> float:
    """Processor time of the service so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Watch a week, measure its page, and write the results."""
    made = _page.parser(__doc__)
    made.add_argument("--keep", type=Path, help="folder in which log and state file stay")
    options = made.parse_args()
    quick = options.quick
    busy = _page.others_at_work().strip()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        run = watch(folder, 14, 20 if quick else 1)
        held = history(folder / "week.db")
        command = [sys.executable, "-m", "everlearn", "serve", "--state", str(folder / "week.db"), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            try:
                assert service.stdout is not None
                url = service.stdout.readline().split()[2].rstrip("/")
                browser = open_browser(Path(scratch))
                try:
                    shown = measure(browser, url)
                finally:
                    browser.quit()
                asked = requests(url, service.pid)
            finally:
                service.terminate()
        stored = (folder / "week.db").stat().st_size / 1e6
    _page.write_page(
        "wall", page(run, held, stored, shown, asked, busy), figures=figures(run, shown, asked), quick=quick
    )


def figures(
    run: dict[str, float], shown: dict[str, list[float]], asked: list[tuple[str, float, int]]
) -> dict[str, float]:
    """The numbers of the page by name."""
    found = {name: round(statistics.median(values), 4) for name, values in shown.items()}
    found |= {f"{name}, seconds": round(seconds, 4) for name, seconds, _ in asked}
    found |= {f"{name}, bytes": size for name, _, size in asked}
    return {**found, "rows": run["rows"], "rows a second": round(run["rows"] / run["seconds"])}


def page(
    run: dict[str, float], held: dict[str, Any], stored: float, shown: dict[str, list[float]],
    asked: list[tuple[str, float, int]], busy: str,
) -> str:  # fmt: skip
    """The page of results."""
    points = held["points"]
    lines = [
        "# The page of a machine with a week of history", "",
        f"{run['rows']:,.0f} rows of eight sensors at one row a second, watched by `everlearn watch` in "
        f"{run['seconds']:.0f} s of processor time ({run['rows'] / run['seconds']:,.0f} rows a second). The state file "
        f"of {stored:.0f} MB holds {held['episodes']} episodes and the sensors' traces in a pyramid: {points[1]:,} "
        f"points of 20 seconds, {points[3]:,} of a minute, {points[15]:,} of 5 minutes, {points[60]:,} of 20 "
        f"minutes and {points[180]:,} of an hour. "
        + ("All lie on the grid of their grain" if held["regular"] else "NOT all lie on the grid of their grain")
        + (", and the points of 20 minutes have the largest values of all points of 20 seconds in them."
           if held["peaks"] else ", and points of 20 minutes have LOST peaks."), "",
        f"Chromium at 1920 x 1080 on the machine that serves the page, {REPEATS} times. {busy}", "",
        "| in the browser | points of each sensor | by the clock, median | worst | main thread, drawing |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    called = {"opened": "opened: the last hour of all eight sensors", "week": "from the hour to the week",
              "closer": "one step closer", "hour": "back to the last hour"}  # fmt: skip
    for key, name in called.items():
        middle, worst = statistics.median(shown[key]), max(shown[key])
        drawing = 1000 * statistics.median(shown[f"{key} drawing"])
        most = max(shown[f"{key} points"])
        lines.append(f"| {name} | {most:.0f} | {middle:.2f} s | {worst:.2f} s | {drawing:.0f} ms |")
    lines += ["", f"First paint after {statistics.median(shown['first paint']):.2f} s (median).", "",
              "| request | processor time of the service | reply |", "|---|---|---|"]  # fmt: skip
    lines += [f"| {name} | {1000 * seconds:.0f} ms | {size / 1000:.1f} kB |" for name, seconds, size in asked]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
