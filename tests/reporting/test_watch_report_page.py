"""The report in a real Chromium: what a boss sees on a screen, on a phone and in the dark."""

from __future__ import annotations

import numpy as np
import pytest
from selenium.webdriver.common.by import By

from browser_tools import CHROMIUM, DRIVER, open_browser, screenshot, shot_of, size
from everlearn.reporting.watch_report import render
from everlearn.streams.sources.times import TimeFormat
from everlearn.watch.episodes import Blame, Episode
from everlearn.watch.sentences import sentence
from everlearn.watch.traces import TracePoint

pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromium-driver are not installed"),
    pytest.mark.slow,
]
ISO = TimeFormat("iso", zone="+00:00")
COLUMNS = ["flow [m3/h]", "bearing temp [°C]", "speed [rpm]"]
BEGIN = 1762300800.0  # 2025-11-05 00:00 UTC
HOT = Blame(COLUMNS[1], 0.8, 71.2, 52.0, 55.0)


def episode(number, kind, begin, end, **more):
    found = Episode(number, kind, int(begin), int(end), BEGIN + begin, BEGIN + end, status="over")._replace(**more)
    return found._replace(sentence=sentence(found, ISO))


def points():
    rng = np.random.default_rng(0)
    for i in range(2000):
        mean = np.array([60.0, 50.0, 1450.0]) + rng.normal(size=3)
        yield TracePoint(20 * i, BEGIN + 20.0 * i, mean, mean - 1, mean + 1, mean - 2, mean + 2)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    episodes = [
        episode(1, "unusual", 9720, 10620, severity="alarm", p_value=1e-30, sensors=(HOT,)),
        episode(2, "frozen", 20000, 20200, p_value=0.0, sensors=(Blame(COLUMNS[0], 1.0, 3.25),)),
        episode(3, "unusual", 39000, 39980, severity="alarm", status="open", p_value=1e-30, sensors=(HOT,)),
    ]
    path = tmp_path_factory.mktemp("report") / "pump.html"
    page = render(episodes, list(points()), place="pump.csv", columns=COLUMNS, time_format=ISO)
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = open_browser(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


def channels(colours):
    """Mean red, green and blue."""
    return colours.reshape(-1, 3).mean(axis=0)


def first_pictures(browser):
    return browser.find_elements(By.TAG_NAME, "svg")[:3]


def test_one_page_of_words_and_three_pictures(browser, report):
    size(browser, 1200, 1600)
    browser.get(report)
    said = browser.find_element(By.TAG_NAME, "body").text
    for words in (
        "pump.csv: what happened", "Alarm at the end", "2 of them alarms", "bearing temp [°C] 71.2", "15 min",
        "expected 52.0 to 55.0 from the other sensors", "beyond doubt", "02:42 to 02:57",
    ):  # fmt: skip
        assert words in said
    assert [svg.is_displayed() for svg in first_pictures(browser)] == [True] * 3
    bottoms = [svg.rect["y"] + svg.rect["height"] for svg in first_pictures(browser)]
    assert max(bottoms) <= 1600, "words and three pictures are more than a page"
    errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert errors == []


def test_the_screenshot_has_the_state_the_spans_and_the_traces_in_their_colours(browser, report):
    size(browser, 1200, 1600)
    browser.get(report)
    red, green, blue = channels(shot_of(browser, browser.find_element(By.CSS_SELECTOR, ".state.alarm")))
    assert red > green + 60, "the state is not shown in red"
    assert red > blue + 60
    timeline, blamed, _ = first_pictures(browser)
    span = timeline.find_element(By.CSS_SELECTOR, ".span.fault")
    red, green, _ = channels(shot_of(browser, span))
    assert red > green + 20, "the alarm is no red span"
    look = timeline.find_element(By.CSS_SELECTOR, ".span.look")
    red, green, blue = channels(shot_of(browser, look))
    assert min(red, green) > blue + 15, "what is to be looked at is no yellow span"
    assert "bearing temp" in blamed.find_element(By.TAG_NAME, "title").get_attribute("textContent")
    # A trace in its dark blue crosses the picture from the left to the right.
    x, y, width, height = (blamed.rect[key] for key in ("x", "y", "width", "height"))
    for share in (0.2, 0.5, 0.8):
        strip = screenshot(browser, x + share * width, y, 6, height)
        assert (strip.astype(int).sum(axis=2) < 330).any(), f"no trace at {share:.0%} of the picture"


def test_phone_and_dark(browser, report):
    size(browser, 390, 844, "dark")
    browser.get(report)
    corner = channels(screenshot(browser, 2, 2, 8, 8))
    assert corner.sum() < 150, f"not dark: {corner}"
    red, green, _ = channels(shot_of(browser, browser.find_element(By.CSS_SELECTOR, ".state.alarm")))
    assert red > green + 60
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(wide) == 0, "the report scrolls sideways on a phone"
