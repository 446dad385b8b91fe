"""The streaming checks pass a sound estimator and fail each broken one, for its own reason."""

import copy

import numpy as np
import pytest

from everlearn.base.estimator import StreamEstimator
from everlearn.checks import check_stream_estimator, stream_checks
from everlearn.persistence.registry import register
from toys import RunningNormal, Sums


def test_a_sound_estimator_passes():
    check_stream_estimator(RunningNormal())


class KeepsRows(RunningNormal):
    """The first row stays a view of the caller's array."""

    def _learn(self, X, y, weights):
        if "first_" not in vars(self):
            self.first_ = X[0]
        super()._learn(X, y, weights)

    def score_samples(self, X):
        return super().score_samples(X) + self.first_.sum()


class ChangesRows(RunningNormal):
    def _learn(self, X, y, weights):
        X *= 2
        super()._learn(X, y, weights)


class WritesWhenAsked(RunningNormal):
    def score_samples(self, X):
        X = self._check_X(X)
        X += 0.5
        return super().score_samples(X)


class ChangesRowsBack(RunningNormal):
    """Works in the caller's memory and puts it right again."""

    def _learn(self, X, y, weights):
        X += 1.0
        super()._learn(X - 1.0, y, weights)
        X -= 1.0


class Grows(RunningNormal):
    """Of text, one line a batch: the check looks into every value of a list, which takes long for numbers."""

    def _learn(self, X, y, weights):
        super()._learn(X, y, weights)
        self.history_ = [*getattr(self, "history_", []), X.tobytes().hex()]


class GrowsUnseen(RunningNormal):
    """The same in an array, and in a cache that no file shows."""

    def _learn(self, X, y, weights):
        super()._learn(X, y, weights)
        self._cache_ = np.concatenate([self.__dict__.get("_cache_", X[:0]), X])


class CountsCalls(RunningNormal):
    """Learns more slowly with each call, not with each row."""

    def _learn(self, X, y, weights):
        self.calls_ = getattr(self, "calls_", 0) + 1
        super()._learn(X, y, np.full(len(X), 1.0 / self.calls_))


class Remembers(RunningNormal):
    def fit(self, X, y=None, sample_weight=None):
        return self.partial_fit(X, y, sample_weight)


class MisreadsWeights(RunningNormal):
    def _learn(self, X, y, weights):
        super()._learn(X, y, None if weights is None else 1.0 + weights**2 * np.arange(len(X)))


class LosesState(RunningNormal):
    """A momentum that matters is called a cache."""

    def _learn(self, X, y, weights):
        super()._learn(X, y, weights)
        self._cache_ = self.__dict__.get("_cache_", 0.0) + X.sum()

    def score_samples(self, X):
        return super().score_samples(X) + self.__dict__.get("_cache_", 0.0)


class LosesDirection(RunningNormal):
    """Answers alike after a file, but learns otherwise."""

    def _learn(self, X, y, weights):
        n = self.__dict__.get("_cache_", 0)
        super()._learn(X, y, np.full(len(X), 2.0 if n else 1.0))
        self._cache_ = n + 1


class CannotBeSaved(RunningNormal):
    def _learn(self, X, y, weights):
        super()._learn(X, y, weights)
        self.hook_ = len


class SharesWithCopies(RunningNormal):
    def _learn(self, X, y, weights):
        mean = self._sums_.mean
        super()._learn(X, y, weights)
        mean[:] = self._sums_.mean
        self._sums_ = self._sums_._replace(mean=mean)

    def copy(self):
        return copy.copy(self)


class MergesInPlace(RunningNormal):
    def _merge(self, others, **arguments):
        self._sums_ = super()._merge(others, **arguments)._sums_
        return self


class MergesToNothing(RunningNormal):
    def _merge(self, others, **arguments):
        merged = self.copy()
        merged._sums_ = Sums(0.0, merged._sums_.mean, merged._sums_.scatter)
        return merged


class TakesAnything(RunningNormal):
    def _check_X(self, X, *, first=False):
        rows = np.asarray(X)
        self.n_features_in_ = rows.shape[1]
        return rows


class LearnsBeforeItLooks(RunningNormal):
    def partial_fit(self, X, y=None, sample_weight=None):
        self.calls_ = getattr(self, "calls_", 0) + 1
        return super().partial_fit(X, y, sample_weight)


class RefusesOddly(RunningNormal):
    def _check_X_in_full(self, X, first):
        try:
            return super()._check_X_in_full(X, first)
        except ValueError as error:
            raise KeyError(str(error)) from error


class IgnoresWeights(RunningNormal):
    def _check_batch(self, X, y, sample_weight, *, first):
        return super()._check_batch(X, y, None, first=first)


class CountsRowsOfNoWeight(RunningNormal):
    def _check_batch(self, X, y, sample_weight, *, first):
        weights = None if sample_weight is None else np.maximum(sample_weight, 1e-3)
        return super()._check_batch(X, y, weights, first=first)


