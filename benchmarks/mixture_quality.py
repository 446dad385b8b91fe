"""Held-out log-likelihood of one streaming pass beside converged batch EM with K by BIC.

    python benchmarks/mixture_quality.py [--sets NAME ...] [--no-intervals] [--jobs N] [--quick]

Three tenths of the rows are held out; columns are standardised on the others. Sets of fewer than 800 rows: two splits.
Each set is streamed through `partial_fit` in batches of 1,000, shuffled and sorted by class. The gap is the held-out
log-likelihood a row of scikit-learn's EM (K of least BIC, the better of two starts, reg_covar=1e-3) less ours: negative
where ours is better. In brackets the numbers of components. "Interval": how often the 90 % interval of a column given
the others holds the truth on held-out rows, over all columns, and its standard error. "Without rows": the same with
`reservoir=0`.
"""

import time
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from _page import parser, write_page
from mixture_sets import DEVELOPMENT, KEPT_ASIDE
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split

from everlearn.mixture.estimator import IncrementalGaussianMixture

GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
RIDGE, SMALL, MOST = 1e-3, 800, 20000
SETS = {"development": DEVELOPMENT, "kept aside": KEPT_ASIDE}
TITLES = {"development": "Sets that the defaults were chosen on", "kept aside": "Sets kept aside until the end"}
# Shares of 90 % intervals that hold their truth, within which they are called right.
LEAST_HELD, MOST_HELD = 0.87, 0.93
QUICK = ("moons", "blobs")


def split(X, y, seed):
    """Training rows shuffled and sorted, and held-out rows."""
    X = X[:, X.std(axis=0) > 0]
    train, test, label, _ = train_test_split(X, y, test_size=0.3, random_state=seed)
    train, label = train[:MOST], label[:MOST]
    mean, std = train.mean(axis=0), train.std(axis=0)
    train, test = (np.ascontiguousarray((part - mean) / std) for part in (train, test))
    return train, np.ascontiguousarray(train[np.argsort(label, kind="stable")]), test


def em_by_bic(train, test):
    """Held-out score and K of batch EM; the grid ends after three worse K."""
    best, worse = None, 0
    for K in GRID:
        if K * (train.shape[1] + 1) > len(train) or worse >= 3:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            peer = GaussianMixture(K, reg_covar=RIDGE, n_init=2, max_iter=200, random_state=0).fit(train)
        bic = peer.bic(train)
        worse = 0 if best is None or bic < best[0] else worse + 1
        best = min(best or (np.inf,), (bic, K, float(peer.score(test))))
    return {"K": best[1], "score": best[2]}


def streamed(rows, test, intervals=False, **parameters):
    """What a stream of rows gives: held-out score, K, seconds to learn and to answer, and intervals."""
    model, start = IncrementalGaussianMixture(**parameters), time.process_time()
    for at in range(0, len(rows), 1000):
        model.partial_fit(rows[at : at + 1000])
    learned = time.process_time()
    score = model.score(test)
    result = {
        "score": score, "K": model.n_components_, "learn": learned - start, "ask": time.process_time() - learned
    }  # fmt: skip
    if intervals and test.shape[1] > 1:
        result["interval"], result["interval_error"] = coverage(model, test[:300])
    return result


def coverage(model, test):
    """Share of held-out cells within their central 90 % interval given the other columns, and its standard error.

    The cells of a row are not independent: the error is that of a mean over rows.
    """
    inside = []
    for column in range(test.shape[1]):
        _, (low, high) = model.predict_columns(test, target=column, interval=0.9)
        inside.append((low[:, 0] <= test[:, column]) & (test[:, column] <= high[:, 0]))
    of_rows = np.mean(inside, axis=0)
    return float(of_rows.mean()), float(of_rows.std(ddof=1) / np.sqrt(len(of_rows)))


def measure(kind, name, intervals):
    """Results of one set: those of batch EM and of both orders; a reason where its data are not here."""
    try:
        X, y = SETS[kind][name]()
    except OSError as error:
        return f"{name}: left out, {error}"
    found = []
    for seed in range(2 if len(X) < SMALL else 1):
        shuffled, sorted_rows, test = split(np.asarray(X, dtype=float), np.asarray(y), seed)
        found.append({
            "set": f"{name}#{seed}", "n": len(shuffled), "D": shuffled.shape[1], "EM": em_by_bic(shuffled, test),
            "shuffled": streamed(shuffled, test, intervals), "sorted": streamed(sorted_rows, test, intervals),
            "shuffled without": streamed(shuffled, test, reservoir=0),
            "sorted without": streamed(sorted_rows, test, reservoir=0),
        })  # fmt: skip
    return found


