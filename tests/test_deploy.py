"""What lies in deploy/ fits the program, and passes the tools that will read it, where they are installed."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from everlearn.cli import main
from everlearn.cli.commands.serve import command as serve
from everlearn.service.app import create_app
from everlearn.service.settings import Settings
from service_tools import TestClient, as_json, learned

pytestmark = pytest.mark.slow


@pytest.fixture
def deploy(repository):
    return repository / "deploy"


@pytest.fixture(scope="module")
def exposition(tmp_path_factory):
    """What Prometheus would read from a service with a model."""
    app = create_app(tmp_path_factory.mktemp("state") / "run.db", Settings())
    with TestClient(app, base_url="http://localhost") as client:
        rows = as_json(np.random.default_rng(0).normal(size=(10, 2)))
        client.post("/models/m/learn", json={"rows": rows})
        learned(client, "m")
        client.get("/metrics")  # so that requests have been counted
        return client.get("/metrics").text


@pytest.fixture(scope="module")
def metrics(exposition):
    """Names of all series."""
    return set(re.findall(r"^(\w+)", exposition, re.MULTILINE))


@pytest.fixture(scope="module")
def known_labels(exposition):
    """Labels of all series, and those that Prometheus adds."""
    return {"job", "instance", *re.findall(r"[{,](\w+)=\"", exposition)}


def used(expression):
    """Names of metrics in an expression of Prometheus."""
    return set(re.findall(r"\b(?:everlearn|process)_\w+", expression))


def labels(expression):
    """Labels by which an expression selects or sums."""
    matched = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression)
    summed = [name for names in re.findall(r"\bby \(([^)]*)\)", expression) for name in names.split(",")]
    return {name.strip() for name in [*matched, *summed]}


def options():
    return {name for parameter in serve.params for name in (*parameter.opts, *parameter.secondary_opts)}


def variables():
    found = [parameter.envvar for parameter in serve.params if parameter.envvar]
    return {name for each in found for name in ([each] if isinstance(each, str) else each)}


def test_rules_use_metrics_that_exist(deploy, metrics, known_labels):
    groups = yaml.safe_load((deploy / "prometheus-rules.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    for rule in rules:
        assert used(rule["expr"]) <= metrics, rule["alert"]
        assert labels(rule["expr"]) <= known_labels, rule["alert"]
        assert rule["annotations"]["summary"]


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_rules_pass_promtool(deploy):
    for words in (["check", "rules", "prometheus-rules.yml"], ["test", "rules", "prometheus-rules-test.yml"]):
        done = subprocess.run(["promtool", *words], cwd=deploy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_board_shows_metrics_that_exist(deploy, metrics, known_labels):
    board = json.loads((deploy / "grafana.json").read_text())
    panels = board["panels"]
    assert {"uid", "title", "schemaVersion", "time", "templating"} <= set(board)
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        for target in panel["targets"]:
            assert used(target["expr"]) <= metrics, panel["title"]
            assert labels(target["expr"]) <= known_labels, panel["title"]
            assert target["expr"].count("(") == target["expr"].count(")")
            assert 'job="$job"' in target["expr"]
    for one, other in itertools.combinations((panel["gridPos"] for panel in panels), 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y
        assert one["x"] + one["w"] <= 24


def test_unit_calls_the_program_as_it_is(deploy):
    unit = (deploy / "everlearn.service").read_text()
    started = re.search(r"^ExecStart=\S+/everlearn serve (.*)$", unit, re.MULTILINE)[1]
    assert set(re.findall(r"--[\w-]+", started)) <= options()
    assert set(re.findall(r"\bEVERLEARN_\w+", unit)) <= variables()
    assert "NUMBA_CACHE_DIR" in unit


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_unit_passes_systemd(deploy, tmp_path):
    program = tmp_path / "everlearn"  # systemd looks whether the program is there
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "everlearn.service"
    unit.write_text((deploy / "everlearn.service").read_text().replace("/opt/everlearn/bin", str(tmp_path)))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_image_calls_the_program_as_it_is(deploy, repository):
    text = (deploy / "Containerfile").read_text()
    assert set(re.findall(r"\bEVERLEARN_\w+", text)) <= variables()
    copied = [path for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE) for path in line.split()]
    assert copied
    assert all((repository / path).exists() for path in copied)
    # Nothing but what is copied goes to the builder.
    ignored, *allowed = [line for line in (repository / ".dockerignore").read_text().splitlines() if line[:1] != "#"]
    assert (ignored, set(allowed)) == ("*", {f"!{path}" for path in copied} | {"**/__pycache__"})
    assert "everlearn doctor --compile" in text


# -- backup ------------------------------------------------------------------------------------------


def test_backup_while_the_file_is_written(tmp_path):
    """Copies made while another process commits hold whole steps: the position fits the number of rows."""
    from everlearn.streams.store.store import Store

    script = (
        "import sys, numpy as np; from everlearn import IncrementalGaussianMixture\n"
        "from everlearn.streams.store.store import Store\n"
        "store, model, version = Store(sys.argv[1]), IncrementalGaussianMixture(), 0\n"
        "for i in range(1, 100_000):\n"
        "    model.partial_fit(np.full((1, 2), float(i)))\n"
        "    version = store.commit('m', model, version, position={'rows': i})\n"
        "    store.put([('m', np.full((1, 2), float(i)))])\n"
        "    if i == 1: print('ready', flush=True)\n"
    )
    state = tmp_path / "run.db"
    with subprocess.Popen([sys.executable, "-c", script, str(state)], stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout.readline() == "ready\n"
            seen = []
            for i in range(5):
                copy = tmp_path / f"copy{i}.db"
                done = CliRunner().invoke(main, ["backup", str(state), str(copy)])
                assert done.exit_code == 0, done.output
                with Store(copy) as store:
                    rows = store.entry("m").n_rows
                    assert store.position("m") == {"rows": rows}
                    assert store.load("m").n_samples_seen_ == rows
                    assert rows - 1 <= store.waiting("m") <= rows
                seen.append(rows)
        finally:
            writer.kill()
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]
    assert [path.name for path in tmp_path.glob("*.tmp-*")] == []


def test_backup_refuses_what_makes_no_sense(tmp_path):
    from everlearn.streams.store.store import Store

    state = tmp_path / "run.db"
    Store(state).close()
    for words, reason in (
        ((state, state), "itself"),
        ((state, tmp_path / "nowhere" / "copy.db"), "no folder"),
        ((Path(__file__), tmp_path / "copy.db"), "no SQLite file"),
    ):
        done = CliRunner().invoke(main, ["backup", *map(str, words)])
        assert done.exit_code == 1
        assert reason in done.output
    assert not (tmp_path / "copy.db").exists()


# -- compiling ---------------------------------------------------------------------------------------


def test_nothing_is_compiled_after_everything_was(tmp_path, numba_loops):
    """What `doctor --compile` leaves out, the first client of a fresh image would wait for."""
    from everlearn.cli.compiling import KINDS, compile_kernels

    assert list(compile_kernels(KINDS[:1])) == ["IncrementalGaussianMixture"]
    before = numba_loops()
    rows = np.random.default_rng(0).normal(size=(400, 4))
    rows[::7, 1] = np.nan
    body = {"columns": ["a", "b", "c", "d"], "rows": as_json(rows)}
    with TestClient(create_app(tmp_path / "run.db", Settings()), base_url="http://localhost") as client:
        client.post("/models/m/learn", json=body)
        learned(client, "m")
        assert client.post("/models/m/score", json={"rows": body["rows"][:5]}).status_code == 200
        question = {"rows": [{"a": 1}], "target": ["b"]}
        assert client.post("/models/m/predict", json=question).status_code == 200
        assert client.post("/models/m/sample", json={"n_rows": 3}).status_code == 200
    assert {loop: n for loop, n in numba_loops().items() if n != before.get(loop)} == {}


@pytest.fixture
def numba_loops():
    """A function that says for how many types of arguments each loop is there."""
    import gc

    numba = pytest.importorskip("numba")

    def count():
        found = (each for each in gc.get_objects() if isinstance(each, numba.core.dispatcher.Dispatcher))
        return {f"{each.__module__}.{each.__qualname__}": len(each.overloads) for each in found}

    return count
