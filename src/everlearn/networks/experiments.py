"""IMM over the tasks of a protocol, and the two protocols of MNIST that its paper uses."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from everlearn.continual import Results, Task, disjoint, permuted
from everlearn.datasets import load_mnist
from everlearn.errors import InputError
from everlearn.networks.fisher import diagonal_fisher
from everlearn.networks.imm import mean_imm, mode_imm, state_of, with_state
from everlearn.networks.torch_import import torch
from everlearn.networks.training import score, train

RULES = ("last", "mean", "mode")


def run_imm(
    network: torch.nn.Module,
    tasks: Iterable[Task],
    *,
    alphas: Any = None,
    fisher_rows: int = 2000,
    floor: float = 1e-8,
    drop: float = 0.5,
    random_state: int = 0,
    **training: Any,
) -> dict[str, Results]:
    """Train a network on one task after another, and merge the tasks' weights by each rule.

    Each task starts from the weights of the task before; after each, the weights of all tasks so far are merged and
    tested on all tasks.

    Parameters
    ----------
    network : torch.nn.Module
        A classifier with untrained weights; it does not change.
    tasks : iterable of Task
        From a protocol of `everlearn.continual`.
    alphas : sequence of float or dict, optional
        Weight of each task, or such a sequence for each rule ("mean", "mode"); by default equal.
    fisher_rows : int, default=2000
        Rows of a task that its Fisher information is computed from.
    floor : float, default=1e-8
        Least Fisher information, see :func:`mode_imm`.
    drop : float, default=0.5
        Probability of drop-transfer between tasks, and of dropout in the first.
    random_state : int, default=0
        Seed of training.
    **training
        Further arguments of :func:`train`, such as `l2` for L2-transfer.

    Returns
    -------
    dict
        Results by rule: "last", the weights as the last task left them, "mean" and "mode".
    """
    listed = list(tasks)
    states: list[Any] = []
    fishers: list[Any] = []
    R = {rule: np.empty((len(listed), len(listed))) for rule in RULES}
    learning = with_state(network, state_of(network))
    for i, task in enumerate(listed):
        previous = states[-1] if states else None
        seed = random_state + 1000 * i
        train(learning, task.X, task.y, previous=previous, drop=drop, random_state=seed, **training)
        states.append(state_of(learning))
        # At the weights of this task and on its rows, with labels drawn from the
        # network: the curvature that mode-IMM needs.
        fishers.append(diagonal_fisher(learning, task.X[:fisher_rows], random_state=seed))
        # Weights of the tasks so far; the rules scale them to sum to one.
        shares = {rule: None if given is None else given[: i + 1] for rule, given in _by_rule(alphas).items()}
        merged = {
            "last": states[-1],
            "mean": mean_imm(states, alphas=shares["mean"]),
            "mode": mode_imm(states, fishers, alphas=shares["mode"], floor=floor),
        }
        for rule, state in merged.items():
            tested = with_state(network, state).eval()
            R[rule][i] = [score(tested, other.X_test, other.y_test) for other in listed]
    names = tuple(task.name for task in listed)
    untrained = np.array([score(network, task.X_test, task.y_test) for task in listed])
    return {rule: Results(names, R[rule], untrained) for rule in RULES}


def _by_rule(alphas: Any) -> dict[str, Any]:
    """Weights of the tasks for each rule that merges."""
    if not isinstance(alphas, dict):
        return dict.fromkeys(RULES[1:], alphas)
    if unknown := alphas.keys() - set(RULES[1:]):
        raise InputError(f"alphas has weights for {', '.join(sorted(unknown))}; the rules are 'mean' and 'mode'.")
    return {rule: alphas.get(rule) for rule in RULES[1:]}


def multilayer_perceptron(sizes: tuple[int, ...] = (784, 800, 10), *, random_state: int = 0) -> torch.nn.Module:
    """Return a network of linear layers with rectifiers between them.

    Parameters
    ----------
    sizes : tuple of int, default=(784, 800, 10)
        Units of each layer, from the inputs to the classes.
    random_state : int, default=0
        Seed of the weights.

    Returns
    -------
    torch.nn.Module
        The network.
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(random_state)
        layers = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
    between = [torch.nn.ReLU() for _ in layers[:-1]]
    parts = [part for pair in zip(layers, between, strict=False) for part in pair]
    return torch.nn.Sequential(*parts, layers[-1])


def mnist_tasks(
    protocol: str = "disjoint",
    folder: str | os.PathLike[str] | None = None,
    *,
    n_tasks: int | None = None,
    random_state: int = 0,
) -> list[Task]:
    """Return the tasks of disjoint or shuffled MNIST, pixels from 0 to 1 in single precision.

    Parameters
    ----------
    protocol : {"disjoint", "shuffled"}, default="disjoint"
        Digits 0 to 4, then 5 to 9, for one head of ten classes; or all digits with the pixels in other orders.
    folder : path-like, optional
        Where the four MNIST files are; by default `mnist` in $EVERLEARN_DATA.
    n_tasks : int, optional
        Number of tasks; by default 2 (disjoint) or 3 (shuffled).
    random_state : int, default=0
        Seed of the order of rows or pixels.

    Returns
    -------
    list of Task
        The tasks, tested on the 10,000 test images.
    """
    data = load_mnist(folder)
    X, X_test = ((part / np.float32(255)).astype(np.float32) for part in (data.data, data.test_data))
    y, test = data.target.astype(np.int64), (X_test, data.test_target.astype(np.int64))
    if protocol == "disjoint":
        return list(disjoint(X, y, groups=n_tasks or 2, test=test, random_state=random_state))
    if protocol == "shuffled":
        return list(permuted(X, y, n_tasks=n_tasks or 3, test=test, random_state=random_state))
    raise InputError(f"protocol={protocol!r} is not known; choose 'disjoint' or 'shuffled'.")
