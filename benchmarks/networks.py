"""Disjoint MNIST with one head: fine-tuning, mean-IMM and mode-IMM by kind of transfer; seeds and spread.

    python benchmarks/networks.py [folder of the four MNIST files]

The folder is by default `mnist` in $EVERLEARN_DATA. Learning rate, epochs, drop probability and L2 weight were chosen
on the last 10,000 training images; the test images are asked once. The table goes to benchmarks/results/networks.md.
"""

from __future__ import annotations

import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch

from everlearn.errors import InputError
from everlearn.networks import mnist_tasks, multilayer_perceptron, run_imm

SEEDS = (0, 1, 2)
SIZES = (784, 800, 10)
TRANSFERS = {"weight": {"drop": 0.0}, "drop": {"drop": 0.5}, "drop and L2": {"drop": 0.5, "l2": 1e-3}}
NAMES = {"last": "fine-tuning", "mean": "mean-IMM", "mode": "mode-IMM"}
OUTPUT = Path(__file__).parent / "results" / "networks.md"


def measure(folder: str | None) -> dict[tuple[str, str], list[np.ndarray]]:
    """Accuracies on both tasks at the end, by transfer and rule, one a seed."""
    scores: dict[tuple[str, str], list[np.ndarray]] = {}
    for seed in SEEDS:
        tasks = mnist_tasks("disjoint", folder, random_state=seed)
        for transfer, settings in TRANSFERS.items():
            network = multilayer_perceptron(SIZES, random_state=seed)
            for rule, results in run_imm(network, tasks, random_state=seed, **settings).items():
                scores.setdefault((transfer, rule), []).append(100.0 * results.R[-1])
                print(f"seed {seed}, {transfer}, {NAMES[rule]}: {100.0 * results.R[-1].mean():.1f}", flush=True)
    return scores


def table(scores: dict[tuple[str, str], list[np.ndarray]]) -> str:
    """Mean and standard deviation over seeds as Markdown."""
    lines = ["| transfer | rule | digits 0 to 4 | digits 5 to 9 | both | each seed |", "|---|---|---|---|---|---|"]
    for (transfer, rule), runs in scores.items():
        first, second = np.mean(runs, axis=0)
        both = np.mean(runs, axis=1)
        each = ", ".join(f"{value:.1f}" for value in both)
        spread = f"{both.mean():.1f} ± {both.std(ddof=1):.1f}"
        lines.append(f"| {transfer} | {NAMES[rule]} | {first:.1f} | {second:.1f} | **{spread}** | {each} |")
    return "\n".join(lines)


def main(folder: str | None) -> None:
    """Measure, print and write."""
    torch.set_num_threads(1)
    start, clock = time.process_time(), time.perf_counter()
    try:
        scores = measure(folder)
    except InputError as error:
        print(f"skipped: {error}")
        return
    took = f"{time.process_time() - start:.0f} s of one core ({time.perf_counter() - clock:.0f} s by the clock)"
    text = f"""# Disjoint MNIST with networks

Accuracy in percent on the 10,000 test images after learning digits 0 to 4 and then 5 to 9 with one head of ten
classes; mean and standard deviation over {len(SEEDS)} seeds. Network {"-".join(map(str, SIZES))}, 6 epochs a task,
learning rate 0.3, equal weights of the tasks, Fisher information from 2,000 rows a task. Both tasks count the same in
the mean.

{table(scores)}

Made by `python benchmarks/networks.py` in {took}, torch {torch.__version__}, {platform.machine()}.
"""
    print(text)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
