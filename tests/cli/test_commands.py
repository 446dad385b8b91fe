"""The commands that ask, show and combine models, and how they end."""

import csv
import errno
import io
import json
import os
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import everlearn
from everlearn import cli
from everlearn.cli import COMMANDS
from everlearn.cli.commands import doctor
from everlearn.cli.summary import show_anomalies
from everlearn.cli.text_plots import bar, sparkline
from everlearn.export import to_c, to_onnx
from everlearn.streams.store.store import Store

rng = np.random.default_rng(0)
NAMES = ["rpm", "torque", "temp"]
X = rng.normal(size=(800, 3)) @ [[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 1.0]] + 9 * rng.integers(2, size=(800, 1))


def command(*arguments, status=0):
    """What the program says; a traceback is never an answer."""
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A folder with rows, and the model that the program learned of them."""
    folder = tmp_path_factory.mktemp("learned")
    write(folder / "rows.csv", X)
    command("learn", folder / "rows.csv", "--model-file", folder / "m.evl", "--quiet")
    return folder


@pytest.fixture
def run(learned, tmp_path, monkeypatch):
    """Run the program in a folder of one's own with rows and a model."""
    monkeypatch.chdir(tmp_path)
    for name in ("rows.csv", "m.evl"):
        shutil.copy(learned / name, name)
    return command


def write(path, rows, names=NAMES):
    cells = [["" if np.isnan(v) else repr(v) for v in row] for row in rows.tolist()]
    with open(path, "w") as file:
        file.write("\n".join(",".join(row) for row in [names, *cells]) + "\n")


def table(text):
    rows = list(csv.DictReader(io.StringIO(text)))
    return {name: np.array([float(row[name]) if row[name] else np.nan for row in rows]) for name in rows[0]}


def test_every_command_has_help_with_examples():
    for name, words in COMMANDS.items():
        result = CliRunner().invoke(cli.main, [name, "--help"])
        assert result.exit_code == 0
        assert f"everlearn {name}" in result.output
        assert words.endswith(".")


def test_score(run):
    found = table(run("score", "m.evl", "rows.csv"))
    model = everlearn.load("m.evl")
    np.testing.assert_array_equal(found["log_density"], model.score_samples(X))
    np.testing.assert_array_equal(found["p_value"], model.p_value(X))
    np.testing.assert_array_equal(found["row"], np.arange(800))


def test_columns_are_found_by_name(run):
    write("other.csv", X[:, [2, 0, 1]], ["temp", "rpm", "torque"])
    found, expected = (table(run("score", "m.evl", name)) for name in ("other.csv", "rows.csv"))
    np.testing.assert_array_equal(found["log_density"], expected["log_density"])
    write("lacking.csv", X[:, :2], ["rpm", "torque"])
    assert "no column 'temp'" in run("score", "m.evl", "lacking.csv", status=1)


@pytest.mark.parametrize("command", ["score", "impute"])
def test_nothing_is_written_before_the_columns_are_known_to_be_right(run, command):
    write("lacking.csv", X[:, :2], ["rpm", "torque"])
    assert CliRunner().invoke(cli.main, [command, "m.evl", "lacking.csv"]).stdout == ""
    run(command, "m.evl", "rows.csv", "-o", "old.csv")
    with open("old.csv") as file:
        before = file.read()
    run(command, "m.evl", "lacking.csv", "-o", "old.csv", status=1)
    with open("old.csv") as file:
        assert file.read() == before


def test_scores_to_files_and_alarms(run):
    write("odd.csv", np.concatenate([X[:5], [[50.0, -50.0, 50.0]]]))
    assert "1 rows have a p-value below 1e-06" in run(
        "score", "m.evl", "odd.csv", "-o", "s.parquet", "--alarm", "1e-6", status=3
    )
    assert pq.read_table("s.parquet").column_names == ["row", "log_density", "p_value"]
    run("score", "m.evl", "rows.csv", "-o", "s.jsonl", "--alarm", "1e-30")
    with open("s.jsonl") as file:
        assert len([json.loads(line) for line in file]) == 800
    refusal = run("score", "m.evl", "rows.csv", "-o", "s.xls", status=1)
    assert "ends in .csv, .jsonl or .parquet" in " ".join(refusal.split())


