"""Winners, the summary, the two forms of the report, and the command."""

import itertools
import resource
import subprocess
import sys

import pytest
from click.testing import CliRunner

from everlearn import cli
from everlearn.errors import InputError
from everlearn.experiments.peers import Report, compare, context_for, tasks
from everlearn.experiments.peers.adapter import Contender
from everlearn.experiments.peers.anomaly_streams import GROUPS
from everlearn.experiments.peers.everlearn_models import CONTENDERS, FIRST
from everlearn.experiments.peers.report import html, markdown
from everlearn.experiments.peers.table import Measure, Row, Table, summary

FAST = Measure("fast", "rows", "high", ".0f", headline="rows a second")
NEAR = Measure("near", "inside", "near", ".1f", 90.0, "inside, %", difference=True)


def row(name, package, fast, near, **more):
    return Row(Contender(name, package, lambda: None, **more), {"fast": fast, "near": near}, why="<why>")


@pytest.fixture
def table():
    rows = [
        row(FIRST, "everlearn", 100.0, 80.0),
        row("Other", "river", 50.0, 91.0),
        row("Same", "gmr", 100.4, "failed"),
        row("always", "everlearn", 999.0, 90.0, baseline=True),
    ]
    return Table("toy", "Toy", "About it.", [FAST, NEAR], rows)


def test_winners(table):
    assert [table.wins(FAST, r) for r in table.rows] == [True, False, True, False]  # the same figure, the same prize
    assert [table.wins(NEAR, r) for r in table.rows] == [False, True, False, False]


def test_summary_says_where_a_peer_is_better(table):
    report = Report([table], "everlearn bench", "here")
    fast, near = report.headlines
    assert fast.cells() == ("rows a second", "100", "100 (gmr Same)", "1.00 ×")
    assert near.cells() == ("inside, %", "80.0", "91.0 (river Other)", "-11.00")
    assert report.verdict() == "A peer is better at: rows a second; inside, %."
    assert Report([], "", "").verdict() == "No peer was measured."


def test_a_line_that_we_cannot_win_stays_in_the_summary(table):
    ours = table.rows[0]
    failed = ours._replace(values={"fast": "failed"})
    barred = ours._replace(values={"fast": 999.0, "near": 90.0}, comparable=lambda key, values: False)
    for row, shown in ((failed, ("failed", "")), (barred, ("999", "9.95 ×"))):
        report = Report([table._replace(rows=[row, *table.rows[1:]])], "", "")
        assert [line.we_win for line in report.headlines] == [False, False]
        assert report.headlines[0].cells()[1::2] == shown


def test_the_detector_speaks_for_us_where_anomalies_are_told():
    rows = [Row(contender, {"fast": 1.0 + i}, "") for i, contender in enumerate(CONTENDERS["anomaly"])]
    rows.append(Row(Contender("peer", "river", lambda: None), {"fast": 0.5}, ""))
    (line,) = summary([Table("anomaly", "", "", [FAST], rows)])
    assert line.ours.contender.name == "AnomalyDetector"


def test_forms(table):
    report = Report([table], "everlearn bench --only <toy>", "by <us>")
    text, page = markdown(report), html(report)
    assert "| everlearn IncrementalGaussianMixture | **100** | 80.0 |" in text
    assert "| inside, % | 80.0 | **91.0 (river Other)** | -11.00 |" in text
    assert "`everlearn bench --only <toy>`" in text
    assert "<td><b>91.0</b></td>" in page
    assert "by &lt;us&gt;" in page
    assert "&lt;why&gt;" in page
    assert "<why>" not in page


def test_names_choose_columns_and_packages():
    assert {task.column.NAME for task in tasks(["speed", "change"])} == {"speed", "change"}
    packages = {task.contender.package for task in tasks(["conditional", "gmr"])}
    assert packages == {"everlearn", "gmr"}
    assert {task.contender.package for task in tasks()} == {
        "everlearn",
        "sklearn",
        "river",
        "gmr",
        "pomegranate",
        "pysad",
    }
    with pytest.raises(InputError, match="'sped'; names are speed, classification"):
        tasks(["sped"])


