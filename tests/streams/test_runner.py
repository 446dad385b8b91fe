"""The runner: every row once, whatever fails on the way."""

import errno
import functools
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn import IncrementalGaussianMixture
from everlearn.errors import InputError, SourceLostError
from everlearn.persistence.model_file import dumps
from everlearn.streams import backoff
from everlearn.streams.runner import Runner
from everlearn.streams.session import Session
from everlearn.streams.sources.parsing import Batch
from everlearn.streams.sources.schema import Columns
from everlearn.streams.sources.source import IteratorSource, Source
from everlearn.streams.store.records import BadRow
from everlearn.streams.store.store import Store
from examples import examples

rng = np.random.default_rng(0)
X = rng.normal(size=(1200, 2))
X[900] = 40.0
X[rng.random(X.shape) < 0.03] = np.nan


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "run.db") as opened:
        yield opened


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(backoff, "_FIRST_WAIT", 0.01)


def source(**options):
    return IteratorSource(lambda: np.split(X, range(100, 1200, 100)), **options)


def session(store, name="model"):
    return Session(IncrementalGaussianMixture(), store=store, name=name, columns=["a", "b"])


class Troubled(Source):
    """Batches of ten rows in which now and then something goes wrong, each time once."""

    columns = Columns(["a", "b"], {})
    place = "trouble"

    def __init__(self, lost=(), bad=()):
        self.lost, self.bad = set(lost), set(bad)
        self.acknowledged = []

    def batches(self, position=None):
        for start in range(0 if position is None else position["row"], len(X), 10):
            if start in self.lost:
                self.lost.discard(start)
                raise SourceLostError("trouble cannot be reached.")
            bad = [BadRow(f"row {start}", "text", "?")] if start in self.bad else []
            yield Batch(X[start : start + 10], None, bad, {"row": start + 10})

    def acknowledge(self, position):
        self.acknowledged.append(position["row"])


def reference(store):
    Runner(source(), session(store, "reference")).run()
    return store.model_bytes("reference")


def test_a_source_is_learned_to_its_end(store):
    run = Runner(source(), session(store))
    run.run()
    model = IncrementalGaussianMixture()
    for part in np.split(X, range(100, 1200, 100)):
        model.partial_fit(part)
    np.testing.assert_array_equal(store.load("model").score_samples(X), model.score_samples(X))
    assert run.n_learned == store.totals("model")["rows"] == 1200
    assert store.position("model") == {"source": {"row": 1200}, "skip": 0, "outputs": {}}


@functools.cache
def scores_of_one_batch():
    return IncrementalGaussianMixture().partial_fit(X).score_samples(X)


@pytest.mark.slow
@examples(3)  # each run of an example asks for the structure: 0.2 s
@given(st.lists(st.integers(1, 500), min_size=1, max_size=6))
def test_runs_that_end_anywhere_add_up_to_one(tmp_path_factory, pieces):
    with Store(tmp_path_factory.mktemp("runs") / "run.db") as store:
        for n in pieces:
            Runner(source(), session(store), n_rows=n).run()
        Runner(source(), session(store)).run()
        model = store.load("model")
        assert model.n_samples_seen_ == store.totals("model")["rows"] == 1200
        np.testing.assert_allclose(model.score_samples(X), scores_of_one_batch(), rtol=1e-8)


@pytest.mark.slow
def test_a_lost_source_is_waited_for(store):
    said = []
    run = Runner(Troubled(lost=[0, 50, 700, 710]), session(store), say=said.append)
    run.run()
    assert run.n_learned == 1200
    kinds = [event.kind for event in store.events("model") if event.kind.startswith("source")]
    assert kinds == ["source lost", "source back"] * 4
    assert len(said) == len(kinds)
    assert "Waiting" in said[0]
    whole = Session(IncrementalGaussianMixture(), store=store, name="whole")
    Runner(Troubled(), whole).run()
    np.testing.assert_array_equal(store.load("model").score_samples(X), whole.model.score_samples(X))


def test_patience_ends(store):
    class Gone(Troubled):
        def batches(self, position=None):
            raise SourceLostError("gone for good.")

    started = time.monotonic()
    with pytest.raises(SourceLostError, match="gone for good"):
        Runner(Gone(), session(store), patience=0.2).run()
    assert time.monotonic() - started < 5
    assert store.events("model")[-1].kind == "source lost"


