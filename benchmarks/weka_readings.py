"""Which reading of the FIGMN paper gives its tables 2 and 3: accuracy and number of components under each.

    python benchmarks/weka_readings.py [--seeds 10] [--quick]

Ten folds of each set, shuffled by each seed; everything but what a row names is as `everlearn reproduce figmn:table3`
has it.
"""

import warnings

import numpy as np
from _page import parser, write_page

from everlearn import IncrementalGaussianMixtureClassifier
from everlearn.errors import DivergenceWarning
from everlearn.experiments.papers.figmn.weka import BETA, DELTA, PAPER_NAMES, TABLE_2, TABLE_3, folds, spread

READINGS = {
    "variance delta var(x), beta = 2e-6, exact update (ours)": {},
    "standard deviation delta std(x), as printed in eq. 13": {"delta": DELTA**2},
    "beta = 4.9e-324, as printed in section 4": {"beta": 4.9e-324},
    "eq. 11 as printed, indefinite updates skipped": {"update": "paper"},
}


def printed(table, column):
    """The paper's own numbers."""
    return np.array([float(np.atleast_1d(table[name])[column].split()[0]) for name in PAPER_NAMES])


def measure(reading, n_seeds):
    """Mean accuracy in percent and mean number of components on each set."""
    return np.array([np.mean(list(runs(name, reading, n_seeds)), axis=0) for name in PAPER_NAMES]).T


def runs(name, reading, n_seeds):
    for seed in range(n_seeds):
        for fold in folds(name, seed):
            settings = {"delta": DELTA, "beta": BETA, "scale": spread(fold.X), **reading}
            model = IncrementalGaussianMixtureClassifier.paper(**settings).fit(fold.known, fold.y)
            yield 100 * np.mean(model.predict(fold.test_known) == fold.test_y), model.n_components_


def line(label, accuracy, components, off=("", "")):
    cells = [f"{a:.1f} / {c:.1f}" for a, c in zip(accuracy, components, strict=True)]
    return f"| {' | '.join([label, *cells, *off])} |"


def main():
    made = parser(__doc__)
    made.add_argument("--seeds", type=int, default=10, help="number of shuffles")
    arguments = made.parse_args()
    if arguments.quick:
        arguments.seeds = 1
    warnings.simplefilter("ignore", DivergenceWarning)
    accuracy, components = printed(TABLE_2, -1), printed(TABLE_3, 0)
    lines = [
        "# Readings of the FIGMN paper's tables 2 and 3\n\n"
        f"{arguments.seeds} shuffles of ten folds: accuracy in percent / components. "
        "The last two columns are mean absolute distances from the printed numbers."
        "\n",
        f"| reading | {' | '.join(PAPER_NAMES.values())} | points | components |",
        "|---" * (3 + len(PAPER_NAMES)) + "|",
        line("printed", accuracy, components),
    ]
    for label, reading in READINGS.items():
        a, c = measure(reading, arguments.seeds)
        off = f"{np.abs(a - accuracy).mean():.1f}", f"{np.abs(c / components - 1).mean():.0%}"
        lines.append(line(label, a, c, off))
    write_page("weka_readings", "\n".join(lines), quick=arguments.quick)


if __name__ == "__main__":
    main()
