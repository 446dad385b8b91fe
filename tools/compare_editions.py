"""Record what every estimator answers on a dozen streams, and compare the records of two checkouts.

    PYTHONPATH=OLD/src python tools/compare_editions.py record old.npz
    PYTHONPATH=NEW/src python tools/compare_editions.py record new.npz
    python tools/compare_editions.py compare old.npz new.npz

After every batch the record takes densities of held-out rows, predictions, events and components. Two editions agree
where every number of every batch differs by at most `TOLERANCE`, relative to the largest number of its kind. Over a
long stream rounding can part the ways of overlapping components: then the report names the first batch that differs,
and the held-out score at the end must agree to `SCORE` nats. What differs on purpose is listed in `ON_PURPOSE`.
"""

from __future__ import annotations

import argparse
import fnmatch
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

TOLERANCE = 1e-10
SCORE = 1e-3
ON_PURPOSE = {
    "mixture/*": "the default mixture finds its number of components by a search, and is another algorithm",
    "classifier/*": "its class densities are those of the default mixture",
    "regressor/*": "it is the default mixture, conditioned",
    "*/zero_weights/*": "rows of weight zero are left out; they were refused before",
    "ppca_constraint_plain/*": "the R-step minimises its objective exactly; a mean trace stood in for it before",
    "figmn*/adaptive/*": "FIGMN is the paper's rule, which has no bank of memories; the default mixture does",
}
TOO_LONG = {("figmn_many", "wide")}  # a component for nearly every row of 300 columns takes minutes


class Stream(NamedTuple):
    """Batches to learn and rows to ask about."""

    batches: list[np.ndarray]
    held_out: np.ndarray
    weights: list[np.ndarray] | None = None
    parameters: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    labels: list[np.ndarray] | None = None
    merged: bool = False  # the second half is learned by another model, which is merged into the first
    reloaded: bool = False  # saved and loaded after every batch


# -- streams ---------------------------------------------------------------------------------------


