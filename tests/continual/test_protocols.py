"""Protocols: which rows come when, and what they are tested on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.continual import class_by_class, disjoint, iid, permuted
from everlearn.errors import InputError


def rows(n=100, n_classes=5, D=4):
    """Rows that carry their own number in the first column."""
    X = np.random.default_rng(0).normal(size=(n, D))
    X[:, 0] = np.arange(n)
    return X, np.arange(n) % n_classes


def numbers(parts):
    return sorted(int(v) for part in parts for v in part[:, 0])


@given(n=st.integers(12, 60), share=st.floats(0.1, 0.5), seed=st.integers(0, 99), n_classes=st.integers(1, 4))
def test_every_row_is_learned_once_or_tested(n, share, seed, n_classes):
    X, y = rows(n, n_classes)
    tasks = list(iid(X, y, n_tasks=3, test=share, random_state=seed))
    held = tasks[0].X_test
    assert numbers([*(t.X for t in tasks), held]) == list(range(n))
    assert abs(len(held) - share * n) < 1
    for task in tasks:
        np.testing.assert_array_equal(task.y, task.X[:, 0].astype(int) % n_classes)
        np.testing.assert_array_equal(task.X_test, held)


def test_held_back_rows_are_spread_over_the_classes():
    X, y = rows(1000, 4)
    task = next(iid(X, y, n_tasks=1, test=0.1))
    assert np.ptp(np.bincount(task.y_test)) <= 1


def test_classes_come_one_by_one_in_the_order_given():
    X, y = rows()
    assert [t.name for t in class_by_class(X, y)] == ["0", "1", "2", "3", "4"]
    tasks = list(class_by_class(X, y, order=[3, 0]))
    assert [set(t.y) for t in tasks] == [{3}, {0}]
    assert [set(t.y_test) for t in tasks] == [{3}, {0}]


def test_groups_of_classes():
    X, y = rows(200, 10)
    first, second = disjoint(X, y)
    assert set(first.y) == {0, 1, 2, 3, 4} == set(first.y_test)
    assert set(second.y) == {5, 6, 7, 8, 9}
    assert (first.name, second.name) == ("0, 1, 2, 3, 4", "5, 6, 7, 8, 9")
    odd, even = disjoint(X, y, groups=[(1, 3, 5, 7, 9), (0, 2, 4, 6, 8)])
    assert odd.y.min() == 1
    assert even.y_test.max() == 8
    assert len(list(disjoint(X, y, groups=10))) == 10


def test_names_of_many_classes_are_short():
    X, y = rows(200, 20)
    assert [t.name for t in disjoint(X, y)] == ["0 to 9", "10 to 19"]


def test_permuted_columns_are_the_same_for_learning_and_testing():
    X, y = rows(50)
    tasks = list(permuted(X, y, n_tasks=3))
    for task in tasks:
        order = [int(np.flatnonzero((tasks[0].X == column[:, None]).all(axis=0))[0]) for column in task.X.T]
        np.testing.assert_array_equal(tasks[0].X_test[:, order], task.X_test)
        np.testing.assert_array_equal(tasks[0].y, task.y)
    assert not np.array_equal(tasks[1].X, tasks[2].X)


@pytest.mark.parametrize("protocol", [iid, class_by_class, disjoint, permuted])
def test_given_test_rows_are_used_and_runs_repeat(protocol):
    X, y = rows()
    test = (X[:20] + 0.5, y[:20])
    once, again = list(protocol(X, y, test=test)), list(protocol(X, y, test=test))
    assert sum(len(task.X) for task in once) % len(X) == 0
    for a, b in zip(once, again, strict=True):
        for left, right in zip(a, b, strict=True):
            np.testing.assert_array_equal(left, right)
    if protocol in (class_by_class, disjoint):
        assert sum(len(task.X_test) for task in once) == 20


def test_labels_are_optional_where_they_do_not_matter():
    X, _ = rows()
    assert next(iid(X)).y is None
    assert next(permuted(X)).y_test is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y: iid(X, y, n_tasks=0), "n_tasks must be"),
        (lambda X, y: iid(X, y[:5]), "one label per row"),
        (lambda X, y: iid(X[:, 0], y), "two dimensions"),
        (lambda X, y: iid(X, y, test=1.5), "test must be"),
        (lambda X, y: class_by_class(X, None), "y is None"),
        (lambda X, y: disjoint(X, y, test=(X, None)), "y is None"),
        (lambda X, y: disjoint(X, y, groups=6), "number of classes, 5"),
        (lambda X, y: disjoint(X, y, groups=[[0, 1], [1, 2]]), "more than once"),
        (lambda X, y: disjoint(X, y, groups=[[0], [77]]), "No rows to learn for the classes \\[77\\]"),
    ],
)
def test_refusals_teach(call, message):
    with pytest.raises(InputError, match=message):
        list(call(*rows()))
