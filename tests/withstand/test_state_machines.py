"""Anything in any order: a store, a service and an estimator against simple models of what must hold."""

import contextlib
import errno
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from everlearn import OnlinePPCA, VariationalPPCA
from everlearn.errors import EverlearnError, InputError, StateFileError
from everlearn.persistence.model_file import dumps, load, loads, save
from everlearn.service.app import create_app
from everlearn.service.settings import Limits, Settings
from everlearn.streams.session import Session
from everlearn.streams.store import store as store_module
from everlearn.streams.store.store import Store
from service_tools import TestClient, as_json, learned

pytestmark = pytest.mark.slow

STEPS = settings(max_examples=12, stateful_step_count=25)
NAMES = st.sampled_from(["a", "b"])
SIZES = st.integers(1, 12)
COLUMNS = ["u", "v"]


def rows(first, n):
    """Rows that can be told apart by their first column."""
    numbers = np.arange(first, first + n, dtype=np.float64)
    return np.column_stack([numbers, np.sin(numbers)])


# -- the store -------------------------------------------------------------------------------------


class StoreMachine(RuleBasedStateMachine):
    """Rows are put, learned and committed, with crashes and full disks in between; each is learned once, in order."""

    keys = Bundle("keys")

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "run.db"
        self.store = Store(self.path)
        self.sessions = {}
        self.waiting = {"a": [], "b": []}  # numbers of rows, in order
        self.done = {"a": [], "b": []}
        self.made = set()
        self.numbers = {}  # of the batches, by their keys
        self.next = 0

    def session(self, name):
        """Sessions live as long as the process does."""
        if name not in self.sessions:
            self.sessions[name] = Session(OnlinePPCA(1), store=self.store, name=name, columns=COLUMNS)
        return self.sessions[name]

    @rule(target=keys, name=NAMES, n=SIZES)
    def put(self, name, n):
        X = rows(self.next, n)
        key = f"{name} {self.next}"
        (number,) = self.store.put([(name, X)], keys=[key])
        self.waiting[name] += X[:, 0].tolist()
        self.next += n
        self.numbers[key] = number
        return name, key, X

    @rule(sent=keys)
    def put_again(self, sent):
        """A sender that did not hear the answer repeats: nothing is added, the number is the same."""
        name, key, X = sent
        if key in self.numbers:  # a model that is deleted takes its keys with it
            assert self.store.put([(name, X)], keys=[key]) == [self.numbers[key]]

    @rule(name=NAMES, limit=st.integers(1, 30))
    def learn(self, name, limit):
        batches = self.store.take(name, limit_rows=limit)
        if not batches:
            return
        session = self.session(name)
        session.learn(np.concatenate([batch.X for batch in batches]))
        session.commit(taken=batches[-1].id)
        n = sum(len(batch.X) for batch in batches)
        self.done[name] += self.waiting[name][:n]
        del self.waiting[name][:n]
        self.made.add(name)

    @rule(name=NAMES, reopen=st.booleans())
    def crash_before_the_commit(self, name, reopen):
        """All that was in memory is gone, what was learned since the latest commit included."""
        for batch in self.store.take(name):
            self.session(name).learn(batch.X)
        self.sessions = {}
        if reopen:
            # The connection of the old process is never closed: its file is opened beside it.
            self.store = Store(self.path)

    @rule(name=NAMES)
    def full_disk(self, name):
        """A commit that fails half-way leaves everything as it was."""
        batches = self.store.take(name)
        if not batches:
            return
        session = self.session(name)
        session.learn(np.concatenate([batch.X for batch in batches]))
        original = store_module._add_intervals

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        store_module._add_intervals = full
        try:
            with pytest.raises(OSError, match="No space"):
                session.commit(taken=batches[-1].id)
        finally:
            store_module._add_intervals = original
        self.sessions.pop(name)

    @rule(name=NAMES)
    def somebody_else(self, name):
        """Another program that learns the same model is noticed by the one that commits later."""
        if name not in self.made:
            return
        mine, other = self.session(name), Session(OnlinePPCA(1), store=self.store, name=name, columns=COLUMNS)
        other.commit()
        with pytest.raises(StateFileError, match="another program"):
            mine.commit()
        self.sessions.pop(name)

    @rule(name=NAMES)
    def delete(self, name):
        self.store.delete(name)
        self.sessions.pop(name, None)
        self.waiting[name], self.done[name] = [], []
        self.numbers = {key: number for key, number in self.numbers.items() if not key.startswith(name)}
        self.made.discard(name)

    @invariant()
    def each_row_is_learned_once_or_waits(self):
        for name in ("a", "b"):
            found = [x for batch in self.store.take(name, limit_rows=10**6) for x in batch.X[:, 0].tolist()]
            assert found == self.waiting[name]
            assert self.store.waiting(name) == len(self.waiting[name])
            entry = self.store.entry(name)
            assert (entry is not None) == (name in self.made)
            if entry is not None:
                assert entry.n_rows == len(self.done[name]) == self.store.totals(name).get("rows", 0)
                assert sum(each.n_rows for each in self.store.history(name)) == len(self.done[name])

    def teardown(self):
        # Learned one after the other without anything in between, the model is the same.
        for name in self.made:
            if self.done[name]:
                calm = OnlinePPCA(1).partial_fit(np.concatenate([rows(int(x), 1) for x in self.done[name]]))
                np.testing.assert_allclose(self.store.load(name).mean_, calm.mean_, rtol=1e-9, atol=1e-9)
        self.store.close()
        self.folder.cleanup()