def test_a_detector_scores_rows_and_names_the_column_to_blame(run):
    everlearn.AnomalyDetector().fit(pd.DataFrame(X, columns=NAMES)).save("d.evl")
    odd = X[:300].copy()
    odd[250, 1] += 12 * X[:, 1].std()
    write("odd.csv", odd)
    assert "rows have a p-value below 1e-06" in run(
        "score", "d.evl", "odd.csv", "-o", "s.parquet", "--alarm", "1e-6", status=3
    )
    found = pq.read_table("s.parquet").to_pylist()
    assert list(found[0]) == ["row", "score", "p_value", "column", "value", "low", "high"]
    assert found[250]["column"] == "torque"
    assert found[250]["p_value"] < 1e-6
    assert found[250]["low"] < X[:, 1].mean() + 3 * X[:, 1].std() < found[250]["value"]
    assert found[100]["column"] == ""
    assert everlearn.load("d.evl").n_samples_seen_ == 800


@pytest.mark.slow
def test_learning_a_detector_tells_what_is_strange(run):
    odd = X.copy()
    odd[700, 1] += 12 * X[:, 1].std()
    write("odd.csv", odd)
    said = run(
        "learn",
        "odd.csv",
        "--model",
        "detector",
        "--set",
        "patience=300",
        "--model-file",
        "d.evl",
        "--report",
        "r.html",
    )
    assert "column to blame" in said
    assert any("700" in line.split() and "torque" in line for line in said.splitlines())
    assert "mean log p-value" in said
    assert "log-likelihood" not in said
    with open("r.html") as file:
        report = file.read()
    for words in ("Who is to blame for the latest row held back: ", "Latest anomalies", "<dt>mean log p-value</dt>"):
        assert words in report
    assert re.search(r"<td>700</td><td>[^<]*</td><td>torque</td><td>torque [^<]*, expected [^<]*</td>", report)
    assert "log-likelihood" not in report.partition("<script>")[0]
    model = everlearn.load("d.evl")
    assert isinstance(model, everlearn.AnomalyDetector)
    assert model.patience == 300
    assert "a detector has the settings" in run("learn", "odd.csv", "--model", "detector", "--set", "x=1", status=2)


@pytest.mark.slow
def test_anomalies_of_a_run_are_written_and_shown(run):
    """With the names of the columns also where the whole run is one batch, and with first and last row."""
    odd = X.copy()
    odd[700:706, 1] += 12 * X[:, 1].std()
    write("odd.csv", odd)
    run("learn", "odd.csv", "--model", "detector", "--state", "odd.db", "--novelties", "found.csv")
    with open("found.csv") as file:
        rows = {row["row"]: row for row in csv.DictReader(file)}
    assert int(rows["700"]["last"]) >= 705
    assert rows["700"]["column"] == "torque"
    assert rows["700"]["text"].startswith("torque ")
    said = " ".join(run("show", "odd.db").split())
    assert f"700 to {rows['700']['last']}" in said
    assert "mean log p-value" in said


def test_of_one_row_held_back_the_words_are_those_of_one(run, monkeypatch):
    detector = everlearn.AnomalyDetector().fit(X[:, :2])
    for n, words in ((0, "0 rows are held back"), (1, "1 row is held back")):
        monkeypatch.setattr(type(detector), "n_held_", n)
        console = Console(record=True, width=200)
        show_anomalies(detector, ["a", "b"], console)
        assert words in console.export_text()


def test_bad_rows_are_said_on_standard_error(run):
    with open("rows.csv", "a") as file:
        file.write("1,2\nx,2,3\n")
    result = CliRunner().invoke(cli.main, ["score", "m.evl", "rows.csv"])
    assert len(result.stdout.splitlines()) == 801
    assert "Rows left out: 1 with too few or too many cells." in result.stderr


def test_impute(run):
    gappy = X[:50].copy()
    gappy[::2, 1] = np.nan
    write("gappy.csv", gappy)
    found = table(run("impute", "m.evl", "gappy.csv", "--std"))
    filled, std = everlearn.load("m.evl").impute(gappy, return_std=True)
    np.testing.assert_array_equal(found["torque"], filled[:, 1])
    np.testing.assert_array_equal(found["torque_std"], std[:, 1])


