"""Break promises on purpose, one at a time, and see that the tests notice.

    python tools/mutants.py [--only NAME ...] [--resume] [--stale] [--list] [--jobs N]

Each mutant is a small change of the source that breaks one promise, and the few tests that must fail because of it. The
tests run on a copy of the repository, once unchanged (they must pass) and once changed (at least one must fail). A
patch that no longer applies is an error, too: its promise would go unguarded. `tests/test_mutants.py` sees in CI that
every patch applies.

Each verdict goes into `tools/mutants.json` as soon as it is there, with the commit and a digest of what was judged: the
patch, the folder that it changes, and the tests. `--stale` lists the mutants for which one of them is another now, or
that were not noticed; `--resume` judges those only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COPIED = (
    "src", "tests", "tools", "benchmarks", "docs", "deploy", ".ci", "pyproject.toml", "Makefile", ".gitignore",
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "CITATION.cff",
)  # fmt: skip
RECORD = ROOT / "tools" / "mutants.json"
NOTICED = "noticed"
WRITING = threading.Lock()  # several mutants may be judged at the same time


class Mutant(NamedTuple):
    """A change that breaks a promise."""

    promise: str
    file: str  # below src/everlearn; "./" in front of it: of the root of the repository
    old: str
    new: str
    tests: tuple[str, ...]  # arguments of pytest, or a script of .ci

    def place(self, root: Path) -> Path:
        """The file in a copy of the repository."""
        return root / self.file if self.file.startswith("./") else root / "src" / "everlearn" / self.file


MUTANTS = {
    "packaging": Mutant(
        "any split of a stream into batches gives the same model",
        "mixture/learn.py",
        "        stop = min(n, at + end - rows_seen(state))",
        "        stop = min(n, at + max(end - rows_seen(state), 300))",
        ("tests/mixture/test_estimator.py", "-k", "any_split"),
    ),
    "sensors that appear": Mutant(
        "a sensor that appears is watched with the others after a while",
        "watch/watcher.py",
        "        if len(self._gathered) < GROWING_ROWS or self._unusual is not None:",
        "        if len(self._gathered) < 100 * GROWING_ROWS or self._unusual is not None:",
        ("tests/watch/test_watcher.py", "-k", "watched_with_the_others"),
    ),
    "draws for sensors that appear": Mutant(
        "what a sensor that appeared would have said before is drawn given the others",
        "watch/watcher.py",
        "        drawn = model.sample_columns(_padded(before, len(self.columns)), fresh)[:, 0]",
        "        drawn = np.full((len(before), len(fresh)), np.nan)",
        ("tests/watch/test_watcher.py", "-k", "would_have_said"),
    ),
    "time of a search": Mutant(
        "a model does not depend on the time that its searches take",
        "low_rank/learn.py",
        "        elif state.n + state.pending.size < progress.found.n + CAUGHT_UP:",
        "        elif state.n + state.pending.size < progress.found.n + 1:",
        ("tests/low_rank/test_learn.py", "-k", "time_that_a_search_takes"),
    ),
    "earlier schedule": Mutant(
        "a file that was saved while a search was due, by the schedule of an earlier version, is read and goes on",
        "mixture/learn.py",
        "    if state.model is not None and state.pending.size:",
        "    if state.model is not None and state.pending.size < 0:",
        ("tests/mixture/test_loading.py", "-k", "another_schedule"),
    ),
    "far components": Mutant(
        "leaving the components far from a row out of EM changes no fit",
        "mixture/kernels/em.py",
        "FAR = 40.0",
        "FAR = 0.5",
        ("tests/mixture/keep/test_em.py", "-k", "sparse_fit"),
    ),
    "infinity": Mutant(
        "infinity is an error that names its row and column",
        "linalg/column_scan.py",
        "        if invalid > 0:",
        "        if invalid > D:",
        ("tests/base/test_bad_input.py", "-k", "tables"),
    ),
    "negative weights": Mutant(
        "negative weights are refused",
        "base/estimator.py",
        "    bad = ~((weights >= 0.0) & (weights <= MOST_WEIGHT))",
        "    bad = ~((weights >= -MOST_WEIGHT) & (weights <= MOST_WEIGHT))",
        ("tests/base/test_bad_input.py", "-k", "weights"),
    ),
    "gaps": Mutant(
        "NaN means not observed: a gap is filled by the conditional mean",
        "mixture/kernels/missing.py",
        "def condition(x, mean, covariance, filled, rest):",
        "def condition(x, mean, covariance, filled, rest):\n    covariance = covariance * np.eye(len(mean))",
        ("tests/base/test_missing.py", "-k", "as_good_as_batch_em"),
    ),
    "definite": Mutant(
        "covariances stay positive definite",
        "agents/kernels/value_function.py",
        "        C[a, a] += w * settings.floor * settings.variances[a]",
        "        C[a, a] -= w * settings.floor * settings.variances[a]",
        ("tests/agents/test_value_function.py", "-k", "definite"),
    ),
    "eviction": Mutant(
        "memory is bounded: the least recently used region makes room",
        "agents/kernels/value_function.py",
        "            if m.used[i] < m.used[j]:",
        "            if m.used[i] > m.used[j]:",
        ("tests/agents/test_value_function.py", "-k", "makes_room"),
    ),
    "forgetting of values": Mutant(
        "values are forgotten at the rate that `memory` says",
        "agents/kernels/value_function.py",
        "min(m.value_counts[j, action] + p, settings.max_count)",
        "min(m.value_counts[j, action] + p, 2.0 * settings.max_count)",
        ("tests/agents/test_value_function.py", "-k", "values_fade"),
    ),
    "mixture of an agent": Mutant(
        "the mixture of an agent predicts the values that the agent acts by",
        "agents/value_function.py",
        "    offset = state.means[:n, None] - state.value_means[:n, :, :d]",
        "    offset = 0.0 * (state.means[:n, None] - state.value_means[:n, :, :d])",
        ("tests/agents/test_value_function.py", "-k", "joint_mixture"),
    ),
    "time limit": Mutant(
        "a time limit is no end: what follows is worth what the value function predicts",
        "agents/kernels/value_function.py",
        "        if t < last or not terminated:",
        "        if t < last:",
        ("tests/agents/test_q_agent.py", "-k", "time_limit or twin"),
    ),
    "paper's formula": Mutant(
        "the paper's own formula is available by name",
        "figmn/kernels/rows.py",
        "w * (1.0 - 3.0 * w + w * w) if paper",
        "w * (1.0 - w) if paper",
        ("tests/figmn/kernels/test_missing.py", "tests/figmn/kernels/test_diagonal.py", "-k", "paper or printed"),
    ),
    "checksum": Mutant(
        "a damaged model file is refused",
        "persistence/model_file.py",
        '    if content["digest"] != digest(content, arrays):',
        '    if content["digest"] == "":',
        ("tests/persistence/test_refused_files.py", "-k", "flipped_bit"),
    ),
    "keeps rows": Mutant(
        "a model that keeps rows says so",
        "mixture/estimator.py",
        "        return self._core_.keeps_rows(self._state_)",
        "        return False",
        ("tests/mixture/test_without_rows.py", "-k", "kept_during_the_warm_up"),
    ),
    "verdict": Mutant(
        "a verdict says when only the paper's mode reproduces a claim",
        "experiments/papers/results.py",
        "return REPRODUCED if self.by_default is None or self.by_default else PAPER_MODE_ONLY",
        "return REPRODUCED",
        ("tests/experiments/papers/test_reproduce.py", "-k", "verdict"),
    ),
    "both rules": Mutant(
        "both rules of moment matching must overcome forgetting",
        "experiments/papers/continual_learning/networks.py",
        "            all(final[rule]",
        "            any(final[rule]",
        ("tests/experiments/papers/test_items.py", "-k", "both_rules"),
    ),
    "hand-written verdict": Mutant(
        "no verdict is written by hand",
        "experiments/papers/online_vb/figures.py",
        "        letters().shape == (3, 25) and len(values) == 2,",
        "        True,",
        ("tests/experiments/papers/test_items.py", "-k", "by_hand"),
    ),
    "coverage": Mutant(
        "coverage counts targets on both sides of the interval",
        "experiments/peers/conditional.py",
        "(low <= y) & (y <= high)",
        "(low <= y)",
        ("tests/experiments/peers/test_measurements.py", "-k", "true_conditional"),
    ),
    "weight of a creation": Mutant(
        "a row of weight two is the row twice: the creation prior is counted once",
        "figmn/kernels/rows.py",
        "        precisions[n, a, a] = weight / settings.initial_variance[a]",
        "        precisions[n, a, a] = 1.0 / settings.initial_variance[a]",
        ("tests/figmn/test_estimator.py", "-k", "whatever_the_weight or twice"),
    ),
    "gain of a heavy row": Mutant(
        "a row may weigh any number of times what was there",
        "figmn/kernels/rows.py",
        "HEAVIEST_GAIN = 1.0 - 1e-9",
        "HEAVIEST_GAIN = 0.999",
        ("tests/figmn/test_estimator.py", "-k", "million_times"),
    ),
    "refinement that was worse": Mutant(
        "reduce says when refinement was worse, and keeps the better one",
        "gaussian/reduction.py",
        "    if errors[0] < errors[1]:",
        "    if errors[0] < 0.0 * errors[1]:",
        ("tests/gaussian/test_reduction.py", "-k", "refinement_was_worse"),
    ),
    "plain constraint": Mutant(
        "mode='plain' minimises the penalised objective row by row",
        "ppca/kernels/constraint.py",
        "                A[j, k] = S2[j, k] * unit[j] * unit[k]",
        "                A[j, k] = S2[j, k] * unit[j] * unit[k] if j == k else 0.0",
        ("tests/ppca/test_keep.py", "-k", "class_policy"),
    ),
    "predictive density": Mutant(
        "the score that weighs the memories of a bank is a density",
        "variational/kernels/posterior.py",
        "    d2 = row.xx\n    for j in range(m, p):",
        "    v *= 1.05\n    d2 = 1.05 * row.xx\n    for j in range(m, p):",
        ("tests/variational/kernels/test_posterior.py", "-k", "integrates"),
    ),
    "estimates": Mutant(
        "estimates of the reproduction are those of the last run",
        "experiments/papers/registry.py",
        'known.get("full", UNKNOWN[1])',
        'known.get("full", UNKNOWN[1]) / 3.0',
        ("tests/experiments/papers/test_reproduce.py", "-k", "estimates"),
    ),
    "class after class": Mutant(
        "the comparison learns the rows of a set class after class, too",
        "experiments/peers/supervised.py",
        'rows = train if order == "shuffled" else train[np.argsort(problem.y[train], kind="stable")]',
        "rows = train",
        ("tests/experiments/peers/test_supervised.py", "-k", "in_order"),
    ),
    "first question": Mutant(
        "rates of the comparison count the work that a model puts off until it is asked",
        "experiments/peers/supervised.py",
        "            ask(model, problem.X[test[:1]])",
        "            len(problem.X[test[:1]])",
        ("tests/experiments/peers/test_supervised.py", "-k", "first_question"),
    ),
    "intervals": Mutant(
        "an interval of 90 % holds 90 % of fresh rows",
        "gaussian/conditional.py",
        "    return quantile(mixture, 0.5 - 0.5 * coverage), quantile(mixture, 0.5 + 0.5 * coverage)",
        "    return quantile(mixture, 0.5 - 0.45 * coverage), quantile(mixture, 0.5 + 0.45 * coverage)",
        ("tests/base/test_conditioning.py", "-k", "intervals_cover"),
    ),
    "whole posterior of the factor": Mutant(
        "forgetting='posterior' is the mean over all of (0, 1)",
        "variational/kernels/paper.py",
        "            weight = 0.5 * CELL * WEIGHTS[k] * math.exp(height - top)",
        "            weight = CELL * WEIGHTS[k] * math.exp(height - top) * lam",
        ("tests/variational/kernels/test_paper.py", "-k", "eq_9"),
    ),
    "prior counted once": Mutant(
        "merge(method='bayes') counts the prior once",
        "base/posterior.py",
        'shares = trust * ((1.0 if method in ("mode", "mean") else len(models)) / trust.sum())',
        "shares = trust * (1.0 / trust.sum())",
        ("tests/base/test_posterior.py", "-k", "merge"),
    ),
    "budget of the baselines": Mutant(
        "a run that did not solve its task counts for its budget",
        "experiments/papers/figmn/agents.py",
        "np.mean([BUDGET if start is None else start for start in starts])",
        "np.mean([start for start in starts if start is not None])",
        ("tests/experiments/papers/test_agents_table.py", "-k", "counts_for_its_budget"),
    ),
    "time limit of the network": Mutant(
        "a time limit is no end for the deep Q-network",
        "agents/baselines.py",
        "observation, float(terminated)",
        "observation, float(terminated or truncated)",
        ("tests/agents/test_baselines.py", "-k", "time_limit"),
    ),
    "Huber loss": Mutant(
        "the gradient of the network is that of the Huber loss",
        "agents/baselines.py",
        "np.clip(outputs[-1][rows, batch.actions] - goal, -1.0, 1.0)",
        "np.clip(outputs[-1][rows, batch.actions] - goal, -2.0, 2.0)",
        ("tests/agents/test_baselines.py", "-k", "huber"),
    ),
    "items of another run": Mutant(
        "of an item in two files the one that was merged holds, and a skipped one does not",
        "experiments/papers/run.py",
        '        whole._take({key: s for key, s in other["sections"].items() if s["verdict"] != SKIPPED})',
        '        whole._take(other["sections"])',
        ("tests/experiments/papers/test_reproduce.py", "-k", "merge_keeps"),
    ),
    "order of classes": Mutant(
        "forgetting follows the order in which the classes came",
        "experiments/papers/nat_oem/variations.py",
        "    met = data.y[at - 1]",
        "    met = np.sort(data.y[at - 1])",
        ("tests/experiments/papers/test_variations.py", "-k", "forgetting"),
    ),
    "noise of the protocol": Mutant(
        "sigma is drawn between 0 and 1",
        "experiments/papers/nat_oem/protocol.py",
        "    sigma = float(rng.uniform(0.0, 1.0))",
        "    sigma = 0.5 + 0.0 * float(rng.uniform(0.0, 1.0))",
        ("tests/experiments/papers/test_variations.py", "-k", "noise"),
    ),
    "planes of a picture": Mutant(
        "CIFAR-10's records are a label and three planes",
        "datasets/cifar10.py",
        "    return records[:, 1:].copy(), labels",
        "    return records[:, :-1].copy(), labels",
        ("tests/datasets/test_datasets.py", "-k", "cifar10"),
    ),
    "shards": Mutant(
        "sixteen shards that keep no row are, merged, what one pass finds",
        "mixture/merge.py",
        "    return Stock(mass * s, counts * s, means * ratio + offset, scatter * (s * ratio * ratio[:, None]))",
        "    return Stock(mass * s, counts * s, means * ratio, scatter * (s * ratio * ratio[:, None]))",
        ("tests/mixture/test_merge.py", "-k", "sixteen_shards"),
    ),
    "time of gaps": Mutant(
        "rows with gaps take at most five times as long",
        "mixture/kernels/missing.py",
        "    log_det = cholesky_of_block(covariance, seen[:g], 0, L)\n    for i in range(g):",
        "    for _ in range(D * D * D):\n"
        "        log_det = cholesky_of_block(covariance, seen[:g], 0, L)\n    for i in range(g):",
        ("tests/base/test_missing.py", "-k", "five_times"),
    ),
    "letters": Mutant(
        "the table of the letters is that of the paper's rule with the settings of its section 3.2",
        "experiments/papers/online_vb/figures.py",
        'return _study(context, "letters", letters(), 0.2, 1e-8, fixed=False)',
        'return _study(context, "letters", letters(), 0.2, 1e-3, fixed=False)',
        ("tests/experiments/papers/test_online_vb_figures.py", "-k", "table_of_the_letters"),
    ),
    "requirements of the wheel": Mutant(
        "the wheel brings what it needs: it learns, saves and loads in an empty environment",
        "./pyproject.toml",
        '    "safetensors>=0.4.3",\n',
        "",
        (".ci/check_wheel.py",),
    ),
    "files of the wheel": Mutant(
        "every file of the package is in the wheel",
        "./pyproject.toml",
        'packages = ["src/everlearn"]\n',
        'packages = ["src/everlearn"]\nexclude = ["*.json"]\n',
        (".ci/check_wheel.py",),
    ),
    "layers": Mutant(
        "imports run downwards only, type-checking imports included",
        "gaussian/gaussian.py",
        "from __future__ import annotations",
        "from __future__ import annotations\nimport typing\nif typing.TYPE_CHECKING:\n    import everlearn.ppca.state",
        ("tests/test_layers.py", "-k", "holds"),
    ),
}


def copy_of_repository(folder: Path) -> None:
    """The parts of the repository that tests need."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            # With what numba has compiled: a cached kernel is stamped with all the files that it is made of, so that
            # a mutant compiles the kernels it changes and no others.
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("*.pyc", "_build"))
        elif source.exists():
            shutil.copy(source, folder / name)
    # The check of the wheel asks git which files there are.
    for arguments in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True)


