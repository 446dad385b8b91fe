"""The page of a watched machine in a real Chromium: what it shows on a wall, on a phone and in the dark."""

from __future__ import annotations

import json
import urllib.request

import numpy as np
import pytest
from selenium.webdriver.common.by import By

from browser_tools import CHROMIUM, DRIVER, open_browser, screenshot, shot_of, size, until
from everlearn.anomaly.estimator import AnomalyDetector
from everlearn.streams.sources.times import TimeFormat
from everlearn.streams.store.records import EpisodeRecord
from everlearn.streams.store.store import Store
from everlearn.watch.episodes import Blame, Episode
from everlearn.watch.sentences import sentence
from everlearn.watch.session import stored_episodes
from everlearn.watch.traces import TracePoint
from everlearn.watch.watcher import Watcher
from service_tools import Service

pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromium-driver are not installed"),
    pytest.mark.slow,
]
COLUMNS = [f"sensor {j} [bar]" for j in range(8)]
ISO = TimeFormat("iso", zone="+00:00")
PEAK = 40  # hour of the largest value of the sixth sensor
BEGIN, HOURS = 1762300800.0, 168  # a week from 2025-11-05 00:00 UTC, a point every 20 seconds
WIDE = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


def text(browser, name):
    return browser.find_element(By.ID, name).text


def traces():
    rng = np.random.default_rng(0)
    for i in range(HOURS * 180):
        mean = rng.normal(10.0, 0.1, len(COLUMNS))
        mean[5] += 3.0 * (i == PEAK * 180)
        yield TracePoint(20 * i, BEGIN + 20.0 * i, mean, mean - 0.1, mean + 0.1, np.full(8, 9.7), np.full(8, 10.3))


