"""What one pass over a stream reaches beside batch models that see all rows at once.

    python benchmarks/one_pass.py [--quick]

Classification, regression, gaps and merging, all with defaults: rows come once, in random order, by `partial_fit`.
Batch forests, k-nearest-neighbour and iterative imputation see them as often as they like. Three folds, the same for
all; nothing is chosen on the test folds.
"""

import warnings

import numpy as np
from _page import parser, write_page
from sklearn.datasets import load_breast_cancer, load_wine, make_friedman2
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 (it makes the next line work)
from sklearn.impute import IterativeImputer, KNNImputer

import everlearn
from everlearn import IncrementalGaussianMixture, datasets
from everlearn.datasets import weka
from everlearn.experiments.peers import everlearn_models, scikit_learn
from everlearn.experiments.peers.supervised import FOLDS, classifications, regressions

GAPS, SHARDS = 0.3, 16


def cross_validated(contender, problem):
    """Mean score (accuracy, or explained variance) over the folds, in percent; rows come in the order of a shuffle."""
    scores = []
    for train, test in problem.folds():
        adapter = contender.make()
        adapter.fit(problem.X[train], problem.y[train])
        scores.append(adapter.model.score(problem.X[test], problem.y[test]))
    return 100 * float(np.mean(scores))


def classify(quick):
    """Accuracy of one pass and of the forest: the Weka sets of the FIGMN paper, wine and Wisconsin."""
    problems = classifications(("iris",) if quick else (*weka.NAMES, "wine", "wisconsin"))
    return compared(problems, everlearn_models.CLASSIFIER, scikit_learn.FOREST_CLASSIFIER)


def regress(quick):
    """Explained variance of one pass and of the forest."""
    names = ("friedman 1",) if quick else ("friedman 1", "friedman 2", "friedman 3", "diabetes")
    problems = regressions(names, 300 if quick else 2000)
    return compared(problems, everlearn_models.REGRESSOR, scikit_learn.FOREST_REGRESSOR)


def compared(problems, *contenders):
    """Scores of some models by the name of a set."""
    return {
        problem.name: tuple(cross_validated(contender, problem) for contender in contenders) for problem in problems
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
