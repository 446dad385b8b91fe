"""everlearn watch and everlearn mark, as a maintenance engineer uses them: files, folders, restarts, marks, words."""

import contextlib
import csv
import datetime
import json
import shlex
import threading
import time

import numpy as np
import pytest
from click.testing import CliRunner

from brokers_for_tests import MockKafka, mosquitto, redis_server
from everlearn import cli
from everlearn.cli.learn_run import mqtt_session
from everlearn.cli.watch_run import _told
from everlearn.streams.sources.opening import open_source
from everlearn.streams.store.store import Store
from everlearn.streams.writers import open_writer
from everlearn.watch.session import stored_episodes, stored_traces, watched_columns

SENSORS = ("load [kW]", "heat [°C]", "flow [m3/h]", "oil [mm]")
START = datetime.datetime(2026, 11, 5, tzinfo=datetime.UTC)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the program in a folder; a traceback is never an answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return command


def command(*arguments, status=0):
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == status, result.output
    return result.output


def machine(n, seed=0):
    """A machine whose heat rises and whose flow falls with its load."""
    rng = np.random.default_rng(seed)
    load = 50 + 5 * np.sin(np.arange(n) / 40) + rng.normal(0, 1, n)
    parts = load / 2 + rng.normal(0, 0.5, n), 80 - load + rng.normal(0, 0.5, n), 30 + load / 4 + rng.normal(0, 0.2, n)
    return np.column_stack([load, *parts])


def moments(n, first=0):
    return [(START + datetime.timedelta(seconds=first + i)).isoformat() for i in range(n)]


