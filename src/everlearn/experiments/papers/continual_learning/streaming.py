"""Streaming Bayes: the posterior of one batch as the prior of the next, and what is lost where it is approximate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, gammaln

from everlearn import StreamingPosterior, merge
from everlearn.experiments.papers.continual_learning.paper import PAPER
from everlearn.experiments.papers.registry import Context
from everlearn.experiments.papers.results import Cell, Claim, Findings, Table, measured
from everlearn.gaussian.gaussian import Gaussian, inverse, kl
from everlearn.typing import Array

ROWS, COLUMNS, NOISE = 240, 4, 0.7
BATCHES = (1, 4, 16, 60)
EXACT = 1e-9


class Gamma:
    """Gamma density of a Poisson rate, shape a and rate b, with the natural parameters (a - 1, -b)."""

    def __init__(self, natural: ArrayLike) -> None:
        self.natural = np.asarray(natural, dtype=np.float64)

    def log_prob(self, rate: ArrayLike) -> Array:
        """Log-density at rates."""
        power, slope = self.natural
        at = np.asarray(rate, dtype=np.float64)
        return np.asarray((power + 1) * np.log(-slope) - gammaln(power + 1) + power * np.log(at) + slope * at)


class Regression(NamedTuple):
    """Rows and targets."""

    X: Array
    y: Array


def linear(rng: np.random.Generator) -> Regression:
    """Targets that are linear in the rows, with noise."""
    X = rng.normal(size=(ROWS, COLUMNS))
    return Regression(X, X @ rng.normal(size=COLUMNS) + np.sqrt(NOISE) * rng.normal(size=ROWS))


def logistic(rng: np.random.Generator) -> Regression:
    """Targets 0 and 1 with log-odds that are linear in the rows."""
    X = rng.normal(size=(ROWS, COLUMNS))
    return Regression(X, (rng.uniform(size=ROWS) < expit(X @ rng.normal(size=COLUMNS))) * 1.0)


def likelihood(batch: Regression) -> tuple[Array, Array]:
    """Where the likelihood of a batch has its maximum, and its precision there."""
    best = np.asarray(np.linalg.lstsq(batch.X, batch.y, rcond=None)[0], dtype=np.float64)
    return best, batch.X.T @ batch.X / NOISE


def laplace(batch: Regression, prior: tuple[Array, Array], rounds: int = 100) -> tuple[Array, Array]:
    """Laplace posterior of a logistic regression under a Gaussian prior, by damped Newton steps."""
    mean, precision = prior
    # From the mean of the prior, near which the new maximum lies when a batch has few rows.
    w = mean.copy()

    def objective(w: Array) -> float:
        z = batch.X @ w
        return float(np.sum(np.logaddexp(0.0, z) - batch.y * z) + 0.5 * (w - mean) @ precision @ (w - mean))

    for _ in range(rounds):
        p = expit(batch.X @ w)
        hessian = precision + (batch.X.T * (p * (1 - p))) @ batch.X
        step = np.linalg.solve(hessian, batch.X.T @ (p - batch.y) + precision @ (w - mean))
        # Newton overshoots where the logistic curve is flat; halving until the objective falls makes each step a
        # descent.
        size = 1.0
        while objective(w - size * step) > objective(w) and size > 1e-8:
            size *= 0.5
        w = w - size * step
        if np.abs(step).max() < 1e-12:
            break
    p = expit(batch.X @ w)
    return w, precision + (batch.X.T * (p * (1 - p))) @ batch.X


def cut(data: Regression, n: int) -> list[Regression]:
    """The rows in n batches, in their order."""
    return [Regression(X, y) for X, y in zip(np.array_split(data.X, n), np.array_split(data.y, n), strict=True)]


def as_gaussian(mean: Array, precision: Array) -> Gaussian:
    """Mean and covariance."""
    return Gaussian(mean, inverse(precision))


@PAPER.item("streaming", "Streaming Bayes: posterior becomes prior, exact and approximate")
def streaming(context: Context) -> Findings:
    """Posterior after batches of several sizes beside that of all rows at once, which is computed in another way."""
    n_runs = context.pick(2, 10)
    prior = np.zeros(COLUMNS), np.eye(COLUMNS)
    gaps: dict[str, float] = {"linear regression": 0.0, "Poisson rate": 0.0, "merged": 0.0}
    lost: dict[tuple[str, int], list[float]] = {}
    for run in context.track(range(n_runs), "runs"):
        rng = np.random.default_rng([context.seed, run])
        data, counts = linear(rng), rng.poisson(3.0, ROWS).astype(np.float64)
        classes = logistic(rng)
        # The truth here is Laplace's posterior of all rows, not the exact one: what is measured is what cutting into
        # batches costs, not what Laplace's approximation costs.
        whole = laplace(classes, prior)
        for n in BATCHES:
            gaps["linear regression"] = max(gaps["linear regression"], *_linear_gaps(data, n, prior))
            gaps["merged"] = max(gaps["merged"], _merged_gap(data, n, prior))
            gaps["Poisson rate"] = max(gaps["Poisson rate"], _poisson_gap(counts, n))
            chained = StreamingPosterior(prior)
            apart = []
            for batch in cut(classes, n):
                # The posterior so far is the prior of the next fit; `apart` begins with the first prior each time.
                chained.assign(laplace(batch, chained.posterior))
                apart.append(StreamingPosterior(prior).assign(laplace(batch, prior)))
            for name, belief in (("one after another", chained), ("apart, merged", merge(apart, method="bayes"))):
                lost.setdefault((name, n), []).append(_nats(whole, belief.posterior))
    return Findings(_about(), _claims(gaps, lost), [_table(lost)], n_runs=n_runs)


def _linear_gaps(data: Regression, n: int, prior: tuple[Array, Array]) -> tuple[float, float]:
    """Largest differences from the posterior by conditioning weights and targets on each other, without precisions."""
    weights = StreamingPosterior(prior)
    for batch in cut(data, n):
        weights.update(likelihood(batch))
    mean, covariance = _conditioned(data)
    return float(np.abs(weights.mean - mean).max()), float(np.abs(weights.covariance - covariance).max())


def _merged_gap(data: Regression, n: int, prior: tuple[Array, Array]) -> float:
    parts = [StreamingPosterior(prior).update(likelihood(batch)) for batch in cut(data, n)]
    return float(np.abs(merge(parts, method="bayes").mean - _conditioned(data)[0]).max())


def _conditioned(data: Regression) -> tuple[Array, Array]:
    """Mean and covariance of the weights given the targets, of their joint Gaussian; the prior is standard."""
    # In the space of rows (240 x 240) where the code under test works with columns (4 x 4): no formula is shared.
    gain = np.linalg.solve(data.X @ data.X.T + NOISE * np.eye(ROWS), data.X).T
    return gain @ data.y, np.eye(COLUMNS) - gain @ data.X


def _poisson_gap(counts: Array, n: int) -> float:
    """Largest difference in log-density from prior times likelihood, normalised by the trapezoidal rule."""
    rate = StreamingPosterior(Gamma([1.0, -1.0]))
    for batch in np.array_split(counts, n):
        rate.update([batch.sum(), -len(batch)])
    at = np.linspace(1.5, 5.0, 4001)
    # Prior a = 2, b = 1: its density is rate exp(-rate).
    log_joint = np.log(at) - at + counts.sum() * np.log(at) - len(counts) * at
    log_joint -= log_joint.max()
    truth = log_joint - np.log(np.trapezoid(np.exp(log_joint), at))
    near = truth > truth.max() - 10
    return float(np.abs(rate.log_prob(at) - truth)[near].max())


def _nats(whole: tuple[Array, Array], other: tuple[Array, Array]) -> float:
    return float(kl(as_gaussian(*whole), as_gaussian(*other)))


def _table(lost: dict[tuple[str, int], list[float]]) -> Table:
    names = list(dict.fromkeys(name for name, _ in lost))
    rows: list[list[Cell]] = [[f"{n}", *(measured(lost[name, n], digits=4) for name in names)] for n in BATCHES]
    title = "Logistic regression by Laplace's approximation: nats from the posterior of all rows"
    return Table(title, ["batches", *names], rows)


def _claims(gaps: dict[str, float], lost: dict[tuple[str, int], list[float]]) -> list[Claim]:
    most = max(BATCHES)
    nats = {key: float(np.mean(values)) for key, values in lost.items()}
    exact = max(gaps["linear regression"], gaps["Poisson rate"])
    return [
        Claim(
            "The posterior after the k-th batch follows from that after the batch before, whatever the batches.",
            f"In {', '.join(map(str, BATCHES))} batches a linear regression differs from the posterior of all rows by "
            f"{gaps['linear regression']:.0e} at most, the log-density of a Poisson rate by {gaps['Poisson rate']:.0e} "
            f"(threshold: {EXACT:.0e} and 1e-06, the error of the quadrature).",
            bool(gaps["linear regression"] < EXACT and exact < 1e-6),
        ),
        Claim(
            "Posteriors of batches learned apart from one prior give the posterior of all of them.",
            f"Merged with method='bayes' the mean differs by {gaps['merged']:.0e} (threshold: {EXACT:.0e}).",
            gaps["merged"] < EXACT,
        ),
        Claim(
            "Ours, not the slides': where each stage is a Gaussian approximation, one batch after another stays nearer "
            "to the posterior of all rows than batches that are learned apart and merged.",
            f"Logistic regression in {most} batches of {ROWS // most} rows: {nats['one after another', most]:.2f} nats "
            f"from Laplace's posterior of all rows one after another, {nats['apart, merged', most]:.2f} apart and "
            "merged: each Laplace fit is made where its own few rows are best.",
            all(nats["one after another", n] < nats["apart, merged", n] for n in BATCHES[1:]),
        ),
    ]


def _about() -> str:
    return (
        f"{ROWS} rows of {COLUMNS} columns in {', '.join(map(str, BATCHES))} batches, through StreamingPosterior. "
        "Where prior and likelihood are conjugate the rule is exact; the posterior of all rows is computed in another "
        "way, by conditioning or by quadrature. For a logistic regression every stage is Laplace's approximation."
    )
