"""everlearn learn: times, places that cannot be written, settings that are wrong, and frames to the kernel."""

import csv
import datetime
import json
import os
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import everlearn
from everlearn import cli
from low_rank_toys import several


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the program in a folder; a traceback is never an answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def command(*arguments, status=0):
        result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == status, result.output
        return result.output

    return command


def timed_rows(path, n=400):
    """A table with times in a zone, three minutes of it missing, and a row that is far from the others."""
    rng = np.random.default_rng(0)
    start = datetime.datetime(2026, 11, 5, 10, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    lines = []
    for i, (a, b) in enumerate(rng.normal(size=(n, 2))):
        when = start + datetime.timedelta(seconds=i + (180 if i >= 250 else 0))
        lines.append(f"{when.isoformat()},{a + (1e4 if i == 300 else 0)},{b}")
    path.write_text("when,speed [rpm],flow\n" + "\n".join(lines) + "\n")


def test_times_are_kept_and_shown_with_their_zone(run, tmp_path):
    timed_rows(tmp_path / "t.csv")
    places = ["--state", "run.db", "--scores", "s.csv", "--novelties", "n.csv", "--report", "r.html"]
    output = run("learn", "t.csv", *places)
    assert "when holds the times of the rows" in output
    scores = list(csv.DictReader((tmp_path / "s.csv").open()))
    assert scores[0]["time"] == "2026-11-05T10:00:00+01:00"
    assert scores[399]["time"] == "2026-11-05T10:09:39+01:00"
    novelties = {row["row"]: row for row in csv.DictReader((tmp_path / "n.csv").open())}
    assert novelties["300"]["time"] == "2026-11-05T10:08:00+01:00"
    assert "p_value" in novelties["300"]
    shown = run("show", "run.db")
    assert "time gap" in shown
    assert "2026-11-05T10:07:10+01:00" in shown
    assert "2026-11-05T10:07:10+01:00" in (tmp_path / "r.html").read_text()


def test_the_suggestion_can_be_pasted(run, tmp_path):
    timed_rows(tmp_path / "t.csv")
    output = run("learn", "t.csv", "--model-file", "my pump.evl")
    line = next(line for line in output.splitlines() if "everlearn ask" in line)
    assert run(*shlex.split(line)[1:])
    assert "'my pump.evl'" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "novelty_level"], "name=value"),
        (["--set", "=3"], "name=value"),
        (["--set", "bogus=1"], "a mixture has the settings"),
        (["--set", "novelty_level=2"], "novelty_level"),
        (["--set", "novelty_level=nan"], "novelty_level"),
        (["--set", "forgetting=__import__('os')"], "forgetting"),
        (["--set", "max_components=" + "9" * 5000], "max_components"),
        (["--model", "regressor"], "--model regressor needs --target COLUMN"),
        (["--target", "x"], "add --model classifier or regressor"),
        (["--name", ""], "1 to 200 printable characters"),
        (["--name", "a\nb"], "1 to 200 printable characters"),
        (["--name", "x" * 300], "1 to 200 printable characters"),
    ],
)
def test_bad_settings_and_names_are_wrong_usage(run, tmp_path, options, message):
    timed_rows(tmp_path / "t.csv", 30)
    assert message in " ".join(run("learn", "t.csv", *options, status=2).split())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.parametrize("options", [["--state", "run.db"], ["--scores", "s.csv"], ["--model-file", "m.evl"]])