# -- the service -----------------------------------------------------------------------------------


class ServiceMachine(RuleBasedStateMachine):
    """Requests in any order, restarts and a disk that fails for a while; all that was acknowledged is learned once."""

    sent = Bundle("sent")

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.rows = {}
        self.next = 0
        self.disk_is_full = False
        self.start()

    def start(self):
        settings = Settings(limits=Limits(models=3, rows=50))
        self.client = TestClient(create_app(Path(self.folder.name) / "run.db", settings), base_url="http://localhost")
        self.client.__enter__()
        store = self.client.app.state.repository.store
        self.put = store.put
        store.put = self.put_if_there_is_room

    def put_if_there_is_room(self, batches, *, keys, targets):
        if self.disk_is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.put(batches, keys=keys, targets=targets)

    def post(self, name, what, body, **headers):
        return self.client.post(f"/models/{name}/{what}", json=body, headers=headers)

    @rule(target=sent, name=NAMES, n=SIZES)
    def learn(self, name, n):
        key, body = f"key {self.next}", {"columns": COLUMNS, "rows": as_json(rows(self.next, n))}
        self.next += n
        return name, n, key, body, self.send(name, n, key, body)

    @rule(message=sent)
    def send_again(self, message):
        name, _, key, body, generation = message
        # After the model was deleted and made again, its keys are new.
        if self.rows.get(name, (None,))[0] == generation and generation is not None:
            assert self.post(name, "learn", body, **{"Idempotency-Key": key}).status_code == 202 or self.disk_is_full

    def send(self, name, n, key, body):
        """Send rows; returns which model of this name they went to, None if they were refused."""
        answer = self.post(name, "learn", body, **{"Idempotency-Key": key})
        if self.disk_is_full:
            assert answer.status_code == 507
            if name not in self.rows:
                self.rows[name] = (key, 0)  # the model was made, its rows were not kept
            return None
        assert answer.status_code == 202, answer.text
        generation, count = self.rows.get(name, (key, 0))
        self.rows[name] = (generation, count + n)
        return generation

    @rule(name=NAMES, what=st.sampled_from(["score", "predict", "sample", "nonsense"]))
    def ask(self, name, what):
        bodies = {"score": {"rows": [[1.0, None]]}, "predict": {"rows": [{"u": 1.0}], "target": ["v"]}}
        status = self.post(name, what, bodies.get(what, {"n_rows": 2})).status_code
        if what == "nonsense" or name not in self.rows:
            assert status == 404
        else:
            assert status in (200, 409)  # 409: nothing learned yet

    @rule(name=NAMES, rows=st.sampled_from([[], [[1.0]], [[1.0, 2.0, 3.0]], [["x", 1.0]], [[1.0, 1e400]]]))
    def wrong_rows(self, name, rows):
        if name in self.rows:
            assert self.client.post(f"/models/{name}/learn", json={"rows": str(rows)}).status_code == 422
            with contextlib.suppress(ValueError):  # the client itself refuses infinity
                assert self.post(name, "learn", {"rows": rows}).status_code == 422

    @rule(name=NAMES)
    def delete(self, name):
        status = self.client.delete(f"/models/{name}").status_code
        assert status == (204 if self.rows.pop(name, None) else 404)

    @rule()
    def fill_the_disk(self):
        self.disk_is_full = not self.disk_is_full

    @rule()
    def restart(self):
        self.client.__exit__(None, None, None)
        self.start()

    @rule()
    def settle(self):
        for name, (_, count) in self.rows.items():
            assert learned(self.client, name, seconds=60.0)["rows"] == count
        assert self.client.app.state.repository.waiting_values == 0
        assert self.client.get("/health").status_code == 200

    @invariant()
    def the_listing_is_right(self):
        assert {each["name"] for each in self.client.get("/models").json()["models"]} == set(self.rows)

    def teardown(self):
        self.disk_is_full = False
        self.settle()
        self.client.__exit__(None, None, None)
        self.folder.cleanup()


