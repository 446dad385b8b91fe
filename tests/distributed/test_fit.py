"""Distributed fits on this machine: what they learn, that they repeat, and what they refuse."""

import os
import signal
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everlearn
from everlearn import (
    IncrementalGaussianMixture,
    IncrementalGaussianMixtureClassifier,
    IncrementalGaussianMixtureRegressor,
    OnlinePPCA,
    VariationalPPCA,
)
from everlearn.base.merge_tree import MergeTree
from everlearn.distributed import fit
from everlearn.distributed import worker as learning
from everlearn.distributed.partitions import _runs
from everlearn.errors import ClusterError, InputError, MergeError
from everlearn.persistence.model_file import dumps


def write_parquet(path, X, names=("rpm", "temp", "load"), row_group_size=300, **more):
    columns = {**dict(zip(names, X.T, strict=True)), **more}
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return str(path)


def write_csv(path, X, names=("rpm", "temp", "load")):
    np.savetxt(path, X, delimiter=",", header=",".join(names), comments="", fmt="%.17g")
    return str(path)


def rows_of(rng, n):
    """Rows of three groups."""
    mixing = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 0.5]])
    return rng.normal(size=(n, 3)) @ mixing + 5.0 * rng.integers(3, size=(n, 1))


def make_parts():
    rng = np.random.default_rng(0)
    return [rows_of(rng, n) for n in (500, 300, 700, 40)]


def write_parts(folder):
    for i, X in enumerate(make_parts()):
        write_parquet(folder / f"day-{i}.parquet", X)
    return folder


@pytest.fixture
def parts():
    return make_parts()


@pytest.fixture
def folder(tmp_path):
    return write_parts(tmp_path)


def one_process(estimator, source, **options):
    return fit(estimator, source, **{"workers": 1, **options})


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """The model of the folder, learned by one process."""
    return one_process(IncrementalGaussianMixture(), write_parts(tmp_path_factory.mktemp("parts")))[0]


# -- the tree ---------------------------------------------------------------------------------------


@given(n=st.integers(1, 60), fan_in=st.integers(2, 7))
def test_the_tree_merges_neighbours_and_loses_none(n, fan_in):
    sizes = []

    def merge(groups):
        sizes.append(len(groups))
        assert 2 <= len(groups) <= fan_in
        flat = [model for group in groups for model in group]
        assert flat == list(range(flat[0], flat[-1] + 1))
        return flat

    tree = MergeTree(merge, fan_in)
    for i in range(n):
        tree.add([i])
    assert tree.root() == list(range(n))
    assert sum(size - 1 for size in sizes) == n - 1


def test_an_empty_tree_has_no_root():
    with pytest.raises(ValueError, match="no model"):
        MergeTree(list, 2).root()


@given(groups=st.lists(st.integers(1, 50), max_size=12), limit=st.integers(1, 120))
def test_row_groups_are_split_between_partitions(groups, limit):
    runs = list(_runs(tuple(groups), limit))
    assert [i for run in runs for i in run] == list(range(len(groups)))
    sizes = [sum(groups[i] for i in run) for run in runs]
    assert all(size <= limit or len(run) == 1 for size, run in zip(sizes, runs, strict=True))
    assert all(a + groups[run[0]] > limit for a, run in zip(sizes, runs[1:], strict=False))


# -- what is learned --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_model_is_the_merge_of_the_partitions(folder, parts):
    estimator = IncrementalGaussianMixture()
    model, report = one_process(estimator, folder)
    expected = everlearn.merge([IncrementalGaussianMixture(random_state=0).partial_fit(X) for X in parts])
    X = np.concatenate(parts)
    np.testing.assert_array_equal(model.score_samples(X), expected.score_samples(X))
    assert list(model.feature_names_in_) == ["rpm", "temp", "load"]
    assert not hasattr(estimator, "n_features_in_")
    assert model.random_state is None
    assert [record.rows for record in report.partitions] == [len(X) for X in parts]
    assert report.rows == model.n_samples_seen_ == len(X)
    assert report.peak_memory > 1e7
    assert f"{len(X):,}" in str(report)
    model.partial_fit(parts[0])


