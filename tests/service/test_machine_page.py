"""The page of a watched machine in a real Chromium: what it shows on a wall, on a phone and in the dark."""

from __future__ import annotations

import numpy as np
import pytest
from selenium.webdriver.common.by import By

from browser_tools import CHROMIUM, DRIVER, open_browser, screenshot, shot_of, size, until
from everlearn.anomaly.estimator import AnomalyDetector
from everlearn.streams.sources.times import TimeFormat
from everlearn.streams.store.records import NAN, Event
from everlearn.streams.store.store import Store
from everlearn.watch.episodes import Blame, Episode
from everlearn.watch.sentences import sentence
from everlearn.watch.session import EPISODE, TRACE, stored_episodes
from everlearn.watch.traces import TracePoint
from everlearn.watch.watcher import Watcher
from service_tools import Service

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromium-driver are not installed")
COLUMNS = [f"sensor {j} [bar]" for j in range(8)]
ISO = TimeFormat("iso", zone="+00:00")
BEGIN, HOURS = 1762300800.0, 168  # a week from 2025-11-05 00:00 UTC, a point every 20 seconds
WIDE = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


def text(browser, name):
    return browser.find_element(By.ID, name).text


def traces():
    rng = np.random.default_rng(0)
    for i in range(HOURS * 180):
        mean = rng.normal(10.0, 0.1, len(COLUMNS))
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
    events = [Event(point.row, TRACE, NAN, point.record(), 0.0, point.time) for point in traces()]
    events += [Event(e.first_row, EPISODE, e.p_value, e.record(), 0.0, e.begin) for e in episodes()]
    memory = {"watch": Watcher(COLUMNS).memory(), "columns": COLUMNS, "time_format": list(ISO)}
    with Store(path) as store:
        store.commit("pump", detector, 0, events=events, memory=memory)
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


def test_a_week_is_shown_quickly_and_can_be_zoomed(browser, service):
    size(browser, 1920, 1080)
    browser.get(service.url)
    until(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".sensor .trace"))
    browser.find_element(By.ID, "range-1w").click()
    until(browser, lambda b: "11-05 00:00" in b.find_element(By.CSS_SELECTOR, ".sensor footer").text, seconds=60)
    assert len(browser.find_elements(By.CSS_SELECTOR, ".span")) == 2
    browser.find_element(By.ID, "view-closer").click()
    until(browser, lambda b: "11-05 00:00" not in b.find_element(By.CSS_SELECTOR, ".sensor footer").text, seconds=20)


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
    errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert [error for error in errors if "style-src-elem" not in error] == []