@pytest.mark.slow
def test_a_full_disk_is_waited_for(store, monkeypatch):
    commit, failures, said = store.commit, [3], []

    def full(*arguments, **options):
        if failures[0]:
            failures[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return commit(*arguments, **options)

    monkeypatch.setattr(store, "commit", full)
    Runner(source(), session(store), commit_seconds=0.0, say=said.append).run()
    assert store.totals("model")["rows"] == 1200
    assert "No space left" in said[0]
    assert any(event.kind == "waiting for the disk" for event in store.events("model"))
    failures[0] = 10**9
    with pytest.raises(OSError, match="No space left"):
        Runner(source(), Session(IncrementalGaussianMixture(), store=store, name="other"), patience=0.1).run()


def test_bad_rows_are_kept_and_never_stop_a_run_unless_it_is_strict(store):
    run = Runner(Troubled(bad=[20, 400]), session(store))
    run.run()
    assert run.n_bad == store.totals("model")["bad rows"] == 2
    assert [row.place for row in store.bad_rows("model")] == ["row 20", "row 400"]
    with pytest.raises(InputError, match=r"row 20: text: '\?'\. Without --strict"):
        Runner(Troubled(bad=[20, 400]), session(store, "strict"), strict=True).run()


def test_a_stopped_run_commits_what_it_learned(store):
    run = Runner(source(), session(store))
    run.watch = lambda batch, seen: run.stop.set() if run.n_learned >= 300 else None
    run.run()
    assert store.load("model").n_samples_seen_ == 300
    Runner(source(), session(store)).run()
    assert store.model_bytes("model") == reference(store)


def test_a_stop_within_a_batch_waits_for_a_piece_of_it_only(store):
    """What is left of a batch is learned by the next run, and its bad rows count once."""
    stop, seen = threading.Event(), []

    def watch(batch, result):
        seen.append(len(batch.X))
        stop.set()

    first = Runner(Troubled(bad=[0]), session(store), stop=stop, rows_at_once=4, watch=watch)
    first.run()
    assert (first.n_learned, first.n_bad, seen) == (4, 0, [4])
    second = Runner(Troubled(bad=[0]), session(store), rows_at_once=4)
    second.run()
    assert (first.n_learned + second.n_learned, second.n_bad) == (1200, 1)
    whole = Session(IncrementalGaussianMixture(), store=store, name="whole")
    Runner(Troubled(), whole, rows_at_once=4).run()
    np.testing.assert_array_equal(store.load("model").score_samples(X), whole.model.score_samples(X))


def test_a_batch_that_cannot_be_read_again_is_learned_whole(store):
    class Pipe(Troubled):
        replayable = False

    stop = threading.Event()
    run = Runner(Pipe(), session(store), stop=stop, rows_at_once=4, watch=lambda batch, result: stop.set())
    run.run()
    assert run.n_learned == len(next(iter(Pipe().batches())).X)


def test_a_live_source_commits_when_nothing_comes(store):
    quiet, seen = threading.Event(), []

    def batches():
        yield X[:100]
        quiet.wait(5)

    run = Runner(IteratorSource(batches, names=["a", "b"]), session(store), commit_seconds=3600)

    def watch(batch, result):
        if batch is None and store.entry("model"):
            seen.append(store.entry("model").n_rows)
            quiet.set()

    run.watch = watch
    run.run()
    assert seen[0] == 100


def test_sources_that_cannot_be_read_again_are_committed_batch_by_batch_and_acknowledged(store):
    troubled = Troubled()
    troubled.replayable = False
    Runner(troubled, session(store), commit_seconds=3600).run()
    assert troubled.acknowledged == [*range(10, 1201, 10), 1200]


def test_stop_is_a_parameter(store):
    stop = threading.Event()
    run = Runner(source(), session(store), stop=stop, watch=lambda batch, result: stop.set())
    run.run()
    assert run.n_learned == store.entry("model").n_rows == 100


def test_a_run_without_a_store_gives_the_same_model_and_serialises_nothing(store, monkeypatch):
    kept = session(store)
    Runner(source(), kept).run()
    monkeypatch.setattr("everlearn.streams.store.store.dumps", None)
    free = Session(IncrementalGaussianMixture(), columns=["a", "b"])
    Runner(source(), free).run()
    assert dumps(free.model) == store.model_bytes("model")
    assert free.store.totals("model") == store.totals("model")
    assert [e.row for e in free.store.latest_events("model")] == [e.row for e in store.latest_events("model")]


def test_notes_of_a_source_are_said_and_kept(store):
    class Replaced(Troubled):
        def batches(self, position=None):
            yield Batch(X[:10], position={"row": 10})
            yield Batch(X[:0], notes=["the file was replaced."])
            yield Batch(X[10:20], position={"row": 20})

    said = []
    run = Runner(Replaced(), session(store), say=said.append)
    run.run()
    assert said == ["the file was replaced."]
    assert store.events("model", kinds=["source changed"])[0].details == {"reason": "the file was replaced."}
    assert (run.n_learned, store.position("model")["source"]) == (20, {"row": 20})
