"""Titterington's recursion (eq. 3), from which online EM starts: gradients in the metric of the Fisher information.

``theta += gamma F^-1 grad log p(x; theta)``. The paper takes F from the observed data (eq. 4), a matrix of all
parameters that is inverted for every row; Titterington (1984) takes that of the complete data, which for PPCA is
diagonal. Both are here, in plain NumPy.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from sklearn.decomposition import PCA

from everlearn.experiments.papers.nat_oem.protocol import (
    PAPER,
    SAME,
    START,
    Data,
    Q,
    batch_score,
    default,
    make,
    printed,
    shuffled,
)
from everlearn.experiments.papers.registry import Context
from everlearn.experiments.papers.results import Cell, Claim, Findings, Table, measured
from everlearn.gaussian.gaussian import Gaussian, log_density
from everlearn.typing import Array

WARM = 50
RATE = 0.9, 0.9
SIZES = 8, 16, 32, 64
# The paper says "intractable": by this factor it must be slower at the largest size to count.
MUCH_SLOWER = 5.0
FORMS = {"observed data, eq. 3": "observed", "complete data": "complete"}


class Parameters(NamedTuple):
    """Parameters of PPCA."""

    mu: Array  # (d,)
    W: Array  # (d, q)
    sigma2: float


def score(x: Array, theta: Parameters) -> Parameters:
    """Gradient of the log-density of a row."""
    mu, W, sigma2 = theta
    # C^-1 (eq. 8), d x d.
    P = np.linalg.inv(W @ W.T + sigma2 * np.eye(len(mu)))
    u = P @ (x - mu)
    # Derivative of the log-density by C; those by W and sigma2 follow by the chain rule.
    G = 0.5 * (np.outer(u, u) - P)
    return Parameters(u, 2.0 * G @ W, float(np.trace(G)))


def fisher_observed(W: Array, sigma2: float) -> Array:
    """Fisher information of (W, sigma2) in the data (eq. 20, 21 in full): ``1/2 tr(P dC P dC)``; W row by row."""
    d, q = W.shape
    P = np.linalg.inv(W @ W.T + sigma2 * np.eye(d))
    PW = P @ W
    F = np.empty((d * q + 1, d * q + 1))
    blocks = np.einsum("kj,il->ijkl", PW, PW) + np.einsum("jl,ik->ijkl", W.T @ PW, P)
    F[:-1, :-1] = blocks.reshape(d * q, d * q)
    F[-1, :-1] = F[:-1, -1] = (P @ PW).ravel()
    F[-1, -1] = 0.5 * np.sum(P * P)
    return F


def rotations(W: Array) -> Array:
    """Directions in which W changes and C does not, one a row: W A with A skew; there F is zero."""
    q = W.shape[1]
    pairs = [(i, j) for i in range(q) for j in range(i)]
    found = np.zeros((len(pairs), W.size + 1))
    for row, (i, j) in zip(found, pairs, strict=True):
        A = np.zeros((q, q))
        A[i, j], A[j, i] = 1.0, -1.0
        row[:-1] = (W @ A).ravel()
    return found


def step(x: Array, theta: Parameters, gain: float, fisher: str) -> Parameters:
    """One row of the recursion."""
    mu, W, sigma2 = theta
    d = len(mu)
    g = score(x, theta)
    if fisher == "complete":
        # The latent variables are standard: the information is 1/sigma2 for mu and W, d / (2 sigma2^2) for sigma2.
        return Parameters(
            mu + gain * sigma2 * g.mu,
            W + gain * sigma2 * g.W,
            sigma2 + gain * 2.0 * sigma2**2 / d * g.sigma2,
        )
    # F has no inverse along rotations. The score has no part in them: any value there gives the pseudo-inverse's step.
    N = rotations(W)
    change = np.linalg.solve(fisher_observed(W, sigma2) + N.T @ N, np.append(g.W.ravel(), g.sigma2))
    # The information of mu is C^-1, so that its step is the whole error.
    return Parameters(mu + gain * (x - mu), W + gain * change[:-1].reshape(W.shape), float(sigma2 + gain * change[-1]))


def learn(X: Array, theta: Parameters, first: int, fisher: str) -> Parameters | None:
    """Parameters after all rows, the first of them number `first` of the stream; None where they overflow."""
    scale, exponent = RATE
    for k, x in enumerate(X, start=first):
        theta = step(x, theta, scale * k**-exponent, fisher)
        if not (np.isfinite(theta.sigma2) and np.isfinite(theta.W).all()):
            return None
    return theta


def log_likelihood(X: Array, theta: Parameters) -> float:
    """Mean log-density of rows."""
    covariance = theta.W @ theta.W.T + theta.sigma2 * np.eye(len(theta.mu))
    return float(log_density(X, Gaussian(theta.mu, covariance)).mean())


def starts(data: Data, rng: np.random.Generator) -> dict[str, tuple[Parameters, int]]:
    """First parameters, and how many rows they have used: random axes, or maximum likelihood of the first rows."""
    d = data.X.shape[1]
    axes = np.linalg.svd(rng.uniform(-0.5, 0.5, (d, Q)), full_matrices=False)[0]
    batch = PCA(Q).fit(data.X[:WARM])
    lengths = np.sqrt(np.maximum(batch.explained_variance_ - batch.noise_variance_, 0.0))
    warm = Parameters(batch.mean_, batch.components_.T * lengths, float(batch.noise_variance_))
    return {"random axes": (Parameters(np.zeros(d), axes, 1.0), 0), "first fifty rows": (warm, WARM)}


def seconds_a_row(d: int, fisher: str, rng: np.random.Generator, rows: int = 20) -> float:
    """Processor time of a row, with d columns and three axes."""
    W = np.linalg.svd(rng.normal(size=(d, Q)), full_matrices=False)[0]
    X = rng.normal(size=(rows, Q)) @ W.T + 0.5 * rng.normal(size=(rows, d))
    theta = Parameters(np.zeros(d), W, 0.25)
    # Once before the clock starts: the first call pays for what is loaded lazily.
    step(X[0], theta, 1e-3, fisher)
    begin = time.process_time()
    learn(X, theta, 1000, fisher)
    return (time.process_time() - begin) / rows


@PAPER.item("titterington", "Equation 3: Titterington's recursion, from which online EM starts")
def titterington(context: Context) -> Findings:
    """Final likelihood of the recursion in both metrics beside online EM, and what a row costs."""
    n_runs = context.pick(2, 8)
    gaps: dict[tuple[str, str], list[float]] = {}
    broken: dict[tuple[str, str], int] = {}
    for run in context.track(range(n_runs), "runs"):
        rng = np.random.default_rng([context.seed, run])
        data = shuffled(make(rng), rng)
        best = batch_score(data)
        for start, (theta, used) in starts(data, rng).items():
            for name, fisher in FORMS.items():
                found = learn(data.X[used:], theta, used + 1, fisher)
                broken[name, start] = broken.get((name, start), 0) + (found is None)
                if found is not None:
                    gaps.setdefault((name, start), []).append(log_likelihood(data.test, found) - best)
        # Online EM without what the default adds: both sides then differ in the recursion alone.
        plain = default(None, run).set_params(mode="plain")
        for start, model in (("random axes", printed(None, run)), ("first fifty rows", plain)):
            gaps.setdefault(("online EM", start), []).append(float(model.fit(data.X).score(data.test)) - best)
    rng = np.random.default_rng(context.seed)
    times = {(d, f): seconds_a_row(d, f, rng) for d in SIZES for f in FORMS.values()}
    tables = [_gap_table(gaps, broken, n_runs), _time_table(times)]
    about = (
        f"{START} Here rows come in random order, with the rate 0.9 k^-0.9 of online EM. From random axes online EM is "
        "the paper's, whose statistics start at zero. A run whose parameters overflow has broken down."
    )
    return Findings(about, _claims(gaps, broken, times, n_runs), tables, n_runs=n_runs)


def _gap_table(gaps: dict[tuple[str, str], list[float]], broken: dict[tuple[str, str], int], n_runs: int) -> Table:
    names = ["online EM", *FORMS]
    places = ["random axes", "first fifty rows"]
    rows: list[list[Cell]] = []
    for name in names:
        cells: list[Cell] = [measured(gaps[name, s], digits=3) if gaps.get((name, s)) else "" for s in places]
        down = [f"{broken.get((name, s), 0)} of {n_runs}" for s in places]
        rows.append([name, *cells, *down])
    return Table(
        "Test log-likelihood at the end, less that of batch maximum likelihood, of the runs that did not break down",
        ["", *places, *(f"broken down, {s}" for s in places)],
        rows,
    )


def _time_table(times: dict[tuple[int, str], float]) -> Table:
    rows: list[list[Cell]] = []
    for d in SIZES:
        a, b = (1e6 * times[d, fisher] for fisher in ("observed", "complete"))
        rows.append([f"{d}", f"{d * Q + 1}", measured(a, digits=0), measured(b, digits=0), measured(a / b)])
    return Table("Microseconds of a row in NumPy", ["columns", "parameters", *FORMS, "ratio"], rows)


def _claims(
    gaps: dict[tuple[str, str], list[float]],
    broken: dict[tuple[str, str], int],
    times: dict[tuple[int, str], float],
    n_runs: int,
) -> list[Claim]:
    observed = next(iter(FORMS))
    means = {key: float(np.mean(values)) for key, values in gaps.items()}
    cold, warm = "random axes", "first fifty rows"
    ratio = times[SIZES[-1], "observed"] / times[SIZES[-1], "complete"]
    nowhere = float("-inf")
    return [
        Claim(
            "The recursion converges in probability under the usual regularity conditions.",
            f"From random axes it ends {means.get((observed, cold), nowhere):+.3f} nats from batch maximum likelihood "
            f"({broken[observed, cold]} of {n_runs} runs broke down), from the first fifty rows "
            f"{means.get((observed, warm), nowhere):+.3f} ({broken[observed, warm]} broke down).",
            broken[observed, cold] == 0 and means[observed, cold] > -SAME,
            broken[observed, warm] == 0 and means[observed, warm] > -SAME,
        ),
        Claim(
            "Online EM has similar properties of convergence.",
            f"From random axes, as the paper starts, online EM ends {means['online EM', cold]:+.3f} nats from batch "
            f"maximum likelihood and the recursion {means.get((observed, cold), nowhere):+.3f}: it keeps no statistics "
            f"that could start at zero, and W does not lose its rank. From the first fifty rows: "
            f"{means['online EM', warm]:+.3f} and {means.get((observed, warm), nowhere):+.3f}.",
            abs(means["online EM", cold] - means.get((observed, cold), nowhere)) < SAME,
            abs(means["online EM", warm] - means.get((observed, warm), nowhere)) < SAME,
        ),
        Claim(
            "It is inefficient: a matrix whose size depends quadratically on the number of parameters is inverted at "
            "each step, which is intractable when there are many.",
            f"At {SIZES[-1]} columns a row takes {ratio:.1f} times as long as with the information of the complete "
            f"data, which is diagonal and needs no inverse (threshold: {MUCH_SLOWER:g}).",
            ratio >= MUCH_SLOWER,
        ),
    ]