def episodes():
    end = BEGIN + 3600.0 * HOURS
    hot = Blame(COLUMNS[2], 1.0, 12.0, 9.7, 10.3)
    shared = {"p_value": 1e-30, "severity": "alarm", "sensors": (hot,)}
    for episode in (
        Episode(1, "frozen", 0, 60, BEGIN, BEGIN + 1200.0, status="over", sensors=(Blame(COLUMNS[1], 1.0, 9.9),)),
        Episode(2, "unusual", 0, 60, end - 900.0, end - 60.0, **shared),
    ):
        yield episode._replace(sentence=sentence(episode, ISO))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service beside the state of a watch: a week of traces, an episode that is over and one that lasts."""
    path = tmp_path_factory.mktemp("state") / "run.db"
    detector = AnomalyDetector(model=None).fit(np.random.default_rng(0).normal(10.0, 0.1, size=(250, 8)))
    cells = [point.cell(int(point.time // 20)) for point in traces()]
    found = [EpisodeRecord(e.number, e.is_open, e.record()) for e in episodes()]
    memory = {"watch": Watcher(COLUMNS).memory(), "columns": COLUMNS, "time_format": list(ISO)}
    with Store(path) as store:
        store.commit("pump", detector, 0, traces=cells, episodes=found, memory=memory)
    service = Service(path)
    service.state = path
    yield service
    service.kill()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = open_browser(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


def bottom(browser, selector):
    script = (
        "return Math.max(...[...document.querySelectorAll(arguments[0])].map(e => e.getBoundingClientRect().bottom))"
    )
    return browser.execute_script(script, selector)


def reddish(colours):
    """Share of pixels that are clearly more red than green."""
    red, green = colours[:, :, 0].astype(int), colours[:, :, 1].astype(int)
    return float((red - green > 20).mean())


def test_the_wall_shows_the_state_the_sensors_and_the_episode_without_scrolling(browser, service):
    size(browser, 1920, 1080)
    browser.get(service.url)
    until(browser, lambda b: text(b, "banner-words") == f"Alarm: {COLUMNS[2]}")
    until(browser, lambda b: len(b.find_elements(By.CSS_SELECTOR, ".sensor .trace")) == 8)
    assert browser.find_element(By.ID, "banner").get_attribute("data-state") == "alarm"
    assert bottom(browser, ".banner, .sensor") <= 1080
    assert "12.00, expected 9.70 to 10.30 from the other sensors" in text(browser, "episodes")
    assert f"{COLUMNS[1]} frozen at 9.9" in text(browser, "episodes")
    third = browser.find_elements(By.CSS_SELECTOR, ".sensor")[2]
    assert third.get_attribute("data-state") == "alarm"
    assert "expected 9.7 to 10.3" in third.text
    # The last hour by default: the episode that lasts is in it, the one of a week ago is not.
    assert [span.get_attribute("data-episode") for span in browser.find_elements(By.CSS_SELECTOR, ".span")] == ["2"]
    # What is seen from across the room: a red banner, and a red span over the third sensor only.
    red, green, blue = shot_of(browser, browser.find_element(By.ID, "banner")).reshape(-1, 3).mean(axis=0)
    assert red > max(green, blue) + 60
    assert reddish(shot_of(browser, third.find_element(By.CSS_SELECTOR, ".span"))) > 0.2
    assert reddish(shot_of(browser, browser.find_element(By.CSS_SELECTOR, ".sensor svg"))) < 0.01


POINTS = """
if (document.querySelector("#sensors").getAttribute("aria-busy") !== "false") return null;
const count = (path) => (path?.getAttribute("d").match(/[ML]/g) ?? []).length;
return [...document.querySelectorAll(".sensor svg")].map((svg) => [...svg.querySelectorAll("path")].map(count));
"""
REPLIES = """
const found = performance.getEntriesByType("resource").filter((entry) => /[/]watch[?]/.test(entry.name));
return found.map((entry) => [entry.name, entry.decodedBodySize]);
"""


def shown(browser, button):
    """Points of each path of each sensor after a button was pressed and what it shows has come; and the footer."""
    browser.find_element(By.ID, button).click()
    points = until(browser, lambda b: b.execute_script(POINTS), seconds=60)
    return points, browser.find_element(By.CSS_SELECTOR, ".sensor footer").text


def test_what_is_sent_and_drawn_is_bounded_for_any_length_of_time(browser, service):
    size(browser, 1920, 1080)
    browser.get(service.url)
    until(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".sensor .trace"))
    hour, _ = shown(browser, "range-1h")
    week, foot = shown(browser, "range-1w")
    assert "11-05 00:00" in foot
    assert len(browser.find_elements(By.CSS_SELECTOR, ".span")) == 2
    # The hour in the finest grain there is, the week in points of 20 minutes; an area has two edges.
    assert {band for _, *paths in hour for band in paths[-1:]} <= {180, 181}
    assert {path[-1] for path in week} <= {504, 505}
    assert max(max(path) for path in week) <= 2 * 750
    for button in ("view-closer", "view-closer", "view-closer", "range-1d", "range-8h", "range-all"):
        points, _ = shown(browser, button)
        assert 100 < max(path[-1] for path in points) <= 750, button
    replies = browser.execute_script(REPLIES)
    assert max(n for _, n in replies) < 300_000
    # What is shown already is not sent again.
    again = [n for name, n in replies if "after=" in name]
    until(browser, lambda b: len(b.execute_script(REPLIES)) > len(replies))
    again += [n for name, n in browser.execute_script(REPLIES)[len(replies) :] if "after=" in name]
    assert again
    assert max(again) < 5_000


def test_a_peak_of_one_point_is_seen_in_the_week(browser, service):
    """Extremes go up the pyramid: a value of twenty seconds among a week of others is drawn where it was."""
    peak = BEGIN + 20.0 * (PEAK * 180)
    size(browser, 1920, 1080)
    browser.get(service.url)
    until(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".sensor .trace"))
    shown(browser, "range-1w")
    path = browser.find_elements(By.CSS_SELECTOR, ".sensor .extremes")[5].get_attribute("d")
    points = [tuple(map(float, point.split())) for point in path.strip("MZ").split("L")]
    x, y = min(points, key=lambda point: point[1])
    assert y < 20  # of 128: at the upper edge, and all others far below it
    assert abs(x / 1000.0 * HOURS * 3600.0 - (peak - BEGIN)) < 2400.0
    assert np.median([y for _, y in points]) > 80


def test_new_points_are_added_to_those_that_are_shown(browser, service):
    size(browser, 1920, 1080)
    browser.get(service.url)
    until(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".sensor .trace"))
    before, _ = shown(browser, "range-1w")
    with Store(service.state) as store:
        last = store.trace_ends("pump", 1)[1]
        cells = [
            last._replace(cell=last.cell + k, row=last.row + 20 * k, time=last.time + 20.0 * k) for k in range(1, 61)
        ]
        cells[30] = cells[30]._replace(values=cells[30].values + np.float32(2.0))
        store.commit("pump", store.load("pump"), store.entry("pump").version, traces=cells)
    until(browser, lambda b: f"{last.row + 1201:,} rows" in text(b, "banner-note"))
    after = until(browser, lambda b: b.execute_script(POINTS))
    # Twenty minutes more: one point came and one went; no more than these were sent.
    assert abs(after[0][-1] - before[0][-1]) <= 1
    name, n = browser.execute_script(REPLIES)[-1]
    assert "after=" in name
    assert n < 5_000
    reply = json.loads(urllib.request.urlopen(f"{service.url}/models/pump/watch?last=604800").read())
    drawn = browser.execute_script("return document.querySelector('.sensor .trace').getAttribute('d')")
    assert len(drawn.split("L")) == len(reply["places"])


def test_today_begins_at_midnight(browser, service):
    size(browser, 1920, 1080)
    browser.get(service.url)
    until(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".sensor .trace"))
    browser.find_element(By.ID, "range-today").click()
    # The week ends just before a midnight: the last day is shown from its first minute on.
    until(browser, lambda b: "00:00" in b.find_element(By.CSS_SELECTOR, ".sensor footer").text, seconds=20)
    assert browser.find_element(By.ID, "range-today").get_attribute("aria-pressed") == "true"


def test_phone_and_dark(browser, service):
    size(browser, 390, 844, "dark")
    browser.get(service.url)
    until(browser, lambda b: text(b, "banner-words").startswith("Alarm"))
    until(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".sensor .trace"))
    assert browser.execute_script(WIDE) == 0, "the page scrolls sideways on a phone"
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, ground[4:-1].split(","))) < 120, f"not dark: {ground}"
    assert bottom(browser, ".banner") < 844
    assert screenshot(browser, 2, 830, 8, 8).sum(axis=2).mean() < 150, "the screenshot is not dark"


def test_seen_takes_the_alarm_off_and_the_second_tab_has_the_model(browser, service):
    size(browser, 1280, 1000)
    browser.get(service.url)
    until(browser, lambda b: b.find_elements(By.ID, "mark-2-seen"))
    browser.find_element(By.ID, "mark-2-seen").click()
    until(browser, lambda b: text(b, "banner-words") == "All well")
    with Store(service.state) as store:
        assert stored_episodes(store, "pump")[1].mark == "seen"
    browser.find_element(By.ID, "tab-model").click()
    until(browser, lambda b: "AnomalyDetector" in text(b, "kind"))
    until(browser, lambda b: b.find_elements(By.CSS_SELECTOR, "#live .plotly .main-svg"))
    errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert errors == []
