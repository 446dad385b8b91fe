"""One pass of the mixture over many rows, or many columns, beside scikit-learn's EM on the same rows.

    python benchmarks/mixture_large.py [--quick]

Processor time of one thread; searches are part of it. "Converged" is one fit of scikit-learn with the true number of
components; an iteration is its own E-step and M-step. One pass is in batches of 1,000 rows, and in one call with all of
them, as scikit-learn gets them. A mixture of 784 columns has low-rank covariances by default, scikit-learn's has full
ones.
"""

import warnings

import numpy as np
from _page import parser, write_page
from mixture_speed import ONE_PASS, one_pass
from sklearn.exceptions import ConvergenceWarning

from everlearn import IncrementalGaussianMixture

# Columns and rows.
STREAMS = ((8, 1_000_000), (34, 1_000_000), (784, 100_000))


def groups(n, D, K=5):
    """Rows of K Gaussians, correlated and apart; a group at a time, for there may be no room for a matrix a row."""
    rng = np.random.default_rng(0)
    label, X = rng.integers(K, size=n), np.empty((n, D))
    for k in range(K):
        own = np.flatnonzero(label == k)
        axes = np.eye(D) + 0.3 * rng.normal(size=(D, D)) / np.sqrt(D)
        X[own] = 4.0 * rng.normal(size=D) + rng.normal(size=(len(own), D)) @ axes.T
    return X


def main():
    arguments = parser(__doc__).parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    scale = 100 if arguments.quick else 1
    lines = []
    for D, n in STREAMS:
        IncrementalGaussianMixture().partial_fit(groups(1000, D))  # compile, or load what has been compiled
        lines.append(one_pass(groups(n // scale, D)))
    body = [f"# One pass over many rows\n\n{__doc__.split(chr(10) * 2, 2)[2]}", *ONE_PASS, *lines]
    write_page("mixture_large", "\n".join(body), quick=arguments.quick)


if __name__ == "__main__":
    main()
