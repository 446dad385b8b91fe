"""State files that were edited: each is used or refused in our own words, never with an error of Python's."""

import shutil
import sqlite3

import numpy as np
import pytest

from everlearn import OnlinePPCA
from everlearn.errors import EverlearnError, StateFileError
from everlearn.streams.runner import Runner
from everlearn.streams.session import Session
from everlearn.streams.sources.source import IteratorSource
from everlearn.streams.store.records import BadRow
from everlearn.streams.store.store import Store

X = np.random.default_rng(0).normal(size=(300, 2))
EDITS = {
    "newer": "PRAGMA user_version = 99",
    "no version": "PRAGMA user_version = 0",
    "a negative version": "PRAGMA user_version = -1",
    "another program": "PRAGMA application_id = 1",
    "no inbox": "DROP TABLE inbox",
    "no memory": "ALTER TABLE model DROP COLUMN memory",
    "position is no JSON": "UPDATE model SET position = '{'",
    "position is a list": "UPDATE model SET position = '[1]'",
    "position is a number in the inbox": "UPDATE model SET position = '{\"inbox\": 3}'",
    "position lacks columns": "UPDATE model SET position = '{\"inbox\": {}}'",
    "position is a blob": "UPDATE model SET position = x'00ff'",
    "columns are a number": "UPDATE model SET columns = '5'",
    "columns are numbers": "UPDATE model SET columns = '[1, 2]'",
    "memory is a list": "UPDATE model SET memory = '[1, 2]'",
    "memory lacks counts": """UPDATE model SET memory = '{"a": 1}'""",
    "memory of huge numbers": f"UPDATE model SET memory = json_set(memory, '$.times', json('[1{'0' * 400}]'))",
    "memory of texts": """UPDATE model SET memory = '{"counts": "x", "threshold": []}'""",
    "model of zeros": "UPDATE model_file SET data = zeroblob(100)",
    "model is a text": "UPDATE model_file SET data = 'abc'",
    "model is a number": "UPDATE model_file SET data = 7",
    "inbox of other shape": "UPDATE inbox SET n_rows = 99",
    "inbox of negative shape": "UPDATE inbox SET n_rows = -1, n_columns = -4",
    "inbox of huge shape": "UPDATE inbox SET n_rows = 9223372036854775807",
    "inbox of a shape in words": "UPDATE inbox SET n_rows = 'x'",
    "inbox of infinite shape": "UPDATE inbox SET n_rows = 9e999",
    "inbox without its last number": "UPDATE sqlite_sequence SET seq = NULL WHERE name = 'inbox'",
    "inbox with a last number in words": "UPDATE sqlite_sequence SET seq = 'x' WHERE name = 'inbox'",
    "inbox of text": "UPDATE inbox SET data = 'hello123'",
    "version is a text": "UPDATE model SET version = 'abc'",
    "rows are a text": "UPDATE model SET n_rows = 'x'",
    "time of an event is a text": "UPDATE event SET time = 'noon'",
    "details are a list": "UPDATE event SET details = '[]'",
    "interval of texts": "UPDATE interval SET n_rows = 'many'",
    "bad row is a number": "UPDATE bad_row SET text = x'00'",
    "total is a text": "UPDATE total SET n = 'few'",
    "event is a view": "DROP TABLE event; CREATE VIEW event AS SELECT 1",
}
HARMLESS = {
    "nothing": "SELECT 1",
    "position is null": "UPDATE model SET position = 'null'",
    "kind": "UPDATE model SET kind = '<script>'",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run.db"
    with Store(path) as store:
        session = Session(OnlinePPCA(1), store=store, columns=["a", "b"])
        session.leave_out([BadRow("x:1", "text")])
        session.note("started")
        Runner(IteratorSource(lambda: [X], names=["a", "b"]), session).run()
        store.put([("model", np.ones((2, 2)))])
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def use(path):
    """Everything that the program and the service do with a state file."""
    with Store(path) as store:
        store.latest_batch()
        for entry in store.models():
            name = entry.name
            for ask in (store.load, store.position, store.memory, store.take, store.waiting, store.history):
                ask(name)
            for ask in (store.events, store.latest_events, store.bad_rows, store.totals):
                ask(name)
        session = Session(OnlinePPCA(1), store=store, columns=["a", "b"])
        Runner(IteratorSource(lambda: [X], names=["a", "b"]), session).run()


def edited(whole, tmp_path, edit):
    path = tmp_path / "run.db"
    shutil.copy(whole, path)
    connection = sqlite3.connect(path)
    connection.executescript(edit)
    connection.commit()
    connection.close()
    return path


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_edited_values_are_refused(whole, tmp_path, edit):
    with pytest.raises(EverlearnError):
        use(edited(whole, tmp_path, edit))


@pytest.mark.parametrize("edit", HARMLESS.values(), ids=HARMLESS.keys())
def test_what_does_no_harm_is_used(whole, tmp_path, edit):
    use(edited(whole, tmp_path, edit))


def test_counts_that_cannot_grow_are_refused(whole, tmp_path):
    """The history's last interval grows with the next rows, beyond what SQLite can hold."""
    edit = "UPDATE interval SET end_row = 301, n_rows = 1, n_scored = 9223372036854775807"
    with Store(edited(whole, tmp_path, edit)) as store:
        session = Session(OnlinePPCA(1), store=store, columns=["a", "b"])
        session.learn(X[:5])
        with pytest.raises(StateFileError, match="damaged"):
            session.commit()


def test_damaged_bytes_are_used_or_refused(whole, tmp_path):
    raw, rng = whole.read_bytes(), np.random.default_rng(1)
    outcomes = []
    for i in range(40):
        damaged = bytearray(raw)
        for _ in range(int(rng.integers(1, 20))):
            damaged[int(rng.integers(16, len(damaged)))] = int(rng.integers(256))
        path = tmp_path / f"{i}.db"
        path.write_bytes(bytes(damaged[: int(rng.integers(100, len(raw)))] if i % 6 == 0 else damaged))
        try:
            use(path)
            outcomes.append("used")
        except (EverlearnError, OSError):
            outcomes.append("refused")
    assert outcomes.count("refused") >= 10
