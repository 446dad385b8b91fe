"""The page of a watched machine with a week of history, in a real browser: how soon it shows and how large replies are.

A state file with a week of eight sensors at one row a second (604,800 rows: 30,240 points of 20 seconds, as
`everlearn watch` keeps them) and 200 episodes is served by `everlearn serve`; Chromium opens it without a window. Needs
chromium and chromedriver.

python benchmarks/wall.py
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _page  # first: it asks commit and machine before the run
import numpy as np
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from everlearn.anomaly.estimator import AnomalyDetector
from everlearn.datasets.pump import COLUMNS
from everlearn.streams.sources.times import TimeFormat
from everlearn.streams.store.records import NAN, Event
from everlearn.streams.store.store import Store
from everlearn.watch.episodes import Blame, Episode
from everlearn.watch.sentences import sentence
from everlearn.watch.session import EPISODE, TRACE
from everlearn.watch.traces import TracePoint
from everlearn.watch.watcher import Watcher

BEGIN, POINT = 1762300800.0, 20.0  # 2025-11-05 00:00 UTC; seconds of a point
ISO = TimeFormat("iso", zone="+00:00")
REPEATS = 5


def write_state(path: Path, hours: int) -> None:
    """A state file as `everlearn watch` leaves it after so many hours."""
    rng, n = np.random.default_rng(0), int(hours * 3600 / POINT)
    level = np.linspace(10.0, 80.0, len(COLUMNS))
    events = []
    for i in range(n):
        mean = level + rng.normal(0.0, 0.1, len(COLUMNS))
        point = TracePoint(int(i * POINT), BEGIN + i * POINT, mean, mean - 0.1, mean + 0.1, level - 0.3, level + 0.3)
        events.append(Event(point.row, TRACE, NAN, point.record(), 0.0, point.time))
    for k in range(200):
        begin = BEGIN + k * hours * 18.0
        blame = Blame(COLUMNS[k % 8], 1.0, 99.0, level[k % 8] - 0.3, level[k % 8] + 0.3)
        episode = Episode(k + 1, "unusual", 0, 60, begin, begin + 600.0, status="over", sensors=(blame,))
        episode = episode._replace(sentence=sentence(episode, ISO), severity=("look", "alarm")[k % 2])
        events.append(Event(0, EPISODE, episode.p_value, episode.record(), 0.0, episode.begin))
    detector = AnomalyDetector(model=None).fit(level + rng.normal(0.0, 0.1, (250, len(COLUMNS))))
    memory = {"watch": Watcher(COLUMNS).memory(), "columns": list(COLUMNS), "time_format": list(ISO)}
    with Store(path) as store:
        store.commit("pump", detector, 0, events=events, memory=memory)


def open_browser(folder: str) -> Any:
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


def footer(browser: Any) -> str:
    """The times below the first sensor: of what is shown."""
    found = browser.find_elements(By.CSS_SELECTOR, ".sensor footer")
    return found[0].text if found else ""


def measure(browser: Any, url: str) -> dict[str, list[float]]:
    """Open the page, show the week, zoom in; several times."""
    found: dict[str, list[float]] = {"opened": [], "first paint": [], "week": [], "closer": []}
    for _ in range(REPEATS):
        found["opened"].append(
            seconds_until(
                browser, lambda: browser.get(url),
                lambda b: len(b.find_elements(By.CSS_SELECTOR, ".sensor .trace")) == len(COLUMNS),
            )
        )  # fmt: skip
        paint = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
        found["first paint"].append(browser.execute_script(paint) / 1000.0)
        for name, button in (("week", "range-1w"), ("closer", "view-closer")):
            before = footer(browser)
            click = browser.find_element(By.ID, button).click
            found[name].append(seconds_until(browser, click, lambda b, old=before: footer(b) not in ("", old)))
    return found


def requests(url: str, week: float) -> list[tuple[str, float, int]]:
    """What the page asks for: the median time of each request and the bytes of its reply."""
    rows = []
    for name, seconds in (("the last hour", 3600.0), ("the week", week)):
        times, size = [], 0
        for _ in range(REPEATS):
            begun = time.perf_counter()
            with urllib.request.urlopen(f"{url}/models/pump/watch?last={seconds:g}") as reply:
                size = len(reply.read())
            times.append(time.perf_counter() - begun)
        rows.append((name, statistics.median(times), size))
    return rows


def main() -> None:
    """Measure, and write the page."""
    quick = _page.parser(__doc__).parse_args().quick
    hours = 24 if quick else 168
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        write_state(path, hours)
        command = [sys.executable, "-m", "everlearn.cli", "serve", "--state", str(path), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            try:
                assert service.stdout is not None
                url = service.stdout.readline().split()[2].rstrip("/")
                browser = open_browser(folder)
                try:
                    shown = measure(browser, url)
                finally:
                    browser.quit()
                asked = requests(url, hours * 3600.0)
            finally:
                service.terminate()
        stored = path.stat().st_size / 1e6
    rows = hours * 3600
    lines = [
        "# The page of a machine with a week of history", "",
        f"{rows:,} rows of eight sensors at one row a second: {rows // 20:,} points of 20 seconds and 200 episodes in "
        f"a state file of {stored:.0f} MB. Chromium at 1920 x 1080, seconds by the clock, of {REPEATS} times; other "
        "programs ran on the machine.", "",
        "| in the browser | median | worst |", "|---|---|---|",
    ]  # fmt: skip
    called = {"first paint": "first paint after opening", "opened": "opened: all eight sensors drawn, last hour",
              "week": "the whole week drawn", "closer": "one step closer drawn"}  # fmt: skip
    for key, name in called.items():
        lines.append(f"| {name} | {statistics.median(shown[key]):.2f} s | {max(shown[key]):.2f} s |")
    lines += ["", "| request | median | reply |", "|---|---|---|"]
    lines += [f"| {name} | {seconds:.2f} s | {size / 1000:.0f} kB |" for name, seconds, size in asked]
    figures = {key: round(statistics.median(values), 3) for key, values in shown.items()}
    _page.write_page("wall", "\n".join(lines), figures=figures, quick=quick)


if __name__ == "__main__":
    main()
