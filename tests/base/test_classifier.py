"""Labels as they come, by a classifier that only counts."""

import numpy as np
import pytest

from everlearn.base.classifier import StreamClassifier
from everlearn.errors import InputError, MergeError


class Counting(StreamClassifier):
    """The probability of a class is its share of the weights, whatever the row."""

    def _start_classes(self, X, labels):
        self.counts_ = np.zeros(len(self.classes_))

    def _add_class(self, at):
        self.counts_ = np.insert(self.counts_, at, 0.0)

    def _learn_classes(self, X, labels, weights):
        np.add.at(self.counts_, labels, weights)

    def _log_proba(self, X):
        with np.errstate(divide="ignore"):
            return np.tile(np.log(self.counts_ / self.counts_.sum()), (len(X), 1))


X = np.zeros((6, 1))


def test_labels_may_come_in_any_order_and_stay_sorted():
    model = Counting()
    for labels in (["pear"] * 3 + ["apple"] * 3, ["quince, a longer name"] * 6, ["apple"] * 5 + ["fig"]):
        model.partial_fit(X, labels)
    assert model.classes_.tolist() == ["apple", "fig", "pear", "quince, a longer name"]
    assert model.counts_.tolist() == [8.0, 1.0, 3.0, 6.0]
    assert model.predict(X[:2]).tolist() == ["apple", "apple"]


@pytest.mark.parametrize("labels", [[3, 1, 2, 1, 1, 3], ["b", "a", "b", "c", "a", "a"], [True, False] * 3])
def test_any_split_and_fit_learn_the_same(labels):
    whole, parts = Counting().fit(X, labels), Counting()
    for t in range(6):
        parts.partial_fit(X[t : t + 1], labels[t : t + 1])
    np.testing.assert_array_equal(parts.classes_, whole.classes_)
    np.testing.assert_array_equal(parts.counts_, whole.counts_)
    names, counts = np.unique(labels, return_counts=True)
    np.testing.assert_array_equal(whole.classes_, names)
    np.testing.assert_allclose(whole.predict_proba(X[:1])[0], counts / 6)


def test_classes_can_be_announced_and_weights_count():
    model = Counting().partial_fit(X[:2], [5, 5], classes=[1, 5, 9], sample_weight=[2.0, 1.0])
    assert model.classes_.tolist() == [1, 5, 9]
    assert model.counts_.tolist() == [0.0, 3.0, 0.0]
    with pytest.raises(InputError, match="Some labels are text"):
        model.partial_fit(X[:1], [5], classes=["one"])
    with pytest.raises(InputError, match="Some labels are text"):
        model.partial_fit(X[:1], ["five"])
    assert model.counts_.sum() == 3.0  # a refused batch is not learned in part


def test_accuracy_and_calibration_are_counted_by_hand():
    """All rows are told "a" with probability 0.75, and half of them are."""
    model = Counting().fit(X[:4], ["a", "a", "a", "b"])
    truth = ["a", "b", "a", "b", "a", "b"]
    assert model.score(X, truth) == 0.5
    assert model.calibration_error(X, truth) == pytest.approx(0.25)
    assert model.calibration_error(X[:4], ["a", "a", "a", "b"], n_bins=3) == pytest.approx(0.0)


def test_merged_models_get_the_classes_of_all():
    one, other = Counting().fit(X[:2], ["a", "c"]), Counting().fit(X[:1], ["b"])
    models = one._with_same_classes([other])
    assert [model.classes_.tolist() for model in models] == [["a", "b", "c"]] * 2
    assert [model.counts_.tolist() for model in models] == [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    assert one.classes_.tolist() == ["a", "c"]
    with pytest.raises(MergeError, match="Use one kind of label"):
        one._with_same_classes([Counting().fit(X[:1], [1])])
