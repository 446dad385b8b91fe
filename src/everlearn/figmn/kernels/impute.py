"""Expected values of what rows do not hold, given what they do."""

from everlearn.figmn.kernels.missing import fill_gaps
from everlearn.figmn.kernels.responsibilities import normalise
from everlearn.figmn.kernels.rows import make_scratch, measure_row
from everlearn.linalg.column_scan import count_observed
from everlearn.linalg.compile import kernel

IGNORED = 1e-18  # posterior of a component that changes no digit of an expectation


@kernel
def expect_rows(X, means, precisions, log_dets, counts, n, filled):
    """Rows with the conditional means of the mixture in their gaps; NaN stays where a precision is not definite."""
    s = make_scratch(n, means.shape[1], True)
    for t in range(X.shape[0]):
        observed = count_observed(X[t])
        measure_row(X[t], 1.0, observed, X[t, :0], means, precisions, log_dets, counts, n, s)
        normalise(s.log_joint, n, s.posterior)
        for a in range(X.shape[1]):
            filled[t, a] = X[t, a] if X[t, a] == X[t, a] else 0.0
        for j in range(n if observed < X.shape[1] else 0):
            if s.posterior[j] < IGNORED:
                continue
            fill_gaps(precisions[j], s.index, observed, s.E[j], s.G[j], s.L, s.b)
            for i in range(observed, X.shape[1]):
                a = s.index[i]
                filled[t, a] += s.posterior[j] * (means[j, a] + s.E[j, a])
