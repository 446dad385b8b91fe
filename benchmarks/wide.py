"""Wide data: low-rank components beside batch and online PPCA, full and diagonal covariances; 64 to 10,000 columns.

    python benchmarks/wide.py [--only SECTION ...] [--jobs 1] [--quick] ...

Each section writes `results/wide_SECTION.json`, and then the page of all sections that are there: they may run side by
side. MNIST is read from $EVERLEARN_DATA (or shared/data beside the repository); without it the tables of pictures are
left out, and the page says so. Times are CPU seconds of one thread.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _page import parser, write_page_of_parts, write_part
from sklearn.cluster import KMeans
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from everlearn import IncrementalGaussianMixture, IncrementalGaussianMixtureClassifier, OnlinePPCA
from everlearn.typing import Array

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("EVERLEARN_DATA", ROOT.parent / "shared" / "data"))
sys.path.append(str(ROOT / "tests"))

from low_rank_toys import one, several  # noqa: E402

LOG_2PI = np.log(2.0 * np.pi)
NOISE = 0.05
SEED = 0  # of the order of the pictures
LEVELS = (0.1, 0.05, 0.01, 0.001)
SECTIONS = ("simplest", "likelihood", "speed", "strange", "classes")
# Rows learned for each number of columns.
LIKELIHOOD_ROWS = {64: 8000, 256: 6000, 784: 4000, 3072: 1500, 10000: 1000}
# Held-out log-likelihoods, nats a column, of the prototype that this model was specified with, on the same rows.
PROTOTYPE_OF_ONE = {64: 0.4591, 256: 0.9207, 784: 0.6645, 3072: -0.2392, 10000: -0.2351}
PROTOTYPE = {64: 0.7747, 256: 1.0965, 784: 0.8887}


def table(header: list[str], rows: list[list[object]]) -> None:
    """Print a Markdown table."""
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row) + " |")
    print()


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and its CPU seconds."""
    start = time.process_time()
    found = function()
    return found, time.process_time() - start


def low_rank(**parameters: Any) -> IncrementalGaussianMixture:
    """The mixture that is measured."""
    return IncrementalGaussianMixture(covariance_type="low_rank", **parameters)


# -- data ---------------------------------------------------------------------------------------------


def read(name: str, offset: int) -> Array | None:
    """Bytes of one of the files of MNIST."""
    path = DATA / "mnist" / f"{name}.gz"
    if not path.exists():
        return None
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=offset)


def pictures(rng: np.random.Generator) -> tuple[Array, Array, Array, Array] | None:
    """Training rows and labels, test rows and labels; shuffled, with a little noise on the dead pixels."""
    raw = [read(name, 16 if "images" in name else 8) for name in (
        "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
    )]  # fmt: skip
    if any(values is None for values in raw):
        return None
    X, y, T, t = raw
    order, asked = rng.permutation(len(y)), rng.permutation(len(t))
    X, T = X.reshape(-1, 784)[order] / 255.0, T.reshape(-1, 784)[asked] / 255.0
    return X, y[order].astype(np.intp), T, t[asked].astype(np.intp)


