"""Mixtures on a graphics processor: FIGMN beside what its arithmetic takes there, the incremental mixture beside the
same machine's processor.

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

from everlearn import FIGMN, IncrementalGaussianMixture
from everlearn.linalg import parallel
from everlearn.linalg.eigen import eigen
from everlearn.mixture import blocks

CASES = [
    ("50,000 x 3072, K=1", 50_000, 3072, 1),
    ("60,000 x 784, K=1", 60_000, 784, 1),
    ("60,000 x 784, K=208", 60_000, 784, 208),
]


# Low-rank mixture: rows that are timed, columns, components, directions; rows learned before, after the last of which
# the next search is farther away than the timed ones.
WIDE, WIDE_QUICK = (50_000, 3072, 20, 32, 82_000), (4_000, 512, 5, 8, 5_200)
# Rows on which the processor is timed.
FEWER = 5_000
# Full covariances: columns and components.
FULL, FULL_QUICK = [(64, 50), (784, 50)], [(64, 5), (300, 4)]


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


def low_rank_stream(n, D, K, device, seed=0):
    """Rows of K groups of twelve directions each and noise, in an order without pattern; made where that is fast."""
    at = {"dtype": torch.float64, "device": device}
    shapes, draws = (torch.Generator(device=device).manual_seed(number) for number in (7, seed))
    W = torch.randn(K, 12, D, generator=shapes, **at) * torch.tensor(np.geomspace(1.5, 0.3, 12), **at)[:, None]
    means = torch.randn(K, D, generator=shapes, **at)
    labels = torch.randint(K, (n,), generator=draws, device=device)
    X = 0.7 * torch.randn(n, D, generator=draws, **at) + means[labels]
    for k in range(K):
        own = torch.nonzero(labels == k)[:, 0]
        X[own] += torch.randn(len(own), 12, generator=draws, **at) @ W[k]
    return X.cpu().numpy().copy()


def low_rank_model(K, rank, device):
    return IncrementalGaussianMixture(K, covariance_type="low_rank", rank=rank, device=device)


def elsewhere(model, device):
    """A copy of a model that goes on with this device."""
    return model.copy().set_params(device=device)


def differ(there, here, X):
    """Largest difference of log-densities, in relation to their size."""
    return np.abs(there.score_samples(X) / here.score_samples(X) - 1.0).max()


def measure_low_rank(n, D, K, rank, before, device):
    """Lines of the table: learning between searches, from the first row on with its searches, and answers."""
    X = low_rank_stream(before + n, D, K, device)
    for where in (None, device):
        low_rank_model(K, rank, where).partial_fit(X[:1400]).score_samples(X[:300])
    known, few, learned_rows = low_rank_model(K, rank, device), min(FEWER, n), 0
    for start in (before // 2, before):
        known.partial_fit(X[learned_rows:start])
        learned_rows = start
        # The search before `start` was at most a hundredth of the rows before it; the next is at twice its row.
        stop = start + min(n, start * 98 // 100)
        slow, *fast = (elsewhere(known, where) for where in (None, device, device, device))
        learned = timed(slow, X[start : start + few]), min(timed(model, X[start:stop]) for model in fast)
        mass = known._state_.model.components.mass  # that learns: a question would be preceded by a search of its own
        what = f"{len(mass)} components, {mass.max() / mass.sum():.0%} of the rows in the largest"
        yield line(f"learn between searches, after {start:,} rows: {what}", few, stop - start, *learned)
    from_start = [timed(low_rank_model(K, rank, where), X[:n]) for where in (None, device)]
    yield line(f"learn from the first row on, n_components={K}, searches included", n, n, *from_start)
    ask = "score_samples"
    for model in (slow, fast[0]):
        model.score_samples(X[:300])  # the first question is preceded by a search of its own
    asked = timed(slow, X[:few], ask), min(timed(fast[0], X[:n], ask) for _ in range(3))
    yield line("score", few, n, *asked)
    there, here = (elsewhere(known, where).partial_fit(X[before : before + few]) for where in (device, None))
    size = differ(there, here, X[:500])
    yield f"Densities of models that learned {few:,} rows with and without the device differ by {size:.1e}, relatively."


def measure_full(D, K, device):
    """Lines of the table for a mixture with full covariances: rows that are learned between searches, and scored."""
    batch = GaussianMixture(K, covariance_type="full")
    batch.weights_, batch.means_ = np.full(K, 1.0 / K), centres(K, D)
    batch.covariances_, batch.precisions_cholesky_ = (np.tile(v * np.eye(D), (K, 1, 1)) for v in (4.0, 0.5))
    known = IncrementalGaussianMixture.from_sklearn(batch, n_samples=100_000, max_components=K, device=device)
    n = 200_000 if D < 100 else 20_000
    X, few = stream(n, D, K), n // 10
    here = elsewhere(known, None)
    if D >= blocks.DEVICE_COLUMNS:
        timed(elsewhere(known, device), X[: 2 * few])
        fast = [elsewhere(known, device) for _ in range(3)]
        seconds = timed(elsewhere(known, None), X[:few]), min(timed(model, X) for model in fast)
        yield line(f"learn between searches, D={D}, K={K}, full covariances", few, n, *seconds)
        size = differ(
            elsewhere(known, device).partial_fit(X[:few]), elsewhere(known, None).partial_fit(X[:few]), X[:500]
        )
        yield f"With full covariances densities differ by {size:.1e}."
    for ask in ("score_samples", "predict_proba"):
        for model in (here, known):
            timed(model, X[:1000], ask)
        seconds = timed(here, X[:few], ask), min(timed(known, X, ask) for _ in range(2))
        yield line(f"{ask}, D={D}, K={K}, full covariances", few, n, *seconds)


def line(what, few, n, here, there):
    """A line of the table: rows a second of the processor and the device."""
    rates = few / here, n / there
    return f"| {what} | {few:,} | {here:.2f} s | {n:,} | {there:.2f} s | {rates[1] / rates[0]:.1f} |"


def eigenproblems(count=20, size=65):
    """Milliseconds of as many eigenproblems in threads, as folds make them: LAPACK and our own."""
    Z = np.random.default_rng(0).normal(size=(count, size, 300))
    matrices, seconds = Z @ Z.transpose(0, 2, 1), []
    with parallel.one_blas_thread():
        for work in (np.linalg.eigh, eigen):
            parallel.each(work, list(matrices))
            start = time.perf_counter()
            for _ in range(10):
                parallel.each(work, list(matrices))
            seconds.append((time.perf_counter() - start) / 10)
    return [1e3 * one for one in seconds]


def main():
    made = parser(__doc__)
    made.add_argument("--device", default="cuda")
    options = made.parse_args()
    cuda = torch.device(options.device).type == "cuda"
    name = torch.cuda.get_device_name() if cuda else platform.processor()
    limit = products_rate(options.device)
    lines = [
        "# Mixtures on a graphics processor",
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
    wide = WIDE_QUICK if options.quick else WIDE
    _, D, _, rank, before = wide
    cores = parallel.available()
    lines += [
        "",
        "## The incremental mixture",
        "",
        f"Low-rank components, {D:,} columns, rank {rank}, and full covariances; the processor has {cores} cores. A "
        f"model that has learned {before // 2:,} or {before:,} rows goes on: up to then its searches have found the "
        "components, and the next one is due after the rows that are timed. The folds of a component follow one "
        "another, so that the largest one sets the time. Searches work on the bounded sample of rows; with the device "
        "they score it there, unless covariances are full. The processor is timed on fewer rows; 'times' is the ratio "
        "of rows a second.",
        "",
        "| what | rows, processor | seconds | rows, device | seconds | times |",
        "|---|---|---|---|---|---|",
    ]
    notes = []
    for made in (measure_low_rank(*wide, options.device), full_lines(options)):
        for found in made:
            (lines if found.startswith("|") else notes).append(found)
            print(found, flush=True)
    lapack, own = eigenproblems()
    notes.append(f"20 eigenproblems of 65 rows in {cores} threads take LAPACK {lapack:.1f} ms and ours {own:.1f} ms.")
    print(notes[-1], flush=True)
    write_page("gpu", "\n".join([*lines, "", " ".join(notes)]), quick=options.quick)


def full_lines(options):
    """Lines for mixtures with full covariances."""
    for case in FULL_QUICK if options.quick else FULL:
        yield from measure_full(*case, options.device)


if __name__ == "__main__":
    main()
