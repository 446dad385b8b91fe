"""Pictures in two dimensions: incremental moment matching, mixture reduction, the ridgeline."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

import everlearn
from everlearn.experiments.papers.continual_learning.paper import PAPER
from everlearn.experiments.papers.figures import Panel, Trace, contour, figure, line, points
from everlearn.experiments.papers.registry import Context
from everlearn.experiments.papers.results import Cell, Claim, Figure, Findings, Table, measured
from everlearn.gaussian.gaussian import Gaussian, kl, log_density
from everlearn.gaussian.merge import bayes, mean_imm, mode_imm
from everlearn.gaussian.mixture import Mixture, sample
from everlearn.gaussian.mixture import log_density as mixture_log_density
from everlearn.gaussian.reduction import distance, squared_error
from everlearn.typing import Array

# The slides illustrate this by a picture without numbers: these posteriors are ours, chosen so that both rules, the
# mixture and its modes can be told apart.
POSTERIORS = Mixture(
    np.array([0.5, 0.5]),
    np.array([[-1.0, 0.0], [1.2, 0.6]]),
    np.array([[[0.25, 0.05], [0.05, 1.6]], [[1.5, 0.3], [0.3, 0.2]]]),
)


def ellipse(g: Gaussian, name: str, role: str, radius: float = 1.5, **style: Any) -> Trace:
    """The curve at some standard deviations from the mean."""
    turn = np.linspace(0, 2 * np.pi, 90)
    circle = radius * np.column_stack([np.cos(turn), np.sin(turn)])
    around = g.mean + circle @ np.linalg.cholesky(g.covariance).T
    return line(around[:, 0], around[:, 1], name, role, **style)


def grid(low: float, high: float, n: int = 56) -> tuple[Array, Array]:
    """Coordinates of a square grid, and its points as rows."""
    x = np.linspace(low, high, n)
    return x, np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)


# -- incremental moment matching -------------------------------------------------------------------


@PAPER.item("imm", "Incremental moment matching: mean, mode and mixture of two posteriors")
def moment_matching(context: Context) -> Findings:
    """Merge two posteriors by both rules, and check what each rule claims to be best at."""
    f = POSTERIORS
    merged = {"mean-IMM": mean_imm(*f), "mode-IMM": mode_imm(*f)}
    # Both rules have a closed form; the modes of the mixture are found by search and know nothing of either.
    top = everlearn.modes(f).points
    rng = np.random.default_rng(context.seed)
    divergence = {name: _divergence(f, g) for name, g in merged.items()}
    pool = {name: _pooled(f, g.mean) for name, g in merged.items()}
    # "Best" is tried against 200 random neighbours: a mistake in the formula would leave one of them lower.
    nearby = [_perturbed(merged["mean-IMM"], rng) for _ in range(200)]
    least = min(_divergence(f, g) for g in nearby)
    highest = max(_pooled(f, merged["mode-IMM"].mean + 0.3 * rng.normal(size=2)) for _ in range(200))
    gap = _streaming_gap(rng)
    claims = [
        Claim(
            "Mean-IMM minimises the weighted divergence from the posteriors.",
            f"Its divergence is {divergence['mean-IMM']:.4f}, the least of 200 Gaussians near it {least:.4f}, that of "
            f"mode-IMM {divergence['mode-IMM']:.4f}.",
            divergence["mean-IMM"] < min(least, divergence["mode-IMM"]),
        ),
        Claim(
            "Mode-IMM maximises the weighted sum of log-densities.",
            f"At its mean the sum is {pool['mode-IMM']:.4f}, at most {highest:.4f} at 200 points near it, "
            f"{pool['mean-IMM']:.4f} at that of mean-IMM.",
            pool["mode-IMM"] > max(highest, pool["mean-IMM"]),
        ),
        Claim(
            "Mode-IMM finds a mode of the mixture of posteriors.",
            f"It lies {np.min(np.linalg.norm(top - merged['mode-IMM'].mean, axis=1)):.2f} from the nearest of the "
            f"mixture's {len(top)} modes: what it maximises is the log-linear pool.",
            bool(np.min(np.linalg.norm(top - merged["mode-IMM"].mean, axis=1)) < 0.05),
        ),
        Claim(
            "Streaming Bayes: the posterior after one batch is the prior of the next.",
            f"Merging the posteriors of two halves of the data gives the posterior of all of it to {gap:.0e}.",
            gap < 1e-9,
        ),
    ]
    rows: list[list[Cell]] = [
        [name, measured(divergence[name], digits=4), measured(pool[name], digits=4)] for name in merged
    ]
    table = Table(
        "What each rule minimises and maximises", ["", "weighted KL divergence", "weighted log-density"], rows
    )
    about = "Two Gaussian posteriors of two weights, as different as two tasks make them, merged with equal weights."
    return Findings(about, claims, [table], [_imm_figure(f, merged, top)])


def _imm_figure(f: Mixture, merged: dict[str, Gaussian], top: Array) -> Figure:
    x, rows = grid(-4, 4)
    density = np.exp(mixture_log_density(rows, f)).reshape(len(x), -1)
    traces = [contour(x, x, density, "mixture", "baseline", levels=10)]
    for i, role in enumerate(("other", "second")):
        traces.append(ellipse(Gaussian(f.means[i], f.covariances[i]), f"posterior {i + 1}", role, dash="dot"))
    for (name, g), role in zip(merged.items(), ("ours", "paper"), strict=True):
        traces += [
            ellipse(g, name, role, width=3),
            points([g.mean[0]], [g.mean[1]], name, role, size=10, showlegend=False),
        ]
    cross = {"symbol": "x"}
    traces.append(points(top[:, 0], top[:, 1], "modes of the mixture", "truth", size=9, marker=cross))
    square = {"range": [-4, 4], "scaleanchor": "x", "constrain": "domain"}
    panel = Panel("", traces, {"range": [-4, 4], "constrain": "domain"}, square)
    return Figure("Two posteriors and what they are merged into", figure([panel], height=520))


def _divergence(f: Mixture, g: Gaussian) -> float:
    parts = [float(kl(Gaussian(m, C), g)) for m, C in zip(f.means, f.covariances, strict=True)]
    return float(f.weights @ parts)


def _pooled(f: Mixture, x: Array) -> float:
    parts = [float(log_density(x[None], Gaussian(m, C))[0]) for m, C in zip(f.means, f.covariances, strict=True)]
    return float(f.weights @ parts)


def _perturbed(g: Gaussian, rng: np.random.Generator) -> Gaussian:
    A = np.eye(2) + 0.1 * rng.normal(size=(2, 2))
    return Gaussian(g.mean + 0.1 * rng.normal(size=2), A @ g.covariance @ A.T)


def _streaming_gap(rng: np.random.Generator) -> float:
    """Largest difference between the merged posteriors of two halves and the posterior of all rows."""
    noise, prior = np.array([[1.0, 0.4], [0.4, 2.0]]), Gaussian(np.zeros(2), 9.0 * np.eye(2))
    # Halves of unequal size, so that weights that ignore the number of rows do not pass.
    X = rng.multivariate_normal([1.0, -2.0], noise, 40)
    halves = [_posterior(part, noise, prior) for part in (X[:15], X[15:])]
    merged = bayes(np.array([g.mean for g in halves]), np.array([g.covariance for g in halves]), prior)
    whole = _posterior(X, noise, prior)
    return float(max(np.abs(merged.mean - whole.mean).max(), np.abs(merged.covariance - whole.covariance).max()))


def _posterior(X: Array, noise: Array, prior: Gaussian) -> Gaussian:
    """Posterior of the mean of rows with known noise."""
    # Conjugate update of a mean: precisions add, and so do precision-weighted means.
    precision = np.linalg.inv(prior.covariance) + len(X) * np.linalg.inv(noise)
    pull = np.linalg.solve(prior.covariance, prior.mean) + np.linalg.solve(noise, X.sum(axis=0))
    covariance = np.linalg.inv(precision)
    return Gaussian(covariance @ pull, covariance)


# -- mixture reduction -----------------------------------------------------------------------------


def crowd(rng: np.random.Generator, n_components: int = 24) -> Mixture:
    """Many small components around a few centres."""
    centres = np.array([[-4.0, -2.0], [0.0, 3.0], [4.0, -1.0], [1.0, -4.0]])
    means = centres[np.arange(n_components) % 4] + 0.8 * rng.normal(size=(n_components, 2))
    A = 0.6 * rng.normal(size=(n_components, 2, 2))
    covariances = A @ np.swapaxes(A, 1, 2) + 0.15 * np.eye(2)
    # Unequal weights: with equal ones a reduction that ignores them would pass.
    weights = rng.dirichlet(np.full(n_components, 3.0))
    return Mixture(weights, means, covariances)


@PAPER.item("reduction", "Hierarchical clustering of a mixture: 24 components reduced")
def reduction(context: Context) -> Findings:
    """Reduce mixtures, and measure what is lost."""
    sizes = 12, 8, 4, 2, 1
    n_runs = context.pick(5, 30)
    lost: dict[int, list[float]] = {m: [] for m in sizes}
    squared: dict[int, list[float]] = {m: [] for m in sizes}
    for run in context.track(range(n_runs), "mixtures"):
        f = crowd(np.random.default_rng([context.seed, run]))
        for m in sizes:
            g = everlearn.reduce(f, m)
            lost[m].append(distance(f, g))
            squared[m].append(squared_error(f, g, relative=True))
    f = crowd(np.random.default_rng([context.seed, 0]))
    one = everlearn.reduce(f, 1)
    # Mean-IMM is the moment-matched Gaussian of a mixture: one formula of another module as the truth of this one.
    exact = mean_imm(*f)
    gap = float(max(np.abs(one.means[0] - exact.mean).max(), np.abs(one.covariances[0] - exact.covariance).max()))
    means = [float(np.mean(lost[m])) for m in sizes]
    rows: list[list[Cell]] = [[f"{m}", measured(lost[m], digits=3), measured(squared[m], digits=3)] for m in sizes]
    claims = [
        Claim(
            "Reduced to one component the best is the moment-matched Gaussian.",
            f"Mean and covariance agree with it to {gap:.0e}.",
            gap < 1e-9,
        ),
        Claim(
            "d(f, g) measures what a reduction loses.",
            f"It grows as components are taken away: {', '.join(f'{v:.2f}' for v in means)} for "
            f"{', '.join(map(str, sizes))} components.",
            all(a <= b for a, b in pairwise(means)),
        ),
    ]
    table = Table("Loss of a reduction", ["components", "d(f, g)", "squared error, share of the mixture's own"], rows)
    about = (
        "Mixtures of 24 small components around four centres, reduced greedily by Runnalls' bound and refined after "
        "Goldberger and Roweis."
    )
    return Findings(about, claims, [table], [_reduction_figure(f)], n_runs)


def _reduction_figure(f: Mixture) -> Figure:
    x, rows = grid(-7.5, 7.5)
    panels = []
    for g in (f, everlearn.reduce(f, 8), everlearn.reduce(f, 4)):
        density = np.exp(mixture_log_density(rows, g)).reshape(len(x), -1)
        traces = [contour(x, x, density, "density", "ours", levels=12) | {"showlegend": False}]
        for m, C in zip(g.means, g.covariances, strict=True):
            traces.append(ellipse(Gaussian(m, C), "components", "paper", radius=1.0, width=1, legend=False))
        panels.append(Panel(f"{len(g.weights)} components", traces, {"range": [-7, 7]}, {"range": [-7, 7]}))
    return Figure("A mixture and its reductions", figure(panels, columns=3, height=380, gap=0.05))


# -- the ridgeline ---------------------------------------------------------------------------------


@PAPER.item("ridgeline", "The topography of a mixture: contours and ridgeline")
def ridgeline(context: Context) -> Findings:
    """The curve on which all modes lie, and the elevation along it."""
    f = Mixture(
        np.array([0.5, 0.5]),
        np.array([[0.0, 0.0], [1.0, 1.0]]),
        np.array([[[1.0, 0.0], [0.0, 0.05]], [[0.05, 0.0], [0.0, 1.0]]]),
    )
    # Crossed covariances give more modes than components, the case in which the ridgeline is needed at all.
    curve, tops = everlearn.ridgeline(f), everlearn.modes(f)
    off = float(max(np.min(np.linalg.norm(curve.points - top, axis=1)) for top in tops.points))
    rng = np.random.default_rng(context.seed)
    # A check from outside: samples that lie higher than the highest mode would show a mode that was missed.
    best = float(mixture_log_density(sample(f, context.pick(20_000, 200_000), rng)[0], f).max())
    middle = mode_imm(*f).mean
    on_it = float(np.min(np.linalg.norm(everlearn.ridgeline(f, n_points=2001).points - middle, axis=1)))
    claims = [
        Claim(
            "All modes lie on the ridgeline.",
            f"The {len(tops.points)} modes (of {len(f.weights)} components) lie within {off:.3f} of its {len(curve.a)} "
            f"points; no sampled point is higher than the highest of them ({best:.3f} against "
            f"{tops.log_density[0]:.3f}).",
            off < 0.02 and best <= tops.log_density[0] + 1e-9,
        ),
        Claim(
            "The mode of the log-linear pool is the ridgeline's point at the weights.",
            f"Mode-IMM lies within {on_it:.0e} of it.",
            on_it < 1e-3,
        ),
    ]
    about = (
        "Two components with crossed covariances, after Ray and Lindsay. Contours of the mixture with the ridgeline, "
        "and the elevation along it."
    )
    return Findings(about, claims, [], [_ridgeline_figure(f, curve, tops.points, tops.log_density)])


def _ridgeline_figure(f: Mixture, curve: everlearn.mixture.functions.Ridgeline, tops: Array, heights: Array) -> Figure:
    x, rows = grid(-2.2, 3.2)
    density = np.exp(mixture_log_density(rows, f)).reshape(len(x), -1)
    at = [float(curve.a[np.argmin(np.linalg.norm(curve.points - top, axis=1))]) for top in tops]
    panels = [
        Panel(
            "contours and ridgeline",
            [
                contour(x, x, density, "mixture", "baseline", levels=14),
                line(curve.points[:, 0], curve.points[:, 1], "ridgeline", "ours", width=3),
                points(tops[:, 0], tops[:, 1], "modes", "paper", size=9),
            ],
            {"range": [-2.2, 3.2]},
            {"range": [-2.2, 3.2]},
        ),
        Panel(
            "elevation along the ridgeline",
            [
                line(curve.a, np.exp(curve.log_density), "ridgeline", "ours", legend=False),
                points(at, np.exp(heights), "modes", "paper", size=9, showlegend=False),
            ],
            {"title": "from component 1 to 2"},
            {"title": "density", "rangemode": "tozero"},
        ),
    ]
    return Figure("Contours and ridgeline", figure(panels, columns=2, height=430))
