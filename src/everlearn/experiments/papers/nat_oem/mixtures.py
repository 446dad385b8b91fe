"""Beyond the paper: its constraint for mixtures in class-incremental streams, on the letters and on Disjoint MNIST.

Online EM of a mixture with diagonal covariances, all classes sharing its components. At the end of a class the
parameters become the reference; the rows of later classes pull, and each component is held by the share of earlier
classes that needs it: the Fisher information of the complete data, ``s/v`` for a mean and ``s/(2 v^2)`` for a variance.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import permutations
from typing import NamedTuple

import numpy as np
from sklearn.decomposition import PCA

from everlearn import IncrementalGaussianMixture
from everlearn.experiments.papers.nat_oem.protocol import PAPER, SAME
from everlearn.experiments.papers.online_vb.figures import PERIOD, letters, stream
from everlearn.experiments.papers.registry import Context, Skip
from everlearn.experiments.papers.results import Cell, Claim, Findings, Table, measured
from everlearn.gaussian.gaussian import LOG_2PI, log_sum_exp
from everlearn.typing import Array

AXES, MNIST_ROWS, MNIST_TEST = 20, 1000, 500
COMPONENTS = {"letters": 6, "Disjoint MNIST": 20}
WARM = 60
LEAST_VARIANCE = 1e-3  # of the mean variance of the columns

Gain = Callable[[int], float]
GAINS: dict[str, Gain] = {
    "0.9 k^-0.6": lambda k: 0.9 * k**-0.6,
    "0.9 k^-0.9": lambda k: 0.9 * k**-0.9,
    "1/k": lambda k: 1.0 / k,
}
CONSTRAINED = [("0.9 k^-0.6", 0.1), ("0.9 k^-0.6", 1.0), ("0.9 k^-0.6", 10.0), ("0.9 k^-0.9", 0.1), ("0.9 k^-0.9", 1.0)]
DEFAULT = "everlearn default"


class Mixture(NamedTuple):
    """Parameters of a mixture with diagonal covariances."""

    weights: Array  # (K,)
    means: Array  # (K, D)
    variances: Array  # (K, D)


class Reference(NamedTuple):
    """Parameters at the end of a class, and how much of all earlier classes each component had."""

    mixture: Mixture
    shares: Array  # (K,), of all classes so far: adds up to their number


class Statistics(NamedTuple):
    """Running means of the expected sufficient statistics."""

    S0: Array  # (K,)
    S1: Array  # (K, D)
    S2: Array  # (K, D)


class Task(NamedTuple):
    """Rows of a class to learn and to test."""

    X: Array
    test: Array


def log_joint(X: Array, mixture: Mixture) -> Array:
    """log p(x, component), (n, K)."""
    v = mixture.variances
    with np.errstate(divide="ignore"):
        heights = np.log(mixture.weights) - 0.5 * (np.log(v).sum(axis=1) + X.shape[1] * LOG_2PI)
    # (n, K) by three matrix products in place of an array (n, K, D).
    squares = (X**2) @ (1.0 / v).T - 2.0 * X @ (mixture.means / v).T + (mixture.means**2 / v).sum(axis=1)
    return np.asarray(heights - 0.5 * squares)


def responsibilities(X: Array, mixture: Mixture) -> Array:
    """Posterior of the components, (n, K)."""
    heights = log_joint(X, mixture)
    return np.exp(heights - log_sum_exp(heights)[:, None])


def log_likelihood(X: Array, mixture: Mixture) -> float:
    """Mean log-density of rows."""
    return float(log_sum_exp(log_joint(X, mixture)).mean())


def maximise(known: Statistics, floor: float) -> Mixture:
    """The M-step."""
    # A component that no row has come near keeps a mean, and a weight of zero.
    share = np.maximum(known.S0, 1e-12)[:, None]
    means = known.S1 / share
    return Mixture(known.S0 / known.S0.sum(), means, np.maximum(known.S2 / share - means**2, floor))


def constrain(free: Mixture, known: Statistics, reference: Reference, strength: float) -> Mixture:
    """Proximal R-step: ``argmin -Q + strength/2 |theta - theta*|^2`` in the metric of the reference's information.

    Q is quadratic in a mean with curvature ``S0/v``, and taken so in a variance, ``S0/(2 v^2)``: each parameter is the
    mean of both, weighted by how much either side knows of it. Weights are drawn together in the same proportion.
    """
    old = reference.mixture
    held, moved = strength * reference.shares[:, None], known.S0[:, None]
    pull = held / old.variances
    push = moved / free.variances
    means = (push * free.means + pull * old.means) / (push + pull)
    # From the information of a mean, s/v, to twice that of a variance, s/v^2; the half cancels in the weighted mean.
    pull, push = pull / old.variances, push / free.variances
    variances = (push * free.variances + pull * old.variances) / (push + pull)
    weights = free.weights + strength * reference.shares
    return Mixture(weights / weights.sum(), means, variances)


class OnlineMixture:
    """Online EM with or without the constraint; `end_class` makes what it knows the reference."""

    def __init__(self, n_components: int, gain: Gain, strength: float, seed: int) -> None:
        self.n_components, self.gain, self.strength = n_components, gain, strength
        self._rng = np.random.default_rng(seed)
        self.reference: Reference | None = None
        self.k = 0

    def start(self, X: Array) -> None:
        """Components around some of the first rows, with the variances of all of them."""
        chosen = X[self._rng.choice(len(X), self.n_components, replace=False)]
        variance = X.var(axis=0)
        self.floor = LEAST_VARIANCE * float(variance.mean())
        shape = self.n_components, 1
        start = Mixture(
            np.full(self.n_components, 1 / self.n_components),
            chosen,
            np.tile(np.maximum(variance / 2, self.floor), shape),
        )
        r = responsibilities(X, start)
        self.known = Statistics(r.mean(axis=0), r.T @ X / len(X), r.T @ X**2 / len(X))
        # The schedule goes on from there: the first row after the start does not overwrite it.
        self.k = len(X)
        self.mixture = maximise(self.known, self.floor)

    def learn(self, X: Array) -> None:
        """Learn rows one after another."""
        if not self.k:
            self.start(X[:WARM])
            X = X[WARM:]
        for x in X:
            self.k += 1
            gain, r = self.gain(self.k), responsibilities(x[None], self.mixture)[0]
            new = Statistics(r, np.outer(r, x), np.outer(r, x * x))
            self.known = Statistics._make(old + gain * (now - old) for old, now in zip(self.known, new, strict=True))
            self.mixture = maximise(self.known, self.floor)
            if self.reference is not None and self.strength:
                self.mixture = constrain(self.mixture, self.known, self.reference, self.strength)

    def end_class(self, X: Array) -> None:
        """Take the parameters as the reference, and add to it what this class needs."""
        # By the final parameters, not summed up on the way: what counts is which components the class needs now.
        needed = responsibilities(X, self.mixture).mean(axis=0)
        earlier = 0.0 if self.reference is None else self.reference.shares
        self.reference = Reference(self.mixture, earlier + needed)

    def score(self, X: Array) -> float:
        """Mean log-density of rows."""
        return log_likelihood(X, self.mixture)


class Default:
    """Everlearn's own mixture in the same stream."""

    def __init__(self, seed: int) -> None:
        self._model = IncrementalGaussianMixture(random_state=seed)

    def learn(self, X: Array) -> None:
        """Learn rows one after another."""
        self._model.partial_fit(X)

    def end_class(self, X: Array) -> None:
        """Needs to know nothing of classes."""

    def score(self, X: Array) -> float:
        """Mean log-density of rows."""
        return float(self._model.score(X))


