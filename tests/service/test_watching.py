"""What the page of a machine asks for: any stretch of time in a bounded number of points, and what is new only."""

import numpy as np
import pytest

from everlearn.anomaly.estimator import AnomalyDetector
from everlearn.service.watching import MOST_POINTS, rounded
from everlearn.streams.sources.times import TimeFormat
from everlearn.streams.store.records import EpisodeRecord
from everlearn.streams.store.trace_table import FIELDS, LEVELS, TraceCell
from everlearn.watch.episodes import Blame, Episode
from everlearn.watch.watcher import Watcher

COLUMNS = ["flow [m3/h]", "heat"]
FIRST = 88_115_040  # cells since 1970: 2025-11-05 00:00
DETECTOR = AnomalyDetector(model=None).fit(np.random.default_rng(0).normal(size=(250, 2)))


def cells(first, n, *, timed=True):
    values = 50.0 + np.random.default_rng(first).normal(size=(n, 5, 2)).astype(np.float32)
    start = FIRST if timed else 0
    times = 20.0 * (start + first + np.arange(n)) + 19.0 if timed else np.full(n, np.nan)
    return [
        TraceCell(start + i, 20 * i + 19, float(t), v)
        for i, t, v in zip(range(first, first + n), times, values, strict=True)
    ]


def put(client, traces, episodes=(), *, timed=True):
    store = client.app.state.repository.store
    how = list(TimeFormat("iso", zone="+00:00")) if timed else None
    memory = {"watch": Watcher(COLUMNS).memory(), "columns": COLUMNS, "time_format": how}
    entry = store.entry("pump")
    found = [EpisodeRecord(e.number, e.is_open, e.record()) for e in episodes]
    store.commit("pump", DETECTOR, entry.version if entry else 0, traces=traces, episodes=found, memory=memory)


def ask(client, **query):
    return client.get("/models/pump/watch", params=query).json()


def episode(number, status="open"):
    return Episode(number, "unusual", 0, 9, 20.0 * FIRST, 20.0 * FIRST + 9.0, status=status,
                   sensors=(Blame("heat", 1.0),), severity="alarm")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "level"),
    [(60, 1), (3600, 1), (4 * 3600, 1), (8 * 3600, 3), (86400, 15), (604800, 60), (30 * 86400, 180)],
)
def test_a_longer_time_has_longer_points_and_not_more(client, seconds, level):
    put(client, cells(0, 2000))
    store = client.app.state.repository.store
    last = store.trace_ends("pump", 1)[1]
    # A month, of which only the ends are there: the level is chosen by the time, not by what there is.
    put(client, [last._replace(cell=last.cell + 129600, time=last.time + 30 * 86400.0, row=last.row + 1)])
    found = ask(client, last=seconds)
    assert found["level"] == level
    assert len(found["places"]) == len(found["cells"]) <= MOST_POINTS
    assert {len(found["sensors"][1][field]) for field in FIELDS} == {len(found["places"])}


def test_the_finest_grain_is_what_the_watcher_kept(client):
    put(client, first := cells(0, 500))
    found = ask(client, begin=20.0 * (FIRST + 100), end=20.0 * (FIRST + 279))
    assert found["cells"] == list(range(FIRST + 100, FIRST + 280))
    np.testing.assert_allclose(found["sensors"][0]["most"], [cell.values[2, 0] for cell in first[100:280]], rtol=1e-4)
    assert found["first"], found["last"] == (20.0 * FIRST + 19.0, 20.0 * (FIRST + 499) + 19.0)


def test_rows_stand_for_times_where_there_are_none(client):
    put(client, cells(0, 3000, timed=False), timed=False)
    found = ask(client, last=40_000)
    assert (found["has_times"], found["level"], found["rows"]) == (False, 3, 60_000)
    assert found["places"][-1] == 59_999.0


