"""What a component gains on rows of one Gaussian: the null distribution behind `mixture.keep.evidence.price`.

    python benchmarks/mixture_price.py [--seeds 100] [--jobs N] [--quick]

For D columns and m rows of one Gaussian, searches at falling prices: the critical price of a sample is the largest at
which the search still finds more than one component. The price must exceed the 99th percentile of it, since a stream of
100,000 rows is searched about ten times and one stream in twenty may be split. Columns are independent, follow an
autoregression of 0.95, or have a random covariance.
"""

from concurrent.futures import ProcessPoolExecutor

import numpy as np
from _page import parser, write_page

from everlearn.mixture.keep.evidence import n_parameters, price
from everlearn.mixture.keep.forgetting import fading_of
from everlearn.mixture.keep.problem import problem_of
from everlearn.mixture.keep.search import search
from everlearn.mixture.keep.world import ridge_of, world_of_rows
from everlearn.mixture.learn import finish
from everlearn.mixture.state import Settings

SIZES = (
    (1, 100), (1, 1000), (2, 50), (2, 200), (2, 1000), (3, 200), (3, 1000), (5, 100), (5, 300), (5, 1000), (8, 100),
    (8, 300), (8, 1000), (12, 200), (12, 1200), (16, 200), (16, 800), (16, 1600), (30, 200), (30, 1000), (30, 3000),
    (60, 300), (60, 600), (60, 3000),
)  # fmt: skip
FEW = (30, 200), (60, 200), (60, 600)
QUICK = ((2, 50),)


def independent(D, rng):
    return np.eye(D)


def autoregressive(D, rng):
    return np.linalg.cholesky(0.95 ** np.abs(np.subtract.outer(np.arange(D), np.arange(D)))).T


def random(D, rng):
    return rng.normal(size=(D, D)) / np.sqrt(D) + 0.3 * np.eye(D)


# Roots of the covariances, and the sizes that they are tried with.
KINDS = {"independent": independent, "autoregressive": autoregressive, "random": random}
TRIED = {"independent": SIZES, "autoregressive": FEW, "random": FEW}


def critical_price(kind, D, m, seed):
    """Largest price at which rows of one Gaussian are split, to 2 %; the lowest tried if they are not split at that."""
    rng = np.random.default_rng([D, m, seed])
    Z = rng.normal(size=(m, D)) @ KINDS[kind](D, rng)
    Z = np.ascontiguousarray(Z / Z.std(axis=0))
    settings = Settings(np.full(D + 1, np.inf), 0.1, seed, 0, 64, m, False, fading_of(1.0, m))
    found = 0.5 * price(D, False)
    for fine in (1.0, 0.001):
        world = world_of_rows(Z, np.ones(m), fine)
        problem = problem_of(Z, np.ones(m), world, ridge_of(world.variance, world.smooth, fine), settings, m)
        while True:
            fit = finish(search(problem._replace(price=found), None, None, crowd=True), D)
            if fit.size == 1:
                break
            one = finish(search(problem._replace(price=1e9), None, None, crowd=False), D)
            found = max(1.02 * found, (fit.log_density - one.log_density) / (fit.size - 1))
    return found


def main():
    options = parser(__doc__)
    options.add_argument("--seeds", type=int, default=100)
    options.add_argument("--jobs", type=int, default=1, help="samples searched side by side")
    arguments = options.parse_args()
    tried, seeds = (dict.fromkeys(KINDS, QUICK), 2) if arguments.quick else (TRIED, arguments.seeds)
    sizes = [(kind, D, m) for kind in KINDS for D, m in tried[kind]]
    tasks = [(kind, D, m, seed) for kind, D, m in sizes for seed in range(max(12, seeds // (1 + D * m // 8000)))]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        # Long ones first.
        order = sorted(range(len(tasks)), key=lambda i: -tasks[i][1] * tasks[i][2])
        done = dict(zip(order, pool.map(critical_price, *zip(*(tasks[i] for i in order), strict=True)), strict=True))
    lines = ["| columns | D | m | samples | p | median | 90 % | 99 % | largest | price |", "|---" * 10 + "|"]
    for kind, D, m in sizes:
        values = np.array([done[i] for i, task in enumerate(tasks) if task[:3] == (kind, D, m)])
        quantiles = np.quantile(values, [0.5, 0.9, 0.99])
        shown = " | ".join(f"{q:.1f}" for q in (*quantiles, values.max(), price(D, False)))
        lines.append(f"| {kind} | {D} | {m} | {len(values)} | {n_parameters(D, False):.0f} | {shown} |")
    text = __doc__.split("\n\n", 2)[2]
    lowest = "Prices are tried from half of ours on: where the median is that, half of the samples are not split at it."
    body = f"# Price of a component\n\n{text}\n{lowest}\n\n" + "\n".join(lines)
    write_page("mixture_price", body, quick=arguments.quick)


if __name__ == "__main__":
    main()
