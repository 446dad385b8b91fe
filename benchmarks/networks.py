"""Disjoint MNIST with one head: fine-tuning, mean-IMM and mode-IMM by kind of transfer; seeds and spread.

    python benchmarks/networks.py [--folder FOLDER] [--device cuda] [--quick]

The folder of the four MNIST files is by default `mnist` in $EVERLEARN_DATA. Learning rate, epochs, drop probability,
L2 weight and the weights of the tasks were chosen on the last 10,000 training images; the test images are asked once.
"""

from __future__ import annotations

import numpy as np
import torch
from _page import parser, write_page

from everlearn.errors import InputError
from everlearn.networks import mnist_tasks, multilayer_perceptron, run_imm

SEEDS = (0, 1, 2)
SIZES = (784, 800, 10)
# Chosen on the last 10,000 training images; mean-IMM is best with equal weights there.
EPOCHS, ALPHAS = 15, {"mode": (0.7, 0.3)}
TRANSFERS = {"weight": {"drop": 0.0}, "drop": {"drop": 0.5}, "drop and L2": {"drop": 0.5, "l2": 1e-3}}
NAMES = {"last": "fine-tuning", "mean": "mean-IMM", "mode": "mode-IMM"}


def measure(folder: str | None, seeds: tuple[int, ...], device: str) -> dict[tuple[str, str], list[np.ndarray]]:
    """Accuracies on both tasks at the end, by transfer and rule, one a seed."""
    scores: dict[tuple[str, str], list[np.ndarray]] = {}
    for seed in seeds:
        tasks = mnist_tasks("disjoint", folder, random_state=seed)
        for transfer, settings in TRANSFERS.items():
            network = multilayer_perceptron(SIZES, random_state=seed).to(device)
            settings = {"epochs": EPOCHS, "alphas": ALPHAS, **settings}
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


def main() -> None:
    """Measure and write."""
    made = parser(__doc__)
    made.add_argument("--folder", help="folder of the four MNIST files")
    made.add_argument("--device", default="cpu", help="device of torch's")
    options = made.parse_args()
    torch.set_num_threads(1)
    seeds = SEEDS[:1] if options.quick else SEEDS
    try:
        scores = measure(options.folder, seeds, options.device)
    except InputError as error:
        print(f"skipped: {error}")
        return
    text = f"""# Disjoint MNIST with networks

Accuracy in percent on the 10,000 test images after learning digits 0 to 4 and then 5 to 9 with one head of ten
classes; mean and standard deviation over {len(seeds)} seeds. Network {"-".join(map(str, SIZES))}, {EPOCHS} epochs a
task, learning rate 0.3, Fisher information from 2,000 rows a task. Mean-IMM gives the tasks equal weights, mode-IMM
{" and ".join(map(str, ALPHAS["mode"]))}. Both tasks count the same in the mean.

{table(scores)}
"""
    write_page("networks", text, quick=options.quick)


if __name__ == "__main__":
    main()