class HalfLearned(RunningNormal):
    def _snapshot(self):
        return dict(vars(self))

    def _learn(self, X, y, weights):
        self._sums_.mean[:] += 1e-3
        super()._learn(X, y, weights)


class SaysItTakesGaps(RunningNormal):
    _allow_nan = True


class RefusesConstants(RunningNormal):
    def _learn(self, X, y, weights):
        if len(X) > 1 and (np.ptp(X, axis=0) == 0).any():
            raise ValueError("a column is constant")
        super()._learn(X, y, weights)


class Overflows(RunningNormal):
    def score_samples(self, X):
        with np.errstate(over="ignore", invalid="ignore"):
            return super().score_samples(X) + 0 * np.sum(self._check_X(X) ** 4, axis=1)


class NeedsManyRows(RunningNormal):
    def score_samples(self, X):
        return super().score_samples(X) / np.sign(self._sums_.n - 1)


BROKEN = {
    KeepsRows: ("check_input_is_left_alone", "overwritten"),
    ChangesRows: ("check_input_is_left_alone", "changed the rows"),
    WritesWhenAsked: ("check_input_is_left_alone", "changed the rows"),
    ChangesRowsBack: ("check_read_only_input", "read-only"),
    Grows: ("check_memory_is_bounded", "traced memory: .* grows"),
    GrowsUnseen: ("check_memory_is_bounded", "grows"),
    CountsCalls: ("check_batches_do_not_matter", "one at a time"),
    Remembers: ("check_fit_forgets", "fit after partial_fit"),
    MisreadsWeights: ("check_weights_of_one", "weights of one"),
    LosesState: ("check_save_and_load", "a model and its file: score_samples differs"),
    LosesDirection: ("check_save_and_load", "both learning on"),
    CannotBeSaved: ("check_save_and_load", "hook_"),
    SharesWithCopies: ("check_copies_are_independent", "changed when its copy learned"),
    MergesInPlace: ("check_merge", "changed what was merged"),
    MergesToNothing: ("check_merge", "not finite"),
    TakesAnything: ("check_bad_rows", "without an error|instead of a ValueError"),
    LearnsBeforeItLooks: ("check_bad_rows", "but the model changed"),
    RefusesOddly: ("check_bad_rows", "KeyError.*instead of a ValueError"),
    IgnoresWeights: ("check_bad_weights_and_targets", "sample_weight=.* without an error"),
    CountsRowsOfNoWeight: ("check_weights_of_zero", "rows of weight zero"),
    HalfLearned: ("check_failure_changes_nothing", "KeyboardInterrupt after 30 rows: the model changed"),
    SaysItTakesGaps: ("check_gaps", "not finite"),
    RefusesConstants: ("check_constant_columns", "a column is constant"),
    Overflows: ("check_huge_scale", "not finite"),
    NeedsManyRows: ("check_one_row", "not finite"),
}

for _broken in BROKEN:
    register(_broken)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_broken_estimators_fail(broken):
    name, message = BROKEN[broken]
    check = dict(stream_checks(broken()))[name]
    with pytest.raises(AssertionError, match=f"(?s)^{broken.__name__}: .*({message})"):
        check()


def test_every_check_can_fail():
    """Each check is failed above by an estimator made for it; tables share theirs."""
    failed = {name for name, _ in BROKEN.values()}
    names = [name for name, _ in stream_checks(RunningNormal())]
    tables = names[names.index("check_constant_columns") :]
    assert set(names) - set(tables) <= failed


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_targets_follow_the_tags(kind):
    """An estimator that needs y is given labels or numbers, and must refuse to do without."""
    seen = []

    class Supervised(RunningNormal):
        def _check_y(self, y, n_rows):
            if y is None or np.shape(y) != (n_rows,):
                raise ValueError("y must have one target a row")
            seen.append(np.asarray(y).dtype.kind)
            return None

        def __sklearn_tags__(self):
            tags = super().__sklearn_tags__()
            tags.estimator_type = kind
            return tags

    Supervised.__name__ = f"Toy{kind.title()}"
    register(Supervised)
    check_stream_estimator(Supervised())
    assert set(seen) == {"U" if kind == "classifier" else "f"}


def test_components_fit_the_columns():
    """An estimator that asks for fewer components than columns gets tables it can learn."""
    asked = []

    class Counted(RunningNormal):
        def __init__(self, n_components=10, ridge=1e-3, rate=None, inner=None):
            super().__init__(ridge, rate, inner)
            self.n_components = n_components

        def _start(self, X, *, whole):
            asked.append((self.n_components, X.shape[1]))
            super()._start(X, whole=whole)

    register(Counted)
    check_stream_estimator(Counted())
    assert (1, 1) in asked
    assert (10, 300) in asked
    assert all(k < D or (k, D) == (1, 1) for k, D in asked)


def test_checks_leave_the_estimator_alone():
    model = RunningNormal(ridge=0.01)
    for _, check in list(stream_checks(model))[:3]:
        check()
    assert vars(model) == {"ridge": 0.01, "rate": None, "inner": None}
    assert isinstance(model, StreamEstimator)
