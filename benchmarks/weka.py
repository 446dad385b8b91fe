"""The seven Weka sets of the FIGMN paper: accuracy and calibration of the classifier as it comes.

    python benchmarks/weka.py [--seeds 3] [--quick]

Ten-fold stratified cross-validation, shuffled by each seed. Rows are given as `datasets.load` returns them: nominal
attributes as the index of their value, gaps as NaN. Nothing is chosen on the test folds. Beside the default classifier
stand the paper's own settings, the accuracies it prints (table 2) and logistic regression, with gaps filled by column
means.
"""

import warnings

import numpy as np
from _page import parser, write_page
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everlearn import IncrementalGaussianMixtureClassifier, datasets

PAPER = {
    "breast_cancer": 71.4, "diabetes": 73.0, "glass": 65.4, "ionosphere": 92.6, "iris": 97.3, "labor": 94.7,
    "soybean": 91.5,
}  # fmt: skip
MODELS = {
    "default": IncrementalGaussianMixtureClassifier,
    "default, one pass of partial_fit": IncrementalGaussianMixtureClassifier,
    "paper's settings": IncrementalGaussianMixtureClassifier.paper,
    "logistic regression": lambda: make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(max_iter=1000)),
}
STREAMED = "default, one pass of partial_fit"
BINS = 15


def calibration_error(p, right, n_bins=BINS):
    """Expected calibration error over all folds of a run, in bins of equal width."""
    bins = np.minimum((p * n_bins).astype(int), n_bins - 1)
    return np.abs(np.bincount(bins, p - right, minlength=n_bins)).sum() / len(p)


def cross_validate(make, data, seed, *, streamed):
    """Accuracy, calibration error and mean log-probability of the true class over the test rows of ten folds."""
    X, y = data.data, data.target
    confidence, right, surprise = [], [], []
    for train, test in StratifiedKFold(10, shuffle=True, random_state=seed).split(X, y):
        train = np.random.default_rng(seed).permutation(train)
        model = make()
        model = model.partial_fit(X[train], y[train]) if streamed else model.fit(X[train], y[train])
        p = model.predict_proba(X[test])
        labels = model.classes_[p.argmax(axis=1)]
        truth = np.zeros(len(test))
        for c, label in enumerate(model.classes_):
            truth[y[test] == label] = p[y[test] == label, c]
        confidence.append(p.max(axis=1))
        right.append(labels == y[test])
        surprise.append(-np.log(np.maximum(truth, 1e-12)))
    confidence, right = np.concatenate(confidence), np.concatenate(right).astype(float)
    return 100 * right.mean(), 100 * calibration_error(confidence, right), np.concatenate(surprise).mean()


def measure(n_seeds):
    """Mean accuracy, calibration error and surprise of each model on each set, over the seeds."""
    results = {}
    for name in datasets.NAMES:
        data = datasets.load(name)
        for label, make in MODELS.items():
            runs = [cross_validate(make, data, seed, streamed=label == STREAMED) for seed in range(n_seeds)]
            results[label, name] = np.mean(runs, axis=0)
        print(f"{name}: {results['default', name].round(3)}", flush=True)
    return results


def table(results, which, digits):
    """Markdown: a row for each model, a column for each set."""
    lines = ["| | " + " | ".join(datasets.NAMES) + " | mean |", "|---" * (2 + len(datasets.NAMES)) + "|"]
    for label in MODELS:
        values = [results[label, name][which] for name in datasets.NAMES]
        lines.append(f"| {label} | " + " | ".join(f"{v:.{digits}f}" for v in [*values, np.mean(values)]) + " |")
    if which == 0:
        values = [*PAPER.values(), np.mean(list(PAPER.values()))]
        lines.append("| FIGMN paper, table 2 | " + " | ".join(f"{v:.1f}" for v in values) + " |")
    return "\n".join(lines)


def main():
    made = parser(__doc__)
    made.add_argument("--seeds", type=int, default=3, help="number of shuffles")
    arguments = made.parse_args()
    if arguments.quick:
        arguments.seeds = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The least populated class")  # nine of glass, eight of soybean: by design
        results = measure(arguments.seeds)
    text = (
        "# The seven Weka sets\n\nTen-fold stratified "
        f"cross-validation, {arguments.seeds} shuffles; nothing is chosen on the test folds.\n\n"
        f"## Accuracy, percent\n\n{table(results, 0, 1)}\n\n"
        f"## Expected calibration error of `predict_proba`, percent ({BINS} bins over the rows of all folds)\n\n"
        f"{table(results, 1, 1)}\n\n"
        f"## Mean -log probability of the true class\n\n{table(results, 2, 3)}\n"
    )
    write_page("weka", text, quick=arguments.quick)


if __name__ == "__main__":
    main()