def write(path, X, *, columns=(0, 1, 2), first=0):
    """Rows of the machine as CSV, one a second from `first` on."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", *(SENSORS[j] for j in columns)])
        writer.writerows([when, *row] for when, row in zip(moments(len(X), first), X[:, columns].tolist(), strict=True))


@pytest.fixture(scope="module")
def hot(tmp_path_factory):
    """A run over 1,200 rows in which the heat is too high for a minute, with its state file."""
    folder = tmp_path_factory.mktemp("watch")
    X = machine(1200)
    X[900:960, 1] += 12.0
    write(folder / "day 1.csv", X)
    state = folder / "run 1.db"
    output = command("watch", folder / "day 1.csv", "--healthy-until", "2026-11-05T00:10", "--state", state)
    return folder, output


def test_what_happened_is_on_the_screen(hot):
    _, output = hot
    assert "with times from time" in " ".join(output.split())
    line = next(line for line in output.splitlines() if line.lstrip().startswith("1 "))
    assert "00:15" in line
    assert "heat [°C]" in line
    assert "expected" in line
    assert "1,200 rows: 1 episode, " in output


def test_suggestions_can_be_pasted(hot):
    _, output = hot
    commands = [line.strip() for line in output.splitlines() if line.strip().startswith("everlearn ")]
    assert [shlex.split(line)[1] for line in commands] == ["watch", "serve", "mark"]
    # The whole line, as somebody selects it with three clicks.
    assert "Episode 1 is marked as normal" in command(*shlex.split(commands[2])[1:])


@pytest.mark.slow
def test_suggestions_of_a_watcher_with_a_name_of_its_own(run, tmp_path):
    X = machine(1200)
    X[900:960, 1] += 12.0
    write(tmp_path / "day 1.csv", X)
    asked = (
        "watch",
        "day 1.csv",
        "--healthy-until",
        "2026-11-05T00:10",
        "--name",
        "pump 3",
        "--false-alarms",
        "1/week",
    )
    output = run(*asked, "--false-alarms", "1/week")
    report, state = [line.strip() for line in output.splitlines() if line.strip().startswith("everlearn ")]
    assert "The report is in report.html" in run(*shlex.split(report)[1:])
    output = run(*shlex.split(state)[1:])
    again = [line.strip() for line in output.splitlines() if line.strip().startswith("everlearn mark")]
    assert "Episode 1 is marked as normal" in run(*shlex.split(again[0])[1:])


def test_episodes_are_counted_in_words():
    assert _told(0, 0) == "0 episodes, 0 of them alarms"
    assert _told(1, 0) == "1 episode, no alarm"
    assert _told(1, 1) == "1 episode, an alarm"
    assert _told(1200, 1) == "1,200 episodes, 1 of them an alarm"


def test_marks(hot):
    folder, _ = hot
    state = folder / "run 1.db"
    assert "is marked as fault: since 00:15" in command("mark", 1, "--fault", "--state", state)
    with Store(state) as store:
        assert stored_episodes(store, "model")[0].mark == "fault"
    assert "Say what the episode was" in command("mark", 1, "--state", state, status=2)
    assert "holds no episode 7" in command("mark", 7, "--seen", "--state", state, status=1)
    assert "holds no episode 1 of 'pump'" in command("mark", 1, "--seen", "--state", state, "--name", "pump", status=1)
    assert "does not exist" in command("mark", 1, "--seen", "--state", folder / "other.db", status=2)


def test_the_same_command_goes_on(hot, tmp_path):
    folder, _ = hot
    (tmp_path / "run.db").write_bytes((folder / "run 1.db").read_bytes())
    output = command("watch", folder / "day 1.csv", "--state", tmp_path / "run.db")
    assert "1,200 rows were seen" in " ".join(output.split())
    output = command("watch", folder / "day 1.csv", "--state", tmp_path / "run.db", "--columns", "load*", status=1)
    assert "watches the columns load [kW], heat [°C], flow [m3/h]" in " ".join(output.split())


# -- columns that appear and disappear -------------------------------------------------------------


def test_a_run_does_not_end_for_columns_that_come_and_go(run, tmp_path):
    X = machine(900)
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs" / "1.csv", X[:700])
    write(tmp_path / "logs" / "2.csv", X[700:850], columns=(0, 1, 3), first=700)
    write(tmp_path / "logs" / "3.csv", X[850:], first=850)
    output = run("watch", "logs", "--state", "run.db")
    assert "2.csv has no column 'flow [m3/h]': its values are gaps." in output
    assert "2.csv has a column 'oil [mm]' that was not there before; it is left out." in output
    assert "3.csv has the column 'flow [m3/h]' again." in output
    assert "900 rows" in output
    with Store("run.db") as store:
        (episode,) = stored_episodes(store, "model")
        assert (episode.kind, episode.blamed, episode.first_row) == ("gone", ["flow [m3/h]"], 700)
        said = [event.details["reason"] for event in store.latest_events("model", kinds=["source changed"])]
    assert len(said) == 3


@pytest.mark.slow
def test_with_grow_a_sensor_that_appears_is_learned_and_watched(run, tmp_path):
    X = machine(1800)
    X[1700:1760, 3] += 6.0
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs" / "1.csv", X[:700])
    write(tmp_path / "logs" / "2.csv", X[700:1300], columns=(0, 1, 2, 3), first=700)
    output = run("watch", "logs", "--state", "run.db", "--grow")
    assert "2.csv has a column 'oil [mm]' that was not there before; it is learned from now on." in output
    # The next file comes after a restart, in the middle of the time in which the sensor is learned.
    write(tmp_path / "logs" / "3.csv", X[1300:], columns=(3, 2, 1, 0), first=1300)
    output = run("watch", "logs", "--state", "run.db", "--grow")
    assert "not there before" not in output
    with Store("run.db") as store:
        assert watched_columns(store, "model")[0] == list(SENSORS)
        (episode,) = stored_episodes(store, "model")
        points = stored_traces(store, "model")
    assert (episode.kind, episode.blamed[0]) == ("unusual", "oil [mm]")
    assert abs(episode.first_row - 1700) <= 3
    assert np.isnan(points[10].mean[3])
    assert points[-1].mean[3] > 40


def test_only_what_was_asked_for_grows(run, tmp_path):
    X = machine(60)
    write(tmp_path / "1.csv", X[:30])
    write(tmp_path / "2.csv", X[30:], columns=(0, 1, 3), first=30)
    output = run("watch", "1.csv", "2.csv", "--grow", "--columns", "load*,heat*", "--state", "run.db")
    assert "'oil [mm]' that was not there before; it is left out" in output
    with Store("run.db") as store:
        assert watched_columns(store, "model")[0] == list(SENSORS[:2])


# -- rows and times --------------------------------------------------------------------------------


@pytest.mark.slow
def test_rows_are_those_of_the_stream_and_not_of_the_healthy_file(run, tmp_path):
    X = machine(1800)
    write(tmp_path / "good.csv", X[:700])
    X[1500:1560, 1] += 12.0
    write(tmp_path / "day.csv", X[700:], first=700)
    output = run("watch", "day.csv", "--healthy", "good.csv", "--state", "run.db")
    assert "1,100 rows: 1 episode, " in output
    with Store("run.db") as store:
        (episode,) = stored_episodes(store, "model")
        points = stored_traces(store, "model")
    assert 800 <= episode.first_row <= 805
    assert 859 <= episode.last_row <= 900
    assert points[0].row <= 20
    assert points[-1].row < 1100
    # The same after a restart, and in words where there are no times.
    write(tmp_path / "more.csv", machine(200, seed=9), first=1800)
    assert "1,100 rows were seen" in run("watch", "day.csv", "more.csv", "--state", "run.db")
    plain = "\n".join(",".join(map(str, row)) for row in X[700:, :3].tolist())
    (tmp_path / "plain.csv").write_text(",".join(SENSORS[:3]) + "\n" + plain + "\n")
    output = run("watch", "plain.csv", "--healthy", "good.csv", "--false-alarms", "1/2000rows")
    assert "row 80" in output


def test_times_that_do_not_rise_say_what_to_do(run, tmp_path):
    lines = [f"2026-11-05T08:00:00,{load}" for load in machine(50)[:, 0].tolist()]
    (tmp_path / "log.csv").write_text("exported,load\n" + "\n".join(lines) + "\n")
    output = run("watch", "log.csv", status=1)
    assert "not known after 50 rows" in output
    assert "'exported'" in output
    assert "--time" in output


# -- many devices ----------------------------------------------------------------------------------


def test_one_watcher_a_device(run, tmp_path):
    lines = [
        f"{when},pump {k},{load},{heat + (12.0 if k == 2 and 640 <= i < 690 else 0.0)}"
        for i, (when, (load, heat)) in enumerate(zip(moments(700), machine(700)[:, :2].tolist(), strict=True))
        for k in (1, 2)
    ]
    (tmp_path / "fleet.csv").write_text("time,device,load,heat\n" + "\n".join(lines) + "\n")
    fleet = ["watch", "fleet.csv", "--by", "device", "--state", "fleet.db"]
    output = run(*fleet, "--episodes", "e.csv")
    assert "1,400 rows of 2 devices: 1 episode, " in output
    assert "everlearn mark 1 --normal --state fleet.db --name 'pump 2'\n" in output
    with open("e.csv", encoding="utf-8") as file:
        assert {(row["device"], row["kind"]) for row in csv.DictReader(file)} == {("pump 2", "unusual")}
    output = run(*fleet)
    assert "2 devices are known" in output
    assert "\n0 rows of 2 devices: 0 episodes" in output
    assert "Episode 1 is marked as seen: pump 2: " in run(
        "mark", 1, "--seen", "--state", "fleet.db", "--name", "pump 2"
    )
    assert "no column 'site'" in run("watch", "fleet.csv", "--by", "site", status=1)
    assert "--report is for one machine" in run(*fleet, "--report", "r.html", status=2)


# -- live streams ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_live_stream_that_falls_silent_is_an_episode(run, tmp_path, monkeypatch):
    monkeypatch.setattr("everlearn.watch.watcher.LEAST_SILENCE", 0.3)
    X = machine(40)
    path = tmp_path / "live.csv"
    write(path, X)
    # One row in 20 ms: ten times that is silence.
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    stamps = [(START + datetime.timedelta(milliseconds=20 * i)).isoformat() for i in range(60)]
    lines[1:] = [f"{stamp},{line.partition(',')[2]}" for stamp, line in zip(stamps, lines[1:], strict=False)]
    path.write_text("".join(lines), encoding="utf-8")

    def states():
        with Store("run.db") as store:
            return [episode.status for episode in stored_episodes(store, "model")]

    def feed(stop):
        """Add a row once the silence is noticed, and stop when that is noticed, too."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not states():
            time.sleep(0.05)
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{stamps[50]},{lines[-1].partition(',')[2]}")
        while time.monotonic() < deadline and states()[:1] != ["over"]:
            time.sleep(0.05)
        stop.set()

    @contextlib.contextmanager
    def fed(stop):
        feeder = threading.Thread(target=feed, args=(stop,))
        feeder.start()
        yield
        feeder.join()

    monkeypatch.setattr("everlearn.cli.watch_run.stop_on_signals", fed)
    output = run("watch", "live.csv", "--follow", "--state", "run.db", "--false-alarms", "1/10000rows")
    assert "no rows come" in output
    with Store("run.db") as store:
        episode = stored_episodes(store, "model")[0]  # a busy machine may pause once more
    assert (episode.kind, episode.status) == ("no data", "over")
    assert "no rows came" in episode.sentence