def first_rows(data: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
    """As many of the pictures as densities are compared on."""
    X, y, T, t = data
    return X[:12000], y[:12000], T[:3000], t[:3000]


def smaller(X: Array, side: int) -> Array:
    """Pictures as means of squares: of the inner 24 x 24 pixels for a side of 8, of 32 x 32, padded, for one of 16."""
    pixels = X.reshape(-1, 28, 28)
    pixels = pixels[:, 2:26, 2:26] if side == 8 else np.pad(pixels, ((0, 0), (2, 2), (2, 2)))
    step = pixels.shape[1] // side
    return pixels.reshape(-1, side, step, side, step).mean(axis=(2, 4)).reshape(len(X), -1)


def relu_features(D: int, seed: int) -> Callable[[Array], Array]:
    """Random ReLU features of pictures, as a layer of a network makes them."""
    rng = np.random.default_rng(seed)
    weights, bias = rng.standard_normal((784, D)) / np.sqrt(784 * 0.1), 0.3 * rng.standard_normal(D)
    return lambda X: np.maximum(X @ weights + bias, 0.0)


def with_noise(X: Array, seed: int) -> Array:
    """Rows with a little noise, so that dead pixels have a density."""
    return X + np.random.default_rng(seed).normal(0.0, NOISE, X.shape)


# -- references ---------------------------------------------------------------------------------------


def ppca(X: Array, q: int, weights: Array | None = None) -> tuple[Array, Array, Array, float]:
    """Maximum likelihood of one PPCA: mean, directions, variances along them, noise (Tipping and Bishop, 1999)."""
    w = np.full(len(X), 1.0 / len(X)) if weights is None else weights / weights.sum()
    mean = w @ X
    E = np.sqrt(w)[:, None] * (X - mean)
    value, V = np.linalg.eigh(E.T @ E if len(X) > X.shape[1] else E @ E.T)
    value, V = value[::-1][:q], V[:, ::-1][:, :q]
    U = V.T if len(X) > X.shape[1] else (V / np.sqrt(value)).T @ E
    noise = max(((E * E).sum() - value.sum()) / (X.shape[1] - q), 1e-9)
    return mean, U, np.maximum(value, noise), noise


def ppca_log_density(X: Array, part: tuple[Array, Array, Array, float]) -> Array:
    """Log-densities under one PPCA."""
    mean, U, variance, noise = part
    E, D = X - mean, X.shape[1]
    d2 = (E * E).sum(axis=1) / noise - ((E @ U.T) ** 2) @ (1.0 / noise - 1.0 / variance)
    return -0.5 * (d2 + (D - len(U)) * np.log(noise) + np.log(variance).sum() + D * LOG_2PI)


def diagonal_log_likelihood(X: Array, T: Array) -> float:
    """Mean log-density of T under one Gaussian with independent columns, by maximum likelihood."""
    mean, variance = X.mean(axis=0), X.var(axis=0)
    return float(-0.5 * ((T - mean) ** 2 / variance + np.log(variance) + LOG_2PI).sum(axis=1).mean())


def batch_mixture(X: Array, T: Array, K: int, q: int, rounds: int = 10) -> float:
    """Mean log-density of T under a mixture of PPCA, by EM from k-means on all rows."""
    R = np.eye(K)[KMeans(K, n_init=1, random_state=0).fit_predict(X)]
    parts, share = [], np.ones(K) / K
    for _ in range(rounds):
        share = np.maximum(R.mean(axis=0), 1e-12)
        # Rows that a component hardly has cost time and change nothing.
        own = [np.flatnonzero(R[:, k] > 1e-9 * R[:, k].max()) for k in range(K)]
        parts = [ppca(X[rows], min(q, len(rows) - 2), R[rows, k]) for k, rows in enumerate(own)]
        joint = np.log(share) + np.column_stack([ppca_log_density(X, part) for part in parts])
        R = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])
    joint = np.log(share) + np.column_stack([ppca_log_density(T, part) for part in parts])
    return float(np.logaddexp.reduce(joint, axis=1).mean())


# -- sections -----------------------------------------------------------------------------------------


def simplest_cases(seeds: int, sizes: tuple[int, ...], D: int) -> None:
    """One Gaussian of rank 3 stays one, four stay four."""
    rows = []
    for n in sizes:
        for name in ("one", "four, shuffled", "four, one after the other"):
            right, ranks = 0, []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                X = one(rng, n, D) if name == "one" else several(rng, n, D)
                X = rng.permutation(X) if "shuffled" in name else X
                model = low_rank().fit(X)
                right += model.n_components_ == (1 if name == "one" else 4)
                ranks += model.ranks_.tolist()
            rows.append([name, n, f"{right} of {seeds}", f"{min(ranks)} to {max(ranks)}"])
    print(f"## The simplest cases: Gaussians of rank 3 in {D:,} columns\n")
    table(["rows of", "rows", "number of components right", "ranks found"], rows)