def gaps(results, order):
    return np.array([result["EM"]["score"] - result[order]["score"] for result in results])


def table(results):
    lines = [
        "| set | n | D | EM (K) | shuffled (K) | sorted (K) | gaps | seconds | interval |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        a, b = r["shuffled"], r["sorted"]
        lines.append(
            f"| {r['set']} | {r['n']} | {r['D']} | {r['EM']['score']:.2f} ({r['EM']['K']}) "
            f"| {a['score']:.2f} ({a['K']}) | {b['score']:.2f} ({b['K']}) "
            f"| {r['EM']['score'] - a['score']:+z.3f} / {r['EM']['score'] - b['score']:+z.3f} "
            f"| {a['learn']:.2f} + {a['ask']:.2f} "
            f"| {a.get('interval', float('nan')):.3f} ± {a.get('interval_error', float('nan')):.3f} |"
        )
    for order in ("shuffled", "sorted"):
        g = gaps(results, order)
        median, high, worst = np.quantile(g, [0.5, 0.9, 1.0])
        lines.append(f"\nGap {order}: median {median:+z.3f}, 90th percentile {high:+z.3f}, worst {worst:+z.3f}.")
    moved = np.abs(gaps(results, "shuffled") - gaps(results, "sorted"))
    lines.append(
        f"\nOrder changes the score by {np.median(moved):.3f} nats a row in the median, {moved.max():.3f} at most."
    )
    lines.append(f"\n{intervals_told(results)}")
    return "\n".join(lines)


def intervals_told(results):
    """Sets whose intervals, over both splits where there are two, hold too few or too many of the truths."""
    of_set = {}
    for r in results:
        if "interval" in r["shuffled"]:
            of_set.setdefault(r["set"].rpartition("#")[0], []).append(r["shuffled"])
    told = []
    for name, splits in of_set.items():
        held = np.mean([one["interval"] for one in splits])
        error = np.sqrt(np.sum([one["interval_error"] ** 2 for one in splits])) / len(splits)
        if not LEAST_HELD <= held <= MOST_HELD:
            told.append(f"{name} {held:.3f} ± {error:.3f}")
    which = ", ".join(told) or "none"
    return (
        f"Sets of {len(of_set)} whose intervals hold less than {LEAST_HELD:.0%} or more than {MOST_HELD:.0%}: {which}."
    )


def table_without_rows(results):
    lines = [
        "| set | n | D | rows kept, shuffled | rows kept, sorted | without rows, shuffled | without rows, sorted |",
        "|---" * 7 + "|",
    ]
    for r in results:
        found = (r["shuffled"], r["sorted"], r["shuffled without"], r["sorted without"])
        cells = " | ".join(f"{one['score']:.2f} ({one['K']})" for one in found)
        lines.append(f"| {r['set']} | {r['n']} | {r['D']} | {cells} |")
    for order in ("shuffled", "sorted"):
        lost = gaps(results, f"{order} without") - gaps(results, order)
        low, middle, high = np.quantile(lost, [0.25, 0.5, 0.75])
        lines.append(
            f"\nLost {order}, in nats a row: median {middle:.3f}, quartiles {low:.3f} and {high:.3f}, "
            f"most {lost.max():.3f}."
        )
    return "\n".join(lines)


def main():
    options = parser(__doc__)
    options.add_argument("--sets", nargs="*", help="only these sets; no page is written")
    options.add_argument("--no-intervals", action="store_true")
    options.add_argument("--jobs", type=int, default=1, help="sets measured side by side")
    arguments = options.parse_args()
    chosen = QUICK if arguments.quick else arguments.sets
    tasks = [(kind, name) for kind, sets in SETS.items() for name in sets if not chosen or name in chosen]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        done = list(pool.map(measure, *zip(*tasks, strict=True), [not arguments.no_intervals] * len(tasks)))
    body = [f"# Quality of the mixture\n\n{__doc__.split(chr(10) * 2, 2)[2]}"]
    for kind, title in TITLES.items():
        parts = [found for (its_kind, _), found in zip(tasks, done, strict=True) if its_kind == kind]
        results = [result for found in parts if isinstance(found, list) for result in found]
        body += [f"\n## {title}\n", table(results) if results else "None."]
        body += [f"\n{found}" for found in parts if isinstance(found, str)]
    every = [result for found in done if isinstance(found, list) for result in found]
    body += ["\n## Without rows (`reservoir=0`): held-out log-likelihood\n", table_without_rows(every)]
    write_page("mixture_quality", "\n".join(body), quick=arguments.quick or bool(arguments.sets))


if __name__ == "__main__":
    main()
