"""What one pass over a stream reaches beside batch models that see all rows at once.

    python benchmarks/one_pass.py [--quick]

Classification, regression, gaps and merging, all with defaults: rows come once, in random order, by `partial_fit`.
Batch forests, k-nearest-neighbour and iterative imputation see them as often as they like. Three folds, the same for
all; nothing is chosen on the test folds.
"""

import warnings

import numpy as np
from _page import parser, write_page
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_wine,
    make_friedman1,
    make_friedman2,
    make_friedman3,
)
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 (it makes the next line work)
from sklearn.impute import IterativeImputer, KNNImputer
from sklearn.model_selection import KFold, StratifiedKFold

import everlearn
from everlearn import (
    IncrementalGaussianMixture,
    IncrementalGaussianMixtureClassifier,
    IncrementalGaussianMixtureRegressor,
    datasets,
)

FOLDS, GAPS, SHARDS = 3, 0.3, 16
CLASSES = ("breast_cancer", "diabetes", "glass", "ionosphere", "iris", "labor", "soybean")


def classification_sets(quick):
    """Rows and labels by name: the Weka sets of the FIGMN paper, wine and Wisconsin."""
    names = CLASSES[4:5] if quick else CLASSES
    sets = {name: (datasets.load(name).data, datasets.load(name).target) for name in names}
    return sets if quick else sets | {
        "wine": load_wine(return_X_y=True), "wisconsin": load_breast_cancer(return_X_y=True),
    }  # fmt: skip


def regression_sets(quick):
    """Rows and targets by name; those of Friedman (1991) have noise of a tenth of the target's spread."""
    n = 300 if quick else 2000
    sets = {"friedman 1": make_friedman1(n, noise=0.5, random_state=0)}
    return sets if quick else sets | {
        "friedman 2": make_friedman2(n, noise=38.0, random_state=0),
        "friedman 3": make_friedman3(n, noise=0.03, random_state=0),
        "diabetes": load_diabetes(return_X_y=True),
    }  # fmt: skip


def cross_validated(make, data, splitter):
    """Mean score (accuracy, or explained variance) over the folds; rows come in the order of a shuffle."""
    X, y = data
    scores = []
    for train, test in splitter.split(X, y):
        train = np.random.default_rng(0).permutation(train)
        scores.append(make(X[train], y[train]).score(X[test], y[test]))
    return float(np.mean(scores))


def classify(quick):
    """Accuracy of one pass and of the forest, in percent."""
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    makers = (
        lambda X, y: IncrementalGaussianMixtureClassifier().partial_fit(X, y),
        lambda X, y: RandomForestClassifier(random_state=0).fit(X, y),
    )
    return {
        name: tuple(100 * cross_validated(make, data, splitter) for make in makers)
        for name, data in classification_sets(quick).items()
    }


def regress(quick):
    """Explained variance of one pass and of the forest, in percent."""
    splitter = KFold(FOLDS, shuffle=True, random_state=0)
    makers = (
        lambda X, y: IncrementalGaussianMixtureRegressor().partial_fit(X, y),
        lambda X, y: RandomForestRegressor(random_state=0).fit(X, y),
    )
    return {
        name: tuple(100 * cross_validated(make, data, splitter) for make in makers)
        for name, data in regression_sets(quick).items()
    }


def fill(quick):
    """Root mean square error of filled cells, in standard deviations: one pass, nearest neighbours, iterative."""
    sets = {"iris": datasets.load("iris").data}
    if not quick:
        sets |= {"wine": load_wine().data, "wisconsin": load_breast_cancer().data, "friedman 2": _with_target()}
    results = {}
    for name, X in sets.items():
        rng = np.random.default_rng(0)
        X = rng.permutation((X - X.mean(axis=0)) / X.std(axis=0))
        gaps = rng.random(X.shape) < GAPS
        gaps[gaps.all(axis=1), 0] = False
        holed = np.where(gaps, np.nan, X)
        filled = (
            IncrementalGaussianMixture().partial_fit(holed).impute(holed),
            KNNImputer().fit_transform(holed),
            IterativeImputer(random_state=0).fit_transform(holed),
        )
        results[name] = tuple(float(np.sqrt(np.mean((each - X)[gaps] ** 2))) for each in filled)
    return results


def _with_target():
    X, y = make_friedman2(1000, noise=38.0, random_state=0)
    return np.column_stack([X, y])


def merge(quick):
    """Held-out log-likelihood of a row: one model of all rows, and 16 models of a 16th each, merged."""
    n = 3200 if quick else 16000
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 6, (12, 4))
    sets = {
        "12 Gaussians, 4 columns": centres[rng.integers(12, size=n)] + rng.normal(size=(n, 4)),
        "friedman 2 with its target": np.column_stack(make_friedman2(n, noise=38.0, random_state=0)),
    }
    results = {}
    for name, X in sets.items():
        train, test = X[: int(0.8 * n)], X[int(0.8 * n) :]
        whole = IncrementalGaussianMixture().partial_fit(train)
        parts = [IncrementalGaussianMixture().partial_fit(part) for part in np.array_split(train, SHARDS)]
        results[name] = (whole.score(test), everlearn.merge(parts).score(test))
    return results


def table(results, columns, digits, *, high=True, mean=True):
    """Markdown with the best of a row in bold, and the mean of each column last."""
    lines = ["| | " + " | ".join(columns) + " |", "|---" + "|---:" * len(columns) + "|"]
    last = {"mean": tuple(np.mean(list(results.values()), axis=0))} if mean else {}
    for name, values in (results | last).items():
        best = max(values) if high else min(values)
        cells = [f"**{v:.{digits}f}**" if v == best else f"{v:.{digits}f}" for v in values]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    options = parser(__doc__).parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The least populated class")
        found = [part(options.quick) for part in (classify, regress, fill, merge)]
    forest = ("one pass", "random forest (batch)")
    text = (
        "# One pass beside batch models\n\nEverlearn's models with their defaults, each row once, in random order, by "
        f"`partial_fit`; scikit-learn's with theirs. {FOLDS} folds.\n\n"
        f"## Classification: accuracy, percent\n\n{table(found[0], forest, 1)}\n\n"
        f"## Regression: explained variance, percent\n\n{table(found[1], forest, 1)}\n\n"
        f"## Gaps: error of filled cells, {GAPS:.0%} missing, in standard deviations\n\n"
        f"{table(found[2], ('one pass', 'k nearest neighbours (batch)', 'iterative (batch)'), 3, high=False)}\n\n"
        f"## Merging: held-out log-likelihood, nats per row\n\n"
        f"{table(found[3], ('one model of all rows', f'{SHARDS} models, merged'), 3, mean=False)}\n"
    )
    write_page("one_pass", text, quick=options.quick)


if __name__ == "__main__":
    main()