def clusters(n: int, D: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three correlated clusters, and which cluster each is from."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    centres, factors = 4.0 * rng.normal(size=(3, D)), rng.normal(size=(3, D, min(D, 4)))
    noise = 0.3 * rng.normal(size=(n, D))
    X = centres[labels] + np.einsum("ndk,nk->nd", factors[labels], rng.normal(size=(n, factors.shape[2]))) + noise
    return X, labels


def streams() -> dict[str, Stream]:
    """All streams by name."""
    X, labels = clusters(720, 5)
    rng = np.random.default_rng(1)
    train, held_out = X[:640], X[640:]
    batches, classes = np.split(train, 8), np.split(labels[:640], 8)
    gaps = np.where(rng.random(train.shape) < 0.2, np.nan, train)
    weights = np.split(rng.uniform(0.2, 3.0, 640), 8)
    zeros = [np.where(rng.random(80) < 0.3, 0.0, 1.0) for _ in range(8)]
    order = np.argsort(labels[:640], kind="stable")
    turned = np.concatenate([train[:320], train[320:] + 5.0])
    wide, _ = clusters(400, 300, seed=2)
    scaled = train * np.logspace(-6, 6, 5) + 1e3
    plain = Stream(batches, held_out, labels=classes)
    return {
        "plain": plain,
        "single_rows": Stream([row[None] for row in train[:250]], held_out),
        "gaps": Stream(np.split(gaps, 8), np.where(rng.random(held_out.shape) < 0.2, np.nan, held_out), labels=classes),
        "weights": Stream(batches, held_out, weights, labels=classes),
        "zero_weights": Stream(batches, held_out, zeros),
        "forgetting": Stream(np.split(turned, 8), held_out + 5.0, parameters={"forgetting": 0.98}),
        "adaptive": Stream(np.split(turned, 8), held_out + 5.0, parameters={"forgetting": "adaptive"}),
        "sorted": Stream(np.split(train[order], 8), held_out, labels=np.split(labels[:640][order], 8)),
        "wide": Stream(np.split(wide[:360], 3), wide[360:]),
        "units": Stream(np.split(scaled, 8), held_out * np.logspace(-6, 6, 5) + 1e3),
        "diagonal": Stream(batches, held_out, parameters={"covariance_type": "diag"}),
        "merged": Stream(batches, held_out, merged=True),
        "reloaded": Stream(batches, held_out, reloaded=True),
    }


class NotTaken(Exception):
    """A parameter or an argument that an estimator does not have."""


# -- estimators ------------------------------------------------------------------------------------


def estimator_class(*names: str) -> Any:
    """The first of some public classes that this edition has."""
    import everlearn

    return next(getattr(everlearn, name) for name in names if name in everlearn.__all__)


def built(cls: Any, parameters: dict[str, Any]) -> Any:
    """An estimator with the parameters in the names of its edition."""
    known = inspect.signature(cls).parameters
    renamed = {"covariance_type": "covariance"}
    chosen = {"random_state": 0} if "random_state" in known else {}
    for name, value in parameters.items():
        name = name if name in known else renamed.get(name, name)
        if name not in known:
            raise NotTaken(f"no parameter {name}")
        chosen[name] = value
    return cls(**chosen)


def figmn(parameters: dict[str, Any]) -> Any:
    """FIGMN, which the first edition calls IncrementalGaussianMixture.paper()."""
    cls = estimator_class("FIGMN", "IncrementalGaussianMixture")
    paper = {"delta": 0.5, "beta": 2e-6, "merging": False}
    paper = {name: value for name, value in paper.items() if name in inspect.signature(cls).parameters}
    return built(cls, {**paper, **parameters})


def constrained(mode: dict[str, Any], parameters: dict[str, Any]) -> Any:
    """OnlinePPCA with the natural constraint."""
    constraint = estimator_class("NaturalConstraint")()
    return built(estimator_class("OnlinePPCA"), {"constraint": constraint, **mode, **parameters})


def figmn_many(parameters: dict[str, Any]) -> Any:
    """FIGMN with settings under which it creates many components."""
    return figmn({"delta": 0.1, "beta": 0.05, **parameters})


ESTIMATORS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "mixture": lambda p: built(estimator_class("IncrementalGaussianMixture"), p),
    "figmn": figmn,
    "figmn_many": figmn_many,
    "figmn_printed": lambda p: figmn({"update": "paper", **p}),
    "ppca": lambda p: built(estimator_class("OnlinePPCA"), p),
    "ppca_plain": lambda p: built(estimator_class("OnlinePPCA"), {"mode": "plain", **p}),
    "ppca_constraint": lambda p: constrained({}, p),
    "ppca_constraint_plain": lambda p: constrained({"mode": "plain"}, p),
    "variational": lambda p: built(estimator_class("VariationalPPCA"), p),
    "variational_paper": lambda p: built(
        estimator_class("VariationalPPCA"), {"mode": "paper", "noise_variance": 0.1, **p}
    ),
    "classifier": lambda p: built(estimator_class("IncrementalGaussianMixtureClassifier"), p),
    "regressor": lambda p: built(estimator_class("IncrementalGaussianMixtureRegressor"), p),
}


# -- recording -------------------------------------------------------------------------------------

Record = dict[str, np.ndarray]


def record(only: list[str]) -> Record:
    """What every estimator answers after every batch of every stream that it takes."""
    found: Record = {}
    for name, make in ESTIMATORS.items():
        if only and name not in only:
            continue
        for title, stream in streams().items():
            if (name, title) in TOO_LONG:
                continue
            print(f"{name} {title}", file=sys.stderr)
            try:
                for batch, answers in enumerate(followed(make, name, stream)):
                    found.update({f"{name}/{title}/{batch}/{key}": value for key, value in answers.items()})
            except (NotTaken, ValueError) as error:
                # A parameter or a stream that this estimator does not take is part of the record, too; every error of
                # the package about its input is a ValueError.
                found[f"{name}/{title}/refused"] = np.array(f"{type(error).__name__}: {error}")
    if not only or "q_agent" in only:
        found.update(agent_record())
    return found