def test_a_regressor_is_shown_without_moments_and_refers_questions_to_score(run):
    output = run("learn", "rows.csv", "--model", "regressor", "--target", "torque", "--model-file", "r.evl")
    assert "mean" not in output
    assert "IncrementalGaussianMixtureRegressor with" in output
    # Also where every column is given: that nothing is left to ask for would say nothing to its user.
    for known in ("rpm=9", "rpm=9,temp=20"):
        assert "`everlearn score` gives its predictions" in run("ask", "r.evl", "--given", known, status=1)


def test_a_file_of_an_imputer_is_used_as_the_model_inside(run):
    everlearn.StreamImputer(everlearn.IncrementalGaussianMixture(2)).fit(pd.DataFrame(X, columns=NAMES)).save("i.evl")
    assert "800 rows learned" in run("show", "i.evl")
    assert json.loads(run("ask", "i.evl", "--given", "rpm=9", "--predict", "torque", "--json"))["predict"]["torque"]
    everlearn.StreamImputer().save("empty.evl")
    assert "has learned nothing yet" in run("show", "empty.evl", status=1)


def test_export(run):
    run("export", "m.evl", "--to", "c", "-o", "m.c")
    with open("m.c") as file:
        assert file.read() == to_c(everlearn.load("m.evl"))
    assert "KiB" in run("export", "m.evl", "--to", "onnx", "--gaps", "torque, temp", "-o", "m.onnx")
    with open("m.onnx", "rb") as file:
        assert file.read() == to_onnx(everlearn.load("m.evl"), gaps=["torque", "temp"]).SerializeToString()
    assert "any gaps" in run("export", "m.evl", "--to", "c", "--gaps", "torque", "-o", "m.c", status=2)
    refusal = run("export", "m.evl", "--to", "onnx", "--gaps", "torqe", "-o", "m.onnx", status=1)
    assert "Did you mean 'torque'" in refusal


def test_ask(run):
    answer = json.loads(run("ask", "m.evl", "--given", "rpm=9.5, temp=9", "--predict", "torque", "--json"))
    model = everlearn.load("m.evl")
    expected = model.condition([[9.5, 9.0]], given=["rpm", "temp"], target="torque")
    assert answer["predict"]["torque"]["mean"] == pytest.approx(float(expected.mean()[0, 0]))
    assert answer["predict"]["torque"]["std"] == pytest.approx(float(expected.std()[0, 0]))
    output = run("ask", "m.evl", "--given", "rpm=9.5")
    assert "Given that rpm = 9.5" in output
    assert "█" in output
    assert list(json.loads(run("ask", "m.evl", "--json"))["predict"]) == NAMES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--given", "rpm"], "write column=value"),
        (["--given", "rpm=fast"], "write column=value"),
        (["--given", "rpm=inf"], "write column=value"),
        (["--given", "speed=3"], "speed"),
        (["--given", "rpm=3", "--predict", "rpm"], "share a column"),
        (["--given", "rpm=3,torque=1,temp=2"], "nothing is left to ask for"),
        (["--given", "rpm=3,rpm=4"], "'rpm' twice"),
    ],
)
def test_questions_that_cannot_be_asked(run, arguments, message):
    assert message in " ".join(run("ask", "m.evl", *arguments, status=1).split())


def test_show(run):
    output = run("show", "m.evl")
    for word in ("IncrementalGaussianMixture(random_state=0)", "800 rows learned", "torque", "Weights", "%"):
        assert word in output
    run("learn", "rows.csv", "--state", "run.db", "--quiet")
    output = run("show", "run.db")
    for word in ("model in run.db", "The whole run", "rows", "log-likelihood"):
        assert word in output
    run("learn", "rows.csv", "--state", "run.db", "--name", "other", "--model", "ppca", "--quiet")
    assert "2 models in run.db" in run("show", "run.db")
    assert "Principal axes" in run("show", "run.db", "--name", "other")
    assert "holds no model 'third'" in run("show", "run.db", "--name", "third", status=1)
    assert json.loads(run("ask", "run.db", "--name", "model", "--predict", "rpm", "--json"))["predict"]["rpm"]