Model = OnlineMixture | Default


def constrained(rate: str, strength: float) -> str:
    """How a constrained model is called in tables."""
    return f"constrained, {rate}, strength {strength:g}"


def contenders(n_components: int, seed: int) -> dict[str, Callable[[], Model]]:
    """Makers of the models that are compared."""
    made: dict[str, Callable[[], Model]] = {
        f"online EM, {name}": lambda gain=gain: OnlineMixture(n_components, gain, 0.0, seed)  # type: ignore[misc]
        for name, gain in GAINS.items()
    }
    made |= {
        constrained(rate, b): lambda gain=GAINS[rate], b=b: OnlineMixture(n_components, gain, b, seed)  # type: ignore[misc]
        for rate, b in CONSTRAINED
    }
    return {**made, DEFAULT: lambda: Default(seed)}


class Outcome(NamedTuple):
    """What a model did with a sequence of tasks, in nats a row."""

    final: float  # mean over all tasks at the end
    forgetting: float  # mean fall from the best score of a task to its last, but for the last task
    interference: float  # mean over pairs: second task after the first, less the second alone


def follow(make: Callable[[], Model], tasks: list[Task]) -> Outcome:
    """Learn the tasks in their order, and each pair of them in both orders."""
    scores = _learned(make, tasks)
    forgetting = (scores.max(axis=0) - scores[-1])[:-1].mean()
    alone = [_learned(make, [task])[-1, 0] for task in tasks]
    pairs = [_learned(make, [tasks[i], tasks[j]])[-1, 1] - alone[j] for i, j in permutations(range(len(tasks)), 2)]
    return Outcome(float(scores[-1].mean()), float(forgetting), float(np.mean(pairs)))


def _learned(make: Callable[[], Model], tasks: list[Task]) -> Array:
    """Scores of every task after each."""
    model, scores = make(), []
    for task in tasks:
        model.learn(task.X)
        model.end_class(task.X)
        scores.append([model.score(other.test) for other in tasks])
    return np.array(scores)


