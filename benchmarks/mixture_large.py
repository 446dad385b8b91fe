"""One pass of the mixture over many rows, or many columns, beside scikit-learn's EM on the same rows.

    python benchmarks/mixture_large.py [--quick]

Processor time of one thread; searches are part of it. "Converged" is one fit of scikit-learn with the true number of
components; an iteration is its own E-step and M-step. A mixture of 784 columns has low-rank covariances by default,
scikit-learn's has full ones.
"""

import warnings

from _page import parser, write_page
from mixture_speed import ONE_PASS, one_pass
from sklearn.exceptions import ConvergenceWarning

from everlearn import IncrementalGaussianMixture
from everlearn.experiments.peers.data import groups

# Columns and rows.
STREAMS = ((8, 1_000_000), (34, 1_000_000), (784, 100_000))


def main():
    arguments = parser(__doc__).parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    scale = 100 if arguments.quick else 1
    lines = []
    for D, n in STREAMS:
        IncrementalGaussianMixture().partial_fit(groups(1000, D)[0])  # compile, or load what has been compiled
        lines.append(one_pass(D, n // scale))
    body = [f"# One pass over many rows\n\n{__doc__.split(chr(10) * 2, 2)[2]}", *ONE_PASS, *lines]
    write_page("mixture_large", "\n".join(body), quick=arguments.quick)


if __name__ == "__main__":
    main()