@contextlib.contextmanager
def filled_redis(folder):
    redis = pytest.importorskip("redis", reason="redis is not installed")
    with redis_server(folder) as port, redis.Redis(port=port) as client:

        def put(records):
            for record in records:
                client.xadd("rows", {"data": json.dumps(record)})

        yield f"redis://127.0.0.1:{port}", put


@contextlib.contextmanager
def filled_kafka(folder):
    kafka = MockKafka()

    def put(records):
        for record in records:
            kafka.producer.produce("rows", json.dumps(record), partition=0)  # one partition keeps the order
        assert kafka.producer.flush(30) == 0

    yield f"kafka://{kafka.address}", put


@pytest.mark.slow
@pytest.mark.parametrize("broker", [filled_redis, filled_kafka])
def test_a_broker_is_watched_and_told(broker, tmp_path):
    """Rows come from a broker and episodes go to it; a second run goes on behind the first, and a key appears."""
    X = machine(800)
    X[740:780, 1] += 12.0
    rows = [
        {"time": when, "load": a, "heat": b, "flow": c, **({"oil": 40.0 + i % 7} if i >= 700 else {})}
        for i, (when, (a, b, c, _)) in enumerate(zip(moments(800), X.tolist(), strict=True))
    ]
    with broker(tmp_path) as (where, put):
        options = ["--stop-at-end", "--state", tmp_path / "run.db", "--grow", "--episodes", f"{where}/alarms"]
        put(rows[:700])
        first = " ".join(command("watch", f"{where}/rows", *options).split())
        put(rows[700:])
        second = " ".join(command("watch", f"{where}/rows", *options).split())
        with open_source(f"{where}/alarms", columns=["episode", "first_row"], stop_at_end=True) as source:
            told = np.concatenate([batch.X for batch in source.batches()])
    assert "Watching 3 sensors" in first
    assert "with times from time" in first
    assert "700 rows were seen" in second
    assert "has a column 'oil' that was not there before; it is learned from now on" in second
    np.testing.assert_array_equal(np.unique(told, axis=0), [[1, 740]])
    with Store(tmp_path / "run.db") as store:
        (episode,) = stored_episodes(store, "model")
        assert watched_columns(store, "model")[0] == ["load", "heat", "flow", "oil"]
    assert (episode.kind, episode.blamed[0], episode.begin) == ("unusual", "heat", START.timestamp() + 740)


