"""What the paper starts from: Sato's form with sufficient statistics, and the scheduler with an outlier component.

In plain NumPy, with one posterior ``N(Theta | M, I, G^-1)`` and known noise as in the paper. Each form differs in what
it keeps (G and M, or statistics with a learning rate) or in how it finds the forgetting factor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from everlearn import VariationalPPCA
from everlearn.experiments.papers.figures import Panel, figure, line
from everlearn.experiments.papers.online_vb.figures import (
    CHANGES,
    DIRECTIONS,
    PERIOD,
    SECTION_3_1,
    T,
    degrees_off,
    follow,
    stream,
)
from everlearn.experiments.papers.online_vb.paper import PAPER
from everlearn.experiments.papers.registry import Context
from everlearn.experiments.papers.results import Cell, Claim, Figure, Findings, Table, measured
from everlearn.typing import Array

NOISE, PRIOR = 1.0, 1e-3
EXACT = 1e-8
# The earlier study does not print these here; its outliers are rows of a broad Gaussian, one in a hundred.
OUTLIER_SHARE = 0.01
# Variance of the outlier component (that of the data along the axis, or far broader), and the factor of a sure outlier.
OUTLIERS = [(variance, least) for variance in (30.0, 1000.0) for least in (0.1, 0.5)]
# Sato's discount 1 - 1 / ((t - 2) kappa + t0) tends to one, so that the learning rate falls like 1/t.
KAPPA, T0 = 0.5, 20.0
# Errors in degrees within this factor of each other count as the same.
ALIKE = 1.25

Schedule = Callable[[int, Array, "Posterior"], float]
"""Forgetting factor of row t (from 1 on), given the row and the posterior before it."""


class Posterior(NamedTuple):
    """Matrix normal posterior of the loadings."""

    M: Array  # (n, m), mean
    G: Array  # (m, m), precision of its columns


class Statistics(NamedTuple):
    """Sato's running means of the expected sufficient statistics, and the effective number of rows."""

    xy: Array  # (n, m)
    yy: Array  # (m, m)
    rows: float


def latent(x: Array, posterior: Posterior, tau: float) -> tuple[Array, Array]:
    """Expected latent variable of a row and its second moment (eq. 3a)."""
    M, G = posterior
    n, m = M.shape
    # Posterior covariance of the latent variable; n tau G^-1 is the uncertainty of the loadings.
    S = np.linalg.inv(np.eye(m) + tau * M.T @ M + n * tau * np.linalg.inv(G))
    y = tau * S @ M.T @ x
    return y, S + np.outer(y, y)


def recursive_step(x: Array, posterior: Posterior, prior: Posterior, tau: float, lam: float) -> Posterior:
    """Eq. 7: the hyperparameters themselves."""
    y, Y = latent(x, posterior, tau)
    # Past and prior share the weight: lam of the past, 1 - lam of the prior, so that lam = 0 starts again from the
    # prior.
    G = tau * Y + lam * posterior.G + (1 - lam) * prior.G
    pull = tau * np.outer(x, y) + (1 - lam) * prior.M @ prior.G
    M = posterior.M + (pull - posterior.M @ (tau * Y + (1 - lam) * prior.G)) @ np.linalg.inv(G)
    return Posterior(M, G)


def sato_step(x: Array, known: Statistics, prior: Posterior, tau: float, lam: float) -> Statistics:
    """Sato's form: running means move towards a row's statistics by the learning rate ``1 / T``, ``T = 1 + lam T``."""
    y, Y = latent(x, posterior_of(known, prior, tau), tau)
    # The effective number of rows 1 + lam + lam^2 + ..., which is what turns running means back into sums.
    rows = 1.0 + lam * known.rows
    rate = 1.0 / rows
    return Statistics(known.xy + rate * (np.outer(x, y) - known.xy), known.yy + rate * (Y - known.yy), rows)


def posterior_of(known: Statistics, prior: Posterior, tau: float) -> Posterior:
    """The VB-M step (eq. 3b) from statistics."""
    G = tau * known.rows * known.yy + prior.G
    return Posterior((tau * known.rows * known.xy + prior.M @ prior.G) @ np.linalg.inv(G), G)


def statistics_of(posterior: Posterior, prior: Posterior, tau: float) -> Statistics:
    """Statistics that stand for a first posterior, as if from one row."""
    return Statistics((posterior.M @ posterior.G - prior.M @ prior.G) / tau, (posterior.G - prior.G) / tau, 1.0)


