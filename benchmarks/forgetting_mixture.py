"""The mixture with adaptive forgetting beside every fixed factor: nats below the truth. Part of `forgetting.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from everlearn import IncrementalGaussianMixture

Array = np.ndarray

KINDS = ("stationary", "slow drift", "fast drift", "a drift stops", "jump", "2 % outliers")
FACTORS = (0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 1.0)
ROWS, CHANGE = 3000, 1500
ASKED = 0.02
SEED = 40963


def centres(kind: str, t: Array) -> Array:
    """True means of three components at rows t, (T, 3, 2)."""
    rate = {"slow drift": 0.0004, "fast drift": 0.0015, "a drift stops": 0.001}.get(kind, 0.0)
    moved = rate * (np.minimum(t, CHANGE) if kind == "a drift stops" else t)
    turn = moved[:, None] + 2 * np.pi / 3 * np.arange(3)
    means = 6.0 * np.stack([np.cos(turn), np.sin(turn)], axis=2)
    return means + (np.array([8.0, -5.0]) * (t >= CHANGE)[:, None, None] if kind == "jump" else 0.0)


def draw(rng: np.random.Generator, means: Array) -> Array:
    """One row from each of the mixtures of unit Gaussians at means (T, 3, 2)."""
    T = len(means)
    return means[np.arange(T), rng.integers(3, size=T)] + rng.normal(size=(T, 2))


def one_run(task: tuple[str, int]) -> dict[str, float]:
    """Nats below the truth of each contender, on rows drawn from the truth of that time, over the last 1,000 rows."""
    kind, seed = task
    rng = np.random.default_rng([SEED, KINDS.index(kind), seed])
    means = centres(kind, np.arange(ROWS))
    X = draw(rng, means)
    if kind == "2 % outliers":
        wild = rng.random(ROWS) < 0.02
        X[wild] = 30.0 * rng.normal(size=(wild.sum(), 2))
    models = {f"{factor:g}": IncrementalGaussianMixture(forgetting=factor) for factor in FACTORS}
    models["adaptive"] = IncrementalGaussianMixture(forgetting="adaptive")
    lost: dict[str, list[float]] = {who: [] for who in models}
    for start in range(0, ROWS, 50):
        for model in models.values():
            model.partial_fit(X[start : start + 50])
        if start < 2000:
            continue
        now = means[start + 49]
        probe = draw(rng, now[None].repeat(300, axis=0))
        truth = np.log(np.exp(-0.5 * ((probe[:, None] - now) ** 2).sum(2)).mean(1) / (2 * np.pi)).mean()
        for who, model in models.items():
            lost[who].append(truth - model.score(probe))
    return {who: float(np.mean(values)) for who, values in lost.items()}


def report(over: Callable[[Callable, Iterable], Iterable], runs: int, kinds: Sequence[str] = KINDS) -> list[str]:
    """Print the table; return where adaptive forgetting is further behind the best factor than was asked."""
    factors = [f"{factor:g}" for factor in FACTORS]
    print(
        f"\n## The mixture: nats below the true density, {runs} runs (K = 3, D = 2, the last 1,000 of {ROWS:,} rows)\n"
    )
    print(f"| | {' | '.join(f'λ = {f}' for f in factors)} | adaptive | adaptive less the best λ |")
    print("|---" * (len(factors) + 3) + "|")
    missed = []
    for kind in kinds:
        lost = list(over(one_run, [(kind, seed) for seed in range(runs)]))
        mean = {who: float(np.mean([run[who] for run in lost])) for who in lost[0]}
        best = min(factors, key=mean.__getitem__)
        pair = np.array([run["adaptive"] - run[best] for run in lost])
        gap = f"{pair.mean():+.3f} ± {pair.std() / np.sqrt(runs):.3f}"
        print(
            f"| {kind} | {' | '.join(f'{mean[f]:.3f}' for f in factors)} | {mean['adaptive']:.3f} | {gap} |", flush=True
        )
        if pair.mean() > ASKED:
            missed.append(f"mixture, {kind}: {gap} nats behind λ = {best} (asked: {ASKED})")
    return missed
