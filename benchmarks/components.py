"""How many components a mixture finds where their number is known, stream by stream through `partial_fit`.

    python benchmarks/components.py [--quick]

One Gaussian must stay one, at most one stream of twenty excepted: of independent columns, of a random covariance, of
neighbouring columns that are alike (0.95 to the power of their distance), and of five common factors. Groups that are
far apart must all be found, with any seed of the search and in any order of the rows, also with few rows a column.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

import numpy as np
from _page import parser, write_page
from scipy.spatial.distance import pdist

from everlearn import IncrementalGaussianMixture

STREAMS, SEEDS = 20, 5
COLUMNS, ROWS = (1, 2, 8, 30, 60), (200, 1000, 5000)
LONG = ((1, 100_000), (8, 100_000))
# Columns, groups, rows of each group, distance of the nearest centres in standard deviations of a column.
GROUPS = (
    (2, 3, 100, 8.0), (8, 5, 400, 8.0), (8, 20, 500, 8.0), (30, 4, 300, 8.0), (60, 4, 600, 8.0),
    (30, 3, 150, 16.0), (40, 4, 200, 16.0), (60, 3, 300, 16.0), (60, 3, 180, 16.0),
)  # fmt: skip

Mixing = Callable[[int, np.random.Generator], np.ndarray]


def neighbours(D: int, rng: np.random.Generator) -> np.ndarray:
    """Columns whose correlation is 0.95 to the power of their distance."""
    place = np.arange(D)
    return np.linalg.cholesky(0.95 ** np.abs(np.subtract.outer(place, place))).T


MIXINGS: dict[str, Mixing] = {
    "independent columns": lambda D, rng: np.eye(D),
    "random covariance": lambda D, rng: rng.normal(size=(D, D)) / np.sqrt(D) + 0.3 * np.eye(D),
    "like neighbours": neighbours,
    "five factors": lambda D, rng: np.vstack([rng.normal(size=(5, D)), 0.5 * np.eye(D)]),
}


def components(X: np.ndarray, seed: int) -> int:
    """How many are found in rows that come in batches of 1,000."""
    model = IncrementalGaussianMixture(random_state=seed)
    for start in range(0, len(X), 1000):
        model.partial_fit(X[start : start + 1000])
    return model.n_components_


def one_gaussian(streams: int, sizes: list[tuple[int, int]], mixings: dict[str, Mixing]) -> list[str]:
    """Lines of a table: streams of a single Gaussian in which more than one component is found."""
    lines = [f"| columns | rows | {' | '.join(mixings)} |", "|---|---" + "|---:" * len(mixings) + "|"]
    for D, n in sizes:
        cells = []
        for place, mixing in enumerate(mixings.values()):
            if D == 1 and place:  # one column has no correlation
                cells.append("")
                continue
            split = 0
            for seed in range(streams):
                rng = np.random.default_rng([D, n, place, seed])
                A = mixing(D, rng)
                split += components(rng.normal(size=(n, len(A))) @ A, seed) > 1
            cells.append(f"{split} of {streams}")
        lines.append(f"| {D} | {n:,} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def groups(cases: tuple[tuple[int, int, int, float], ...], seeds: int) -> list[str]:
    """Lines of a table: components found in the same groups by several seeds, each with an order of its own."""
    lines = ["| columns | groups | rows a group | found, shuffled | found, group by group |", "|---" * 5 + "|"]
    for D, K, n, distance in cases:
        rng = np.random.default_rng([D, K, n])
        centres = rng.normal(size=(K, D))
        # The nearest two are as far apart as asked.
        centres *= distance / pdist(centres).min()
        X = np.repeat(centres, n, axis=0) + rng.normal(size=(K * n, D))
        shuffled = [components(np.random.default_rng(seed).permutation(X), seed) for seed in range(seeds)]
        sorted_ = [components(X, seed) for seed in range(seeds)]
        lines.append(f"| {D} | {K} | {n} | {counted(shuffled)} | {counted(sorted_)} |")
        print(lines[-1], flush=True)
    return lines


def counted(found: list[int]) -> str:
    """Each number and how often it was found, if not always."""
    counts = collections.Counter(found)
    if len(counts) == 1:
        return str(found[0])
    return ", ".join(f"{K} ({times} of {len(found)})" for K, times in sorted(counts.items()))


def main() -> None:
    """Count and write the page."""
    quick = parser(__doc__).parse_args().quick
    sizes = [(D, n) for D in COLUMNS for n in ROWS] + list(LONG)
    ones = one_gaussian(2, [(2, 200)], MIXINGS) if quick else one_gaussian(STREAMS, sizes, MIXINGS)
    many = groups(GROUPS[:1], 2) if quick else groups(GROUPS, SEEDS)
    about = __doc__.split("\n\n", 2)[2].strip()
    where = (
        f"{SEEDS} seeds. The nearest centres are 8 standard deviations of a column apart, in the last four cases 16."
    )
    body = ["# How many components are found", "", about, "", "## Streams of one Gaussian that are split", "", *ones]
    body += ["", "## Groups far apart", "", where, "", *many]
    write_page("components", "\n".join(body), quick=quick)


if __name__ == "__main__":
    main()