def test_a_limit_on_the_size_of_files_ends_with_status_4(tmp_path, options):
    timed_rows(tmp_path / "t.csv", 3000)
    command = f"ulimit -f 2; exec {shlex.quote(sys.executable)} -m everlearn learn t.csv {shlex.join(options)}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "ulimit -f" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def locked(tmp_path):
    """A folder that nobody can write to; root can write anywhere but to a disk that is read only."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    mounted = not os.access(folder, os.W_OK) or (
        shutil.which("mount") is not None
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    )
    if not mounted:
        pytest.skip("root may write anywhere, and may not mount")
    yield folder
    if os.path.ismount(folder):
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX")
def test_folders_that_cannot_be_written_to_are_named_before_learning(run, tmp_path, locked):
    timed_rows(tmp_path / "t.csv", 30)
    for option, ending in (("--state", "db"), ("--scores", "csv"), ("--model-file", "evl"), ("--report", "html")):
        assert "cannot be written to" in run("learn", "t.csv", option, f"locked/x.{ending}", status=1)
    assert "cannot be written" in run("serve", "--state", "locked/x.db", status=1)


def test_files_and_state_files_that_cannot_be_written_are_named(run, tmp_path, monkeypatch):
    """As for anybody but root: the folder says that it is not writable."""
    timed_rows(tmp_path / "t.csv", 30)
    monkeypatch.setattr("everlearn.cli.common.os.access", lambda *arguments: False)
    for option, name in (("--state", "x.db"), ("--scores", "x.csv"), ("--model-file", "x.evl"), ("--report", "x.html")):
        assert "cannot be written to" in " ".join(run("learn", "t.csv", option, name, status=1).split())


@pytest.mark.parametrize("program", ["learn", "watch"])
def test_a_run_that_is_stopped_before_its_first_row_is_no_error(run, tmp_path, monkeypatch, program):
    """A source of which nothing was read has not been found empty."""
    timed_rows(tmp_path / "t.csv", 30)
    monkeypatch.setattr("everlearn.streams.runner.Runner.run", lambda self: self.stop.set())
    assert "Stopped after 0 rows" in run(program, "t.csv", "--state", "run.db")


def test_at_most_seven_frames_lie_between_the_command_and_the_model(run, tmp_path, monkeypatch):
    """Of ours, those of click not counted; the model may add seven of its own before the kernel."""
    import everlearn

    timed_rows(tmp_path / "t.csv", 300)
    chains = []
    honest = everlearn.IncrementalGaussianMixture.prequential

    def traced(self, X, *arguments):
        frame, chain = sys._getframe(1), []
        while frame is not None and "commands/learn.py" not in frame.f_code.co_filename:
            chain.append(frame.f_code.co_name)
            frame = frame.f_back
        chains.append([*chain, "command"])
        return honest(self, X, *arguments)

    monkeypatch.setattr(everlearn.IncrementalGaussianMixture, "prequential", traced)
    run("learn", "t.csv")
    assert chains[0] == ["score_then_learn", "learn", "_learn_batch", "run", "learn_stream", "command"]


def test_a_run_without_state_makes_no_file(run, tmp_path, monkeypatch):
    import sqlite3

    timed_rows(tmp_path / "t.csv", 300)
    monkeypatch.setattr(sqlite3, "connect", lambda *arguments, **options: pytest.fail("a database was opened"))
    run("learn", "t.csv", "--report", "r.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "t.csv"]


def test_one_model_a_group(run, tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{i},pump {i % 3},{a},{b}" for i, (a, b) in enumerate(rng.normal(size=(300, 2)))]
    (tmp_path / "fleet.csv").write_text("n,device,speed,flow\n" + "\n".join(lines) + "\n")
    columns = ["--columns", "speed,flow"]
    output = run("learn", "fleet.csv", "--by", "device", *columns, "--state", "g.db", "--model-file", "models")
    assert "300 rows learned; 3 models, 3 of them new" in output
    assert sorted(os.listdir("models")) == ["pump_0.evl", "pump_1.evl", "pump_2.evl"]
    found = everlearn.read_metadata("models/pump_1.evl")
    assert (found["rows"], found["tags"]) == (100, {"by": "device", "group": "pump 1"})
    assert "0 rows learned; 3 models" in run("learn", "fleet.csv", "--by", "device", *columns, "--state", "g.db")
    assert "100 rows learned" in run("show", "g.db", "--name", "pump 2")
    listed = json.loads(run("show", "g.db", "--json"))["models"]
    assert [(each["name"], each["rows"], each["waiting"]) for each in listed] == [
        (f"pump {i}", 100, 0) for i in range(3)
    ]
    one = json.loads(run("show", "g.db", "--json", "--name", "pump 1"))
    assert (one["name"], one["rows"]) == ("pump 1", 100)
    assert [column["name"] for column in one["columns"]] == ["speed", "flow"]
    assert "holds no model 'fan'" in run("show", "g.db", "--json", "--name", "fan", status=1)
    run("learn", "fleet.csv", "--by", "device", *columns, "--model-file", "again")
    same = [everlearn.dumps(everlearn.load(f"{folder}/pump_0.evl")) for folder in ("models", "again")]
    assert same[0] == same[1]
    for wrong, message in (
        (["--by", "device"], "Say where the models go"),
        (["--by", "device", "--state", "g.db", "--report", "r.html"], "that is for one model"),
        (["--by", "device", "--state", "g.db", "--workers", 2], "that is for one model"),
        (["--by", "device", "--model-file", "fleet.csv"], "this is a folder"),
    ):
        assert message in run("learn", "fleet.csv", *wrong, status=2)
    assert "no column 'site'" in run("learn", "fleet.csv", "--by", "site", "--state", "h.db", status=1)


def test_a_wide_file_is_learned_by_low_rank_components_and_resumed_within_a_search(run, tmp_path):
    """A search of 260 columns is due at row 320 and adopted at row 400: the first file ends in between."""
    rng = np.random.default_rng(0)
    X = rng.permutation(several(rng, 420, 260, K=2))
    header = ",".join(f"c{i}" for i in range(260))
    for name, part in (("a.csv", X[:330]), ("b.csv", X[330:]), ("all.csv", X)):
        np.savetxt(tmp_path / name, part, delimiter=",", header=header, comments="", fmt="%.17g")
    run("learn", "a.csv", "--state", "parts.db")
    run("learn", "b.csv", "--state", "parts.db", "--model-file", "parts.evl")
    run("learn", "all.csv", "--model-file", "all.evl")
    parts, whole = everlearn.load(tmp_path / "parts.evl"), everlearn.load(tmp_path / "all.evl")
    assert parts.covariance_type_ == whole.covariance_type_ == "low_rank"
    assert parts.n_samples_seen_ == whole.n_samples_seen_ == 420
    np.testing.assert_allclose(parts.score_samples(X), whole.score_samples(X), rtol=1e-6)