def passes(folder: Path, tests: tuple[str, ...]) -> bool:
    """Whether the tests pass on a copy of the repository."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *tests]
    if tests[0].startswith("tests/"):
        command[1:1] = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    # 0: passed; 1: failed. Anything else (no tests, a usage error) means that nothing was tested.
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0


def judge(mutant: Mutant) -> str:
    """What became of a mutant: "noticed", or what is wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        copy_of_repository(folder)
        path = mutant.place(folder)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text.count(mutant.old) != 1:
            return f"the patch does not apply: {mutant.file} has the line {text.count(mutant.old)} times"
        if not passes(folder, mutant.tests):
            return "its tests fail without it"
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        return "SURVIVED" if passes(folder, mutant.tests) else NOTICED


# -- the record -------------------------------------------------------------------------------------


def digest(mutant: Mutant) -> str:
    """A digest of what a verdict is about: the patch, the code of the folder that it changes, and its tests."""
    if mutant.file.startswith("./"):
        files = [mutant.place(ROOT)]
    else:
        folder = ROOT / "src" / "everlearn" / Path(mutant.file).parts[0]
        files = [path for path in sorted(folder.rglob("*")) if path.suffix in (".py", ".json")]
    files += [ROOT / part for part in mutant.tests if part.endswith(".py")]
    found = hashlib.sha256(repr(mutant[1:]).encode())
    for path in files:
        found.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def read_record() -> dict[str, Any]:
    """The verdicts so far, by the names of mutants."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return found


def write_verdict(name: str, made: dict[str, Any]) -> None:
    """Put a verdict into the record; those of mutants that are no more go."""
    with WRITING:
        verdicts = {**read_record(), name: made}
        kept = {name: verdicts[name] for name in MUTANTS if name in verdicts}
        scratch = RECORD.with_suffix(".tmp")
        scratch.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        scratch.replace(RECORD)


def why_stale(name: str, record: dict[str, Any]) -> str:
    """Why a mutant is to be judged; nothing if it was noticed in the present code."""
    if name not in record:
        return "never judged"
    made = record[name]
    if made["verdict"] != NOTICED:
        return str(made["verdict"])
    return "" if made["digest"] == digest(MUTANTS[name]) else f"changed since {made['commit'][:12]}"


def origin() -> dict[str, Any]:
    """The commit, and the files that are not as they are there."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("diff", "--name-only", "HEAD", "--", "src", "tests", "tools/mutants.py").split()
    return {"commit": git("rev-parse", "HEAD"), "changed": changed}


