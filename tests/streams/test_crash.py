"""Killed at any moment over files, Redis and Kafka: nothing is lost or learned twice, and the model is the same."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from brokers_for_tests import MockKafka, redis_server
from everlearn.streams.store.store import Store

pytestmark = pytest.mark.slow

KILLS = 9  # for each of three sources
rng = np.random.default_rng(0)
NAMES = ["a", "b", "c"]


def rows(n):
    X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 3)) + 6.0 * rng.integers(3, size=(n, 1))
    X[rng.random(X.shape) < 0.01] = np.nan
    return X


def as_json(X):
    return [json.dumps({k: v for k, v in zip(NAMES, row, strict=True) if v == v}) for row in X.tolist()]


class Forks:
    """The process that forks runs of the program."""

    def __init__(self):
        script = Path(__file__).with_name("forks.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "ready\n"

    def run(self, *arguments, seconds=120.0):
        self.process.stdin.write(json.dumps({"arguments": list(map(str, arguments)), "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def forks():
    forks = Forks()
    yield forks
    forks.process.stdin.close()
    forks.process.wait()


def learn(forks, source, folder, seconds=120.0):
    return forks.run(
        "learn", source, "--state", folder / "run.db", "--scores", folder / "scores.csv", "--stop-at-end",
        "--set", "max_components=20", "--quiet", seconds=seconds,
    )  # fmt: skip


def crash(forks, source, tmp_path, n_rows):
    """Learn a source once in peace and then with kills, as often as it takes; all must come to the same."""
    calm = tmp_path / "calm"
    calm.mkdir()
    whole = learn(forks, source, calm)
    assert whole["status"] == 0
    again = learn(forks, source, calm)  # nothing is left to learn: this is what a start takes
    assert again["status"] == 0
    kills = 0
    while kills < KILLS:
        rough = tmp_path / f"rough{kills}"
        rough.mkdir()
        found = learn_with_kills(forks, source, rough, KILLS - kills, again["seconds"], whole["seconds"])
        assert found > 0, "no run was slow enough to be killed"
        kills += found
        check_same(calm, rough, n_rows)


def learn_with_kills(forks, source, folder, most, start, work):
    """Learn to the end with kills at random moments, at most so many; returns how many there were."""
    for kills in range(most):
        seconds = start * rng.uniform(0.2, 1.0) + work * rng.uniform(0, 1 / KILLS)
        status = learn(forks, source, folder, seconds=seconds)["status"]
        assert status in (None, 0)
        if status == 0:
            return kills
    assert learn(forks, source, folder)["status"] == 0
    return most


def check_same(calm, rough, n_rows):
    with Store(calm / "run.db") as expected, Store(rough / "run.db") as found:
        assert found.load("model").n_samples_seen_ == n_rows
        assert found.model_bytes("model") == expected.model_bytes("model")
        assert found.totals("model") == expected.totals("model")
        events = [[event[2:] for event in store.events("model", limit=10**6)] for store in (found, expected)]
        assert events[0] == events[1]
    scores = (rough / "scores.csv").read_text()
    assert scores == (calm / "scores.csv").read_text()
    assert [line.split(",")[0] for line in scores.splitlines()[1:]] == [str(i) for i in range(n_rows)]


def test_files(forks, tmp_path):
    X = rows(20_000)
    lines = [",".join("" if v != v else repr(v) for v in row) for row in X.tolist()]
    half = len(lines) // 2
    (tmp_path / "1.csv").write_text("\n".join([",".join(NAMES), *lines[:half], "bad,row", ""]))
    (tmp_path / "2.jsonl").write_text("\n".join(as_json(X[half:])) + "\n")
    crash(forks, tmp_path / "[12].*", tmp_path, len(X))


def test_redis(forks, tmp_path):
    redis = pytest.importorskip("redis", reason="redis is not installed")
    X = rows(20_000)
    with redis_server(tmp_path) as port:
        with redis.Redis(port=port) as client, client.pipeline(transaction=False) as pipeline:
            for row in X.tolist():
                pipeline.xadd("rows", {k: repr(v) for k, v in zip(NAMES, row, strict=True) if v == v} or {"a": ""})
            pipeline.execute()
        crash(forks, f"redis://127.0.0.1:{port}/rows", tmp_path, len(X))


def test_kafka(forks, tmp_path):
    X = rows(20_000)
    kafka = MockKafka()
    kafka.fill("rows", as_json(X))
    crash(forks, f"kafka://{kafka.address}/rows", tmp_path, len(X))