# -- an estimator ----------------------------------------------------------------------------------


class EstimatorMachine(RuleBasedStateMachine):
    """Models are values: whatever is done with them, each is what its own rows make of it."""

    make = staticmethod(lambda: OnlinePPCA(1))
    models = Bundle("models")

    @initialize(target=models)
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        self.next = 0
        return self.make(), []

    @rule(model=models, n=SIZES)
    def learn(self, model, n):
        X = rows(self.next, n)
        self.next += n
        model[0].partial_fit(X)
        model[1].append(X)

    @rule(model=models, bad=st.sampled_from([np.inf, "text"]))
    def refuse(self, model, bad):
        before = dumps(model[0])
        with pytest.raises(InputError):
            model[0].partial_fit([[0.0, 1.0], [1.0, bad]])
        assert dumps(model[0]) == before

    @rule(model=models, n=st.integers(300, 310), error=st.sampled_from([KeyboardInterrupt, MemoryError]))
    def interrupt(self, model, n, error):
        """At the worst moment: all was learned, and nothing told to the caller. For a few rows interrupts wait."""
        before, cls = dumps(model[0]), type(model[0])
        original = cls._learn

        def fail(self, *arguments):
            original(self, *arguments)
            raise error

        cls._learn = fail
        try:
            with pytest.raises(error):
                model[0].partial_fit(rows(self.next, n))
        finally:
            cls._learn = original
        assert dumps(model[0]) == before

    @precondition(lambda self: self.next)
    @rule(model=models)
    def ask(self, model):
        before = dumps(model[0])
        with contextlib.suppress(EverlearnError, ValueError):  # nothing learned yet
            assert np.isfinite(model[0].score_samples(rows(0, 3))).all()
            model[0].impute([[1.0, np.nan]])
            model[0].sample(2)
        assert dumps(model[0]) == before

    @rule(target=models, model=models, how=st.sampled_from(["copy", "bytes", "file"]))
    def double(self, model, how):
        """A copy, or what comes back from a file, goes its own way from here."""
        if how == "copy":
            other = model[0].copy()
        elif how == "bytes":
            other = loads(dumps(model[0]))
        else:
            save(model[0], Path(self.folder.name) / "model.evl")
            other = load(Path(self.folder.name) / "model.evl")
        assert dumps(other) == dumps(model[0])
        return other, list(model[1])

    @rule(target=models, left=consumes(models), right=models)
    def merge(self, left, right):
        """A merged model counts the rows of both, and neither of them changes."""
        if left is right or not (left[1] and right[1]):
            return left
        before = dumps(left[0]), dumps(right[0])
        with contextlib.suppress(EverlearnError):  # too few rows in one of them
            merged = left[0].merge(right[0])
            n = sum(len(X) for part in (left, right) for X in part[1])
            assert merged.n_samples_seen_ == n
            assert np.isfinite(merged.score_samples(rows(0, 3))).all()
        assert (dumps(left[0]), dumps(right[0])) == before
        return left

    @rule(model=models)
    def compare(self, model):
        """Batches, copies and files do not matter: the same rows in one batch give the same model."""
        if not model[1]:
            return
        X = np.concatenate(model[1])
        calm = self.make().partial_fit(X)
        assert model[0].n_samples_seen_ == len(X)
        np.testing.assert_allclose(model[0].score_samples(X[:5]), calm.score_samples(X[:5]), rtol=1e-6, atol=1e-6)

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()


class VariationalMachine(EstimatorMachine):
    """The same for a model that forgets."""

    make = staticmethod(lambda: VariationalPPCA(1))


TestStore = StoreMachine.TestCase
TestService = ServiceMachine.TestCase
TestEstimator = EstimatorMachine.TestCase
TestVariational = VariationalMachine.TestCase
TestStore.settings = TestEstimator.settings = TestVariational.settings = STEPS
TestService.settings = settings(STEPS, max_examples=4, stateful_step_count=15)