@pytest.mark.slow
def test_mqtt_is_watched_and_told(tmp_path):
    """A broker keeps messages for the sessions that it knows: that of the run, and that of who reads the alarms."""
    pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    X = machine(800)
    X[740:780, 1] += 12.0
    names, state = ["load", "heat", "flow"], tmp_path / "run.db"
    with mosquitto(tmp_path) as port:
        rows, alarms = (f"mqtt://127.0.0.1:{port}/plant/{topic}" for topic in ("rows", "alarms"))
        open_source(rows, columns=names, session=mqtt_session(str(state), "model")).close()
        open_source(alarms, columns=["episode", "first_row"], session="reader").close()
        with open_writer(rows, ["time", *names]) as writer:
            writer.write([[when, *x[:3]] for when, x in zip(moments(800), X.tolist(), strict=True)])
        output = " ".join(command("watch", rows, "--stop-at-end", "--state", state, "--episodes", alarms).split())
        with open_source(alarms, columns=["episode", "first_row"], session="reader") as source:
            told = next(iter(source.batches())).X
    assert "Watching 3 sensors" in output
    np.testing.assert_array_equal(np.unique(told, axis=0), [[1, 740]])
    with Store(state) as store:
        (episode,) = stored_episodes(store, "model")
    assert (episode.kind, episode.blamed[0], episode.begin) == ("unusual", "heat", START.timestamp() + 740)


# -- wrong usage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--false-alarms", "often"], 1, "1/10000rows"),
        (["--accept-after", "soon"], 1, "30min"),
        (["--healthy-until", "noon"], 1, "2026-11-05T12:00"),
        (["--healthy", "a.csv", "--healthy-until", "2026-11-05"], 2, "not both"),
        (["--token", "x"], 2, "--webhook"),
        (["--webhook", "ftp://x"], 1, "https://"),
        (["--time", "when"], 1, "no column 'when'"),
        (["--columns", "torque"], 1, "no column 'torque'"),
        (["--report", "no/folder/r.html"], 1, "no folder"),
    ],
)
def test_wrong_options_are_explained(run, tmp_path, arguments, status, message):
    write(tmp_path / "a.csv", machine(30))
    assert message in " ".join(run("watch", "a.csv", *arguments, status=status).split())


@pytest.mark.slow
def test_one_stamp_years_ahead_is_no_gap_and_not_the_end_of_the_chart(run, tmp_path):
    X = machine(1000)
    write(tmp_path / "day.csv", X)
    lines = (tmp_path / "day.csv").read_text(encoding="utf-8").splitlines()
    lines[801] = lines[801].replace("2026-", "2099-")
    (tmp_path / "day.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    output = run("watch", "day.csv", "--healthy-until", "2026-11-05T00:10", "--state", "run.db")
    assert "no rows" not in output
    assert "0 episodes" in output
    with Store(tmp_path / "run.db") as store:
        times = [point.time for point in stored_traces(store, "model")]
    assert max(times) < START.timestamp() + 1000
    run("learn", "day.csv", "--state", "learn.db")
    assert "time gap" not in run("show", "learn.db")