def likelihood(data: tuple[Array, Array, Array, Array] | None, sizes: dict[int, int]) -> None:
    """Held-out log-likelihood a column."""
    print("## Held-out log-likelihood, nats a column, 2,000 rows\n")
    if data is None:
        print("Left out: the files of MNIST are not there.\n")
        return
    X, _, T, _ = data
    rows: dict[str, list[object]] = {}
    as_good, compared = 0, 0
    for D, n in sizes.items():
        noise, views = generator_after_shuffling(), (view(X[:n], D), view(T[:2000], D))
        train, asked = (rows + NOISE * noise.standard_normal(rows.shape) for rows in views)
        low_rank().fit(train[:400])  # compiles
        q = 8 if D == 64 else 16

        def mixture(D: int = D, train: Array = train, asked: Array = asked, **parameters: Any) -> tuple[float, str]:
            model, seconds = timed(lambda: IncrementalGaussianMixture(**parameters).fit(train))
            found = float(model.score(asked)) / D
            return found, f"{found:.4f} ({model.n_components_}; {seconds:.1f} s)"

        one_component, told_of_one = mixture(n_components=1, covariance_type="low_rank")
        found, told = mixture(covariance_type="low_rank")
        pairs = ((one_component, PROTOTYPE_OF_ONE.get(D)), (found, PROTOTYPE.get(D)))
        compared += sum(other is not None for _, other in pairs)
        as_good += sum(other is not None and round(own, 4) >= other for own, other in pairs)
        cells: dict[str, object] = {
            "diagonal Gaussian, closed form": diagonal_log_likelihood(train, asked) / D,
            "batch PPCA": float(ppca_log_density(asked, ppca(train, q)).mean()) / D,
            "batch mixture of PPCA, 10 components": batch_mixture(train, asked, 10, q) / D,
            "OnlinePPCA": float(OnlinePPCA(q).fit(train).score(asked)) / D,
            "full, one component": mixture(n_components=1, covariance_type="full")[1] if D <= 784 else "-",
            "diagonal, one component": mixture(n_components=1, covariance_type="diag")[1] if D <= 784 else "-",
            "prototype, low rank, one component": PROTOTYPE_OF_ONE.get(D, "-"),
            "low rank, one component": told_of_one,
            "prototype, low rank, at most 30 components": PROTOTYPE.get(D, "-"),
            "**low rank**": told,
        }
        for name, cell in cells.items():
            rows.setdefault(name, [name]).append(f"{cell:.4f}" if isinstance(cell, float) else cell)
    print("In brackets the number of components found, and CPU seconds to learn. From 3,072 columns on the rows are")
    print("random ReLU features of the pictures. The mixture with full or diagonal covariances holds D^2 numbers a")
    print("component and is not run from 3,072 columns on.\n")
    table(["", *(f"D = {D:,}, {n:,} rows" for D, n in sizes.items())], list(rows.values()))
    print(f"At least as good as the prototype, of which there are {compared} figures here: {as_good}.\n")


def generator_after_shuffling() -> np.random.Generator:
    """The generator that has shuffled the pictures, for the noise: drawn as the prototype drew it."""
    rng = np.random.default_rng(SEED)
    rng.permutation(60000), rng.permutation(10000)
    return rng


def view(X: Array, D: int) -> Array:
    """Pictures as rows of D columns: smaller ones, themselves, or features of them."""
    if D > 784:
        return relu_features(D, SEED)(X)
    return X if D == 784 else smaller(X, int(np.sqrt(D)))


def speed(sizes: tuple[int, ...], n: int, data: tuple[Array, Array, Array, Array] | None, single: int) -> None:
    """Rows a second of one component beside its peers, what a column costs, and the worst of single rows."""
    rows = []
    for D in sizes:
        rng = np.random.default_rng(0)
        X = one(rng, n, D, variances=tuple(np.linspace(50.0, 2.0, 20)))
        batches = [X[i : i + 256] for i in range(0, len(X), 256)]

        def learn(batches: list[Array] = batches, batch: int = 256) -> IncrementalGaussianMixture:
            model = low_rank(n_components=1, rank=16)
            for rows in batches:
                for i in range(0, len(rows), batch):
                    model.partial_fit(rows[i : i + batch])
            return model

        def peer(batches: list[Array] = batches) -> None:
            model = IncrementalPCA(16)
            for rows in batches:
                if len(rows) >= 16:
                    model.partial_fit(rows)

        def online(batches: list[Array] = batches, batch: int = 256) -> None:
            model = OnlinePPCA(16)
            for rows in batches:
                for i in range(0, len(rows), batch):
                    model.partial_fit(rows[i : i + batch])

        learn(batches[:1])
        learn(batches[:1], 1)
        online(batches[:1])
        online(batches[:1], 1)
        _, by_batch = timed(learn)
        _, by_row = timed(lambda learn=learn, batches=batches: learn(batches[:4], 1))  # type: ignore[misc]
        _, incremental = timed(peer)
        _, other = timed(online)
        _, other_by_row = timed(lambda online=online, batches=batches: online(batches[:1], 1))  # type: ignore[misc]
        few, fewer = len(np.concatenate(batches[:4])), len(batches[0])
        rows.append([
            f"{D:,}", n / by_batch, few / by_row, n / incremental, n / other, fewer / other_by_row,
            incremental / by_batch, by_batch / n / D * 1e9,
        ])  # fmt: skip
    print("## Rows a CPU second, one component of rank 16, searches included\n")
    table(["columns", "256 rows a call", "one row a call", "IncrementalPCA, 256 rows a call",
           "OnlinePPCA, 256 rows a call", "OnlinePPCA, one row a call", "times IncrementalPCA",
           "nanoseconds a row and column"], rows)  # fmt: skip
    worst_rows(data, single)


