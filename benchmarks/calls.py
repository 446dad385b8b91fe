"""Mixtures as users call them: microseconds a row of `partial_fit`, `score_samples` and `predict`, beside batch EM.

    OPENBLAS_NUM_THREADS=1 python benchmarks/calls.py [--quick]

CPU time, estimators with their defaults, creation of components and structure searches included. The stream is K
correlated Gaussians in D columns, shuffled. One EM iteration is scikit-learn's `GaussianMixture.fit` with K components,
`max_iter=1` and a given start, on as many rows as one pass takes.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from _page import parser, write_page
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from everlearn import FIGMN, IncrementalGaussianMixture

CASES = ((2, 3), (8, 12), (34, 20), (100, 5))  # columns, components
ROWS, WARM, SINGLE = 20_000, 5_000, 2_000
BATCHES = (1, 100, 10_000)
MODELS = {"IncrementalGaussianMixture": IncrementalGaussianMixture, "FIGMN": FIGMN}


def rows_of(n: int, D: int, K: int) -> np.ndarray:
    """Rows of K correlated Gaussians."""
    rng = np.random.default_rng(0)
    centres, shapes = 4 * rng.normal(size=(K, D)), rng.normal(size=(K, D, D)) / np.sqrt(D)
    k = rng.integers(K, size=n)
    return centres[k] + np.einsum("nij,nj->ni", shapes[k], rng.normal(size=(n, D))) + 0.1 * rng.normal(size=(n, D))


def microseconds(action, n: int) -> float:
    """CPU time a row."""
    begun = time.process_time()
    action()
    return 1e6 * (time.process_time() - begun) / n


def learning(make, X: np.ndarray, batch: int, warm: int) -> float:
    """`partial_fit` in batches, after the first rows were learned."""
    model = make().partial_fit(X[:warm])
    rest = X[warm : warm + SINGLE] if batch == 1 else X[warm:]

    def learn() -> None:
        for start in range(0, len(rest), batch):
            model.partial_fit(rest[start : start + batch])

    return microseconds(learn, len(rest))


def em_iteration(X: np.ndarray, K: int) -> float:
    """One iteration of scikit-learn's EM."""
    D = X.shape[1]
    model = GaussianMixture(
        K,
        max_iter=1,
        weights_init=np.full(K, 1 / K),
        means_init=X[:K],
        precisions_init=np.broadcast_to(np.eye(D), (K, D, D)).copy(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return microseconds(lambda: model.fit(X), len(X))


def line(name: str, D: int, K: int, n: int, warm: int) -> tuple[str, float, float]:
    """A line of the table, the time of a pass and of an EM iteration."""
    make, X = MODELS[name], rows_of(n, D, K)
    make().partial_fit(X[:500]).score_samples(X[:10])  # compiles
    whole = microseconds(lambda: make().partial_fit(X), n)
    batches = [learning(make, X, batch, warm) for batch in BATCHES]
    model = make().partial_fit(X)
    model.score_samples(X[:1])  # a question may be preceded by a search, which is not the cost of a row
    asking = [microseconds(lambda call=call: call(X), n) for call in (model.score_samples, model.predict)]
    em = em_iteration(X, K)
    cells = [
        name,
        D,
        K,
        model.n_components_,
        *(f"{t:.1f}" for t in (whole, *batches, *asking, em)),
        f"{whole / em:.1f}",
    ]
    return f"| {' | '.join(map(str, cells))} |", whole, em


def main() -> None:
    """Measure and write."""
    options = parser(__doc__).parse_args()
    n, warm = (2000, 1000) if options.quick else (ROWS, WARM)
    head = [
        "model", "columns", "groups", "components", "whole pass from nothing", *(f"batches of {b:,}" for b in BATCHES),
        "score_samples", "predict", "one EM iteration", "pass / EM iteration",
    ]  # fmt: skip
    lines, cheaper, dearer = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"], [], []
    for name in MODELS:
        for D, K in CASES[: 1 if options.quick else None]:
            text, whole, em = line(name, D, K, n, warm)
            lines.append(text)
            (cheaper if whole < em else dearer).append(f"{name} at D = {D}, K = {K} ({whole / em:.1f})")
    remarks = []
    if cheaper:
        remarks.append(f"A pass costs less than one EM iteration: {'; '.join(cheaper)}.")
    if dearer:
        remarks.append(f"A pass costs more than one EM iteration: {'; '.join(dearer)}.")
    about = (
        f"Microseconds of CPU time a row, one thread; {n:,} rows, batches measured after {warm:,} of them. `batches of "
        f"1` are {SINGLE:,} calls. The EM iteration has the number of groups that the stream was made with."
    )
    body = "\n".join(["# Mixtures as users call them", "", about, "", *lines, "", *remarks])
    write_page("calls", body, quick=options.quick)


if __name__ == "__main__":
    main()