def letter_tasks(rng: np.random.Generator) -> list[Task]:
    """A, B and E, 200 rows each to learn and to test."""
    X, test = stream(letters(), 0.2, rng), stream(letters(), 0.2, rng)
    return [Task(*(part[i * PERIOD : (i + 1) * PERIOD] for part in (X, test))) for i in range(3)]


def mnist_tasks(context: Context, rng: np.random.Generator) -> list[Task]:
    """Digits 0 to 4, then 5 to 9, along axes of some images of all digits."""
    data = context.mnist()
    # Axes of images that are not learned afterwards: `order` begins behind them.
    axes = PCA(AXES, random_state=0).fit(data.data[:2000] / 255.0)
    order = 2000 + rng.permutation(len(data.data) - 2000)
    X, y = data.data[order[:4000]] / 255.0, data.target[order[:4000]]
    test, test_y = data.test_data / 255.0, data.test_target
    halves = [(y < 5, test_y < 5), (y >= 5, test_y >= 5)]
    return [
        Task(axes.transform(X[rows][:MNIST_ROWS]), axes.transform(test[held][:MNIST_TEST])) for rows, held in halves
    ]


@PAPER.item("mixtures", "Beyond the paper: the natural constraint for mixtures, class after class")
def mixtures(context: Context) -> Findings:
    """Forgetting, interference and final likelihood with and without the constraint."""
    n_runs = context.pick(1, 3)
    found: dict[tuple[str, str], list[Outcome]] = {}
    for run in context.track(range(n_runs), "runs"):
        rng = np.random.default_rng([context.seed, run])
        sets = {"letters": letter_tasks(rng)}
        with contextlib.suppress(Skip):
            sets["Disjoint MNIST"] = mnist_tasks(context, rng)
        for name, tasks in sets.items():
            for label, make in contenders(COMPONENTS[name], run).items():
                found.setdefault((name, label), []).append(follow(make, tasks))
    names = list(dict.fromkeys(name for name, _ in found))
    tables = [_table(name, found) for name in names]
    return Findings(_about(names), [c for name in names for c in _claims(name, found)], tables, n_runs=n_runs)


def _table(name: str, found: dict[tuple[str, str], list[Outcome]]) -> Table:
    rows: list[list[Cell]] = []
    for (where, label), outcomes in found.items():
        if where == name:
            rows.append([label, *(measured(values, digits=2) for values in zip(*outcomes, strict=True))])
    return Table(f"{name}, nats a row", ["", "all classes at the end", "forgetting", "interference"], rows)


def _claims(name: str, found: dict[tuple[str, str], list[Outcome]]) -> list[Claim]:
    means = {label: Outcome._make(np.mean(o, axis=0).tolist()) for (where, label), o in found.items() if where == name}
    # The best strength for the constraint, its own rate for online EM: the comparison favours the constraint.
    rate, strength = max(CONSTRAINED, key=lambda c: means[constrained(*c)].final)
    label = constrained(rate, strength)
    best, plain = means[label], means[f"online EM, {rate}"]
    others = {key: value.final for key, value in means.items() if not key.startswith("constrained")}
    winner = max(others, key=lambda key: others[key])
    return [
        Claim(
            f"Ours: the natural constraint decreases forgetting for mixtures too ({name}).",
            f"{best.forgetting:.2f} nats with {label}, {plain.forgetting:.2f} without.",
            best.forgetting < plain.forgetting - SAME,
        ),
        Claim(
            f"Ours: it does so without more interference ({name}).",
            f"{best.interference:+.2f} nats with {label}, {plain.interference:+.2f} without.",
            best.interference > plain.interference - SAME,
        ),
        Claim(
            f"Ours: it would earn a parameter of the mixture ({name}).",
            f"At the end {label} has {best.final:.2f} nats on all classes; the best without a constraint is {winner}, "
            f"{others[winner]:.2f}.",
            best.final > others[winner] + SAME,
        ),
    ]


def _about(names: list[str]) -> str:
    absent = "" if "Disjoint MNIST" in names else " MNIST is not at hand."
    return (
        "Online EM of a mixture with diagonal covariances whose components all classes share: "
        + ", ".join(f"{COMPONENTS[name]} for {name}" for name in names)
        + f". Letters A, B, E: 200 rows each; Disjoint MNIST: digits 0 to 4, then 5 to 9, {MNIST_ROWS} rows each on "
        f"{AXES} principal axes. The constraint is proximal, its reference the parameters at the end of the last "
        "class, and each component is held by its share of all earlier classes. Forgetting is the fall from the best "
        "log-likelihood of a class to its last; interference that of a class learned second, less that of the class "
        f"alone. Everlearn's default has full covariances and as many components as it finds.{absent}"
    )
