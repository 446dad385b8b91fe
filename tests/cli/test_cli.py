"""The program: what it prints, what it saves, and how it ends."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import everlearn
from everlearn import cli
from everlearn.cli import learn_run
from everlearn.datasets.demo import COLUMNS, demo_stream


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the program in an empty folder; a traceback is never an answer."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments, status=0):
        result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == status, result.output
        assert "Traceback" not in result.output
        return result.output

    return command


def write(path, X, names):
    lines = [",".join(names), *(",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in X)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def table(tmp_path):
    """Two groups of rows in two columns, with gaps."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2)) + 9 * rng.integers(2, size=(600, 1))
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, write(tmp_path / "table.csv", X, ["temp", "rpm"])


def test_a_file_is_learned_and_saved(run, table):
    X, path = table
    output = run("learn", path, "--model-file", "out.evl")
    assert "600 rows" in output
    assert "Saved to out.evl" in output
    model = everlearn.load("out.evl")
    assert model.n_samples_seen_ == 600
    assert list(model.feature_names_in_) == ["temp", "rpm"]
    same = everlearn.IncrementalGaussianMixture(random_state=0).partial_fit(X)
    np.testing.assert_array_equal(model.score_samples(X), same.score_samples(X))


def test_the_summary_tells_the_truth(run, table):
    X, path = table
    output = run("learn", path)
    row = next(line for line in output.splitlines() if "│ temp" in line)
    mean, std, gaps = (cell.strip() for cell in row.split("│")[2:5])
    assert float(mean) == pytest.approx(np.nanmean(X[:, 0]), rel=0.05)
    assert float(std) == pytest.approx(np.nanstd(X[:, 0]), rel=0.2)
    assert gaps == f"{np.isnan(X[:, 0]).mean():.1%}"


def test_columns_and_rows_are_chosen(run, table, tmp_path):
    _, path = table
    run("learn", path, "--columns", "rpm,", "--rows", 100, "--model-file", "m.evl", "--quiet")
    model = everlearn.load("m.evl")
    assert list(model.feature_names_in_) == ["rpm"]
    assert model.n_samples_seen_ == 100


def test_what_is_left_out_is_said(run, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("when,machine,x\n" + "2024-01-01,M1,1.5\n2024-01-02,M[2],2.5\n" * 20 + "2024-01-03,M1\n")
    output = run("learn", path)
    assert "The column when holds the times of the rows: kept, and not learned." in output
    assert "The column machine holds text and is left out." in output
    assert "Rows left out: 1 with too few or too many cells (first at" in output
    assert "t.csv:42)" in output


def test_quiet(run, table):
    assert run("learn", table[1], "--quiet") == ""


def test_one_row(run, tmp_path):
    assert "1 row," in run("learn", write(tmp_path / "t.csv", np.ones((1, 2)), "ab"))


@pytest.mark.slow
def test_the_demonstration_shows_what_it_promises(run):
    """With the rows and the seed that a newcomer sees: regimes, switches, faults with their sensors, gaps."""
    output = " ".join(run("learn", "--demo").split())
    assert "10,000 rows" in output
    assert "The machine has 4 regimes" in output
    for regime in ("idle", "cruise", "heavy", "worn"):
        assert re.search(rf"{regime} \((99|100)%\)", output), regime
    assert "69 times: 69 of these are seen within 25 rows, and none is seen elsewhere" in output
    for fault, sensors in (("spike", "temperature"), ("burst", "vibration"), ("slips", "power and current")):
        assert re.search(rf"{fault} │ +(\d+) │ \1 \(100%\) │ +{sensors}", output), fault
    assert int(re.search(r"(\d+) false alarms? in 10,000 rows", output)[1]) <= 5


@pytest.mark.slow
def test_demo(run):
    output = run("learn", "--demo", "--rows", 3000, "--seed", 3, "--model-file", "demo.evl", "--report", "demo.html")
    report = Path("demo.html").read_text(encoding="utf-8")
    for words in (
        "The demonstration machine",
        "The machine has 4 regimes",
        "Faults, and the sensors to blame",
        "false alarm",
    ):
        assert words in report
    for word in (*COLUMNS, "idle", "cruise", "heavy", "belt slips", "Values lost", "To try next", "demo.evl"):
        assert word in output
    assert output.count("┏") <= 3  # tables
    assert "The machine has 4 regimes" in output
    model = everlearn.load("demo.evl")
    same = everlearn.IncrementalGaussianMixture(random_state=3)
    for batch in demo_stream(3000, seed=3):
        same.partial_fit(batch.X)
    np.testing.assert_allclose(model.score_samples(batch.X), same.score_samples(batch.X), rtol=1e-8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["learn"], "Give files or an address to learn from, or --demo"),
        (["learn", "table.csv", "--demo"], "not both"),
        (["learn", "table.csv", "--model", "classifier"], "--target"),
        (["learn", "table.csv", "--target", "rpm"], "--target"),
        (["learn", "table.csv", "--set", "beta"], "name=value"),
        (["learn", "table.csv", "--set", "speed=3"], "a mixture has the settings change_detector, covariance_type"),
        (["learn", "--demo", "--columns", "rpm"], "--columns"),
        (["learn", "--demo", "--rows", "0"], "--rows"),
        (["learn", "--demo", "--rows", "many"], "--rows"),
        (["learn", "--demo", "--seed", "-1"], "--seed"),
        (["lern"], "No such command"),
    ],
)
def test_wrong_usage(run, table, arguments, message):
    assert message in " ".join(run(*arguments, status=2).split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "bad.csv is empty"),
        ("a,b\n", "but no rows"),
        ("a,b\nx,y\nz,w\n", "no column of numbers: a (text), b (text)"),
        ("a,b\n1,2\n" * 0 + "a,b\ninf,1\n-inf,2\n", "no row that can be learned"),
        ("\0\1\2", "not a text file"),
    ],
)
def test_data_problems(run, tmp_path, content, message):
    (tmp_path / "bad.csv").write_text(content)
    output = " ".join(run("learn", "bad.csv", "--model-file", "out.evl", status=1).split())
    assert message in output
    assert not (tmp_path / "out.evl").exists()