def judged(name: str) -> str:
    """Judge a mutant and record the verdict, with where it comes from: asked before the run, for it takes minutes."""
    made = {**origin(), "digest": digest(MUTANTS[name])}
    began = time.monotonic()
    verdict = judge(MUTANTS[name])
    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    write_verdict(name, {"verdict": verdict, **made, "date": stamp, "seconds": round(time.monotonic() - began)})
    return verdict


def describe(name: str, record: dict[str, Any]) -> str:
    """A line of the list: the promise, and what is known of the mutant that breaks it."""
    made = record.get(name)
    told = f"{made['verdict']} at {made['commit'][:12]}, {made['date']}" if made else "never judged"
    return f"{name:30} {told:48} {MUTANTS[name].promise}"


def main() -> None:
    """Judge the mutants."""
    parser = argparse.ArgumentParser(description="Break promises on purpose and see that the tests notice.")
    parser.add_argument("--only", nargs="+", choices=list(MUTANTS), default=list(MUTANTS), metavar="NAME")
    parser.add_argument("--resume", action="store_true", help="judge only those that --stale lists")
    parser.add_argument("--stale", action="store_true", help="list those that were not noticed in the present code")
    parser.add_argument("--jobs", type=int, default=1, help="mutants that are judged at the same time")
    parser.add_argument("--list", action="store_true", help="list the promises, and where each was judged last")
    options = parser.parse_args()
    record = read_record()
    if options.list:
        print("\n".join(describe(name, record) for name in options.only))
        return
    stale = {name: why for name in options.only if (why := why_stale(name, record))}
    if options.stale:
        print("\n".join(f"{name}: {why}" for name, why in stale.items()))
        return
    names = [name for name in options.only if name in stale or not options.resume]
    with ThreadPoolExecutor(options.jobs) as executor:
        survived = []
        for name, verdict in zip(names, executor.map(judged, names), strict=True):
            print(f"{name:30} {verdict}", flush=True)
            survived += [name] if verdict != NOTICED else []
    print(f"{len(names) - len(survived)} of {len(names)} mutants are noticed")
    if survived:
        sys.exit(f"not noticed: {', '.join(survived)}")


if __name__ == "__main__":
    main()
