"""Speed of the mixture that finds its structure, through `partial_fit`, beside scikit-learn's EM.

    python benchmarks/mixture_speed.py [--quick]

Processor time of one thread; searches are part of it. "At once" is a fresh model's `fit` and a first score;
scikit-learn's counterpart is one fit for each of ten numbers of components, of which BIC takes one. "Converged" is one
fit of scikit-learn with the true number of components; an iteration is its own E-step and M-step on the same rows. One
pass is in batches of 1,000 rows, and in one call with all of them, as scikit-learn gets them.
"""

import time
import warnings

import numpy as np
from _page import parser, write_page
from mixture_sets import gaussians
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from everlearn import IncrementalGaussianMixture
from everlearn.experiments.peers.data import groups
from everlearn.mixture import blocks, learn

# Columns of the streams whose rows are learned one by one and in blocks.
WIDE = (64, 128, 256, 512, 784)
GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
ONE_PASS = [
    "| | rows | one pass, s | in one call, s | components | converged fit, s | its iterations | one iteration, s |",
    "|---|---|---|---|---|---|---|---|",
]
HEADER = ["| stream | rows | seconds | rows a second | components |", "|---|---|---|---|---|"]


def timed(work):
    """Processor seconds, and what came out."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def learned(X, batch, warm=0):
    """A model that has learned X in batches, the first `warm` rows before the clock starts; seconds and model."""
    model = IncrementalGaussianMixture()
    if warm:
        model.partial_fit(X[:warm])
    parts = [X[at : at + batch] for at in range(warm, len(X), batch)]

    def work():
        for part in parts:
            model.partial_fit(part)

    return timed(work)[0], model


def line(name, n, seconds, model):
    return f"| {name} | {n:,} | {seconds:.2f} | {n / seconds:,.0f} | {model.n_components_} |"


def streams(scale):
    """Batches, single rows, and many components."""
    n = 100_000 // scale
    X = groups(n, 8)[0]
    many = gaussians(50, 16, 4000 // scale, 2.0, 4, 0.4)[0]
    yield line("five groups, D = 8, batches of 1,000", n, *learned(X, 1000))
    yield line("five groups, D = 8, one row at a time", n, *learned(X, 1))
    yield line("50 groups, D = 16, batches of 1,000", len(many), *learned(many, 1000))


def at_once(scale):
    """2,000 rows in one call, beside a choice among ten numbers of components by BIC."""
    X = groups(2000 // scale, 8)[0]
    seconds, model = timed(lambda: IncrementalGaussianMixture().fit(X))
    asked, _ = timed(lambda: model.score(X[:100]))

    def by_bic():
        fits = [GaussianMixture(K, reg_covar=1e-3, random_state=0).fit(X) for K in GRID if 9 * K < len(X)]
        return min(fits, key=lambda fit: fit.bic(X)).n_components

    peer, K = timed(by_bic)
    return [
        "| | seconds | components |",
        "|---|---|---|",
        f"| ours, fit | {seconds:.2f} | {model.n_components_} |",
        f"| ours, fit and first answer | {seconds + asked:.2f} | {model.n_components_} |",
        f"| scikit-learn, {len(GRID)} fits and BIC | {peer:.2f} | {K} |",
    ]


def one_pass(X):
    """One pass, a converged fit with five components, and one EM iteration, on the same rows."""
    n, D = X.shape
    ours, model = learned(X, 1000)
    at_once, _ = learned(X, n)
    em = GaussianMixture(5, reg_covar=1e-3, random_state=0)
    converged, _ = timed(lambda: em.fit(X))
    iteration, _ = timed(lambda: em._m_step(X, em._e_step(X)[1]))
    seconds = f"{ours:.2f} | {at_once:.2f} | {model.n_components_} | {converged:.2f} | {em.n_iter_} | {iteration:.2f}"
    return f"| D = {D} | {n:,} | {seconds} |"


def wide_rows(sizes):
    """Rows of many columns between searches, one by one and in blocks: `mixture.blocks.COLUMNS` comes from here."""
    yield "| columns | us a row, one by one | in blocks | times |"
    yield "|---|---|---|---|"
    for D in sizes:
        X = gaussians(2, D, 10 * D, 6.0, 0, 0.4)[0]
        model = IncrementalGaussianMixture(2, covariance_type="full").partial_fit(X[: 8 * D])
        single, block = (us_a_row(model, X[8 * D :], columns) for columns in (D + 1, 1))
        yield f"| {D} | {single:.1f} | {block:.1f} | {single / block:.1f} |"


def us_a_row(model, rows, columns):
    """Microseconds a row of a copy of a model's components, which learns in blocks from so many columns on."""
    state, settings, progress = model._state_, model._core_.settings, model._core_.progress
    own = learn.with_own_components(learn.working_model(state, settings, progress))
    work, weights, out = learn.work_of(own, state.frame, settings), np.ones(len(rows)), np.empty((2, len(rows)))
    kept, blocks.COLUMNS = blocks.COLUMNS, columns
    blocks.learn_rows(rows[:100], weights[:100], work, out)
    seconds, _ = timed(lambda: blocks.learn_rows(rows, weights, work, out))
    blocks.COLUMNS = kept
    return 1e6 * seconds / len(rows)


def main():
    arguments = parser(__doc__).parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    scale = 10 if arguments.quick else 1
    for D in (8, 16, 34):  # compile, or load what has been compiled
        IncrementalGaussianMixture().partial_fit(groups(1000, D)[0]).score(groups(10, D)[0])
    body = [f"# Speed of the mixture\n\n{__doc__.split(chr(10) * 2, 2)[2]}", "## Streams\n", *HEADER, *streams(scale)]
    body += ["", f"## {2000 // scale:,} rows at once, D = 8\n", *at_once(scale), "", "## One pass beside batch EM\n"]
    body += [*ONE_PASS, *(one_pass(groups(100_000 // scale, D)[0]) for D in (8, 34))]
    body += ["", "## Wide rows, full covariances, two groups\n", *wide_rows((64,) if arguments.quick else WIDE)]
    write_page("mixture_speed", "\n".join(body), quick=arguments.quick)


if __name__ == "__main__":
    main()