def test_unknown_columns(run, table):
    assert "no column 'speed'. It has: temp, rpm" in " ".join(
        run("learn", table[1], "--columns", "speed", status=1).split()
    )


def test_places_that_cannot_be_written_are_named_before_learning(run, table, monkeypatch):
    monkeypatch.setattr(learn_run, "Session", lambda *arguments, **options: pytest.fail("learned first"))
    assert "no folder" in run("learn", table[1], "--model-file", "absent/m.evl", status=1)
    assert "is a directory" in run("learn", table[1], "--model-file", ".", status=2)
    monkeypatch.setattr("everlearn.cli.common.os.access", lambda path, mode: mode != os.W_OK)
    assert "cannot be written to" in " ".join(run("learn", table[1], "--model-file", "m.evl", status=1).split())


def test_a_failing_disk_is_reported(run, table, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("everlearn.persistence.model_file.os.fsync", full)
    assert "No space left on device" in run("learn", table[1], "--model-file", "m.evl", status=4)


def test_interruption_keeps_what_was_learned(run, table, monkeypatch):
    learned = learn_run.Session.learn

    def interrupted(self, X, y=None, times=None):
        if self.monitor.n_rows >= 200:
            signal.raise_signal(signal.SIGINT)
        return learned(self, X, y, times)

    monkeypatch.setattr(learn_run.Session, "learn", interrupted)
    output = run("learn", "--demo", "--rows", 1000, "--model-file", "m.evl")
    assert "Stopped after 300 rows" in output
    assert everlearn.load("m.evl").n_samples_seen_ == 300


def test_help_and_version(run):
    assert "everlearn learn sensors.csv --model-file machine.evl" in run("--help")
    assert "--model-file" in run("learn", "-h")
    assert run("--version").strip() == f"everlearn, version {everlearn.__version__}"


@pytest.mark.slow
def test_the_installed_program(table, tmp_path):
    """As a person runs it: a process of its own, with an exit status."""
    program = [sys.executable, "-m", "everlearn"]
    environment = {**os.environ, "COLUMNS": "100"}

    def process(*arguments):
        command = [*program, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    good = process("learn", str(table[1]), "--model-file", "out.evl")
    assert good.returncode == 0, good.stderr
    assert everlearn.load(tmp_path / "out.evl").n_samples_seen_ == 600
    bad = process("learn", "absent.csv")
    assert bad.returncode == 1
    assert "absent.csv" in bad.stderr
    assert "Traceback" not in bad.stderr