@pytest.mark.slow
def test_merge_and_reduce(run):
    write("more.csv", X[::-1] + 1.0)
    run("learn", "more.csv", "--model-file", "n.evl", "--quiet")
    assert "2 models with 1,600 rows" in run("merge", "m.evl", "n.evl", "-o", "both.evl")
    assert everlearn.load("both.evl").n_samples_seen_ == 1600
    assert "saved to small.evl" in run("reduce", "both.evl", "-n", 2, "-o", "small.evl")
    assert everlearn.load("small.evl").n_components_ <= 2
    run("learn", "rows.csv", "--model", "ppca", "--model-file", "p.evl", "--quiet")
    assert "cannot be merged" in run("merge", "m.evl", "p.evl", "-o", "x.evl", status=1)
    assert "IncrementalGaussianMixture" in run("reduce", "p.evl", "-n", 2, "-o", "x.evl", status=1)


@pytest.mark.slow
def test_merge_keeps_its_list_and_does_it_again_without_one(run):
    for i in range(3):
        write(f"rows{i}.csv", X + i)
        run("learn", f"rows{i}.csv", "--model-file", f"device-{i}.evl", "--tag", f"device={i}", "--quiet")
    os.mkdir("devices")
    for i in range(3):
        os.rename(f"device-{i}.evl", f"devices/device-{i}.evl")
    assert "3 models with 2,400 rows" in run("merge", "devices", "-o", "all.evl", "--tag", "site=north")
    found = json.loads(run("show", "all.evl", "--json"))
    assert found["tags"] == {"site": "north"}
    assert [parent["name"] for parent in found["parents"]] == [f"devices/device-{i}.evl" for i in range(3)]
    shown = run("show", "all.evl")
    assert "site=north" in shown
    assert "Merged from 3 files" in shown
    assert "2 models with 1,600 rows" in run("merge", "all.evl", "--without", "device-1", "-o", "rest.evl")
    run("merge", "devices/device-0.evl", "devices/device-2.evl", "-o", "same.evl", "--quiet")
    assert everlearn.dumps(everlearn.load("rest.evl")) == everlearn.dumps(everlearn.load("same.evl"))
    assert "is not among the 3 models" in run("merge", "all.evl", "--without", "x", "-o", "rest.evl", status=1)
    os.rename("devices", "elsewhere")
    assert "--files" in run("merge", "all.evl", "--without", "device-1", "-o", "rest.evl", status=1)
    run("merge", "all.evl", "--without", "device-1", "--files", "elsewhere", "-o", "rest.evl", "--quiet")
    os.replace("elsewhere/device-0.evl", "elsewhere/device-2.evl")
    os.rename("rest.evl", "elsewhere/device-0.evl")
    assert "its digest is another" in run(
        "merge", "all.evl", "--without", "device-1", "--files", "elsewhere", "-o", "rest.evl", status=1
    )
    assert "site=north" in run("learn", "rows.csv", "--tag", "site", "--model-file", "x.evl", status=2)


def test_privacy(run):
    shown = run("show", "m.evl", "--privacy")
    assert "800 rows of the stream are inside" in shown
    assert "everlearn export FILE --min-rows 20" in shown
    run("export", "m.evl", "--min-rows", 50, "-o", "shared.evl")
    shown = run("show", "shared.evl", "--privacy", "--min-rows", 50)
    assert "No row is inside" in shown
    assert "no noise" in shown
    assert json.loads(run("show", "shared.evl", "--json"))["keeps_rows"] is False
    assert "Say what to write" in run("export", "m.evl", "-o", "x", status=2)
    run("learn", "rows.csv", "--model", "ppca", "--model-file", "p.evl", "--quiet")
    assert "has no copy without its rows" in run("export", "p.evl", "--min-rows", 20, "-o", "x.evl", status=1)


@pytest.mark.slow
def test_models_with_a_target(run):
    labels = np.where(X[:, 0] > 4, "high", "low")
    with open("parts.csv", "w") as file:
        file.write("kind,torque,temp\n" + "".join(f"{k},{a},{b}\n" for k, (a, b) in zip(labels, X[:, 1:], strict=True)))
    run("learn", "parts.csv", "--model", "classifier", "--target", "kind", "--model-file", "c.evl", "--quiet")
    rows = list(csv.DictReader(io.StringIO(run("score", "c.evl", "parts.csv"))))
    assert np.mean([row["prediction"] == label for row, label in zip(rows, labels, strict=True)]) > 0.95
    run("learn", "rows.csv", "--model", "regressor", "--target", "torque", "--model-file", "r.evl", "--quiet")
    found = table(run("score", "r.evl", "rows.csv"))
    assert np.corrcoef(found["prediction"], X[:, 1])[0, 1] > 0.9
    assert "cannot fill gaps" in run("impute", "r.evl", "rows.csv", status=1)
    assert "--alarm needs" in run("score", "r.evl", "rows.csv", "--alarm", 0.1, status=1)
    assert "only a mixture or a PPCA" in " ".join(run("ask", "r.evl", "--predict", "torque", status=1).split())
    refused = run("learn", "parts.csv", "--model", "regressor", "--target", "kind", status=1)
    assert "'kind' of parts.csv holds text" in " ".join(refused.split())
    assert "needs --target" in run("learn", "rows.csv", "--start", "r.evl", status=2)
    assert "--target is for" in run("learn", "rows.csv", "--start", "m.evl", "--target", "temp", status=2)


