"""What a component gains on rows of one Gaussian: the null distribution behind `mixture.keep.evidence.price`.

    python benchmarks/mixture_price.py [--seeds 100] [--out benchmarks/results/mixture_price]

For D columns and m rows of one Gaussian, searches at falling prices: the critical price of a sample is the largest at
which the search still finds more than one component. The price must exceed the 99th percentile of it, since a stream of
100,000 rows is searched about ten times and one stream in twenty may be split.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from everlearn.mixture.keep.evidence import n_parameters, price
from everlearn.mixture.keep.problem import problem_of
from everlearn.mixture.keep.search import search
from everlearn.mixture.keep.world import ridge_of, world_of_rows
from everlearn.mixture.learn import finish
from everlearn.mixture.state import Settings

SIZES = (
    (1, 100), (1, 1000), (2, 50), (2, 200), (2, 1000), (3, 200), (3, 1000), (5, 100), (5, 300), (5, 1000), (8, 100),
    (8, 300), (8, 1000), (12, 200), (12, 1200), (16, 200), (16, 800), (16, 1600), (30, 200), (30, 1000), (30, 3000),
    (60, 300), (60, 1000), (60, 3000),
)  # fmt: skip


def critical_price(D, m, seed, lowest):
    """Largest price at which rows of one Gaussian are split, to 2 %; `lowest` if they are not split at that price."""
    Z = np.random.default_rng([D, m, seed]).normal(size=(m, D))
    settings = Settings(np.full(D + 1, np.inf), 0.1, seed, 0, 64, m)
    found = lowest
    for fine in (1.0, 0.001):
        world = world_of_rows(Z, np.ones(m), fine)
        problem = problem_of(Z, np.ones(m), world, ridge_of(world.variance, world.smooth, fine), settings, m)
        while True:
            fit = finish(search(problem._replace(price=found), None, None, crowd=True))
            if fit.size == 1:
                break
            one = finish(search(problem._replace(price=1e9), None, None, crowd=False))
            found = max(1.02 * found, (fit.log_density - one.log_density) / (fit.size - 1))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    lines = ["| D | m | p | median | 90 % | 99 % | largest | price |", "|---|---|---|---|---|---|---|---|"]
    found = []
    for D, m in SIZES:
        p = n_parameters(D)
        seeds = max(12, arguments.seeds // (1 + D * m // 8000))
        values = np.array([critical_price(D, m, seed, 0.2 + 0.02 * p) for seed in range(seeds)])
        quantiles = np.quantile(values, [0.5, 0.9, 0.99])
        shown = " | ".join(f"{q:.1f}" for q in (*quantiles, values.max(), price(D)))
        lines.append(f"| {D} | {m} | {p:.0f} | {shown} |")
        found.append({"D": D, "m": m, "values": values.tolist()})
        print(lines[-1], seeds, flush=True)
    if arguments.out:
        text = __doc__.split("\n\n", 2)[2]
        arguments.out.with_suffix(".md").write_text(f"# Price of a component\n\n{text}\n" + "\n".join(lines) + "\n")
        arguments.out.with_suffix(".json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
