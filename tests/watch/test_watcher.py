"""The watcher on a small machine: what it tells, when, of which sensor, and that restarts do not matter."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from everlearn.errors import InputError
from everlearn.watch.watcher import Watcher

COLUMNS = ["load", "heat", "flow"]
N = 3000


def machine(seed=0, n=N):
    rng = np.random.default_rng(seed)
    load = 50 + 5 * np.sin(np.arange(n) / 40) + rng.normal(0, 1, n)
    return np.column_stack([load, load / 2 + rng.normal(0, 0.5, n), 80 - load + rng.normal(0, 0.5, n)])


def watched(X, times=None, cuts=(), **options):
    times = np.arange(float(len(X))) if times is None else times
    watcher, found = Watcher(COLUMNS, **options), {}
    for start, end in itertools.pairwise([0, *cuts, len(X)]):
        for episode in watcher.watch(X[start:end], times[start:end]):
            found[episode.number] = episode
    return watcher, list(found.values())


@pytest.fixture(scope="module")
def faulty():
    X = machine()
    X[1500:1560, 1] += 12.0
    X[2000:2040, 2] = X[2000, 2]
    X[2400:2440, 0] = np.nan
    return X, watched(X)[1]


def test_each_fault_is_one_episode_of_its_kind(faulty):
    _, episodes = faulty
    assert [episode.kind for episode in episodes] == ["unusual", "frozen", "gone"]
    assert [episode.blamed[0] for episode in episodes] == ["heat", "flow", "load"]
    assert [episode.status for episode in episodes] == ["over"] * 3
    assert [episode.number for episode in episodes] == [1, 2, 3]


def test_values_far_off_are_an_alarm_and_sensors_that_are_silent_for_seconds_are_not(faulty):
    _, episodes = faulty
    assert [episode.severity for episode in episodes] == ["alarm", "look", "look"]


def test_a_sensor_that_is_gone_becomes_an_alarm_after_five_minutes():
    X = machine(n=1400)
    X[1000:, 2] = np.nan
    watcher, severities = Watcher(COLUMNS), []
    for end in (1200, 1280, 1310, 1400):
        start = watcher.n_rows
        severities += [e.severity for e in watcher.watch(X[start:end], np.arange(float(start), end))]
    assert severities == ["look", "look", "alarm", "alarm"]


def test_begin_and_end_are_those_of_the_fault(faulty):
    _, episodes = faulty
    for episode, (begin, end) in zip(episodes, [(1500, 1559), (2000, 2039), (2400, 2439)], strict=True):
        assert abs(episode.first_row - begin) <= 3
        assert 0 <= episode.last_row - end <= 15
        assert episode.begin == pytest.approx(episode.first_row, abs=1.0)


def test_the_sentence_says_what_was_expected(faulty):
    _, (hot, *_) = faulty
    first = hot.sensors[0]
    assert first.value > 30 > first.high > first.low > 18
    assert hot.severity == "alarm"
    assert "heat" in hot.sentence
    assert "from the other sensors" in hot.sentence


def test_a_restart_in_the_middle_of_an_episode_changes_nothing(faulty):
    X, whole = faulty
    times = np.arange(float(len(X)))
    first = Watcher(COLUMNS)
    found = {episode.number: episode for episode in first.watch(X[:1536], times[:1536])}
    second = Watcher(COLUMNS)
    second.restore(json.loads(json.dumps(first.memory(), allow_nan=False)), first.detector.copy())
    found |= {episode.number: episode for episode in second.watch(X[1536:], times[1536:])}
    assert repr(list(found.values())) == repr(whole)


def test_the_packaging_into_batches_does_not_matter_to_what_is_told(faulty):
    X, whole = faulty
    cuts = sorted(np.random.default_rng(1).choice(np.arange(1, N), 40, replace=False).tolist())
    _, parts = watched(X, cuts=cuts)
    seen = [
        [(e.kind, e.first_row, e.last_row, e.severity, e.blamed[0]) for e in episodes] for episodes in (parts, whole)
    ]
    assert seen[0] == seen[1]


def test_healthy_rows_raise_no_alarm():
    assert watched(machine(seed=3))[1] == []


def test_a_fault_that_begins_while_other_rows_are_held_back_is_as_strange_as_alone():
    """What lasts is judged by episodes: the detector's discount for rows that may stay would hide the next fault."""
    X = machine(n=1300)
    X[1200:] += [0.0, 12.0, 0.0]
    scores = []
    for share in (0.0, 0.9):
        watcher = watched(X[:1200])[0]
        guard = watcher.detector._state_.guard
        guard.pressure[0] = share * watcher.detector.patience
        scores.append(watcher._advance(X[1200:1210], "guarded"))
    assert (scores[0] < np.log(1e-8)).all()
    # But for its own rows, which are counted as far ones where no other fault lasts.
    np.testing.assert_allclose(*scores, rtol=0.05)