def test_a_model_goes_on_with_its_own_columns(run):
    write("more.csv", X[:, [2, 0, 1]], ["temp", "rpm", "torque"])
    run("learn", "more.csv", "--start", "m.evl", "--model-file", "again.evl", "--quiet")
    again = everlearn.load("again.evl")
    assert list(again.feature_names_in_) == NAMES
    assert again.n_samples_seen_ == 1600
    write("lacking.csv", X[:, :2], ["rpm", "torque"])
    assert "no column 'temp'" in run("learn", "lacking.csv", "--start", "m.evl", status=1)
    refused = run("learn", "rows.csv", "--start", "m.evl", "--columns", "rpm,temp", status=1)
    assert "has the columns rpm, torque, temp; the stream has rpm, temp" in " ".join(refused.split())
    everlearn.save(everlearn.OnlinePPCA(1).fit(X), "nameless.evl")
    refused = run("learn", "lacking.csv", "--start", "nameless.evl", status=1)
    assert "has 3 columns; the stream has rpm, torque" in " ".join(refused.split())


@pytest.mark.parametrize(
    "arguments",
    [["learn", "rows.csv", "--scores"], ["score", "m.evl", "rows.csv", "-o"], ["impute", "m.evl", "rows.csv", "-o"]],
)
def test_folders_that_are_not_there_are_named(run, arguments):
    assert "There is no folder" in run(*arguments, "absent/x.csv", status=1)


@pytest.mark.slow
def test_a_run_goes_on_where_it_was(run):
    assert "Going on" not in run("learn", "rows.csv", "--state", "run.db", "--rows", 300)
    assert "Going on with model in run.db: 300 rows are learned" in run("learn", "rows.csv", "--state", "run.db")
    with Store("run.db") as store:
        assert store.load("model").n_samples_seen_ == 800
    assert "another" in run("learn", "rows.csv", "--state", "run.db", "--model", "ppca", status=1)
    assert "was made with" in run("learn", "rows.csv", "--state", "run.db", "--set", "novelty_level=0.1", status=1)
    assert "not a state file" in run("learn", "rows.csv", "--state", "rows.csv", status=1)


def test_learning_goes_on_from_a_model_file(run):
    run("learn", "rows.csv", "--start", "m.evl", "--model-file", "n.evl", "--quiet")
    assert everlearn.load("n.evl").n_samples_seen_ == 1600


def test_settings_reach_the_model(run):
    run(
        "learn",
        "rows.csv",
        "--set",
        "novelty_level=0.1",
        "--set",
        "covariance_type=diag",
        "--model-file",
        "d.evl",
        "--quiet",
    )
    model = everlearn.load("d.evl")
    assert (model.novelty_level, model.covariance_type) == (0.1, "diag")
    assert "novelty_level" in run("learn", "rows.csv", "--set", "novelty_level=7", status=2)


@pytest.mark.slow
def test_there_is_one_log_likelihood_of_a_run(run):
    """The progress line, `show`, the report and Python say the same number."""
    said = run("learn", "rows.csv", "--state", "one.db", "--report", "one.html", "--model-file", "one.evl")
    mean = f"{everlearn.load('one.evl').prequential_score_:.2f}"
    assert f"log-likelihood {mean}" in said
    assert f"{mean} in the mean of the run" in run("show", "one.db")
    with open("one.html", encoding="utf-8") as file:
        assert f"<dt>log-likelihood</dt><dd>{mean}</dd>" in file.read()