@pytest.mark.parametrize(("seconds", "others"), [(3600, 86400), (86400, 3600)])
def test_what_is_new_added_to_what_is_known_is_all(client, seconds, others):
    """The newest point may not have been complete: it is sent again, whole."""
    put(client, cells(0, 5000), [episode(1), episode(2, "over")])
    known = ask(client, last=seconds)
    put(client, cells(5000, 37), [episode(1, "over"), episode(3)])
    whole = ask(client, last=seconds)
    new = ask(client, last=seconds, level=known["level"], after=known["cells"][-2], since=known["change"])
    assert new["newer"]
    assert len(new["cells"]) <= 40
    assert [shown["number"] for shown in new["episodes"]] == [1, 3]
    assert (new["state"], new["words"]) == (whole["state"], whole["words"])
    kept = known["cells"].index(new["cells"][0])
    begin = known["cells"].index(whole["cells"][0])
    assert known["cells"][begin:kept] + new["cells"] == whole["cells"]
    for field in FIELDS:
        joined = known["sensors"][1][field][begin:kept] + new["sensors"][1][field]
        np.testing.assert_allclose(joined, whole["sensors"][1][field], rtol=1e-3)
    other = ask(client, last=others, level=known["level"], after=known["cells"][-2], since=known["change"])
    assert not other["newer"]  # points of another level cannot be added


def test_nothing_is_sent_while_nothing_changes(client):
    put(client, cells(0, 50), [episode(1)])
    reply = client.get("/models/pump/watch?last=3600")
    tag = {"If-None-Match": reply.headers["ETag"]}
    again = client.get("/models/pump/watch?last=3600", headers=tag)
    assert (again.status_code, again.content) == (304, b"")
    client.post("/models/pump/episodes/1/mark", json={"verdict": "seen"})
    marked = client.get("/models/pump/watch?last=3600", headers=tag)
    assert (marked.status_code, marked.json()["words"]) == (200, "All well")
    tag = {"If-None-Match": marked.headers["ETag"]}
    put(client, cells(50, 1))
    assert client.get("/models/pump/watch?last=3600", headers=tag).status_code == 200


def test_time_that_the_finest_level_has_lost_is_shown_by_a_longer_one(client):
    put(client, cells(0, 600))
    with client.app.state.repository.store._file.transaction() as connection:
        connection.execute("DELETE FROM trace WHERE level = 1 AND cell < ?", (FIRST + 400,))
    early = ask(client, begin=20.0 * FIRST, end=20.0 * FIRST + 3600.0)
    assert early["level"] == 3
    assert len(early["cells"]) == 61
    assert ask(client, last=3600)["level"] == 1
    assert early["first"] == 20.0 * FIRST + 59.0


def test_years_are_joined_to_the_same_number_of_points(client):
    days = [
        cell._replace(cell=FIRST + 4320 * i, time=20.0 * (FIRST + 4320 * i)) for i, cell in enumerate(cells(0, 2000))
    ]
    put(client, days)
    found = ask(client)
    assert len(found["cells"]) <= MOST_POINTS
    assert max(found["sensors"][0]["most"]) == pytest.approx(max(cell.values[2, 0] for cell in days), rel=1e-4)


def test_a_gap_is_null_and_numbers_are_short(client):
    some = cells(0, 40)
    some[3].values[:, 1] = np.nan
    put(client, some)
    reply = client.get("/models/pump/watch?last=3600")
    assert reply.json()["sensors"][1]["mean"][3] is None
    assert len(reply.content) < 40 * (10 * 8 + 30) + 1000
    assert LEVELS[0] == reply.json()["level"]


def test_numbers_are_rounded_to_the_size_of_the_sensor():
    values = np.zeros((4, 5, 3))
    values[:, :, 0] = 123.456789
    values[0, 0, 0] = 1e6 + 0.123456  # one outlier does not take the digits of all others
    values[:, :, 1] = -0.000123456789
    found = rounded(values)
    assert found[1, 0, 0] == 123.46
    assert found[0, 0, 1] == -0.00012346
    assert (found[:, :, 2] == 0).all()
    assert rounded(np.zeros((0, 5, 3))).shape == (0, 5, 3)


def test_a_watcher_named_by_its_device_is_shown(client):
    store = client.app.state.repository.store
    memory = {"watch": Watcher(COLUMNS).memory(), "columns": COLUMNS, "time_format": None}
    name = "Pumpe 3 (süd)"
    store.commit(name, DETECTOR, 0, traces=cells(0, 5, timed=False), memory=memory)
    assert client.get(f"/models/{name}/watch?last=100").json()["watched"]
    assert client.get(f"/models/{name}").json()["name"] == name
    # Over HTTP models are still made under plain names only.
    assert client.post("/models/pump 4/learn", json={"columns": ["a"], "rows": [[1.0]]}).status_code == 422