def worst_rows(data: tuple[Array, Array, Array, Array] | None, n: int) -> None:
    """CPU time of single rows of a stream whose structure is searched for."""
    if data is None:
        print("Left out: the files of MNIST are not there.\n")
        return
    X, model, seconds = with_noise(data[0][:n], 2), low_rank(), np.empty(n)
    # Kernels are compiled by another model first, those of a search between rows included.
    other = low_rank()
    for row in X[:450]:
        other.partial_fit(row[None])
    for i in range(n):
        _, seconds[i] = timed(lambda i=i: model.partial_fit(X[i : i + 1]))  # type: ignore[misc]
    worst, most = int(np.argmax(seconds)), 1e3 * np.quantile(seconds, 0.99)
    print(f"Digits of 784 columns, one row a call, {n:,} rows, {model.n_components_} components in the end, found by")
    print(f"searches between the rows: CPU milliseconds a row in the median {1e3 * np.median(seconds):.2f}, of 99 %")
    print(f"{most:.1f} at most, of the worst, row {worst + 1:,}, {1e3 * seconds[worst]:.0f}.\n")


def strange_digits(data: tuple[Array, Array, Array, Array] | None, n: int) -> None:
    """Digits 0 to 4 are learned, 5 to 9 are strange: ROC-AUC, and how honest the p-values are."""
    print("## Digits 0 to 4 learned, 5 to 9 strange\n")
    if data is None:
        print("Left out: the files of MNIST are not there.\n")
        return
    X, y, T, t = data
    train, asked, strange = with_noise(X[y < 5][:n], 2), with_noise(T, 3), t >= 5
    model, seconds = timed(lambda: low_rank().fit(train))
    rows: list[list[object]] = [
        [f"low rank, {model.n_components_} components: log-density",
         roc_auc_score(strange, -model.score_samples(asked)), seconds],
        ["the same, p-value", roc_auc_score(strange, -model.p_value(asked)), seconds],
    ]  # fmt: skip
    axes = PCA(30, random_state=0).fit(train)

    def reconstruction() -> Array:
        pca = PCA(64, random_state=0).fit(train)
        return np.asarray(((asked - pca.inverse_transform(pca.transform(asked))) ** 2).sum(axis=1))

    def on_axes() -> Array:
        mixture = GaussianMixture(20, random_state=0).fit(axes.transform(train))
        return np.asarray(-mixture.score_samples(axes.transform(asked)))

    peers: dict[str, Callable[[], Array]] = {
        "LedoitWolf": lambda: np.asarray(LedoitWolf().fit(train).mahalanobis(asked)),
        "PCA reconstruction, 64 axes": reconstruction,
        "GaussianMixture, 20 components on 30 PCA axes": on_axes,
        "5th nearest neighbour": lambda: NearestNeighbors(n_neighbors=5).fit(train).kneighbors(asked)[0][:, -1],
        "IsolationForest": lambda: -IsolationForest(random_state=0).fit(train).score_samples(asked),
    }
    for name, score in peers.items():
        values, seconds = timed(score)
        rows.append([name, roc_auc_score(strange, values), seconds])
    table(["", "ROC-AUC", "CPU seconds"], rows)
    features = relu_features(3072, 1)
    wide, wide_asked = (with_noise(features(rows), 4 + i) for i, rows in enumerate((train, asked)))
    models = {784: (model, asked), 3072: (low_rank().fit(wide), wide_asked)}
    print("Share of held-out rows of the digits learned with a p-value below the level; the features of 3,072 columns")
    print("are random ReLU features of the pictures:\n")
    told: list[list[object]] = []
    for D, (known, asked_of) in models.items():
        p = known.p_value(asked_of)
        shares = [float((p[~strange] < a).mean()) for a in LEVELS]
        told.append([f"{D:,}", known.n_components_, *shares, roc_auc_score(strange, -p)])
    table(["columns", "components", *(f"{level:g}" for level in LEVELS), "ROC-AUC of the p-value"], told)


