"""A learner and its store: a step is committed whole, and learning goes on where it was."""

import numpy as np
import pytest

from everlearn import IncrementalGaussianMixture, OnlinePPCA
from everlearn.errors import InputError
from everlearn.streams import session as learners
from everlearn.streams.session import Learner
from everlearn.streams.store.records import BadRow
from everlearn.streams.store.store import Store

rng = np.random.default_rng(1)
X = rng.normal(size=(2000, 2))
X[1000] = 50.0
X[1500:] += 12.0


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "run.db") as opened:
        yield opened


def test_interrupted_learning_is_the_same_learning(store):
    whole = Learner(IncrementalGaussianMixture(), store=store, name="whole", columns=["a", "b"])
    for start in range(0, 2000, 250):
        whole.learn(X[start : start + 250])
    whole.commit(position={"row": 2000})
    for start in range(0, 2000, 250):
        parts = Learner(IncrementalGaussianMixture(), store=store, name="parts", columns=["a", "b"])
        assert parts.resumed == (start > 0)
        assert parts.position == ({"row": start} if start else None)
        parts.learn(X[start : start + 250])
        parts.commit(position={"row": start + 250})
    assert store.model_bytes("parts") == store.model_bytes("whole")
    assert store.memory("parts") == store.memory("whole")
    assert store.totals("parts") == store.totals("whole")
    events = [[event[2:] for event in store.events(name)] for name in ("parts", "whole")]
    assert events[0] == events[1]
    assert list(store.load("parts").feature_names_in_) == ["a", "b"]


def test_what_happened_is_written_once(store, monkeypatch):
    monkeypatch.setattr(learners, "_INTERVAL_SECONDS", 1e9)
    learner = Learner(IncrementalGaussianMixture(), store=store)
    seen = [learner.learn(X[:1200]), learner.learn(X[1200:])]
    learner.leave_out([BadRow("x.csv:3", "text")] * 3)
    learner.note("started", source="x.csv")
    learner.commit()
    learner.commit()
    novel = np.flatnonzero(np.concatenate([s.novel for s in seen]))
    assert [e.row for e in store.events("model", kinds=["novelty"])] == novel.tolist()
    assert [e.row for e in store.events("model", kinds=["change"])] == [row for s in seen for row in s.changes]
    assert store.events("model", kinds=["started"])[0].details == {"source": "x.csv"}
    (interval,) = store.history("model", limit=1)
    density = np.concatenate([s.log_density for s in seen])
    assert interval[:2] == (2000, 2000)
    assert interval.log_likelihood == pytest.approx(np.nanmean(density))
    assert interval.n_components >= 1
    assert interval.memory == pytest.approx(2000)
    totals = store.totals("model")
    assert totals["rows"] == 2000
    assert (totals["novelty"], totals["bad: text"], totals["bad rows"]) == (len(novel), 3, 3)


def test_a_failed_commit_is_made_good_by_the_next(store, monkeypatch):
    learner = Learner(OnlinePPCA(1), store=store)
    learner.learn(X)
    monkeypatch.setattr(store, "commit", lambda *a, **k: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        learner.commit(position={"row": 2000})
    monkeypatch.undo()
    learner.commit(position={"row": 2000})
    assert store.totals("model")["rows"] == 2000
    assert store.position("model") == {"row": 2000}


def test_floods_are_counted_and_not_kept(store, monkeypatch):
    monkeypatch.setattr(learners, "NOVELTIES_KEPT", 5)
    monkeypatch.setattr(learners, "BAD_ROWS_KEPT", 7)
    learner = Learner(IncrementalGaussianMixture(), store=store)
    learner.learn(X[:1000])
    for _ in range(3):
        learner.learn(np.linspace(100, 1e6, 50)[:, None] * [1.0, -1.0])
        learner.leave_out([BadRow("1", "text")] * 3)
    learner.commit()
    assert len(store.events("model", kinds=["novelty"])) == 5
    assert store.totals("model")["novelty"] == learner.monitor.n_novel > 20
    assert len(store.bad_rows("model")) == 7
    assert store.totals("model")["bad: text"] == 9


def test_another_model_under_the_name_is_refused(store):
    Learner(OnlinePPCA(1), store=store, columns=["a", "b"]).learn(X)
    learner = Learner(OnlinePPCA(1), store=store, columns=["a", "b"])
    learner.learn(X)
    learner.commit()
    with pytest.raises(InputError, match="is of the kind OnlinePPCA, not IncrementalGaussianMixture"):
        Learner(IncrementalGaussianMixture(), store=store)
    with pytest.raises(InputError, match="was made with n_components=1, not 2"):
        Learner(OnlinePPCA(2), store=store)
    with pytest.raises(InputError, match="has the columns a, b; the stream has b, c"):
        Learner(OnlinePPCA(1), store=store, columns=["b", "c"])


def test_components_are_not_counted_all_the_time(store):
    class Slow:
        asked = 0

        def _is_started(self):
            return True

        @property
        def n_components_(self):
            Slow.asked += 1
            return sum(1 for _ in range(100_000)) // 10_000

    learner = Learner(IncrementalGaussianMixture(), store=store)
    learner.model = Slow()
    for _ in range(1000):
        assert learner.n_components() == 10
    assert Slow.asked <= 2


def test_rows_that_were_not_scored_have_no_weight_in_the_history(tmp_path):
    """A model that warms up in the middle of the first interval scores few of its rows."""
    rows, seen = np.random.default_rng(1).normal(size=(400, 2)), []
    with Store(tmp_path / "run.db") as store:
        learner = Learner(IncrementalGaussianMixture(), store=store)
        for part in np.split(rows, 4):
            seen.append(learner.learn(part).log_density)
            learner.commit()
        (whole,) = store.history("model", limit=1)
    scored = np.concatenate(seen)
    scored = scored[~np.isnan(scored)]
    assert 0 < whole.n_scored == len(scored) < whole.n_rows == 400
    assert whole.log_likelihood == pytest.approx(scored.mean(), rel=1e-12)
