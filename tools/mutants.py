"""Break promises on purpose, one at a time, and see that the tests notice.

    python tools/mutants.py [--only NAME ...] [--list]

Each mutant is a small change of the source that breaks one promise, and the tests that must fail because of it. The
tests run on a copy of the repository, once unchanged (they must pass) and once changed (at least one must fail). A
patch that no longer applies is an error, too: its promise would go unguarded.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("src", "tests", "tools", "benchmarks", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md", "Makefile")


class Mutant(NamedTuple):
    """A change that breaks a promise."""

    promise: str
    file: str  # below src/everlearn
    old: str
    new: str
    tests: tuple[str, ...]  # arguments of pytest


MUTANTS = {
    "packaging": Mutant(
        "any split of a stream into batches gives the same model",
        "mixture/learn.py",
        "        stop = min(len(X), at + end - rows_seen(state))",
        "        stop = min(len(X), at + max(end - rows_seen(state), 300))",
        ("tests/mixture/test_estimator.py", "tests/mixture/test_contracts.py"),
    ),
    "sensors that appear": Mutant(
        "a sensor that appears is watched with the others after a while",
        "watch/watcher.py",
        '        self._advance(np.concatenate([np.column_stack([before, drawn]), gathered]), "always")',
        '        self._advance(np.concatenate([_padded(before, len(self.columns)), gathered]), "always")',
        ("tests/watch/test_watcher.py",),
    ),
    "infinity": Mutant(
        "infinity is an error that names its row and column",
        "linalg/column_scan.py",
        "        if invalid > 0:",
        "        if invalid > D:",
        ("tests/base/test_bad_input.py",),
    ),
    "negative weights": Mutant(
        "negative weights are refused",
        "base/estimator.py",
        "    bad = ~((weights >= 0.0) & (weights <= MOST_WEIGHT))",
        "    bad = ~((weights >= -MOST_WEIGHT) & (weights <= MOST_WEIGHT))",
        ("tests/base/test_bad_input.py", "tests/base/test_estimator.py"),
    ),
    "gaps": Mutant(
        "NaN means not observed: a gap is filled by the conditional mean",
        "mixture/kernels/missing.py",
        "def condition(x, mean, covariance, filled, rest):",
        "def condition(x, mean, covariance, filled, rest):\n    covariance = covariance * np.eye(len(mean))",
        ("tests/mixture/test_estimator.py", "tests/base/test_missing.py"),
    ),
    "definite": Mutant(
        "covariances stay positive definite",
        "agents/kernels/value_function.py",
        "        C[a, a] += w * settings.floor * settings.variances[a]",
        "        C[a, a] -= w * settings.floor * settings.variances[a]",
        ("tests/agents/test_value_function.py",),
    ),
    "eviction": Mutant(
        "memory is bounded: the least recently used region makes room",
        "agents/kernels/value_function.py",
        "            if m.used[i] < m.used[j]:",
        "            if m.used[i] > m.used[j]:",
        ("tests/agents/test_value_function.py",),
    ),
    "forgetting of values": Mutant(
        "values are forgotten at the rate that `memory` says",
        "agents/kernels/value_function.py",
        "min(m.value_counts[j, action] + p, settings.max_count)",
        "min(m.value_counts[j, action] + p, 2.0 * settings.max_count)",
        ("tests/agents/test_value_function.py",),
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
        ("tests/test_errata.py",),
    ),
    "checksum": Mutant(
        "a damaged model file is refused",
        "persistence/model_file.py",
        '    if content["digest"] != digest(content, arrays):',
        '    if content["digest"] == "":',
        ("tests/persistence/test_refused_files.py", "tests/persistence/test_hostile_files.py"),
    ),
    "keeps rows": Mutant(
        "a model that keeps rows says so",
        "mixture/estimator.py",
        "        return len(self._state_.reservoir.rows) > 0 or self._state_.pending.size > 0",
        "        return False",
        ("tests/mixture/test_estimator.py", "tests/test_docs_code.py", "-k", "keeps or rows or merging"),
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
        "experiments/papers/online_vb.py",
        "        letters().shape == (3, 25) and len(values) == 2,",
        "        True,",
        ("tests/experiments/papers/test_items.py", "-k", "by_hand"),
    ),
    "log-loss": Mutant(
        "the log-loss of a peer is that of the true class",
        "experiments/peers/classification.py",
        "    loss = -np.log(clipped[np.arange(len(y)), true]).mean()",
        "    loss = -np.log(clipped.max(axis=1)).mean()",
        ("tests/experiments/peers/test_measurements.py", "-k", "log_loss"),
    ),
    "coverage": Mutant(
        "coverage counts targets on both sides of the interval",
        "experiments/peers/regression.py",
        "(low <= problem.y_test) & (problem.y_test <= high)",
        "(low <= problem.y_test)",
        ("tests/experiments/peers/test_measurements.py", "-k", "knows_the_truth"),
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
            shutil.copytree(
                source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "_build", "*.nbi", "*.nbc")
            )
        elif source.exists():
            shutil.copy(source, folder / name)


def passes(folder: Path, tests: tuple[str, ...]) -> bool:
    """Whether the tests pass on a copy of the repository."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
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
        path = folder / "src" / "everlearn" / mutant.file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text.count(mutant.old) != 1:
            return f"the patch does not apply: {mutant.file} has the line {text.count(mutant.old)} times"
        if not passes(folder, mutant.tests):
            return "its tests fail without it"
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        return "SURVIVED" if passes(folder, mutant.tests) else "noticed"


def main() -> None:
    """Judge the mutants."""
    parser = argparse.ArgumentParser(description="Break promises on purpose and see that the tests notice.")
    parser.add_argument("--only", nargs="+", choices=list(MUTANTS), default=list(MUTANTS), metavar="NAME")
    parser.add_argument("--list", action="store_true", help="list the promises")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name:22} {mutant.promise}" for name, mutant in MUTANTS.items()))
        return
    survived = []
    for name in options.only:
        verdict = judge(MUTANTS[name])
        print(f"{name:22} {verdict}", flush=True)
        survived += [name] if verdict != "noticed" else []
    if survived:
        sys.exit(f"not noticed: {', '.join(survived)}")


if __name__ == "__main__":
    main()
