"""One mixture a class, all in one frame, and the blend of views by which they are told apart."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from everlearn.base.conditioning import LIMIT
from everlearn.base.estimator import StreamEstimator
from everlearn.base.scaling import Frame, frame_of_rows, frame_of_spread
from everlearn.errors import DivergenceWarning, InputError
from everlearn.figmn import estimator_merge as mixture_merging
from everlearn.figmn import learn as incremental
from everlearn.figmn import merge as joining
from everlearn.figmn.first_edition import IncrementalGaussianMixture
from everlearn.figmn.learn import MixtureState
from everlearn.figmn.loading import check_frame, check_state
from everlearn.figmn.state import Settings
from everlearn.linalg.chunked import to_internal
from everlearn.mixture import class_densities as classes
from everlearn.mixture.class_densities import Blend, ClassShape, Common, Labelled, Views
from everlearn.monitoring.kernels.reservoir import reservoir_slots
from everlearn.persistence.schema import expect, expect_fields, require

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

# max_components="auto" keeps the precisions of a class within 2^22 numbers (32 MiB).
MAX_COMPONENTS = 50
MAX_NUMBERS = 2**22
SAMPLE_ROWS = 1000
FIRST_BLEND = 10


class LabelledRows(NamedTuple):
    """Rows with class numbers and weights, `n` of which are in use or have been offered."""

    rows: Array
    labels: Codes
    weights: Array
    n: int


class Seen(NamedTuple):
    """What a class looked like in a state that may still be its own, and its views if the blend is the same."""

    state: MixtureState
    shape: ClassShape
    blend: Blend | None
    views: Views | None


class Answer(NamedTuple):
    """What class probabilities are computed from."""

    views: Views
    weights: Array
    log_prior: Array
    frame: Frame


class ClassMixtures(StreamEstimator):
    """Mixtures of numbered classes that learn apart from each other, in the coordinates of one frame.

    Parameters
    ----------
    mixture : IncrementalGaussianMixture
        The parameters of each class's mixture; it is not fitted itself.
    """

    _allow_nan: ClassVar[bool] = True
    _transient: ClassVar[tuple[str, ...]] = ("_settings_", "_cache_", "_seen_", "_shared_")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"mixture": [IncrementalGaussianMixture]}

    def __init__(self, mixture: IncrementalGaussianMixture) -> None:
        self.mixture = mixture

    # -- learning ---------------------------------------------------------------------------------

    def start(self, X: Array, labels: Codes | None) -> None:
        """Prepare for rows like those of X; if these are all rows, with their labels, they set the frame."""
        D = self.n_features_in_ = X.shape[1]
        self.mixture._check_compound_parameters()
        self._states_: list[MixtureState] = []
        self._class_counts_ = np.zeros(0)
        self._n_rows_, self._next_blend_ = 0, FIRST_BLEND if labels is None else len(X)
        self._blend_: Blend | None = None
        self._sample_ = _no_rows(min(SAMPLE_ROWS, max(classes.MIN_ROWS, MAX_NUMBERS // D)), D)
        self._warmup_: LabelledRows | None = None
        self._frame_: Frame | None = None
        self._cache_: dict[str, Any] = {}
        self._seen_: dict[int, Seen] = {}
        self._shared_: tuple[Blend, Common] | None = None
        if not isinstance(self.mixture.scale, str):
            self._settle(frame_of_spread(self.mixture._given_scale(D)))
        elif labels is not None:
            self._settle(frame_of_rows(X))
        else:
            self._warmup_ = _no_rows(self.mixture._warmup_rows(D), D)

    def add_class(self, at: int) -> None:
        """Make room for a class before the one that is number `at` so far."""
        empty = incremental.empty(self.n_features_in_, diagonal=self.mixture.covariance == "diag")
        self._states_ = [*self._states_[:at], empty, *self._states_[at:]]
        self._class_counts_ = np.insert(self._class_counts_, at, 0.0)
        for held in (self._sample_, self._warmup_):
            if held is not None:
                held.labels[held.labels >= at] += 1
        self._cache_.clear()
        self._seen_.clear()

    def learn(self, X: Array, labels: Codes, weights: Array) -> None:
        """Learn rows of known classes in their order."""
        self._cache_.clear()
        if self._warmup_ is None:
            self._learn_settled(X, labels, weights)
            return
        held = self._warmup_
        taken = min(len(X), len(held.rows) - held.n)
        end = held.n + taken
        for kept, new in zip(held[:3], (X, labels, weights), strict=True):
            kept[held.n : end] = new[:taken]
        self._warmup_ = held._replace(n=end)
        if end == len(held.rows):
            self._warmup_ = None
            self._settle(frame_of_rows(held.rows))
            self._learn_settled(*held[:3])
            self._learn_settled(X[taken:], labels[taken:], weights[taken:])

    def _settle(self, frame: Frame) -> None:
        """Fix the frame, and with it the settings of the stream."""
        self._frame_ = frame
        self._settings_ = self._settings_for(frame)

    def _settings_for(self, frame: Frame) -> Settings:
        settings = self.mixture._settings_for(frame)
        if self.mixture.max_components != "auto":
            return settings
        numbers = len(frame.scale) ** (1 if self.mixture.covariance == "diag" else 2)
        return settings._replace(max_components=max(2, min(MAX_COMPONENTS, MAX_NUMBERS // numbers)))

    def _learn_settled(self, X: Array, labels: Codes, weights: Array) -> None:
        """Learn rows, and choose the blend anew whenever half as many rows again have been learned."""
        assert self._frame_ is not None
        rows = to_internal(X, 1.0 / self._frame_.scale, LIMIT)
        start = 0
        while start < len(rows):
            stop = min(len(rows), start + self._next_blend_ - self._n_rows_)
            self._learn_rows(rows[start:stop], labels[start:stop], weights[start:stop])
            start = stop
            if self._n_rows_ == self._next_blend_:
                self.choose_blend()

    def _learn_rows(self, rows: Array, labels: Codes, weights: Array) -> None:
        skipped = 0
        for c in np.unique(labels):
            mine = labels == c
            state, info = incremental.learn(self._states_[c], rows[mine], weights[mine], self._settings_)
            self._states_[c] = state
            skipped += info.skipped_updates
        self._count(labels, weights)
        self._keep(rows, labels, weights)
        self._n_rows_ += len(rows)
        if skipped:
            warnings.warn(
                f"update='paper': {skipped} updates would have made a covariance indefinite and were skipped (FIGMN "
                "eq. 11; see docs/errata.md). update='exact' has no such rows.",
                DivergenceWarning,
                stacklevel=7,
            )

    def _count(self, labels: Codes, weights: Array) -> None:
        """Class frequencies; every row fades those of all classes."""
        fading = self._settings_.forgetting ** np.arange(len(labels), -1.0, -1.0)
        self._class_counts_ = fading[0] * self._class_counts_
        np.add.at(self._class_counts_, labels, fading[1:] * weights)

    def _keep(self, rows: Array, labels: Codes, weights: Array) -> None:
        """Keep a uniform sample of all rows; with forgetting, the latest ones."""
        kept, first, n = self._sample_, self._sample_.n, len(rows)
        if self._settings_.forgetting < 1.0:
            slots = np.arange(first, first + n) % len(kept.rows)
        else:
            slots = reservoir_slots(first, n, len(kept.rows))
        chosen = slots >= 0
        for held, new in zip(kept[:3], (rows, labels, weights), strict=True):
            held[slots[chosen]] = new[chosen]
        self._sample_ = kept._replace(n=first + n)

    # -- answering --------------------------------------------------------------------------------

    def choose_blend(self) -> None:
        """Choose the weights of the views from the sample."""
        if any(state.n_components for state in self._states_):
            self._blend_ = self._best_blend()
        self._next_blend_ = self._n_rows_ + max(FIRST_BLEND, self._n_rows_ // 2)
        self._cache_.clear()

    def _best_blend(self) -> Blend:
        assert self._frame_ is not None
        size = min(self._sample_.n, len(self._sample_.rows))
        sample = Labelled(self._sample_.rows, self._sample_.labels, self._sample_.weights).some(slice(size))
        shapes = [(c, self._shape(c)) for c, state in enumerate(self._states_) if state.n_components]
        return classes.blend(shapes, self._frame_.variance, self._log_prior(), sample)

    def _shape(self, c: int) -> ClassShape:
        """Shape of a class; a class that has learned nothing since keeps it."""
        seen = self._seen_.get(c)
        if seen is None or seen.state is not self._states_[c]:
            state = self._states_[c]
            seen = self._seen_[c] = Seen(state, classes.class_shape(state, self._settings_), None, None)
        return seen.shape

    def _views(self, c: int, blend: Blend, shared: Common) -> Views:
        shape = self._shape(c)
        seen = self._seen_[c]
        if seen.views is None or seen.blend is not blend:
            seen = self._seen_[c] = seen._replace(blend=blend, views=classes.class_views(c, shape, shared))
        assert seen.views is not None
        return seen.views

    def _common(self, blend: Blend) -> Common:
        """What all classes share; it is the same until the blend is chosen anew."""
        assert self._frame_ is not None
        if self._shared_ is None or self._shared_[0] is not blend:
            self._shared_ = blend, classes.common(blend.within, blend.local, self._frame_.variance)
        return self._shared_[1]

    def _log_prior(self) -> Array:
        counts = self._class_counts_ + 1.0
        return np.log(counts / counts.sum())

    def log_proba(self, X: Array) -> Array:
        """Log-probability of each class for each row."""
        answer = self._answer()
        rows = to_internal(X, 1.0 / answer.frame.scale, LIMIT)
        return classes.log_probabilities(answer.views, answer.weights, rows, answer.log_prior)

    def _answer(self) -> Answer:
        if "answer" not in self._cache_:
            self._cache_["answer"] = self._settled()._compute_answer()
        answer: Answer = self._cache_["answer"]
        return answer

    def _compute_answer(self) -> Answer:
        assert self._frame_ is not None
        if not any(state.n_components for state in self._states_):
            raise InputError("The model has no component yet: every row so far was NaN in all columns.")
        blend = self._blend_ or self._best_blend()
        shared = self._common(blend)
        known = [c for c, state in enumerate(self._states_) if state.n_components]
        views = classes.all_views([self._views(c, blend, shared) for c in known])
        return Answer(views, blend.weights, self._log_prior(), self._frame_)

    def _settled(self) -> ClassMixtures:
        """This model, or while it is warming up one that has learned the rows it holds."""
        if self._warmup_ is None:
            return self
        rows, labels, weights, n = self._warmup_
        settled = self._with_frame(frame_of_rows(rows[:n]))
        settled._next_blend_ = n
        settled._learn_settled(rows[:n], labels[:n], weights[:n])
        return settled

    def _with_frame(self, frame: Frame) -> ClassMixtures:
        """A model of as many classes that has learned nothing."""
        new = ClassMixtures(self.mixture)
        new.start(np.empty((0, self.n_features_in_)), None)
        new._warmup_ = None
        new._settle(frame)
        for at in range(len(self._states_)):
            new.add_class(at)
        return new

    @property
    def n_components(self) -> int:
        """Number of components of all classes."""
        return sum(state.n_components for state in self._settled()._states_)

    @property
    def n_rows(self) -> int:
        """Number of rows learned or held."""
        return self._n_rows_ + (self._warmup_.n if self._warmup_ is not None else 0)

    @property
    def class_counts(self) -> Array:
        """Weight of the rows of each class."""
        return self._settled()._class_counts_.copy()

    # -- merging and loading ----------------------------------------------------------------------

    def _merge(self, others: list[Self], *, method: str, weights: Any, n_components: int | None) -> Any:
        """Class by class, as mixtures are merged; all models have the same classes."""
        models: list[ClassMixtures] = [self, *others]
        shares = np.ones(len(models)) if weights is None else np.asarray(weights) * len(models) / np.sum(weights)
        pairs = sorted(zip(models, shares, strict=True), key=lambda pair: (pair[0].n_rows, _content(pair[0])))
        settled = [(model, share) for model, share in pairs if model._warmup_ is None]
        whole = _joined(self, settled, method, n_components) if settled else _fresh(self)
        for model, share in pairs:
            if model._warmup_ is not None:
                rows, labels, row_weights, n = model._warmup_
                whole.learn(rows[:n].copy(), labels[:n].copy(), row_weights[:n] * share)
        return whole

    def _check_loaded(self) -> None:
        D, C = self.n_features_in_, len(self._states_)
        for state in self._states_:
            check_state(state, self.mixture.covariance, D)
        require(not self.mixture._is_started(), "the parameters of its classes are a fitted model")
        expect(self._class_counts_, "C", {"C": C}, "the class counts")
        for name in ("_n_rows_", "_next_blend_"):
            expect(getattr(self, name), int, {}, name)
        require(self._next_blend_ > self._n_rows_, "it should have chosen its blend")
        self._check_held(self._sample_, C)
        require((self._frame_ is None) != (self._warmup_ is None), "it has no scale and no rows to estimate it from")
        if self._warmup_ is not None:
            self._check_held(self._warmup_, C)
            require(0 < self._warmup_.n < len(self._warmup_.rows), "it counts more first rows than it has")
        if self._blend_ is not None:
            axes = "D" if self.mixture.covariance == "diag" else "D D"
            sizes = {"D": D, "V": classes.N_VOICES}
            expect_fields(self._blend_, Blend, sizes, weights="V", within=axes, local=axes)
            require((self._blend_.weights > 0).all(), "a view has no weight")
        self._cache_, self._seen_, self._shared_ = {}, {}, None
        if self._frame_ is not None:
            check_frame(self._frame_, D)
            self._settle(self._frame_)

    def _check_held(self, held: Any, n_classes: int) -> None:
        sizes = {"D": self.n_features_in_}
        expect_fields(held, LabelledRows, sizes, rows="gaps R D", labels="int64 R", weights="R", n=int)
        used = slice(min(held.n, len(held.rows)))
        require(len(held.rows) > 0 and (held.weights[used] > 0).all(), "a row has no weight")
        inside = (held.labels[used] >= 0) & (held.labels[used] < n_classes)
        require(inside.all(), "a row has an unknown class")


def _no_rows(n: int, D: int) -> LabelledRows:
    return LabelledRows(np.zeros((n, D)), np.zeros(n, dtype=np.int64), np.zeros(n), 0)


def _content(model: ClassMixtures) -> bytes:
    held = model._sample_ if model._warmup_ is None else model._warmup_
    return held.rows.tobytes()


def _fresh(model: ClassMixtures) -> ClassMixtures:
    """A model of the same classes that is about to warm up."""
    new = ClassMixtures(model.mixture)
    new.start(np.empty((0, model.n_features_in_)), None)
    for at in range(len(model._states_)):
        new.add_class(at)
    return new


def _joined(template: ClassMixtures, parts: list[Any], method: str, n_components: int | None) -> ClassMixtures:
    frames = [model._frame_ for model, _ in parts]
    frame = joining.pooled_frame(frames, np.array([model._n_rows_ for model, _ in parts]))
    whole = template._with_frame(frame)
    for c in range(len(whole._states_)):
        whole._states_[c] = _joined_class(parts, c, frame, method, n_components) or whole._states_[c]
    whole._class_counts_ = np.sum([share * model._class_counts_ for model, share in parts], axis=0)
    whole._n_rows_ = sum(model._n_rows_ for model, _ in parts)
    whole._sample_ = _joined_sample(parts, frame)
    whole.choose_blend()
    return whole


def _joined_class(parts: list[Any], c: int, frame: Frame, method: str, n_components: int | None) -> MixtureState | None:
    """The mixture of one class, in the coordinates of `frame`."""
    mixtures = []
    for model, share in parts:
        state = model._states_[c]
        if state.n_components:
            template = model.mixture.__class__(**model.mixture.get_params(deep=False))
            template.n_features_in_ = model.n_features_in_
            state = incremental.with_arrays(state, np.copy)._replace(counts=state.counts * share)
            mixtures.append(mixture_merging.with_state(template, state, model._frame_))
    if not mixtures:
        return None
    whole = mixtures[0].merge(*mixtures[1:], method=method, n_components=n_components)
    return joining.in_frame(whole._pair_.learning, whole._frame_, frame)


def _joined_sample(parts: list[Any], frame: Frame) -> LabelledRows:
    """Of each model's sample as many rows as its share of all rows."""
    seen = np.array([model._sample_.n for model, _ in parts])
    size = max(len(model._sample_.rows) for model, _ in parts)
    ends = np.cumsum(seen) * min(size, int(seen.sum())) // max(int(seen.sum()), 1)
    whole, filled = _no_rows(size, len(frame.scale)), 0
    for (model, share), wanted in zip(parts, np.diff(ends, prepend=0), strict=True):
        rows, labels, weights, n = model._sample_
        n = min(int(wanted), n, len(rows))
        whole.rows[filled : filled + n] = rows[:n] * (model._frame_.scale / frame.scale)
        whole.labels[filled : filled + n] = labels[:n]
        whole.weights[filled : filled + n] = weights[:n] * share
        filled += n
    return whole._replace(n=int(seen.sum()) if filled == size else filled)
