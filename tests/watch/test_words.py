"""Rates, stretches of time and sentences."""

from __future__ import annotations

import math

import pytest

from everlearn.errors import InputError
from everlearn.streams.sources.times import TimeFormat
from everlearn.watch.episodes import Blame, Episode
from everlearn.watch.rates import parse_duration, parse_rate
from everlearn.watch.sentences import duration, sentence

ISO = TimeFormat("iso")


@pytest.mark.parametrize(
    ("text", "interval", "rows"),
    [("1/day", 1.0, 86400), ("2/week", 60.0, 5040), ("1/12hours", 10.0, 4320), ("1 per shift", 1.0, 28800)],
)
def test_a_rate_becomes_a_share_of_rows(text, interval, rows):
    assert 1 / parse_rate(text).per_row(interval) == pytest.approx(rows)


def test_a_rate_in_rows_needs_no_times():
    assert parse_rate("1/10000rows").per_row(None) == 1e-4
    with pytest.raises(InputError, match="--time"):
        parse_rate("1/day").per_row(None)


@pytest.mark.parametrize("text", ["", "1", "1/fortnight", "0/day", "one/day", "1/0rows"])
def test_other_rates_are_refused_with_examples(text):
    with pytest.raises(InputError, match="1/day, 2/week"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("30min", 1800), ("1h", 3600), ("2 days", 172800)]
)
def test_stretches_of_time(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "0h", "1 fortnight", "-1h"])
def test_other_stretches_are_refused(text):
    with pytest.raises(InputError, match="30min"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.0, "3 s"), (90.0, "1.5 min"), (3600.0, "1 h"), (4500.0, "1 h 15 min"), (86400.0, "1 d")]
)
def test_durations_in_words(seconds, text):
    assert duration(seconds) == text


HOT = Blame("bearing temp [°C]", 0.6, 71.23, 52.04, 55.31)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sensors": (HOT,)}, "10:42 to 10:57 bearing temp [°C] 71.2, expected 52.0 to 55.3 from the other sensors"),
        (
            {"sensors": (HOT, Blame("vibration", 0.4)), "status": "open"},
            "since 10:42 bearing temp [°C] 71.2, expected 52.0 to 55.3 from the other sensors; also vibration",
        ),
        (
            {"kind": "drift", "sensors": (HOT,)},
            "10:42 to 10:57 bearing temp [°C] drifts: 71.2, expected 52.0 to 55.3 from the other sensors",
        ),
        ({"kind": "frozen", "sensors": (Blame("flow", 1.0, 3.25),)}, "10:42 to 10:57 flow frozen at 3.25"),
        ({"kind": "gone", "sensors": (Blame("flow", 1.0),)}, "10:42 to 10:57 flow gives no values"),
        ({"kind": "no data"}, "10:42 to 10:57 no rows came for 15 min"),
        (
            {"kind": "sampling", "sensors": (Blame("sampling", 1.0, 5.0, 1.0, 1.0),)},
            "10:42 to 10:57 rows come every 5 s instead of every 1 s",
        ),
        (
            {"sensors": (Blame("flow", 1.0, 3.0, 2.0, 4.0),)},
            "10:42 to 10:57 flow 3.0 behaves unusually for its recent past",
        ),
    ],
)
def test_sentences(changes, expected):
    episode = Episode(1, "unusual", 38520, 39420, 38520.0, 39420.0, status="over")._replace(**changes)
    assert sentence(episode, ISO) == expected


def test_a_stream_without_times_counts_rows():
    episode = Episode(1, "gone", 1200, 3400, math.nan, math.nan, status="over", sensors=(Blame("flow", 1.0),))
    assert sentence(episode, None) == "row 1,200 to 3,400 flow gives no values"


def test_an_episode_survives_json():
    episode = Episode(3, "unusual", 1, 2, 1.0, math.nan, sensors=(HOT, Blame("x", 0.1)), sentence="words", mark="fault")
    again = Episode.of(episode.record())
    assert repr(again) == repr(episode)
