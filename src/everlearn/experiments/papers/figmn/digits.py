"""MNIST, one pass, one digit after another: axes from OnlinePPCA, then one mixture a class."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn import IncrementalGaussianMixtureClassifier, OnlinePPCA, PowerSchedule
from everlearn.continual import Results, class_by_class
from everlearn.continual import run as run_tasks
from everlearn.experiments.papers.figmn.paper import PAPER
from everlearn.experiments.papers.figures import Panel, figure, line
from everlearn.experiments.papers.registry import Context
from everlearn.experiments.papers.results import Cell, Claim, Figure, Findings, Table, measured
from everlearn.typing import Array

Labels = NDArray[np.int64]

UNLABELLED = 5000
# Held out of the training images: the test images choose nothing.
VALIDATION = 10_000


# Numbers of axes to choose from, on training images.
CANDIDATES = (40, 50, 60)


class Images(NamedTuple):
    """Pixels from 0 to 1, and digits."""

    X: Array
    y: Labels


class Axes(NamedTuple):
    """An orthonormal projection onto principal axes, and the typical spread along one of them."""

    model: OnlinePPCA
    typical: float

    def project(self, X: Array) -> Array:
        """Coordinates of rows along the axes."""
        return np.ascontiguousarray((X - self.model.mean_) @ self.model.components_.T)


def learn_axes(X: Array, n_axes: int) -> Axes:
    """Learn axes from rows without labels, in one pass."""
    # The gain 1/k weighs all rows alike: the axes of the rows as a whole, whatever their order.
    model = OnlinePPCA(n_axes, learning_rate=PowerSchedule(1.0, 1.0)).fit(X)
    return Axes(model, float(np.sqrt(np.mean(model.explained_variance_))))


def classifier(axes: Axes) -> IncrementalGaussianMixtureClassifier:
    """Return a classifier for images along some axes, all of them in the same unit."""
    # One unit for all axes: dividing each by its own spread would make axes of little variance as loud as the first.
    return IncrementalGaussianMixtureClassifier(scale=np.full(len(axes.model.components_), axes.typical))


def learn_digits(axes: Axes, train: Images, test: Images) -> tuple[Results, Any]:
    """Learn one digit after another; after each, the accuracy on the test images of every digit."""
    tasks = class_by_class(axes.project(train.X), train.y, test=(axes.project(test.X), test.y))
    model = classifier(axes)
    last: list[Any] = []

    def learn(learning: Any, task: Any) -> None:
        learning.partial_fit(task.X, task.y)
        last[:] = [learning]

    return run_tasks(model, tasks, learn=learn), last[0]


def pick_axes(context: Context, unlabelled: Array, labelled: Images) -> tuple[int, Table]:
    """Choose the number of axes by the accuracy on the last part of the training images."""
    cut = len(labelled.X) - context.pick(4000, VALIDATION)
    train, held = Images(labelled.X[:cut], labelled.y[:cut]), Images(labelled.X[cut:], labelled.y[cut:])
    candidates = context.pick(CANDIDATES[:2], CANDIDATES)
    scores = {q: _validate(learn_axes(unlabelled, q), train, held) for q in context.track(candidates, "axes")}
    best = max(scores, key=lambda q: scores[q])
    rows: list[list[Cell]] = [
        [f"{q}", measured(score, digits=2, mark="*" if q == best else "")] for q, score in scores.items()
    ]
    title = f"Number of axes, by accuracy in percent on {len(held.X)} training images held out"
    return best, Table(title, ["axes", "accuracy"], rows, "* chosen")


def _validate(axes: Axes, train: Images, held: Images) -> float:
    model = classifier(axes)
    Z = axes.project(train.X)
    for digit in range(10):
        rows = train.y == digit
        model.partial_fit(Z[rows], train.y[rows])
    return 100.0 * float(model.score(axes.project(held.X), held.y))


def seen_so_far(results: Results, counts: Labels) -> Array:
    """Accuracy on all test images of the digits that have come, after each, in percent."""
    # Row i counts the digits 0 to i, by their test images: the accuracy on all images so far, not the mean of classes.
    weights = np.tril(np.ones_like(results.R)) * counts
    return np.asarray(100.0 * (results.R * weights).sum(axis=1) / weights.sum(axis=1))


@PAPER.item("mnist", "MNIST accuracy: one pass, one digit after another", alone=True)
def mnist(context: Context) -> Findings:
    """Choose settings on training images, then learn class by class and test."""
    data = context.mnist()
    n, m = context.pick(25_000, 60_000), context.pick(4000, 10_000)
    test = Images(data.test_data[:m] / 255.0, data.test_target[:m].astype(np.int64))
    order = np.random.default_rng(context.seed).permutation(60_000)[:n]
    images = Images(data.data[order] / 255.0, data.target[order].astype(np.int64))
    labelled = Images(images.X[UNLABELLED:], images.y[UNLABELLED:])
    n_axes, chosen = pick_axes(context, images.X[:UNLABELLED], labelled)
    runs = [
        _one_run(n_axes, images, test, np.random.default_rng([context.seed, run]))
        for run in context.track(range(context.pick(1, 3)), "runs")
    ]
    strict = _first_digit_axes(n_axes, images, test)
    claims = _claims(runs, strict)
    return Findings(_about(n, m), claims, [*_tables(runs, strict), chosen], _figures(runs), len(runs))


class Run(NamedTuple):
    """What one order of the images gave."""

    results: Results
    accuracy: Array
    n_components: int
    seconds: float
    clock: float


def _one_run(n_axes: int, images: Images, test: Images, rng: np.random.Generator) -> Run:
    """Axes from the first images, without labels; then the others, one digit after another."""
    order = rng.permutation(len(images.X))
    rest = order[UNLABELLED:]
    return _timed(n_axes, images.X[order[:UNLABELLED]], Images(images.X[rest], images.y[rest]), test)


def _first_digit_axes(n_axes: int, images: Images, test: Images) -> Run:
    """The same with the axes of the first digit alone, which nothing had to come before."""
    # The strict case: in a stream that is class by class nothing mixed comes first, and axes can only be learned from
    # what the first digit shows.
    zeros = images.X[images.y == 0][:2000]
    return _timed(n_axes, zeros, images, test)


def _timed(n_axes: int, unlabelled: Array, labelled: Images, test: Images) -> Run:
    start, clock = time.process_time(), time.perf_counter()
    results, model = learn_digits(learn_axes(unlabelled, n_axes), labelled, test)
    took = time.process_time() - start, time.perf_counter() - clock
    return Run(results, seen_so_far(results, np.bincount(test.y, minlength=10)), model.n_components_, *took)


def _about(n: int, m: int) -> str:
    return (
        f"Every training image is seen once: {UNLABELLED} come first, mixed and without labels, and teach OnlinePPCA "
        f"the axes; the other {n - UNLABELLED} come one digit after another and teach one mixture a class. The number "
        f"of axes is chosen on training images, the {m} test images are asked at the end of each digit. Seconds are "
        "those of one core for learning everything and for testing after every digit. BWT and forgetting count what "
        "earlier digits lose to those that come later and look alike; their own mixtures do not change."
    )


def _summaries(runs: list[Run]) -> dict[str, Array]:
    return {name: np.array([run.results.summary()[name] for run in runs]) for name in ("BWT", "forgetting", "ACC")}


def _tables(runs: list[Run], strict: Run) -> list[Table]:
    def row(name: str, some: list[Run], printed: str = "") -> list[Cell]:
        numbers = _summaries(some)
        return [
            name,
            measured([run.accuracy[-1] for run in some], printed, digits=2),
            measured(100 * numbers["BWT"], digits=2),
            measured(100 * numbers["forgetting"], digits=2),
            measured([run.n_components for run in some], digits=0),
            measured([run.seconds for run in some]),
            measured([run.clock for run in some]),
        ]

    columns = [
        "",
        "accuracy, %",
        "BWT, points",
        "forgetting, points",
        "components",
        "seconds of a core",
        "seconds by the clock",
    ]
    totals = Table(
        "At the end",
        columns,
        [
            row("axes from the first images, unlabelled", runs, "about 93"),
            row("axes from the first digit alone", [strict]),
        ],
    )
    steps: list[list[Cell]] = [
        [
            f"{digit}",
            measured([run.accuracy[digit] for run in runs], digits=2),
            measured(strict.accuracy[digit], digits=2),
        ]
        for digit in range(10)
    ]
    columns = ["after digit", "accuracy, axes from the first images", "accuracy, axes from the first digit"]
    return [totals, Table("Accuracy in percent on the test images of the digits so far", columns, steps)]


def _claims(runs: list[Run], strict: Run) -> list[Claim]:
    final = np.array([run.accuracy[-1] for run in runs])
    seconds = max(run.seconds for run in runs)
    lost = 100 * _summaries(runs)["forgetting"]
    return [
        Claim(
            "Ours: at least 97.5 % in one pass, one digit after another, in under two minutes, with axes from 5,000 "
            "mixed images that come first.",
            f"{final.mean():.2f} % (runs from {final.min():.2f} to {final.max():.2f}) in {seconds:.0f} seconds of one "
            f"core at most, with {lost.mean():.2f} points of forgetting.",
            bool(final.mean() >= 97.5 and seconds < 120),
        ),
        Claim(
            "Ours: the same when nothing mixed comes first, with axes from the first digit alone.",
            f"{strict.accuracy[-1]:.2f} % in {strict.seconds:.0f} seconds of one core.",
            bool(strict.accuracy[-1] >= 97.5 and strict.seconds < 120),
        ),
    ]


def _figures(runs: list[Run]) -> list[Figure]:
    digits = np.arange(10)
    R = np.mean([run.results.R for run in runs], axis=0)
    seen = np.where(np.tri(10, dtype=bool), 100 * R, np.nan)
    grid = {
        "type": "heatmap",
        "z": [[None if np.isnan(v) else round(float(v), 1) for v in row] for row in seen],
        "colorscale": "Blues",
        "reversescale": False,
        "zmin": 90,
        "zmax": 100,
        "texttemplate": "%{z:.1f}",
        "colorbar": {"title": {"text": "%"}},
    }
    panels = [
        Panel(
            "digits so far",
            [line(digits, run.accuracy, f"run {i + 1}", "ours", width=1.5) for i, run in enumerate(runs)]
            + [line(digits[[0, -1]], [93, 93], "paper, all digits", "paper", dash="dot")],
            {"title": "after digit", "dtick": 1},
            {"title": "accuracy, %", "range": [92, 100.2]},
        ),
        Panel(
            "each digit, after each",
            [grid],
            {"title": "tested on", "dtick": 1},
            {"title": "after digit", "dtick": 1, "autorange": "reversed"},
        ),
    ]
    return [Figure("Accuracy as the digits arrive", figure(panels, columns=2, height=420, gap=0.12))]
