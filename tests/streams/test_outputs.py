"""Outputs of a run: each record once, whatever interrupts it, with the times of the stream."""

import csv

import numpy as np
import pytest

from everlearn import AnomalyDetector, IncrementalGaussianMixture, IncrementalGaussianMixtureClassifier
from everlearn.errors import InputError
from everlearn.streams.outputs import Outputs
from everlearn.streams.runner import Runner
from everlearn.streams.session import Session
from everlearn.streams.sources.parsing import Batch
from everlearn.streams.sources.source import IteratorSource
from everlearn.streams.sources.times import TimeFormat
from everlearn.streams.store.store import Store

rng = np.random.default_rng(0)
X = rng.normal(size=(1200, 2))
X[900] = 40.0
X[rng.random(X.shape) < 0.03] = np.nan


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "run.db") as opened:
        yield opened


def source():
    return IteratorSource(lambda: np.split(X, range(100, 1200, 100)))


def session(store, name="model", n_components=None):
    return Session(IncrementalGaussianMixture(n_components), store=store, name=name, columns=["a", "b"])


def outputs_of(tmp_path, session, ending):
    addresses = {kind: str(tmp_path / f"{kind}{ending}") for kind in ("scores", "imputations", "changes", "novelties")}
    positions = (session.position or {}).get("outputs")
    return Outputs(addresses, ["a", "b"], session.model, resumable=True, positions=positions)


@pytest.mark.slow
def test_outputs_tell_what_was_seen(store, tmp_path):
    seen = []
    run = session(store)
    outputs = outputs_of(tmp_path, run, ".csv")
    Runner(source(), run, outputs=outputs, watch=lambda batch, result: seen.append(result)).run()
    outputs.close()
    scores = np.genfromtxt(tmp_path / "scores.csv", delimiter=",", names=True, dtype=None, encoding=None)
    np.testing.assert_array_equal(scores["row"], np.arange(1200))
    np.testing.assert_array_equal(scores["log_density"], np.concatenate([f.log_density for f in seen]))
    novel = np.concatenate([f.novel for f in seen])
    np.testing.assert_array_equal(scores["novel"], novel)
    filled = np.genfromtxt(tmp_path / "imputations.csv", delimiter=",", names=True)
    assert np.isfinite(filled["a"]).all()
    known = ~np.isnan(X[:, 0])
    np.testing.assert_array_equal(filled["a"][known], X[known, 0])
    novelties = np.genfromtxt(tmp_path / "novelties.csv", delimiter=",", names=True)
    assert 900 in novelties["row"]
    np.testing.assert_array_equal(novelties["row"], np.flatnonzero(novel))
    changes = (tmp_path / "changes.csv").read_text().splitlines()[1:]
    assert [int(line.split(",")[0]) for line in changes] == [row for f in seen for row in f.changes]


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_outputs_of_an_interrupted_run_hold_each_record_once(store, tmp_path, ending):
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    # One component: what is written is looked at here, not what is learned.
    whole = session(store, "whole", 1)
    outputs = outputs_of(tmp_path / "whole", whole, ending)
    Runner(source(), whole, outputs=outputs).run()
    for n in (130, 500, None):
        run = session(store, "parts", 1)
        outputs = outputs_of(tmp_path / "parts", run, ending)
        Runner(source(), run, outputs=outputs, n_rows=n).run()
        doomed = Batch(X[:50], None, [], {})
        # What a crash before the commit leaves behind.
        outputs.write(doomed, run.monitor.score_then_learn(doomed.X), run.model)
        outputs.flush()
        outputs.close()
    run = session(store, "parts", 1)
    outputs_of(tmp_path / "parts", run, ending).flush()
    for kind in ("scores", "novelties", "changes", "imputations"):
        found, expected = (_records(tmp_path / folder / f"{kind}{ending}") for folder in ("parts", "whole"))
        assert len(found) == len(expected), kind
        assert found or kind == "changes", kind
        assert [record[0] for record in found] == [record[0] for record in expected]


def _records(path):
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        files = sorted(path.glob("part-*.parquet"))
        return [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]
    lines = path.read_text().splitlines()
    if path.suffix == ".jsonl":
        return [line.split(",") for line in lines]
    return [line.split(",") for line in lines]


def test_a_model_without_gaps_to_fill_or_p_values_says_so(tmp_path):
    for kind, message in (("imputations", "cannot fill gaps"), ("novelties", "has no p-values")):
        with pytest.raises(InputError, match=message):
            Outputs({kind: str(tmp_path / "x.csv")}, ["a"], IncrementalGaussianMixtureClassifier())


def test_times_of_the_stream_follow_the_row(store, tmp_path):
    how = TimeFormat("iso", zone="+02:00")
    run = session(store)
    outputs = Outputs({"scores": str(tmp_path / "scores.csv")}, ["a", "b"], run.model, time_format=how)
    for start in (0, 100):
        batch = Batch(X[start : start + 100], times=1.7e9 + np.arange(start, start + 100.0))
        outputs.write(batch, run.learn(batch.X, times=batch.times), run.model)
    outputs.flush()
    outputs.close()
    rows = list(csv.DictReader((tmp_path / "scores.csv").open()))
    assert list(rows[0]) == ["row", "time", "log_density", "novel"]
    assert (rows[150]["row"], rows[150]["time"]) == ("150", "2023-11-15T00:15:50+02:00")


def test_a_detector_writes_its_anomalies_and_new_normals(tmp_path):
    """Alarms at once: an anomaly that goes on in the next batch is written again, with the same first row."""
    Z = np.random.default_rng(3).normal(size=(900, 2))
    Z[495:520, 1] += 30.0
    Z[700:] -= 20.0
    run = Session(AnomalyDetector(grace_period=200, patience=100), columns=["a", "b"])
    addresses = {kind: str(tmp_path / f"{kind}.csv") for kind in ("novelties", "changes")}
    outputs = Outputs(addresses, ["a", "b"], run.model)
    for start in range(0, 900, 100):
        batch = Batch(Z[start : start + 100])
        outputs.write(batch, run.learn(batch.X), run.model)
    outputs.flush()
    outputs.close()
    rows = list(csv.DictReader((tmp_path / "novelties.csv").open()))
    assert list(rows[0]) == ["row", "last", "p_value", "column", "text"]
    first, again = [(int(row["last"]), row["column"]) for row in rows if row["row"] == "495"]
    assert first == (499, "b")
    assert again[0] in range(519, 523)  # the way back is strange, too
    assert again[1] == "b"
    assert all(row["text"].startswith(f"{row['column']} ") for row in rows)
    last = {int(row["row"]): int(row["last"]) for row in rows}
    assert last == {event.row: event.last for event in run.model.events_ if event.kind == "anomaly"}
    changes = list(csv.DictReader((tmp_path / "changes.csv").open()))
    own = [event for event in run.model.events_ if event.kind == "new_normal"]
    assert [tuple(map(int, row.values())) for row in changes] == [(e.row, e.last, int(e.value)) for e in own]
    assert own
