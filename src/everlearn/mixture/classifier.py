"""IncrementalGaussianMixtureClassifier: classes learned from a stream, each when it comes."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval

from everlearn.base.classifier import Codes, StreamClassifier
from everlearn.base.conditioning import LIMIT
from everlearn.base.estimator import check_min_rows
from everlearn.base.privacy import MIN_ROWS as FEWEST_ROWS
from everlearn.base.scaling import nearest_power_of_two
from everlearn.base.user_warnings import warn_user
from everlearn.errors import InputError
from everlearn.linalg.chunked import to_internal
from everlearn.low_rank import subspace
from everlearn.low_rank.subspace import Subspace, common_subspace
from everlearn.mixture.ask import Look
from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.mixture.experts import (
    PRIOR_COLUMNS,
    UNWEIGHED,
    ClassExperts,
    ClassMoments,
    Experts,
    GaussianExpert,
    KernelExpert,
    Sample,
    Shared,
    all_experts,
    class_experts,
    kernels_of,
    log_densities,
    log_probabilities,
    shared_of,
    weights_of_opinions,
)
from everlearn.mixture.keep.forgetting import sample_weights
from everlearn.mixture.keep.reconsider import gathered
from everlearn.mixture.kernel_machine import Pool, pool_of, pooled
from everlearn.mixture.learn import search_threads
from everlearn.persistence.schema import MOST_WEIGHT, expect, require
from everlearn.typing import Array

if TYPE_CHECKING:
    from everlearn.figmn.classifier import FIGMNClassifier

# Rows, of all classes, on which the experts are weighed, and the least of each class.
SAMPLE_ROWS, CLASS_ROWS = 1000, 20
# Rows times components times D^2 that weighing may take, and the rows it has at least.
WORK, MIN_ROWS = 2_000_000_000, 100
# Experts are weighed anew when there are so many times more rows.
WEIGH_AGAIN = 1.25
# Parameters that each class's mixture takes.
_SHARED = ("n_components", "max_components", "reservoir", "covariance_type", "rank", "scale")
# With low-rank components: axes of the common subspace, and the noise along them in units of what it were if the noise
# of the columns were uncorrelated. Of 1 to 4 the best on held-back training rows of MNIST (98.13 % by the Gaussians
# alone; 97.42 % with 1) and as good as any on Gaussians of rank 3 and on features of digits, 300 and 1,200 rows.
AXES, LOUDNESS = 70, 4.0
# Axes for which the firm expert, which is pooled with the kernel machine, has a row of prior. On MNIST's held-back rows
# 6 and 18 are as good, and 3 0.1 % less; on features of 300 digits the log-loss is 0.15 with 18 and 0.13 with 6.
PRIOR_AXES = 6.0
# Axes of the kernel machine, and the rows on which it is weighed against the Gaussians, at most.
MACHINE_AXES, JUDGED_ROWS = 40, 4000


class Units(NamedTuple):
    """Coordinates that all classes are compared in: a row becomes (x - centre) / scale."""

    centre: Array  # (D,)
    scale: Array  # (D,), powers of two


class Weighed(NamedTuple):
    """What is fixed until the experts are weighed anew."""

    rows: int  # rows learned when it was
    units: Units | Subspace
    shared: Shared
    kernels: KernelExpert
    weights: Array  # of the opinions
    pool: Pool | None  # the kernel machine, where there is one: it and the firm expert answer then


@dataclass
class Answers:
    """What is remembered of the questions; never saved."""

    weighed: Weighed | None = None
    classes: dict[int, tuple[int, ClassExperts]] = field(default_factory=dict)  # rows, experts
    experts: Experts | None = None  # until the next row
    looks: dict[int, Look] = field(default_factory=dict)  # until the next row of the class


class IncrementalGaussianMixtureClassifier(StreamClassifier):
    """Classifier with a Gaussian mixture for each class, learned from a stream in one pass.

    A new class may come at any time, and learning one class leaves the others as they are, so classes may also come
    one after another. NaN means "not observed", in learning and in predicting.

    A class is predicted by its frequency and its density at the row. Four experts estimate that density from what the
    mixtures have learned: one covariance for all classes, the components of each class drawn towards a common shape a
    little or more, and narrow kernels on a sample of the rows. How much each counts is chosen by how well it predicts
    the sample, each row left out of its own class; that also makes the probabilities honest (see `calibration_error`).
    Asking never changes what is learned; the experts are weighed anew, at a question, when there are a quarter more
    rows. From 256 columns on, a kernel machine on the rows that are kept is pooled with the mixtures instead; see
    `covariance_type`.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of components of each class; None finds it.
    max_components : "auto" or int, default="auto"
        Most components that each class keeps; "auto" is 64, or fewer where covariances of many columns would fill
        128 MiB.
    reservoir : "auto" or int, default="auto"
        Number of rows of each class that are kept for the searches of its structure, and for weighing the experts; see
        `IncrementalGaussianMixture`. With 0 no row is kept, and the Gaussian experts count alike: probabilities are
        less well calibrated.
    covariance_type : {"auto", "full", "diag", "low_rank"}, default="auto"
        Shape of the covariances. "auto" is "low_rank" from 256 columns on and "full" below. "low_rank" is for hundreds
        to thousands of columns, such as pixels. Classes are then compared in a subspace of at most 70 axes that is made
        from what all classes have learned, by the densities of the mixtures and by a kernel machine (ridge regression
        of the classes on radial kernels in the first 40 axes) on the rows that are kept, pooled by two weights that the
        same rows choose, each left out. That is worked out at the first question and when there are a quarter more
        rows: with 2,000 rows of each of ten classes it takes some 15 CPU seconds and 300 MB meanwhile, and 2 MB until
        the next time; with 1,000 rows in all less than a second. A row with gaps is judged by the densities of the
        mixtures alone, and so is every row where a class keeps no row without gaps.
    rank : "auto" or int, default="auto"
        With covariance_type="low_rank": most directions that a component keeps; see `IncrementalGaussianMixture`.
    forgetting : None or float, default=None
        Factor by which what was learned of a class fades with each row of that class, and the class frequencies with
        each row, for a memory of about 1/(1 - forgetting) rows. None forgets nothing.
    scale : "auto" or array-like of shape (n_features,), default="auto"
        Standard deviation of each column. "auto" estimates it from the first rows of each class.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    class_count_ : ndarray of shape (n_classes,)
        Weight of the rows of each class.
    n_components_ : int
        Number of components of all classes.
    n_samples_seen_ : int
        Number of rows learned.
    keeps_rows_ : bool
        Whether the model, and with it its file, holds rows of the stream.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where the data had names.

    Examples
    --------
    >>> from everlearn import IncrementalGaussianMixtureClassifier, datasets
    >>> iris = datasets.load_iris()
    >>> model = IncrementalGaussianMixtureClassifier()
    >>> for kind in range(3):  # one species after another
    ...     rows = iris.target == kind
    ...     model = model.partial_fit(iris.data[rows], iris.target_names[iris.target[rows]])
    >>> model.predict([[5.0, 3.4, 1.5, 0.2], [6.5, 3.0, 5.5, float("nan")]]).tolist()
    ['Iris-setosa', 'Iris-virginica']
    """

    _transient: ClassVar[tuple[str, ...]] = ("_answers_",)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: accepted
        for name, accepted in IncrementalGaussianMixture._parameter_constraints.items()
        if name in _SHARED
    } | {
        "forgetting": [None, Interval(Real, 0, 1, closed="right")],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        max_components: Any = "auto",
        reservoir: Any = "auto",
        covariance_type: str = "auto",
        rank: Any = "auto",
        forgetting: float | None = None,
        scale: Any = "auto",
    ) -> None:
        self.n_components = n_components
        self.max_components = max_components
        self.reservoir = reservoir
        self.covariance_type = covariance_type
        self.rank = rank
        self.forgetting = forgetting
        self.scale = scale

    @classmethod
    def paper(cls, **parameters: Any) -> FIGMNClassifier:
        """Return an unfitted `FIGMNClassifier`: the classifier of the FIGMN paper, by its own rule.

        Parameters
        ----------
        **parameters
            Parameters of FIGMNClassifier that are to differ from the paper's.

        Returns
        -------
        FIGMNClassifier
            An unfitted classifier.
        """
        from everlearn.figmn.classifier import FIGMNClassifier  # its kernels take a third of a second to import

        return FIGMNClassifier(**parameters)

    # -- learning ---------------------------------------------------------------------------------

    def _start_classes(self, X: Array, labels: Codes | None) -> None:
        self._rows_ = 0
        self._class_counts_ = np.zeros(len(self.classes_))
        self._mixtures_ = [self._empty_mixture() for _ in self.classes_]
        self._answers_ = Answers()

    def _empty_mixture(self) -> IncrementalGaussianMixture:
        mixture = IncrementalGaussianMixture(**self.get_params(deep=False))
        mixture.n_features_in_ = self.n_features_in_
        mixture._start(np.empty((0, self.n_features_in_)), whole=False)
        return of_class(mixture)

    def _add_class(self, at: int) -> None:
        self._class_counts_ = np.insert(self._class_counts_, at, 0.0)
        self._mixtures_ = [*self._mixtures_[:at], self._empty_mixture(), *self._mixtures_[at:]]
        self._answers_ = Answers()

    def _learn_classes(self, X: Array, labels: Codes, weights: Array) -> None:
        if len(X) == 1:
            self._mixtures_[labels[0]]._learn(X, None, weights)
        else:
            for c in np.unique(labels):
                mine = labels == c
                self._mixtures_[c]._learn(X[mine], None, weights[mine])
        # Every row fades the frequencies of all classes.
        fading = (1.0 if self.forgetting is None else float(self.forgetting)) ** np.arange(len(labels), -1.0, -1.0)
        self._class_counts_ = fading[0] * self._class_counts_
        np.add.at(self._class_counts_, labels, fading[1:] * weights)
        self._rows_ += len(X)
        self._answers_.experts = None
        for c in np.unique(labels):
            self._answers_.looks.pop(int(c), None)

    # -- answers ----------------------------------------------------------------------------------

    def _log_proba(self, X: Array) -> Array:
        # As searches: factors of some hundred columns wait for a second thread on a busy machine.
        with search_threads(X.shape[1]):
            weighed, experts = self._current_experts()
        units = weighed.units
        if isinstance(units, Units):
            rows = to_internal(X - units.centre, 1.0 / units.scale, LIMIT)
            return log_probabilities(experts, weighed.weights, rows, self._log_prior())
        out = np.empty((len(X), len(self.classes_)))
        gaps = np.isnan(X).any(axis=1)
        rows, prior = units.coordinates(X[~gaps]), self._log_prior()
        if weighed.pool is None:
            out[~gaps] = log_probabilities(experts, weighed.weights, rows, prior)
        else:
            joint = log_densities(experts.gaussians.firm, rows, len(prior)) + prior
            out[~gaps] = pooled(weighed.pool, rows, joint, prior)
        if gaps.any():
            out[gaps] = self._log_proba_with_gaps(X[gaps])
        return out

    def _log_proba_with_gaps(self, X: Array) -> Array:
        """By Bayes' rule from the densities of what is observed."""
        joint = np.full((len(X), len(self.classes_)), -np.inf)
        for c, mixture in enumerate(self._mixtures_):
            if mixture.effective_samples_ > 0.0:
                joint[:, c] = mixture._answering().log_density(X)
        joint += self._log_prior()
        return np.asarray(joint - np.logaddexp.reduce(joint, axis=1)[:, None])

    def _log_prior(self) -> Array:
        # One row more of each class: a class that was only named is improbable, not impossible.
        counts = self._class_counts_ + 1.0
        return np.asarray(np.log(counts / counts.sum()))

    def _current_experts(self) -> tuple[Weighed, Experts]:
        """The experts as of the last row; those on a class that has learned nothing since stay as they are."""
        answers = self._answers_
        known = [c for c, mixture in enumerate(self._mixtures_) if mixture.effective_samples_ > 0.0]
        if not known:
            raise InputError("The model has no component yet: every row so far was NaN in all columns.")
        weighed = answers.weighed
        # A class that is new to the kernel machine would be told by its frequency only.
        is_new = weighed is not None and weighed.pool is not None and len(known) != len(weighed.pool.known)
        if weighed is None or self._rows_ >= WEIGH_AGAIN * weighed.rows or is_new:
            weighed, answers.experts, parts = self._weigh(known)
            answers.weighed = weighed
            rows = (self._mixtures_[c].n_samples_seen_ for c in known)
            answers.classes = dict(zip(known, zip(rows, parts, strict=True), strict=True))
        elif answers.experts is None:
            parts = [self._class_experts(c, weighed) for c in known]
            answers.experts = all_experts(parts, weighed.kernels)
        return weighed, answers.experts

    def _class_experts(self, c: int, weighed: Weighed) -> ClassExperts:
        seen, rows = self._answers_.classes.get(c), self._mixtures_[c].n_samples_seen_
        if seen is None or seen[0] != rows:
            moments = self._moments(c, weighed.units)
            seen = self._answers_.classes[c] = (
                rows,
                class_experts(c, moments, weighed.shared, prior_columns(weighed.units)),
            )
        return seen[1]

    def _look(self, c: int) -> Look:
        """The mixture of a class, asked once for each row: in the warm-up a question does a part of a search."""
        looks = self._answers_.looks
        if c not in looks:
            looks[c] = self._mixtures_[c]._look()
        return looks[c]

    def _moments(self, c: int, units: Units | Subspace) -> ClassMoments:
        """Components of a class in common coordinates."""
        if isinstance(units, Units):
            return moments_of(self._look(c), units)
        look: Any = self._mixtures_[c]._answering()
        return ClassMoments(*subspace.moments(look, units, LOUDNESS * subspace.noise_along(look, units)))

    def _weigh(self, known: list[int]) -> tuple[Weighed, Experts, list[ClassExperts]]:
        """Weigh the experts on a sample of the rows that the mixtures keep; the experts on all classes and on each."""
        if self._mixtures_[known[0]].covariance_type_ != "low_rank":
            looks = [self._look(c) for c in known]
            return self._weigh_in(units_of(looks, self._class_counts_[known]), known)
        return self._weigh_in(common_subspace([self._mixtures_[c]._answering() for c in known], AXES), known)  # type: ignore[misc]

    def _weigh_in(self, units: Units | Subspace, known: list[int]) -> tuple[Weighed, Experts, list[ClassExperts]]:
        """The weighed experts in given coordinates."""
        moments = {c: self._moments(c, units) for c in known}
        shared = shared_of(list(moments.values()))
        parts = [class_experts(c, each, shared, prior_columns(units)) for c, each in moments.items()]
        sample = self._sample(known, units, sum(part.loose.covariances.size for part in parts))
        experts = all_experts(parts, kernels_of(sample, moments, shared))
        # A class of one row cannot be judged without it.
        judged = self._class_counts_[sample.labels] > 1.5 * sample.own
        pool = None if isinstance(units, Units) else self._pool(known, units, experts.gaussians.firm)
        weights = weights_of_opinions(experts, sample, self._log_prior(), judged) if pool is None else UNWEIGHED
        return Weighed(self._rows_, units, shared, experts.kernels, weights, pool), experts, parts

    def _pool(self, known: list[int], space: Subspace, firm: GaussianExpert) -> Pool | None:
        """A kernel machine on all rows that are kept, weighed against the Gaussians; None if a class keeps none."""
        kept, prior = self._sample(known, space, 0, all_kept=True), self._log_prior()
        if len(known) < 2 or len(np.unique(kept.labels)) < len(known):
            return None
        leverages = {
            c: subspace.leverages(self._mixtures_[c]._answering(), space, kept.rows[kept.labels == c])  # type: ignore[arg-type]
            for c in known
        }
        joint = log_densities(firm, kept.rows, len(prior), kept, leverages) + prior
        # A class of one row cannot be judged without it.
        judged = np.flatnonzero(self._class_counts_[kept.labels] > 1.5 * kept.own)
        judged = judged[:: max(1, -(-len(judged) // JUDGED_ROWS))]
        return pool_of(kept.rows[:, :MACHINE_AXES], kept.labels, kept.stands_for, joint, np.array(known), judged)

    def _sample(self, known: list[int], units: Units | Subspace, work: int, *, all_kept: bool = False) -> Sample:
        """Rows of each class in proportion to its frequency, and as many in all as can be afforded; or all."""
        size = min(SAMPLE_ROWS, max(MIN_ROWS, WORK // max(work, 1)))
        parts = []
        for c in known:
            count = max(self._class_counts_[c], 1e-200)  # that of a class long forgotten underflows
            wanted = max(CLASS_ROWS, math.ceil(size * (count / self._class_counts_.sum())))
            mixture = self._mixtures_[c]
            if isinstance(units, Units):
                rows, own, stands_for = sampled_rows(self._look(c), units, wanted)
            else:
                rows, own, stands_for = mixture._core_.sample(mixture._state_, sys.maxsize if all_kept else wanted)
                rows = units.coordinates(rows)
            # Each class counts by its own rows, however many of them the sample holds.
            parts.append(Sample(rows, np.full(len(rows), c), own, stands_for * (count / max(stands_for.sum(), 1e-300))))
        return Sample(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    @property
    def class_count_(self) -> Array:
        """Weight of the rows of each class."""
        self._check_started()
        return self._class_counts_.copy()

    @property
    def n_components_(self) -> int:
        """Number of components of all classes."""
        self._check_started()
        return sum(mixture.n_components_ for mixture in self._mixtures_ if mixture.effective_samples_ > 0.0)

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows learned."""
        self._check_started()
        return self._rows_

    @property
    def keeps_rows_(self) -> bool:
        """Whether the model, and with it its file, holds rows of the stream."""
        self._check_started()
        return any(mixture.keeps_rows_ for mixture in self._mixtures_)

    def _ask_without_search(self) -> None:
        for mixture in self._mixtures_:
            mixture._ask_without_search()

    def _rows_inside(self) -> int:
        return sum(mixture._rows_inside() for mixture in self._mixtures_)

    def _rows_of_components(self) -> Array:
        return np.concatenate([mixture._rows_of_components() for mixture in self._mixtures_])

    def anonymised(self, min_rows: int = FEWEST_ROWS) -> Self:
        """Return a copy without rows of the stream, whose components stand for `min_rows` rows or more each.

        See `IncrementalGaussianMixture.anonymised`: each class has a mixture. A class of fewer rows is left out, with a
        warning that says how many there were; without rows the experts count alike, so that probabilities are less
        well calibrated.

        Parameters
        ----------
        min_rows : int, default=20
            Rows that a component, and so a class, stands for at least.

        Returns
        -------
        IncrementalGaussianMixtureClassifier
            The copy.
        """
        check_min_rows(min_rows)
        self._check_started()
        kept = [c for c, mixture in enumerate(self._mixtures_) if mixture.effective_samples_ >= min_rows]
        if not kept:
            raise InputError(
                f"No class has {min_rows} rows; a copy with components of {min_rows} rows or more needs at least as "
                "many of a class."
            )
        if left_out := len(self._mixtures_) - len(kept):
            # Their labels are not said: whoever sees the warning may be the one who is given the copy.
            known = f"{left_out} of {len(self.classes_)} classes"
            warn_user(f"{known} have fewer than {min_rows} rows: the copy lacks them.")
        new = self.copy()
        new.reservoir = 0
        new.classes_, new._class_counts_ = self.classes_[kept], self._class_counts_[kept]
        new._mixtures_ = [of_class(self._mixtures_[c].anonymised(min_rows)) for c in kept]
        new._rows_, new._answers_ = sum(mixture.n_samples_seen_ for mixture in new._mixtures_), Answers()
        return new

    # -- merging and loading ----------------------------------------------------------------------

    def _snapshot(self) -> dict[str, Any]:
        mixtures = []
        for mixture in self._mixtures_:
            copy = object.__new__(type(mixture))
            copy.__dict__ = mixture._snapshot()
            mixtures.append(copy)
        kept = {name: value for name, value in vars(self).items() if name != "_mixtures_"}
        return kept | {"_class_counts_": self._class_counts_.copy(), "_mixtures_": mixtures, "_answers_": Answers()}

    def _merge(self, others: list[Self], *, method: str, weights: ArrayLike | None, n_components: int | None) -> Self:
        """Class by class, as mixtures are merged. The order in which models are given makes no difference."""
        models = self._with_same_classes(others)
        trust = np.ones(len(models)) if weights is None else np.asarray(weights, dtype=np.float64)
        shares = trust * (len(models) / math.fsum(trust))
        merged = models[0]
        mixtures, counts = [], []
        for c in range(len(merged.classes_)):
            known = [i for i, model in enumerate(models) if model._mixtures_[c].n_samples_seen_]
            parts = [models[i]._mixtures_[c] for i in known or [0]]
            whole = parts[0].merge(*parts[1:], method=method, weights=shares[known or [0]], n_components=n_components)
            mixtures.append(of_class(whole))
            counts.append(
                math.fsum(share * model._class_counts_[c] for share, model in zip(shares, models, strict=True))
            )
        merged._mixtures_, merged._class_counts_ = mixtures, np.array(counts)
        merged._rows_, merged._answers_ = sum(model._rows_ for model in models), Answers()
        return merged

    def _check_loaded(self) -> None:
        self._answers_ = Answers()
        expect(self._class_counts_, "nonnegative C", {}, "the class counts")
        require(0.0 < self._class_counts_.sum() < MOST_WEIGHT * 2.0**62, "its classes have counts that no rows give")
        self._check_loaded_labels(len(self._class_counts_))
        expect(self._rows_, int, {}, "the number of rows")
        mixtures = self._mixtures_
        require(type(mixtures) is list and len(mixtures) == len(self.classes_), "it has another number of mixtures")
        for mixture in mixtures:
            require(type(mixture) is IncrementalGaussianMixture, "a class has no mixture")
            require(vars(mixture).get("n_features_in_") == self.n_features_in_, "a mixture has other columns")
            of_class(mixture)
        rows = sum(mixture.n_samples_seen_ for mixture in mixtures)
        require(rows == self._rows_, "its mixtures have learned another number of rows")


# -- from the mixture of a class to what experts take -----------------------------------------------


def of_class(mixture: IncrementalGaussianMixture) -> IncrementalGaussianMixture:
    """A mixture as the classifier learns it: low-rank components have the same noise in all columns.

    The noise of quiet columns says much about densities and little about classes, and it rules which component a row
    goes to: with isotropic noise 0.3 to 0.4 % more of MNIST's held-back training rows are told apart. A search precedes
    a question only while all rows are kept.
    """
    if mixture.covariance_type_ == "low_rank":
        mixture._core_.settings = mixture._core_.settings._replace(isotropic=True, asks_whole=True)
    return mixture


def prior_columns(units: Units | Subspace) -> float:
    """Columns for which the firm expert has a row of prior."""
    return PRIOR_COLUMNS if isinstance(units, Units) else PRIOR_AXES


def units_of(looks: list[Look], counts: Array) -> Units:
    """Mean and spread of each column over all classes.

    Squares are formed of ratios only, so that columns of any unit are taken.
    """
    centres, spreads = [], []
    for look in looks:
        mass, counts_of, means, scatters = gathered(look.model.components)
        variances = np.diagonal(scatters, axis1=1, axis2=2) / np.maximum(counts_of, 1e-9)[:, None]
        mean = mass @ means / mass.sum()
        variance = mass @ (variances + (means - mean) ** 2) / mass.sum()
        centres.append(mean / look.frame.inverse + look.frame.centre)
        spreads.append(np.sqrt(variance) / look.frame.inverse)
    share = counts / counts.sum()
    centre = share @ np.array(centres)
    deviations = np.concatenate([np.abs(np.array(centres) - centre), np.array(spreads)])
    largest = deviations.max(axis=0)
    unit = np.where(largest > 0.0, largest, 1.0)
    spread = unit * np.sqrt(np.tile(share, 2) @ (deviations / unit) ** 2)
    spread = np.where(spread > 0.0, spread, spread.max(initial=0.0) or 1.0)
    return Units(centre, nearest_power_of_two(spread))


def moments_of(look: Look, units: Units) -> ClassMoments:
    """Components of a class in common units, without prior and ridge."""
    mass, counts, means, scatters = gathered(look.model.components)
    factor = 1.0 / look.frame.inverse / units.scale
    counts = np.maximum(counts, 1e-9)
    means = means * factor + (look.frame.centre - units.centre) / units.scale
    # Only the lower triangle is kept up to date.
    scatter = np.tril(scatters)
    if look.model.shape.diagonal:
        covariances = np.diagonal(scatter, axis1=1, axis2=2) / counts[:, None] * factor**2
    else:
        scatter += np.swapaxes(np.tril(scatter, -1), 1, 2)
        covariances = scatter / counts[:, None, None] * factor * factor[:, None]
    return ClassMoments(mass, means, covariances)


def sampled_rows(look: Look, units: Units, n: int) -> tuple[Array, Array, Array]:
    """At most n rows that a mixture keeps, the weight of each, and the weight of what it stands for."""
    if look.sample.size[0] == 0:
        return np.empty((0, len(units.scale))), np.empty(0), np.empty(0)
    slots, stands_for, _ = sample_weights(look.sample, look.fading)
    chosen = np.sort(np.random.default_rng([len(slots), 3]).permutation(len(slots))[:n])
    kept = slots[chosen]
    age = look.fading.rate * max(int(look.sample.offered[0]) - 1, 0)
    rows = look.sample.rows[kept].astype(np.float64) / look.frame.inverse
    rows = (rows + (look.frame.centre - units.centre)) / units.scale
    return rows, np.exp(look.sample.log_weights[kept] - age), stands_for[chosen]