def followed(make: Callable[[dict[str, Any]], Any], name: str, stream: Stream) -> Iterator[Record]:
    """Learn a stream batch by batch and yield the answers after each."""
    import everlearn

    model = make(stream.parameters)
    other = make(stream.parameters) if stream.merged else None
    for i, X in enumerate(stream.batches):
        learner = other if other is not None and 2 * i >= len(stream.batches) else model
        arguments = learning_arguments(name, stream, i, X)
        if not set(arguments) <= set(inspect.signature(learner.partial_fit).parameters):
            raise NotTaken("no sample_weight")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            learner.partial_fit(**arguments)
        if stream.reloaded:
            model = everlearn.loads(everlearn.dumps(model))
        if len(stream.batches) > 100 and i % 25:
            continue  # a single row at a time: every 25th answer will do
        yield answers_of(everlearn.merge([model, other]) if learner is other else model, name, stream)


def learning_arguments(name: str, stream: Stream, i: int, X: np.ndarray) -> dict[str, Any]:
    """Arguments of partial_fit for one batch."""
    weights = {} if stream.weights is None else {"sample_weight": stream.weights[i]}
    if name == "classifier":
        if stream.labels is None:
            raise NotTaken("the stream has no labels")
        return {"X": X, "y": stream.labels[i], "classes": [0, 1, 2], **weights}
    if name == "regressor":
        return {"X": X[:, :-1], "y": X[:, -1], **weights}
    return {"X": X, **weights}


def answers_of(model: Any, name: str, stream: Stream) -> Record:
    """Numbers that a user sees."""
    X = stream.held_out
    if name == "classifier":
        return {"probabilities": np.asarray(model.predict_proba(X))}
    if name == "regressor":
        low, high = model.predict_interval(X[:, :-1])
        return {"predictions": np.asarray(model.predict(X[:, :-1])), "low": np.asarray(low), "high": np.asarray(high)}
    answers = {"log_density": np.asarray(model.score_samples(X))}
    asked = np.where(np.isnan(X), np.nan, X)
    asked[:, -1] = np.nan
    answers["imputed"] = np.asarray(model.impute(asked))
    for attribute in ("weights_", "means_", "covariances_", "loadings_", "noise_variance_", "mean_", "changes_"):
        if hasattr(model, attribute):
            answers[attribute] = np.asarray(getattr(model, attribute), dtype=np.float64)
    if hasattr(model, "events_"):
        answers["events_"] = np.array([(e.row, e.kind == "change") for e in model.events_], dtype=float).reshape(-1, 2)
    return answers


def agent_record() -> Record:
    """Values and actions of an agent in a corridor, after every tenth episode."""
    from everlearn.agents import MixtureQAgent

    found: Record = {}
    for exploration in ("greedy", "epsilon", "optimistic", "thompson"):
        agent = MixtureQAgent(scale=[1.0, 1.0], exploration=exploration, random_state=0).begin(n_actions=3)
        rng = np.random.default_rng(3)
        for episode in range(60):
            x, steps = rng.normal(size=2), 0
            while abs(x[0]) < 3.0 and steps < 40:
                action = agent.act(x)
                x = x + np.array([0.5 * (action - 1), 0.1 * rng.normal()])
                steps += 1
                agent.observe(float(x[0] >= 3.0) - 0.01, x, terminated=abs(x[0]) >= 3.0, truncated=steps == 40)
            if episode % 10 == 9:
                grid = np.column_stack([np.linspace(-3.0, 3.0, 25), np.zeros(25)])
                values, std = agent.values(grid, return_std=True)
                place = f"q_agent/{exploration}/{episode // 10}"
                found[f"{place}/values"], found[f"{place}/std"] = values, std
                found[f"{place}/actions"] = agent.predict(grid).astype(float)
                found[f"{place}/weights_"] = agent.mixture().weights_
    return found


