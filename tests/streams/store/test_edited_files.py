"""A state file that somebody has edited is used or refused; what it raises is ours."""

import sqlite3

import numpy as np
import pytest

from everlearn import OnlinePPCA
from everlearn.errors import EverlearnError
from everlearn.streams.session import Session
from everlearn.streams.store.store import Store

EDITS = {
    "newer": "PRAGMA user_version = 99",
    "another application": "PRAGMA application_id = 1",
    "table gone": "DROP TABLE inbox",
    "column gone": "ALTER TABLE model DROP COLUMN memory",
    "position no JSON": "UPDATE model SET position = '{'",
    "position a list": "UPDATE model SET position = '[1]'",
    "position a number in the inbox": "UPDATE model SET position = '{\"inbox\": 3}'",
    "position without columns": "UPDATE model SET position = '{\"inbox\": {}}'",
    "columns a number": "UPDATE model SET columns = '5'",
    "columns of numbers": "UPDATE model SET columns = '[5, 6]'",
    "memory a list": "UPDATE model SET memory = '[1, 2]'",
    "memory without counts": "UPDATE model SET memory = '{\"a\": 1}'",
    "memory of texts": 'UPDATE model SET memory = \'{"counts": "x", "threshold": []}\'',
    "model a text": "UPDATE model_file SET data = 'abc'",
    "model of zeros": "UPDATE model_file SET data = zeroblob(100)",
    "more rows than data": "UPDATE inbox SET n_rows = 99",
    "negative sizes": "UPDATE inbox SET n_rows = -1, n_columns = -4",
    "huge sizes": "UPDATE inbox SET n_rows = 9223372036854775807",
    "sizes of text": "UPDATE inbox SET n_rows = 'x'",
    "rows of text": "UPDATE inbox SET data = 'hello123'",
    "version a text": "UPDATE model SET version = 'abc'",
    "rows a text": "UPDATE model SET n_rows = 'x'",
}
HARMLESS = {"position null": "UPDATE model SET position = 'null'", "kind": "UPDATE model SET kind = '<script>'"}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "run.db"
    X = np.random.default_rng(0).normal(size=(200, 2))
    with Store(path) as store:
        session = Session(OnlinePPCA(1), store=store, name="model", columns=["x0", "x1"])
        session.learn(X)
        session.commit(position={"inbox": {"columns": ["x0", "x1"]}})
        store.put([("model", np.ones((2, 2)))])
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(truncate)")
    return path.read_bytes()


def use(path):
    with Store(path) as store:
        for entry in store.models():
            for ask in (store.load, store.position, store.memory, store.take, store.waiting, store.history):
                ask(entry.name)
        session = Session(OnlinePPCA(1), store=store, name="model", columns=["x0", "x1"])
        session.learn(np.ones((5, 2)))
        session.commit()


def edited(sound, tmp_path, sql):
    path = tmp_path / "edited.db"
    path.write_bytes(sound)
    with sqlite3.connect(path) as connection:
        connection.executescript(sql)
    connection.close()
    return path


@pytest.mark.parametrize("sql", EDITS.values(), ids=EDITS)
def test_what_does_not_fit_is_refused(sound, tmp_path, sql):
    with pytest.raises((EverlearnError, OSError)):
        use(edited(sound, tmp_path, sql))


@pytest.mark.parametrize("sql", HARMLESS.values(), ids=HARMLESS)
def test_what_does_no_harm_is_used(sound, tmp_path, sql):
    use(edited(sound, tmp_path, sql))


def test_a_sound_file_is_used(sound, tmp_path):
    use(edited(sound, tmp_path, "SELECT 1"))