def log_normal(x: Array, covariance: Array) -> float:
    """Log-density of a row around the origin."""
    return float(-0.5 * (np.linalg.slogdet(2 * np.pi * covariance)[1] + x @ np.linalg.solve(covariance, x)))


def outlier_schedule(variance: float, least: float, tau: float) -> Schedule:
    """The earlier scheduler: lambda falls with the posterior probability that the row is of the outlier component."""

    def schedule(t: int, x: Array, posterior: Posterior) -> float:
        M, G = posterior
        n = len(x)
        # E[Theta Theta'] brings in how unsure the loadings are; without it the first rows are all outliers.
        # Predictive covariance of a row that the model knows.
        familiar = M @ M.T + (1.0 / tau + np.trace(np.linalg.inv(G))) * np.eye(n)
        odds = log_normal(x, variance * np.eye(n)) - log_normal(x, familiar)
        share = 1.0 / (1.0 + (1 - OUTLIER_SHARE) / OUTLIER_SHARE * np.exp(min(max(-odds, -700.0), 700.0)))
        return float(1.0 - (1.0 - least) * share)

    return schedule


def sato_schedule(t: int, x: Array, posterior: Posterior) -> float:
    """A discount that tends to one whatever the rows are."""
    return 1.0 - 1.0 / (max(t - 2, 0) * KAPPA + T0)


def first_posterior(n: int, rng: np.random.Generator) -> Posterior:
    """Set at random, as in the paper."""
    return Posterior(rng.normal(size=(n, 1)), np.array([[1.0]]))


def run(X: Array, schedule: Schedule, posterior: Posterior, prior: Posterior, tau: float) -> tuple[Array, Array, float]:
    """Axes and factors after every row by eq. 7, and the largest relative difference of Sato's form from it."""
    known = statistics_of(posterior, prior, tau)
    axes, factors, gap = np.empty_like(X), np.empty(len(X)), 0.0
    for t, x in enumerate(X):
        factors[t] = lam = schedule(t + 1, x, posterior)
        known = sato_step(x, known, prior, tau, lam)
        # Both forms see the factor of the same posterior: what differs between them is rounding.
        posterior = recursive_step(x, posterior, prior, tau, lam)
        other = posterior_of(known, prior, tau)
        gap = max(gap, float(np.abs(other.M - posterior.M).max() / np.abs(posterior.M).max()))
        axes[t] = posterior.M[:, 0] / np.linalg.norm(posterior.M)
    return axes, factors, gap


HIERARCHICAL, WHOLE, SATO = "eq. 10, end points", "eq. 9, all of (0, 1)", "Sato's discount"


def outlier_name(variance: float, least: float) -> str:
    """How a scheduler is called in tables."""
    return f"outlier component of variance {variance:g}, factor from {least:g} on"


@PAPER.item("forms", "Sections 1 and 2: the forms before, and the whole posterior of the factor")
def forms(context: Context) -> Findings:
    """Errors of every way to find the factor on the data of section 3.1; Sato's form beside eq. 7."""
    n_runs = context.pick(3, 10)
    tau = 1.0 / NOISE**2
    prior = Posterior(np.zeros((2, 1)), PRIOR * np.eye(1))
    schedules: dict[str, Schedule] = {SATO: sato_schedule}
    schedules |= {outlier_name(*o): outlier_schedule(*o, tau) for o in OUTLIERS}
    axes: dict[str, list[Array]] = {}
    factors: dict[str, list[Array]] = {}
    gap = 0.0
    for i in context.track(range(n_runs), "runs"):
        rng = np.random.default_rng([context.seed, i])
        X = stream(DIRECTIONS, NOISE, rng)
        for name, rule in ((HIERARCHICAL, "adaptive"), (WHOLE, "posterior")):
            model = VariationalPPCA.paper(
                1, noise_variance=NOISE**2, prior_precision=PRIOR, forgetting=rule, trace=T, random_state=i
            )
            found = follow(model, X)
            axes.setdefault(name, []).append(found[0])
            factors.setdefault(name, []).append(found[1])
        first = first_posterior(2, rng)
        for name, schedule in schedules.items():
            turned, lam, off = run(X, schedule, first, prior, tau)
            axes.setdefault(name, []).append(turned)
            factors.setdefault(name, []).append(lam)
            gap = max(gap, off)
    truth = np.repeat(DIRECTIONS, PERIOD, axis=0)
    errors = {name: degrees_off(np.array(found), truth) for name, found in axes.items()}
    means = {name: np.array(found).mean(axis=0) for name, found in factors.items()}
    return Findings(_about(), _claims(errors, gap), [_table(errors)], [_figure(means)], n_runs)


