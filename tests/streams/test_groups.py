"""One model a group: equal to learning each group alone, in bounded memory, safe from any crash."""

import numpy as np
import pytest

from everlearn import IncrementalGaussianMixture, dumps
from everlearn.errors import InputError
from everlearn.streams.groups import GroupSession, name_of, split
from everlearn.streams.store.store import Store

COLUMNS = ["a", "b"]


def stream(n=2000, groups=40, seed=0):
    rng = np.random.default_rng(seed)
    keys = np.array([f"dev-{k:02d}" for k in rng.integers(groups, size=n)])
    return rng.normal(size=(n, 2)), keys


def session(path, most=7):
    return GroupSession(IncrementalGaussianMixture(random_state=0), Store(path), "device", COLUMNS, most=most)


def alone(X, keys, name):
    model = IncrementalGaussianMixture(random_state=0).partial_fit(X[keys == name])
    model.feature_names_in_ = np.array(COLUMNS, dtype=object)
    return model


def learn(path, X, keys, batches, most=7):
    run = session(path, most)
    for part in np.array_split(np.arange(len(X)), batches):
        run.learn(X[part], keys[part])
        if run.is_full:
            run.commit(position={"source": {"row": int(part[-1]) + 1}})
            assert len(run._models) <= most
    run.commit(position={"source": {"row": len(X)}})
    run.store.close()
    return run


def test_each_group_has_the_model_that_it_would_have_alone(tmp_path):
    X, keys = stream()
    run = learn(tmp_path / "g.db", X, keys, 9)
    assert (run.n_rows, run.n_new) == (2000, 40)
    with Store(tmp_path / "g.db", create=False) as store:
        assert store.n_models() == 40
        for name in np.unique(keys):
            assert dumps(store.load(name)) == dumps(alone(X, keys, name))
            assert store.totals(name)["rows"] == (keys == name).sum()


def test_a_run_that_is_killed_goes_on_from_its_latest_step(tmp_path):
    X, keys = stream()
    run = session(tmp_path / "g.db")
    run.learn(X[:900], keys[:900])
    run.commit(position={"source": {"row": 900}})
    run.learn(X[900:1500], keys[900:1500])  # and then it is killed
    run.store.close()
    again = session(tmp_path / "g.db")
    assert again.resumed
    row = again.position["source"]["row"]
    assert row == 900
    again.learn(X[row:], keys[row:])
    again.commit(position={"source": {"row": 2000}})
    for name in ("dev-00", "dev-39"):
        assert dumps(again.store.load(name)) == dumps(alone(X, keys, name))
    assert GroupSession(IncrementalGaussianMixture(), again.store, "site", COLUMNS).position is None
    again.store.close()


def test_two_programs_are_noticed_and_nothing_is_written(tmp_path):
    X, keys = stream(200, 4)
    one, other = session(tmp_path / "g.db"), session(tmp_path / "g.db")
    for run in (one, other):
        run.learn(X, keys)
    one.commit()
    with pytest.raises(Exception, match="another program"):
        other.commit()
    assert one.store.load("dev-00").n_samples_seen_ == (keys == "dev-00").sum()
    one.store.close()
    other.store.close()


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (np.array(["b", "a", "b"]), ["b", "a"]),
        (np.array([3.0, 1.5, 3.0]), ["3", "1.5"]),
        (np.array([3, 1, 3]), ["3", "1"]),
        (np.array(["b", "a", "b"], dtype=object), ["b", "a"]),
    ],
)
def test_groups_in_the_order_of_their_first_row(keys, names):
    found = list(split(keys, np.zeros((3, 1))))
    assert [name for name, _ in found] == names
    assert [rows.tolist() for _, rows in found] == [[0, 2], [1]]


def test_rows_without_a_group_and_other_columns(tmp_path):
    run = session(tmp_path / "g.db")
    assert name_of(float("nan")) == ""
    run.learn(np.zeros((2, 2)), np.array([1.0, np.nan]))
    assert (run.n_rows, run.n_bad) == (1, 1)
    with pytest.raises(InputError, match="no column 'device'"):
        run.learn(np.zeros((2, 2)), None)
    run.commit()
    other = GroupSession(IncrementalGaussianMixture(), run.store, "device", ["x", "y"])
    with pytest.raises(InputError, match="Choose another state file"):
        other.learn(np.zeros((1, 2)), np.array([1.0]))
    run.store.close()
