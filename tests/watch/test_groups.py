"""One watcher a device: as if each were watched alone, in bounded memory, safe from any crash."""

import numpy as np
import pytest

from everlearn.errors import InputError
from everlearn.streams.sources.schema import Columns
from everlearn.streams.sources.times import TimeFormat
from everlearn.streams.store.store import Store
from everlearn.watch.groups import WatchGroups, known_group_columns
from everlearn.watch.session import WatchSession, mark_episode, stored_episodes, watched_columns
from everlearn.watch.watcher import Watcher

ISO = TimeFormat("iso", zone="+00:00")
FOUND = Columns(["load", "heat"], {}, "device", True, "time", ISO)
DEVICES = ("pump 1", "pump 2", "pump 3")
N = 800


def new_watcher(names):
    return Watcher(names, time_format=ISO)


@pytest.fixture(scope="module")
def fleet():
    """Rows of three pumps in turn; the second one is hot for a minute."""
    rng = np.random.default_rng(0)
    X = np.empty((3 * N, 2))
    for k in range(3):
        load = 50 + 5 * np.sin(np.arange(N) / 40) + rng.normal(0, 1, N)
        X[k::3] = np.column_stack([load, load / 2 + rng.normal(0, 0.5, N)])
    X[1::3][700:760, 1] += 12.0
    return X, np.tile(np.array(DEVICES, dtype=object), N), np.repeat(np.arange(float(N)), 3)


def watch(path, fleet, start, stop, *, most=2, every=300):
    X, y, times = fleet
    news = []
    with Store(path) as store:
        groups = WatchGroups(new_watcher, store, FOUND, most=most)
        for i in range(start, stop, every):
            part = slice(i, i + every)
            news += groups.learn(X[part], y[part], times[part]).episodes
            groups.commit(position={"source": {"row": i + every}})
            assert len(groups._sessions) <= most
    return news


@pytest.fixture(scope="module")
def watched(fleet, tmp_path_factory):
    path = tmp_path_factory.mktemp("fleet") / "run.db"
    news = watch(path, fleet, 0, 1200)
    with Store(path) as store:
        assert store.latest_position("device")["source"] == {"row": 1200}
        assert known_group_columns(store, "device") == FOUND
    return path, news + watch(path, fleet, 1200, 3 * N)


@pytest.mark.slow
def test_episodes_carry_their_device(watched):
    path, news = watched
    assert {(e.device, e.kind, e.blamed[0]) for e in news} == {("pump 2", "unusual", "heat")}
    assert news[0].sentence.startswith("pump 2: since 00:11")
    with Store(path) as store:
        assert [len(stored_episodes(store, name)) for name in DEVICES] == [0, 1, 0]
        assert mark_episode(store, "pump 2", 1, "fault").device == "pump 2"
        assert store.totals("pump 3")["rows"] == N


def test_each_device_is_watched_as_if_it_were_alone(watched, fleet, tmp_path):
    X, _, times = fleet
    with Store(tmp_path / "alone.db") as store:
        session = WatchSession(new_watcher(FOUND.names), store=store, name="pump 2", device="pump 2")
        for i in range(0, N, 100):
            session.learn(X[1::3][i : i + 100], None, times[1::3][i : i + 100])
            session.commit()
        (alone,) = stored_episodes(store, "pump 2")
    with Store(watched[0]) as store:
        assert repr(stored_episodes(store, "pump 2")[0]._replace(mark="")) == repr(alone)


def test_a_device_that_was_away_while_a_sensor_appeared_gets_it_later(fleet, tmp_path):
    X, y, times = (part[:90] for part in fleet)
    with Store(tmp_path / "run.db") as store:
        groups = WatchGroups(new_watcher, store, FOUND, most=1)
        groups.learn(X, y, times)
        groups.commit(position={})
        groups.grow(["oil"])
        wide = np.column_stack([X, np.ones(90)])
        for k in range(3):
            groups.learn(wide[k::3], y[k::3], times[k::3] + 100)
            groups.commit(position={})
        for name in DEVICES:
            assert watched_columns(store, name)[0] == ["load", "heat", "oil"]


def test_rows_without_a_device_are_counted_and_left_out(tmp_path):
    with Store(tmp_path / "run.db") as store:
        groups = WatchGroups(new_watcher, store, FOUND)
        groups.learn(np.ones((2, 2)), np.array(["", "a"], dtype=object), np.arange(2.0))
        assert (groups.n_rows, groups.n_bad) == (1, 1)
        with pytest.raises(InputError, match="no column 'device'"):
            groups.learn(np.ones((2, 2)))
