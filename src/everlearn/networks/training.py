"""A small trainer: stochastic gradient descent on one task, with transfer from the one before."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from everlearn.networks.fisher import as_tensor
from everlearn.networks.torch_import import torch
from everlearn.networks.transfer import drop_transfer, l2_penalty


def train(
    network: torch.nn.Module,
    X: Any,
    y: Any,
    *,
    previous: Mapping[str, torch.Tensor] | None = None,
    l2: float = 0.0,
    drop: float = 0.0,
    epochs: int = 6,
    batch_size: int = 100,
    learning_rate: float = 0.3,
    random_state: int = 0,
) -> torch.nn.Module:
    """Train a classifier on one task, in place.

    Parameters
    ----------
    network : torch.nn.Module
        The network; it changes.
    X : array-like or tensor of shape (n_samples, ...)
        Inputs.
    y : array-like or tensor of shape (n_samples,)
        Classes, from 0 on.
    previous : dict, optional
        State dict of the task before, from which training starts (weight-transfer).
    l2 : float, default=0.0
        Weight of the pull towards `previous` (L2-transfer).
    drop : float, default=0.0
        Probability with which a unit falls back to `previous` (drop-transfer); without `previous`, that of dropout.
    epochs : int, default=6
        Passes over the rows.
    batch_size : int, default=100
        Rows of a step.
    learning_rate : float, default=0.3
        Step size.
    random_state : int, default=0
        Seed of the order of rows and of dropping.

    Returns
    -------
    torch.nn.Module
        The network.
    """
    if previous is not None:
        network.load_state_dict(dict(previous))
    optimizer = torch.optim.SGD(network.parameters(), learning_rate)
    where = device_of(network)
    inputs, labels = as_tensor(X).to(where), as_tensor(y).long().to(where)
    network.train()
    dropping = drop_transfer(network, previous, drop) if drop else nullcontext()
    # The caller's random numbers go on as if nothing had been drawn here.
    with torch.random.fork_rng([where] if where.type == "cuda" else []), dropping:
        torch.manual_seed(random_state)
        for rows in (rows for _ in range(epochs) for rows in torch.randperm(len(inputs)).to(where).split(batch_size)):
            loss = torch.nn.functional.cross_entropy(network(inputs[rows]), labels[rows])
            if previous is not None and l2 > 0.0:
                loss = loss + l2 * l2_penalty(network, previous)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network.eval()


def score(network: torch.nn.Module, X: Any, y: Any) -> float:
    """Share of rows whose class has the highest output."""
    where = device_of(network)
    with torch.no_grad():
        return float((network(as_tensor(X).to(where)).argmax(dim=-1) == as_tensor(y).to(where)).double().mean())


def device_of(network: torch.nn.Module) -> torch.device:
    """Where the weights of a network are; rows are sent there."""
    return next(network.parameters()).device