COLUMNS = ["speed", "classification", "regression", "density", "missing", "conditional", "anomaly", "change"]
SLOW = {"KSWIN", "CluStream", "LODA"}


def around_the_first_anomaly(stream):
    """Some rows of a stream, in which an anomaly follows on usual rows."""
    start = max(int(stream.y.argmax()) - 600, 0)
    return stream._replace(X=stream.X[start : start + 700], y=stream.y[start : start + 700])


def figures(column, packages, monkeypatch, groups=tuple(GROUPS)):
    """Rows of a quick comparison, without the slowest peers, on one stream of each group."""
    monkeypatch.setattr("everlearn.experiments.peers.speed.PATIENCE", 0.05)
    first = {
        name: lambda context, every=every: map(around_the_first_anomaly, itertools.islice(every(context), 1))
        for name, every in GROUPS.items()
        if name in groups
    }
    monkeypatch.setattr("everlearn.experiments.peers.anomaly.GROUPS", first)
    todo = [task for task in tasks([column, *packages]) if task.contender.name not in SLOW]
    (found,) = compare(todo, context_for(quick=True, rows=1000))
    return found.rows


@pytest.mark.parametrize("column", COLUMNS)
def test_installed_peers_give_figures(column, shared_data, monkeypatch):
    """An error in how a peer is used would read as its failure.

    Rows are complete here: which peers survive gaps is what the comparison finds out, and can change with a rounding.
    """
    pytest.importorskip("river")
    monkeypatch.setenv("EVERLEARN_DATA", str(shared_data))
    monkeypatch.setattr("everlearn.experiments.peers.missing.with_gaps", lambda X, seed: X)
    monkeypatch.setattr("everlearn.experiments.peers.missing.filling_error", lambda peer, *rows: fitted(peer, *rows))
    # The other groups have streams of the same two kinds: of one column, and of several.
    rows = figures(column, ["scikit-learn", "river", "gmr"], monkeypatch, ("nab", "synthetic"))
    assert {r.contender.name: r.why for r in rows if {"failed", "no"} & set(r.values.values())} == {}


def fitted(peer, train, test):
    """Learn and fill complete rows; there is no gap to take an error over."""
    model = peer.make()
    model.fit(train)
    assert model.impute(test).shape == test.shape
    return 0.0


@pytest.mark.parametrize("column", ["missing", "anomaly"])
def test_our_models_take_gaps_and_single_columns(column, shared_data, monkeypatch):
    monkeypatch.setenv("EVERLEARN_DATA", str(shared_data))
    rows = figures(column, ["everlearn"], monkeypatch)
    assert {r.contender.package for r in rows if not r.contender.baseline} == {"everlearn"}
    assert {r.contender.name: r.why for r in rows if {"failed", "no"} & set(r.values.values())} == {}


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch):
    pytest.importorskip("gmr")
    monkeypatch.chdir(tmp_path)
    arguments = ["bench", "--quick", "--rows", "1000", "--only", "conditional,gmr", "--out", "r.md", "--out", "r.html"]
    monkeypatch.setattr(sys, "argv", ["everlearn", *arguments])
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 0, result.output
    assert "Conditional prediction" in result.output
    text = (tmp_path / "r.md").read_text()
    assert f"Made by `everlearn {' '.join(arguments)}`" in text
    assert "| gmr GMM.condition (batch) | " in text
    assert "<h2>Conditional prediction</h2>" in (tmp_path / "r.html").read_text()


@pytest.mark.slow
def test_a_quick_comparison_takes_less_than_a_minute(tmp_path):
    """Of processor time, as other programs would count in that of the clock; a second time if the first compiles."""

    def seconds():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "everlearn", "bench", "--quick"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert seconds() < 60 or seconds() < 60


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "report.txt"], "ends in .html or .md"),
        (["--out", "nowhere/report.md"], "no folder"),
        (["--only", "sped"], "nothing to measure by the name 'sped'"),
    ],
)
def test_the_command_says_what_is_wrong_before_it_measures(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.main, ["bench", *arguments])
    assert result.exit_code == 1
    assert words in result.output