def test_missing_rows_are_an_episode():
    X = machine()[:1000]
    times = np.arange(1000.0)
    times[700:] += 120.0
    _, episodes = watched(X, times)
    assert [(e.kind, e.begin, e.end) for e in episodes] == [("no data", 699.0, 820.0)]
    assert "no rows came" in episodes[0].sentence


@pytest.mark.slow
def test_what_lasts_is_accepted_only_after_its_time():
    X = machine(n=2500)
    X[1200:, 1] += 12.0
    watcher, (episode,) = watched(X, accept_after=600.0)
    assert episode.status == "accepted"
    assert 600.0 <= episode.end - episode.begin <= 700.0
    assert watcher.watch(X[-200:], np.arange(2500.0, 2700.0)) == []


@pytest.mark.slow
def test_a_fault_that_is_over_is_not_learned():
    X = machine(n=2600)
    for start in (1000, 1700, 2300):
        X[start : start + 100, 1] += 12.0
    _, episodes = watched(X, accept_after=250.0)
    assert len(episodes) >= 2
    assert not any(episode.status == "accepted" for episode in episodes)


@pytest.mark.slow
def test_marked_as_normal_it_is_not_told_again():
    X = machine(n=2600)
    X[1200:1250, 1] += 12.0
    X[2000:2050, 1] += 12.0
    times = np.arange(2600.0)
    watcher = Watcher(COLUMNS)
    (first,) = watcher.watch(X[:1800], times[:1800])
    assert watcher.mark(first, "normal") == []
    assert watcher.watch(X[1800:], times[1800:]) == []


@pytest.mark.slow
def test_marking_an_episode_that_lasts_ends_it():
    X = machine(n=1800)
    X[1200:, 1] += 12.0
    times = np.arange(1800.0)
    watcher = Watcher(COLUMNS)
    (first,) = watcher.watch(X[:1400], times[:1400])
    assert first.is_open
    (ended,) = watcher.mark(first, "normal")
    assert ended.status == "accepted"
    assert watcher.watch(X[1400:], times[1400:]) == []


@pytest.mark.slow
def test_like_a_marked_fault_is_an_alarm_at_once():
    X = machine(n=2600)
    X[1200:1250, 1] += 12.0
    X[2000:2030, 1] += 12.0
    times = np.arange(2600.0)
    severities = {}
    for verdict in ("seen", "fault"):
        watcher = Watcher(COLUMNS)
        (first,) = watcher.watch(X[:1800], times[:1800])
        watcher.mark(first, verdict)
        (second,) = watcher.watch(X[1800:2003], times[1800:2003])
        severities[verdict] = second.severity
    assert severities == {"seen": "look", "fault": "alarm"}


@pytest.mark.slow
def test_rows_that_are_known_to_be_healthy_are_learned_whatever_they_are():
    X = machine(n=2400)
    X[1000:1100, 1] += 12.0
    times = np.arange(2400.0)
    watcher = Watcher(COLUMNS)
    watcher.learn(X[:1500], times[:1500])
    assert watcher.detector.n_held_ == 0
    assert watcher.watch(X[1500:], times[1500:]) == []


# -- sensors that appear, and rows that do not come -------------------------------------------------


@pytest.mark.slow
def test_a_sensor_that_appears_is_watched_with_the_others_after_a_while():
    X = machine()
    oil = 30 + X[:, 0] / 4 + np.random.default_rng(1).normal(0, 0.2, N)
    oil[2300:2340] += 6.0
    X[2700:2740, 1] += 12.0
    wide, times = np.column_stack([X, oil]), np.arange(float(N))
    watcher = Watcher(COLUMNS)
    found = watcher.watch(X[:1000], times[:1000])
    watcher.grow(["oil"])
    found += watcher.watch(wide[1000:1200], times[1000:1200])
    assert watcher.detector.n_features_in_ == 3
    assert np.isnan(watcher.expected[0]).tolist() == [False] * 3 + [True]
    # Whatever waits is part of the memory: a restart in between changes nothing.
    again = Watcher([*COLUMNS, "oil"])
    again.restore(json.loads(json.dumps(watcher.memory())), watcher.detector)
    found += again.watch(wide[1200:], times[1200:])
    assert again.detector.n_features_in_ == 4
    assert not np.isnan(again.expected[0]).any()
    begun = {episode.number: episode for episode in found}.values()
    assert [(episode.kind, episode.blamed[0]) for episode in begun] == [("unusual", "oil"), ("unusual", "heat")]