@pytest.mark.parametrize("estimator", [OnlinePPCA(2), VariationalPPCA(1), IncrementalGaussianMixture(1)])
def test_partitions_of_any_model_know_together_what_one_pass_does(folder, parts, estimator):
    X = np.concatenate(parts)
    model, _ = one_process(estimator, folder, partition_rows=300)
    assert model.score(X) == pytest.approx(estimator.copy().partial_fit(X).score(X), abs=0.1)


@pytest.mark.slow
def test_csv_and_parquet_give_the_same_model(parts, learned, tmp_path):
    for i, X in enumerate(parts):
        write_csv(tmp_path / f"{i}.csv", X)
    other, report = one_process(IncrementalGaussianMixture(), tmp_path / "*.csv")
    assert dumps(learned) == dumps(other)
    assert report.columns == ("rpm", "temp", "load")


@pytest.mark.slow
def test_size_of_batches_makes_no_difference(folder, parts, learned):
    X = np.concatenate(parts)
    other, _ = one_process(IncrementalGaussianMixture(), folder, batch_rows=77)
    np.testing.assert_allclose(learned.score_samples(X), other.score_samples(X), rtol=1e-9)


def test_text_is_left_out_gaps_are_learned_and_order_of_columns_is_free(parts, tmp_path):
    X = parts[0]
    X[::7, 1] = np.nan
    stamp = pa.array([f"s{i}" for i in range(len(X))])
    times = pa.array(np.arange(len(X)), pa.timestamp("s"))
    write_parquet(tmp_path / "a.parquet", X, station=stamp, time=times)
    order = ["time", "load", "station", "rpm", "temp"]
    pq.write_table(
        pq.read_table(write_parquet(tmp_path / "b", X, station=stamp, time=times)).select(order),
        tmp_path / "b.parquet",
    )
    model, report = one_process(IncrementalGaussianMixture(), [tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert report.columns == ("rpm", "temp", "load")
    assert report.left_out == {"station": "text", "time": "times"}
    assert model.n_samples_seen_ == 2 * len(X)
    chosen, report = one_process(IncrementalGaussianMixture(), tmp_path / "a.parquet", columns=["load", "rpm"])
    assert list(chosen.feature_names_in_) == ["load", "rpm"]


@pytest.mark.slow
def test_targets(parts, tmp_path):
    for i, X in enumerate(parts):
        kind = np.where(X[:, 0] > 4.0, "high", "low")
        write_parquet(tmp_path / f"{i}.parquet", X, kind=pa.array(kind), power=X @ [1.0, 2.0, 3.0])
    X = np.concatenate(parts)
    columns = ["rpm", "temp", "load"]
    classifier, _ = one_process(IncrementalGaussianMixtureClassifier(), tmp_path, columns=columns, target="kind")
    assert classifier.score(X, np.where(X[:, 0] > 4.0, "high", "low")) > 0.9
    regressor, _ = one_process(IncrementalGaussianMixtureRegressor(), tmp_path, columns=columns, target="power")
    assert regressor.score(X, X @ [1.0, 2.0, 3.0]) > 0.9
    pq.write_table(pa.table({"rpm": [1.0, 2.0], "kind": ["low", None]}), tmp_path / "gap.parquet")
    with pytest.raises(InputError, match=r"gap.parquet cannot be read: .*row 1 has no target"):
        one_process(IncrementalGaussianMixtureClassifier(), tmp_path / "gap.parquet", target="kind")


def test_empty_partitions_count_for_nothing(folder, parts, learned):
    write_parquet(folder / "day-9.parquet", np.empty((0, 3)))
    other, report = one_process(IncrementalGaussianMixture(), folder)
    assert dumps(learned) == dumps(other)
    assert [record.rows for record in report.partitions] == [*map(len, parts), 0]
    with pytest.raises(InputError, match="no row to learn in 1 partitions"):
        one_process(IncrementalGaussianMixture(), folder / "day-9.parquet")


# -- processes --------------------------------------------------------------------------------------


def fit_with_a_killing(source, report, **options):
    """Fit while one of the processes that made `report` is killed; joblib uses them again."""
    worker = int(report.partitions[-1].worker.rpartition(":")[2])
    killer = threading.Timer(0.2, os.kill, (worker, signal.SIGKILL))
    killer.start()
    try:
        return fit(IncrementalGaussianMixture(), source, workers=2, **options)
    finally:
        killer.join()


@pytest.mark.slow
def test_processes_give_the_model_of_one_even_when_one_is_killed(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(6):
        write_parquet(tmp_path / f"{i}.parquet", rows_of(rng, 10_000), row_group_size=10_000)
    alone, _ = one_process(IncrementalGaussianMixture(), tmp_path)
    together, report = fit(IncrementalGaussianMixture(), tmp_path, workers=2)
    assert dumps(alone) == dumps(together)
    assert report.lost_workers == 0
    again, report = fit_with_a_killing(tmp_path, report, progress=True)
    assert dumps(alone) == dumps(again)
    assert report.lost_workers == 1
    with pytest.raises(ClusterError, match=r"killed 1 times.*fewer workers="):
        fit_with_a_killing(tmp_path, report, retries=0)


@pytest.mark.slow
def test_other_joblib_backends(folder, learned):
    threads, _ = fit(IncrementalGaussianMixture(), folder, engine="threading", workers=2)
    assert dumps(learned) == dumps(threads)
    with pytest.raises(InputError, match=r"engine='spark' is neither"):
        fit(IncrementalGaussianMixture(), folder, engine="spark")


# -- bad days ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_partition_that_cannot_be_read_is_tried_again_and_then_an_error(folder, learned, monkeypatch):
    failures = iter([True, False, True])

    honest = learning._file_batches

    def fails_in_the_middle(job, partition):
        for n, batch in enumerate(honest(job, partition)):
            if "day-2" in partition.path and n == 1 and next(failures, False):
                raise OSError("the disk is away")
            yield batch

    monkeypatch.setattr(learning, "_file_batches", fails_in_the_middle)
    monkeypatch.setattr(learning, "_FIRST_WAIT", 0.0)
    model, report = one_process(IncrementalGaussianMixture(), folder, batch_rows=200)
    again, _ = one_process(IncrementalGaussianMixture(), folder, batch_rows=200)
    assert [record.tries for record in report.partitions] == [1, 1, 2, 1]
    X = rows_of(np.random.default_rng(1), 100)
    np.testing.assert_allclose(model.score_samples(X), learned.score_samples(X), rtol=1e-9)
    assert dumps(model) == dumps(again)
    failures = iter([True] * 9)
    with pytest.raises(InputError, match=r"day-2.parquet cannot be read on .* after 3 tries: the disk is away"):
        one_process(IncrementalGaussianMixture(), folder, batch_rows=200)


def test_damaged_files_are_named(folder):
    path = folder / "day-1.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"day-1.parquet cannot be read"):
        one_process(IncrementalGaussianMixture(), folder)
    path.write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    with pytest.raises(InputError, match=r"day-1.parquet"):
        one_process(IncrementalGaussianMixture(), folder, retries=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rpm,temp,load\n1,2,3\n4,5\n", r"b.csv cannot be read: .*b.csv:3 has too few or too many cells: '4,5'"),
        ("rpm,temp,load\n1,2,inf\n", r"b.csv cannot be read: .*b.csv:2 has an infinite number"),
        ("rpm,temp\n1,2\n", r"b.csv has other columns than the first: it lacks 'load'"),
        ("rpm,temp,load,power\n1,2,3,4\n", r"b.csv has other columns than the first: it has 'power' besides"),
        ("rpm,temp,weight\n1,2,3\n", r"lacks 'load' and has 'weight' besides"),
        ("rpm,temp,load\n1,2,heavy\n", r"The column 'load' of the partition .*b.csv holds text, not numbers"),
        ("1,2,3\n4,5,6\n", r"lacks 'rpm', 'temp', 'load' and has 'column0', 'column1', 'column2' besides"),
        ("", r"b.csv is empty"),
    ],
)
def test_partitions_that_do_not_fit(parts, tmp_path, text, message):
    write_csv(tmp_path / "a.csv", parts[0])
    (tmp_path / "b.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        one_process(IncrementalGaussianMixture(), tmp_path)


@pytest.mark.slow
def test_text_far_down_in_a_column_of_numbers(parts, tmp_path):
    write_csv(tmp_path / "a.csv", parts[0])
    (tmp_path / "b.csv").write_text("rpm,temp,load\n" + "1,2,3\n" * 300_000 + "1,oops,3\n")
    with pytest.raises(InputError, match=r"b.csv:300002 has text in a column of numbers: '1,oops,3'"):
        one_process(OnlinePPCA(1), tmp_path)


def test_a_file_that_grew_after_its_footer_was_read(folder, monkeypatch):
    from everlearn.distributed import fitting

    honest = fitting.file_partitions

    def promises_seven(*arguments):
        chosen, parts = honest(*arguments)
        return chosen, [part._replace(rows=7) for part in parts]

    monkeypatch.setattr(fitting, "file_partitions", promises_seven)
    with pytest.raises(InputError, match="gave 500 rows; its footer promises 7"):
        one_process(IncrementalGaussianMixture(), folder)


def test_columns_that_only_some_have_can_be_left_out(parts, tmp_path):
    write_csv(tmp_path / "a.csv", parts[0])
    write_csv(tmp_path / "b.csv", parts[1][:, :2], names=("temp", "rpm"))
    model, _ = one_process(OnlinePPCA(1), tmp_path, columns=["rpm", "temp"])
    assert model.n_samples_seen_ == len(parts[0]) + len(parts[1])


def test_units_that_differ_are_refused(parts, tmp_path):
    write_csv(tmp_path / "a.csv", parts[0])
    write_csv(tmp_path / "b.csv", 1e6 * parts[1])
    with pytest.raises(MergeError, match=r"models of the partitions cannot be merged. Column 'rpm' spreads"):
        one_process(IncrementalGaussianMixture(), tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "nothing-*.csv"}, "No file matches 'nothing"),
        ({"source": "nothing.csv"}, "There is no file nothing.csv"),
        ({"source": __file__}, "test_fit.py has"),
        ({"source": []}, "source names no file"),
        ({"source": 7}, "source must be files"),
        ({"workers": 0}, "workers must be an integer from 1 on; got 0"),
        ({"retries": -1}, "retries must be an integer from 0 on"),
        ({"batch_rows": 0.5}, "batch_rows must be an integer"),
        ({"partition_rows": "all"}, "partition_rows must be an integer"),
        ({"timeout": 0}, "timeout must be a positive number"),
        ({"columns": ["rpm", "speed"]}, "has no column 'speed'. It has: rpm, temp, load"),
        ({"target": "kind"}, "no column 'kind'"),
        ({"estimator": "mixture"}, "estimator must be an everlearn model, not a str"),
    ],
)
def test_arguments_are_checked(folder, options, message):
    with pytest.raises(InputError, match=message):
        one_process(**{"estimator": IncrementalGaussianMixture(), "source": folder, **options})


def test_a_file_named_twice_and_an_empty_folder_are_refused(folder, tmp_path):
    path = folder / "day-0.parquet"
    with pytest.raises(InputError, match="twice"):
        one_process(IncrementalGaussianMixture(), [path, str(folder / "day-*.parquet")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no file"):
        one_process(IncrementalGaussianMixture(), tmp_path / "empty")