# -- comparing -------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """How far two records of one estimator on one stream are apart."""

    case: str
    batches: int
    first: int | None  # first batch beyond the tolerance
    largest: float
    kind: str  # of the largest difference
    score: float  # difference of the mean held-out log-density at the end
    reason: str


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference relative to the largest number; infinite for other shapes or other gaps."""
    if a.dtype.kind in "US" or b.dtype.kind in "US":
        return 0.0 if a.dtype.kind == b.dtype.kind else np.inf
    if a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
        return np.inf
    if a.size == 0 or np.isnan(a).all():
        return 0.0
    scale = max(1.0, float(np.nanmax(np.abs(a))))
    return float(np.nanmax(np.abs(a - b))) / scale


def compare(old: Record, new: Record) -> list[Difference]:
    """Differences, case by case."""
    cases = dict.fromkeys("/".join(key.split("/")[:2]) for key in [*old, *new])
    return [compare_case(case, old, new) for case in cases]


def compare_case(case: str, old: Record, new: Record) -> Difference:
    """One estimator on one stream."""
    keys = [key for key in dict.fromkeys([*old, *new]) if key.startswith(f"{case}/")]
    apart: dict[int, tuple[float, str]] = {}
    for key in keys:
        batch, kind = (int(key.split("/")[2]), key.split("/")[3]) if key.count("/") == 3 else (0, "refused")
        d = distance(old[key], new[key]) if key in old and key in new else np.inf
        apart[batch] = max(apart.get(batch, (0.0, "")), (d, kind))
    first = next((batch for batch in sorted(apart) if apart[batch][0] > TOLERANCE), None)
    largest, kind = max(apart.values(), default=(0.0, ""))
    reason = next((why for pattern, why in ON_PURPOSE.items() if fnmatch.fnmatch(f"{case}/", pattern)), "")
    return Difference(case, len(apart), first, largest, kind, score_difference(case, old, new), reason)


def score_difference(case: str, old: Record, new: Record) -> float:
    """Difference of the mean held-out log-density after the last batch; NaN where there is none."""
    keys = [key for key in old if key.startswith(f"{case}/") and key.endswith("/log_density") and key in new]
    if not keys:
        return float("nan")
    last = max(keys, key=lambda key: int(key.split("/")[2]))
    return float(np.nanmean(new[last]) - np.nanmean(old[last]))


def report(found: list[Difference]) -> int:
    """Print the differences; returns how many are not on purpose."""
    bad = 0
    for d in found:
        if d.first is None:
            verdict = "both refuse" if d.kind == "refused" else "the same"
        else:
            tolerated = d.largest < np.inf and abs(d.score) <= SCORE
            verdict = "on purpose" if d.reason else "rounding" if tolerated else "DIFFERENT"
        bad += verdict == "DIFFERENT"
        where = "" if d.first is None else f" from batch {d.first} of {d.batches}, {d.kind}, score {d.score:+.1e}"
        print(f"{d.case:32} {verdict:12} {d.largest:8.1e}{where}{'  ' + d.reason if d.first is not None else ''}")
    return bad


def main() -> None:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("file")
    recording.add_argument("--only", action="append", default=[], choices=[*ESTIMATORS, "q_agent"])
    comparing = commands.add_parser("compare")
    comparing.add_argument("old")
    comparing.add_argument("new")
    options = parser.parse_args()
    if options.command == "record":
        np.savez_compressed(options.file, **record(options.only))
        return
    with np.load(options.old) as old, np.load(options.new) as new:
        sys.exit(1 if report(compare(dict(old), dict(new))) else 0)


if __name__ == "__main__":
    main()