def one_order(seed: int, n: int) -> list[object]:
    """What the classifier makes of the classes in one order, row by row of its table."""
    X, y, T, t = pictures(np.random.default_rng(SEED))  # type: ignore[misc]
    X, y = X[:n], y[:n]
    rng, model = np.random.default_rng(seed), IncrementalGaussianMixtureClassifier(covariance_type="low_rank")

    def learn() -> None:
        for label in rng.permutation(10):
            for part in np.array_split(rng.permutation(np.flatnonzero(y == label)), max(1, n // 5000)):
                model.partial_fit(X[part], y[part])

    with threadpool_limits(1):
        _, seconds = timed(learn)
        right, asking = timed(lambda: model.score(T, t))
    return [seed, model.n_components_, f"{100.0 * right:.2f}", seconds, asking]


def classes_one_by_one(data: tuple[Array, Array, Array, Array] | None, n: int, orders: int, jobs: int) -> None:
    """The classifier on raw pixels, one pass, class by class."""
    print("## MNIST, 784 raw pixels, one pass, class by class\n")
    if data is None:
        print("Left out: the files of MNIST are not there.\n")
        return
    with ProcessPoolExecutor(jobs) as pool:
        rows = list(pool.map(partial(one_order, n=n), range(orders)))
    print(f"{n:,} rows learned, {len(data[3]):,} asked. Axes and their noise are chosen on training rows only.\n")
    table(["order", "components", "accuracy, %", "CPU seconds to learn", "CPU seconds to ask"], rows)
    mean = float(np.mean([float(str(row[2])) for row in rows]))
    print(f"Mean accuracy of {orders} orders: {mean:.2f} %.\n")


def arguments() -> Any:
    """Sizes and sections."""
    made = parser(__doc__)
    made.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="sections to run")
    made.add_argument("--seeds", type=int, default=10, help="seeds of the simplest cases")
    made.add_argument(
        "--columns",
        type=int,
        nargs="+",
        default=[64, 256, 784, 3072, 10000],
        choices=LIKELIHOOD_ROWS,
        help="of the likelihoods",
    )
    made.add_argument("--speed-columns", type=int, nargs="+", default=[256, 784, 3072, 10000])
    made.add_argument("--digits", type=int, default=5000, help="rows learned of digits 0 to 4")
    made.add_argument("--pictures", type=int, default=60000, help="rows that the classifier learns")
    made.add_argument("--orders", type=int, default=5, help="orders of the classes")
    made.add_argument("--jobs", type=int, default=1, help="orders side by side")
    return made.parse_args()


def sections(asked: Any) -> dict[str, Callable[[], None]]:
    """What prints each section."""
    quick, data = asked.quick, pictures(np.random.default_rng(SEED))
    few = None if data is None else first_rows(data)
    sizes = {64: 400} if quick else {D: LIKELIHOOD_ROWS[D] for D in asked.columns}
    seeds, rows, D = (1, (300,), 200) if quick else (asked.seeds, (500, 5000), 1000)
    columns, learned = ((256, 784), 1024) if quick else (tuple(asked.speed_columns), 2048)
    n, orders = (1000, 1) if quick else (asked.pictures, asked.orders)
    return {
        "simplest": lambda: simplest_cases(seeds, rows, D),
        "likelihood": lambda: likelihood(few, sizes),
        "speed": lambda: speed(columns, learned, few, 120 if quick else 3000),
        "strange": lambda: strange_digits(few, 400 if quick else asked.digits),
        "classes": lambda: classes_one_by_one(data, n, orders, asked.jobs),
    }


def main() -> None:
    """Run the sections that are asked for; each is a part of the page."""
    asked = arguments()
    made = sections(asked)
    for section in asked.only:
        told = io.StringIO()
        with threadpool_limits(1), contextlib.redirect_stdout(told):
            made[section]()
        write_part("wide", section, told.getvalue(), quick=asked.quick)
        if not asked.quick:
            write_page_of_parts("wide", "Wide data: low-rank components", SECTIONS)


if __name__ == "__main__":
    main()
