"""FIGMN with its matrices on a graphics processor, beside what its arithmetic takes there.

    python benchmarks/gpu.py [--device cuda] [--quick]

Times are of one pass of `partial_fit` over rows in memory, after one over a few rows that compiles. In the first pass
the libraries set up memory and threads; 'one pass' is the best of those after it.
"""

import platform
import time

import numpy as np
import torch
from _page import parser, write_page
from sklearn.mixture import GaussianMixture

from everlearn import FIGMN

CASES = [
    ("50,000 x 3072, K=1", 50_000, 3072, 1),
    ("60,000 x 784, K=1", 60_000, 784, 1),
    ("60,000 x 784, K=208", 60_000, 784, 208),
]


def stream(n, D, K, seed=0):
    """Rows about K centres, in an order without pattern; neighbouring columns are alike, as in pictures."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D), dtype=np.float32).astype(np.float64)
    X[:, 1:] += X[:, :-1]
    X += centres(K, D)[rng.integers(K, size=n)]
    return X


def centres(K, D):
    return 3.0 * np.random.default_rng(7).normal(size=(K, D))


def model_for(K, D, device):
    """One component that is not there yet, or K wide ones to go on from."""
    if K == 1:
        return FIGMN(beta=0.0, scale=3.3, device=device)
    batch = GaussianMixture(K, covariance_type="full")
    batch.weights_, batch.means_ = np.full(K, 1.0 / K), centres(K, D)
    batch.covariances_, batch.precisions_cholesky_ = (np.tile(v * np.eye(D), (K, 1, 1)) for v in (4.0, 0.5))
    return FIGMN.from_sklearn(batch, n_samples=10 * K, beta=0.0, max_components=K, device=device)


def timed(model, X, what="partial_fit"):
    start = time.perf_counter()
    getattr(model, what)(X)
    return time.perf_counter() - start


def agreement(K, D, device):
    """Largest difference of log-densities, in relation to their size, between the device and this machine."""
    X = stream(3000 if K == 1 else 4000, D, min(K, 20), seed=1)
    here, there = (model_for(min(K, 20), D, where).partial_fit(X[:-500]) for where in (None, device))
    expected = here.score_samples(X[-500:])
    return np.abs(there.score_samples(X[-500:]) / expected - 1.0).max()


def products_rate(device, D=4096):
    """Double-precision products, in operations a second."""
    A = torch.rand(D, D, dtype=torch.float64, device=device)
    for _ in range(3):
        A @ A
    wait(device)
    start = time.perf_counter()
    for _ in range(10):
        A @ A
    wait(device)
    return 10 * 2 * D**3 / (time.perf_counter() - start)


def wait(device):
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def measure(name, n, D, K, device, limit):
    X = stream(n, D, K)
    model_for(K, D, device).partial_fit(X[:2000])
    models = [model_for(K, D, device) for _ in range(2 if K > 1 else 4)]
    first, *next_ones = (timed(model, X) for model in models)
    seconds, scoring = min(next_ones), min(timed(models[0], X, "score_samples") for _ in range(2))
    arithmetic = 3 * n * K * D * D / limit
    return (
        f"| {name} | {first:.2f} s | {seconds:.2f} s | {arithmetic:.3f} s | {seconds / arithmetic:.0f} | "
        f"{scoring:.2f} s | {agreement(K, D, device):.1e} |"
    )


def main():
    made = parser(__doc__)
    made.add_argument("--device", default="cuda")
    options = made.parse_args()
    cuda = torch.device(options.device).type == "cuda"
    name = torch.cuda.get_device_name() if cuda else platform.processor()
    limit = products_rate(options.device)
    lines = [
        "# FIGMN on a graphics processor",
        "",
        f"{name}, float64 products "
        f"at {limit / 1e12:.1f} TFLOP/s. 'Arithmetic' is 3 K D² operations a row at that rate; 'densities differ' is "
        "the largest relative difference from the answers without a device.",
        "",
        "| stream | first pass | one pass | arithmetic | ratio | scoring all rows | densities differ |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in CASES[: 1 if options.quick else None]:
        lines.append(measure(*case, options.device, limit))
        print(lines[-1], flush=True)
    write_page("gpu", "\n".join(lines), quick=options.quick)


if __name__ == "__main__":
    main()