@pytest.mark.slow
def test_what_a_sensor_that_appeared_would_have_said_before_is_drawn_given_the_others():
    """Gaps there would be the most usual thing of all, and draws that know nothing of the others no relation."""
    X = machine()
    oil = 30 + X[:, 0] / 4 + np.random.default_rng(1).normal(0, 0.2, N)
    wide, times = np.column_stack([X, oil]), np.arange(float(N))
    watcher = Watcher(COLUMNS)
    watcher.watch(X[:1000], times[:1000])
    watcher.grow(["oil"])
    watcher.watch(wide[1000:2000], times[1000:2000])
    sample = watcher.detector._state_.sample
    rows = sample.rows[: int(sample.size[0])]
    before = (rows[:, None, :3] == X[:1000]).all(axis=2).any(axis=1)
    assert before.sum() > 100
    errors = rows[:, 3] - 30 - rows[:, 0] / 4
    assert abs(errors[before].mean()) < 0.1
    assert 0.1 < errors[before].std() < 0.4


@pytest.mark.slow
def test_a_sensor_that_appeared_is_checked_for_drift_when_enough_is_known_of_it():
    rng = np.random.default_rng(5)
    n = 3000
    load = np.cumsum(rng.normal(0.0, 0.02, n))
    X = np.column_stack([load, -load, 2.0 * load]) + rng.normal(0.0, 0.05, (n, 3))
    X[2400:, 2] += np.linspace(0.0, 3.0, n - 2400)
    times = 20.0 * np.arange(n)  # each row is a probe
    watcher = Watcher(["a", "b"])
    watcher.learn(X[:300, :2], times[:300])
    watcher.grow(["new"])
    watcher.learn(X[300:2400], times[300:2400])
    told = [e for i in range(2400, n, 100) for e in watcher.watch(X[i : i + 100], times[i : i + 100])]
    assert told
    assert {e.blamed[0] for e in told} == {"new"}


@pytest.mark.slow
def test_another_fault_is_another_episode():
    """What another sensor does suddenly in a long episode is not a part of it."""
    X = machine(n=3000)
    X[1500:2150, 1] += 12.0
    X[2200:2260, 2] += 30.0
    _, episodes = watched(X, cuts=range(250, 3000, 250))
    assert [episode.first_row for episode in episodes[:2]] == [1500, 2200]
    assert episodes[0].blamed[0] == "heat"
    assert "flow" in episodes[1].blamed[:2]


@pytest.mark.slow
def test_another_fault_is_seen_beside_a_worse_row_of_the_first():
    """Both are in the 32 rows of which one is explained: the jump of another sensor must not be lost."""
    X = machine(n=2400)
    X[1500:2400, 1] += 12.0
    X[2085, 1] += 80.0
    X[2095:2160, 2] += 30.0
    _, episodes = watched(X)
    assert [episode.first_row for episode in episodes[:2]] == [1500, 2095]
    assert "flow" in episodes[1].blamed[:2]


def test_a_sensor_that_appears_is_checked_for_frozen_values_at_once():
    X = machine(n=1300)
    oil = np.random.default_rng(1).normal(30, 1, 1300)
    oil[1200:1240] = oil[1200]
    watcher = Watcher(COLUMNS)
    watcher.watch(X[:1000], np.arange(1000.0))
    watcher.grow(["oil"])
    (episode,) = watcher.watch(np.column_stack([X, oil])[1000:], np.arange(1000.0, 1300.0))
    assert (episode.kind, episode.blamed) == ("frozen", ["oil"])


def test_a_sensor_may_appear_before_the_first_rows_are_taken():
    watcher = Watcher(COLUMNS)
    watcher.watch(machine(n=5), np.arange(5.0))
    watcher.grow(["oil"])
    watcher.watch(np.column_stack([machine(n=300), np.arange(300.0)]), np.arange(5.0, 305.0))
    assert watcher.detector.n_features_in_ == 4
    with pytest.raises(InputError, match="oil are watched already"):
        watcher.grow(["oil"])


def test_silence_is_an_episode_that_ends_with_the_next_row():
    watcher = Watcher(COLUMNS)
    X, times = machine(n=100), np.arange(100.0)
    assert watcher.silence(1e6) == []  # the pace is not known yet
    watcher.watch(X[:50], times[:50])
    assert watcher.silence(9.0) == []
    (begun,) = watcher.silence(11.0)
    assert (begun.kind, begun.begin, begun.is_open) == ("no data", 49.0, True)
    assert watcher.silence(20.0) == []
    (worse,) = watcher.silence(301.0)
    assert (begun.severity, worse.number, worse.severity) == ("look", begun.number, "alarm")
    assert watcher.silence(400.0) == []
    (over,) = watcher.watch(X[50:], times[50:] + 600.0)
    assert (over.number, over.status, over.end) == (begun.number, "over", 650.0)