def _after(errors: Array, delay: int = 20) -> Array:
    """Error of each run some rows after a change, mean of both changes."""
    return np.asarray(np.mean([errors[:, c + delay - 1] for c in CHANGES], axis=0))


def _last(errors: Array) -> Array:
    """Error of each run in the last fifty rows of the periods."""
    ends = [PERIOD * (i + 1) for i in range(3)]
    return np.asarray(np.mean([errors[:, end - 50 : end].mean(axis=1) for end in ends], axis=0))


def _table(errors: dict[str, Array]) -> Table:
    rows: list[list[Cell]] = [
        [name, measured(_after(e), digits=2), measured(_last(e), digits=2), measured(e.mean(axis=1), digits=2)]
        for name, e in errors.items()
    ]
    columns = ["", "20 rows after a change", "last 50 rows of a period", "all rows"]
    return Table("Error of the direction in degrees", columns, rows)


def _figure(factors: dict[str, Array]) -> Figure:
    roles = ("paper", "ours", "baseline", "second", "second", "other", "other")
    t = np.arange(1, T + 1)
    traces = [line(t, lam, name, role, width=1.5) for (name, lam), role in zip(factors.items(), roles, strict=True)]
    panel = Panel("mean over the runs", traces, {"title": "row"}, {"title": "factor", "range": [0, 1.05]}, CHANGES)
    return Figure("The forgetting factor", figure([panel], height=340))


def _claims(errors: dict[str, Array], gap: float) -> list[Claim]:
    every = {name: float(e.mean()) for name, e in errors.items()}
    late = {name: float(_after(e).mean()) for name, e in errors.items()}
    end = {name: float(_last(e).mean()) for name, e in errors.items()}
    outliers = [every[outlier_name(*o)] for o in OUTLIERS]
    best, worst = min(outliers), max(outliers)
    return [
        Claim(
            "The recursive rule (eq. 7) is the on-line VB method of Sato, which keeps expected sufficient statistics "
            "and a learning rate.",
            f"Over {T} rows under {1 + len(OUTLIERS)} schedules the loadings of both forms differ by {gap:.0e} of the "
            f"largest at most "
            f"(threshold: {EXACT:.0e}).",
            gap < EXACT,
        ),
        Claim(
            "A schedule without novelty cannot follow a change: the factor must be low when the environment changes.",
            f"Twenty rows after a change Sato's discount is {late[SATO]:.1f} degrees off, eq. 10 "
            f"{late[HIERARCHICAL]:.1f}.",
            late[HIERARCHICAL] < 0.5 * late[SATO],
        ),
        Claim(
            "The hierarchical scheme does not require an outlier component for novelty detection.",
            f"Mean error of all rows: eq. 10 {every[HIERARCHICAL]:.2f} degrees; the outlier component from {best:.2f} "
            f"to {worst:.2f}, by its settings, which must be chosen (threshold: {ALIKE:g} times the best of them).",
            every[HIERARCHICAL] < ALIKE * best,
        ),
        Claim(
            "The integral over the factor (eq. 9) is approximated by its end points (eq. 10); the scheme still works "
            "well.",
            f"Degrees off after a change and at the end of a period: eq. 10 {late[HIERARCHICAL]:.2f} and "
            f"{end[HIERARCHICAL]:.2f}, the whole integral {late[WHOLE]:.2f} and {end[WHOLE]:.2f} (threshold: {ALIKE:g} "
            "times, for both).",
            late[HIERARCHICAL] < ALIKE * late[WHOLE] and end[HIERARCHICAL] < ALIKE * end[WHOLE],
        ),
    ]


def _about() -> str:
    return (
        f"{SECTION_3_1.split(';')[0]}; noise 1. Eq. 9 and 10 are VariationalPPCA.paper with forgetting='posterior' and "
        "'adaptive'; Sato's form and the earlier scheduler are written out in NumPy. The paper does not print the "
        f"settings of the earlier study: here one row in {1 / OUTLIER_SHARE:.0f} is an outlier, a Gaussian around "
        "the origin; its variance and the factor of a sure outlier are tried. Sato's discount is 1 - 1 / "
        f"((t - 2) {KAPPA:g} + {T0:g})."
    )
