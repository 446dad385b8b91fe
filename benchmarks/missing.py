"""Learning with gaps: imputation beside batch EM with gaps, and what gaps cost.

    python benchmarks/missing.py [--quick]

Three cells in ten are removed at random, from training and held-out rows. The same mixture (our components at the end
of the pass) is then fitted by ten steps of batch EM with missing data (the slow twin `tests/naive.em_with_gaps`), and
both fill the held-out gaps: root mean square errors over columns of unit variance, means of three draws of gaps. A
ratio below one means that EM overfits these few rows.
"""

import sys
import time
from pathlib import Path

import numpy as np
from _page import parser, write_page
from sklearn import datasets as sklearn_datasets

from everlearn import IncrementalGaussianMixture, datasets

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import naive

NOTE = """\
Root mean square errors over columns of unit variance; means of three draws of gaps. Batch EM with missing data
starts from our components and takes ten steps; a ratio below one means that it overfits these few rows.\
"""
STEPS, DRAWS = 10, 3


def heaps(n, seed):
    """Three correlated groups in four columns."""
    shape = np.random.default_rng(7)
    axes, centres = shape.normal(size=(3, 4, 4)), 3 * shape.normal(size=(3, 4))
    rng = np.random.default_rng(seed)
    k = rng.integers(3, size=n)
    return centres[k] + np.einsum("nij,nj->ni", axes[k], rng.normal(size=(n, 4)))


def sources():
    for n in (250, 700, 1500):
        yield f"three groups, {n} rows", heaps(n, 0), heaps(300, 1)
    real = {
        "iris": datasets.load_iris().data,
        "diabetes": datasets.load_diabetes().data,
        "wine": sklearn_datasets.load_wine().data,
        "breast_cancer": sklearn_datasets.load_breast_cancer().data,
    }
    for name, X in real.items():
        rows = np.random.default_rng(4).permutation(X)
        yield name, *np.split(rows, [len(rows) * 2 // 3])


def with_gaps(X, seed):
    gaps = np.random.default_rng(seed).random(X.shape) < 0.3
    gaps[gaps.all(axis=1), 0] = False
    return np.where(gaps, np.nan, X)


def filled_by(rows, mixture):
    out = rows.copy()
    for x in out:
        gaps = np.isnan(x)
        if gaps.any():
            x[gaps] = naive.impute(x, *mixture)[0]
    return out


def errors(train, test, seed):
    """Root mean square errors of ours and of batch EM, and the number of components."""
    rows, asked = with_gaps(train, seed), with_gaps(test, seed + 100)
    model = IncrementalGaussianMixture().fit(rows)
    mixture = naive.em_with_gaps(rows, model.weights_, model.means_, model.covariances_, n_steps=STEPS, ridge=1e-3)
    gaps = np.isnan(asked)
    return [
        *(np.sqrt(np.mean((fill - test)[gaps] ** 2)) for fill in (model.impute(asked), filled_by(asked, mixture))),
        model.n_components_,
    ]


def quality(draws):
    lines = ["| set | components | ours | batch EM | ratio |", "|---|---|---|---|---|"]
    for name, train, test in sources():
        scale = train.std(axis=0)
        ours, batch, K = np.mean([errors(train / scale, test / scale, seed) for seed in range(draws)], axis=0)
        lines.append(f"| {name} | {K:.0f} | {ours:.3f} | {batch:.3f} | {ours / batch:.3f} |")
        print(lines[-1], flush=True)
    return lines


def cost():
    lines = ["| columns | complete, microseconds a row | with gaps | ratio |", "|---|---|---|---|"]
    for D in (4, 8, 16, 32):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(6000, D)) @ rng.normal(size=(D, D))
        times = {}
        for name, rows in (("complete", X), ("gaps", with_gaps(X, 1))):
            runs = []
            for _ in range(3):
                model = IncrementalGaussianMixture().fit(rows[:2000])
                start = time.process_time()
                model.partial_fit(rows[2000:])
                runs.append((time.process_time() - start) / 4000 * 1e6)
            times[name] = min(runs)
        ratio = times["gaps"] / times["complete"]
        lines.append(f"| {D} | {times['complete']:.1f} | {times['gaps']:.1f} | {ratio:.1f} |")
        print(lines[-1], flush=True)
    return lines


def main():
    options = parser(__doc__).parse_args()
    text = "\n".join(
        [
            "# Learning with gaps", "",
            "## Filling held-out gaps: three cells in ten missing at random", "", NOTE, "",
            *quality(1 if options.quick else DRAWS), "",
            "## Time to learn, three cells in ten missing at random", "", *cost(), "",
        ]
    )  # fmt: skip
    write_page("missing", text, quick=options.quick)


if __name__ == "__main__":
    main()