@pytest.mark.slow
def test_the_level_of_novelties_is_that_of_the_model(run):
    """--set novelty_level changes what the program calls novel, as it does in Python."""
    for level in (1e-6, 0.2):
        run("learn", "rows.csv", "--set", f"novelty_level={level}", "--novelties", "n.csv", "--model-file", "n.evl")
        with open("n.csv", encoding="utf-8") as file:
            told = len(file.readlines()) - 1
        assert told == sum(event.kind == "novelty" for event in everlearn.load("n.evl").events_)
        assert (told > 0) == (level == 0.2)


def test_strict(run):
    with open("rows.csv", "a") as file:
        file.write("1,2\n")
    assert "rows.csv:802: too few or too many cells" in run("learn", "rows.csv", "--strict", status=1)


def test_a_report_and_outputs(run):
    pytest.importorskip("plotly")
    run("learn", "rows.csv", "--report", "r.html", "--scores", "s.csv", "--novelties", "n.jsonl", "--quiet")
    with open("r.html") as file:
        assert "plotly" in file.read().lower()
    with open("s.csv") as file:
        assert len(file.readlines()) == 801


def test_a_full_disk_leaves_no_half_report(run, monkeypatch):
    pytest.importorskip("plotly")

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("everlearn.persistence.atomic_write.os.fsync", full)
        said = run("learn", "rows.csv", "--report", "r.html", "--quiet", status=4)
    assert "The report could not be saved: No space left on device" in " ".join(said.split())
    assert sorted(os.listdir()) == ["m.evl", "rows.csv"]


@pytest.mark.slow
def test_a_broker_that_is_not_there(run):
    pytest.importorskip("redis")
    assert "cannot be reached" in run("learn", "redis://127.0.0.1:1/x", "--patience", 0, status=4)
    assert "starts with one of" in run("learn", "amqp://host/x", status=1)
    assert "names no stream" in run("learn", "redis://host", status=1)


def test_doctor_fits_on_one_screen(run):
    output = run("doctor")
    for word in ("numba", "BLAS", "threads", "cache", "GPU", "extras", "brokers", "browser", "learning works"):
        assert word in " ".join(output.split())
    assert len(output.splitlines()) <= 24
    assert max(map(len, output.splitlines())) <= 80


def test_doctor_says_what_needs_attention(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "999")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=2**20))
    monkeypatch.setattr(doctor.importlib.metadata, "version", lambda name: "0.1")
    monkeypatch.setattr(doctor, "_listens", lambda port: port == 6379)
    assert "more than the" in doctor._threads().advice
    assert "make room" in doctor._room().advice
    assert "scipy 1.11 or newer" in doctor._versions().advice
    assert doctor._brokers().found == "Redis on port 6379"
    monkeypatch.setitem(doctor._EXTRAS, "plot", ("no_such_module",))
    extras = doctor._extras()
    assert "not installed: plot" in extras.found
    assert "everlearn[plot" in extras.advice


def test_doctor_ends_with_status_1_where_learning_fails(monkeypatch):
    def failing():
        raise ArithmeticError("the log-likelihood is not finite")

    monkeypatch.setattr(doctor, "_learning", failing)
    result = CliRunner().invoke(cli.main, ["doctor"])
    assert result.exit_code == 1
    assert "Learning does not work here" in result.output


@pytest.mark.slow
def test_bench(run):
    assert "Speed and memory" in run("bench", "--quick", "--only", "speed,gmr")


@given(st.data())
def test_damaged_model_files_are_refused(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    whole = folder / "whole.evl"
    if not whole.exists():
        everlearn.save(everlearn.OnlinePPCA(2).partial_fit(X), whole)
    content = bytearray(whole.read_bytes()[: data.draw(st.integers(0, 4000) | st.just(10**6))])
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=5)):
        if content:
            content[at % len(content)] = value
    path = folder / "broken.evl"
    path.write_bytes(content)
    write(folder / "few.csv", X[:5])
    for arguments in (["show", path], ["score", path, folder / "few.csv"], ["ask", path], ["merge", path, "-o", path]):
        result = CliRunner().invoke(cli.main, list(map(str, arguments)))
        assert result.exception is None or isinstance(result.exception, SystemExit), (arguments, result.exception)


def test_plots():
    assert bar(1.0, 4) == "████"
    assert bar(0.0) == ""
    assert len(sparkline(np.arange(1000.0))) == 60
    assert sparkline([np.nan]) == ""
    assert sparkline([1.0, np.nan, 2.0]) == "▁ █"
