"""The report for a boss: what it says, how it is drawn, how large it is."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from everlearn.reporting.svg import Axis, trace_picture
from everlearn.reporting.watch_report import render, state_of
from everlearn.streams.sources.times import TimeFormat
from everlearn.watch.episodes import Blame, Episode
from everlearn.watch.sentences import sentence
from everlearn.watch.traces import TracePoint

ISO = TimeFormat("iso", zone="+00:00")
COLUMNS = ["flow [m3/h]", "bearing temp [°C] <x>"]
BEGIN = 1762300800.0  # 2025-11-05 00:00 UTC


def points(n=2000, seed=0, copies=1):
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        mean = np.array([60 + rng.normal(), 50 + rng.normal()] * copies)
        found.append(TracePoint(20 * i, BEGIN + 20.0 * i, mean, mean - 1, mean + 1, mean - 2, mean + 2))
    return found


def episode(number, kind, begin, end, **more):
    found = Episode(number, kind, int(begin), int(end), BEGIN + begin, BEGIN + end, status="over")._replace(**more)
    return found._replace(sentence=sentence(found, ISO))


HOT = Blame(COLUMNS[1], 0.8, 71.2, 52.0, 55.0)
EPISODES = [
    episode(1, "unusual", 9720, 10620, severity="alarm", p_value=1e-30, sensors=(HOT,)),
    episode(2, "frozen", 20000, 21200, p_value=0.0, sensors=(Blame(COLUMNS[0], 1.0, 3.25),)),
    episode(3, "no data", 30000, 30180, p_value=0.0),
]


@pytest.fixture(scope="module")
def report():
    return render(EPISODES, points(), place="plant/pump.csv", columns=COLUMNS, time_format=ISO)


def words(page):
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL))


def test_it_says_what_happened_when_how_long_which_sensor_and_how_sure(report):
    said = words(report)
    assert "pump.csv: what happened" in said
    assert "3 episodes (1 unusual behaviour, 1 frozen sensor, 1 break in the data), 1 of them an alarm." in said
    assert "bearing temp [°C] &lt;x&gt; 71.2, expected 52.0 to 55.0 from the other sensors" in said
    assert "02:42 to 02:57" in said
    assert "15 min" in said
    assert "beyond doubt" in said
    assert "no rows came for 3 min" in said
    assert "2025-11-05 00:00 to 2025-11-05 11:06" in said


def test_words_and_three_pictures_come_before_the_details(report):
    details = report.index("All other sensors") if "All other sensors" in report else report.index("How this was found")
    assert report[:details].count("<svg") == 3
    assert report.index("<table") < report.index("<svg")


def test_it_is_small_and_runs_nothing(report):
    many = render(EPISODES * 30, points(5000, copies=12), place="p", columns=COLUMNS * 12, time_format=ISO)
    assert len(many.encode()) < 1_000_000
    assert "<script" not in report
    assert "http:" not in report
    assert "https:" not in report


def test_pictures_are_well_formed_and_have_the_spans_of_their_episodes(report):
    pictures = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", report, flags=re.DOTALL)]
    spans = [rect for rect in pictures[0].iter("rect") if "span" in rect.get("class")]
    assert len(spans) == 3
    first = spans[-2] if len(spans) > 2 else spans[0]
    assert first.find("title").text
    lanes = [text.text for text in pictures[0].iter("text") if text.get("class") == "name"]
    assert lanes == [*COLUMNS, "the stream"]


def test_a_trace_has_holes_where_there_was_nothing():
    some = points(100)
    for i in range(40, 60):
        some[i] = some[i]._replace(mean=np.array([math.nan, 1.0]))
    svg = trace_picture("flow", 0, some, [], Axis(some, ISO))
    line = re.search(r'class="trace" d="([^"]*)"', svg)[1]
    assert line.count("M") == 2


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "well"),
        ({"status": "open"}, "alarm"),
        ({"status": "open", "severity": "look"}, "look"),
        ({"status": "open", "mark": "seen"}, "well"),
    ],
)
def test_the_state_is_that_of_the_episodes_that_last(changes, state):
    assert state_of([EPISODES[0]._replace(**changes)])[0] == state


def test_a_stream_without_times_or_episodes_has_a_report_too():
    untimed = [point._replace(time=math.nan) for point in points(50)]
    said = words(render([], untimed, place="p", columns=COLUMNS, time_format=None))
    assert "Nothing unusual happened." in said
    assert "981 rows" in said
    assert "No rows yet" in words(render([], [], place="p", columns=COLUMNS, time_format=ISO))
