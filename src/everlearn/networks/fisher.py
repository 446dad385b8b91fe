"""Diagonal Fisher information of a network's weights, from the gradients of single samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from everlearn.errors import InputError
from everlearn.networks.torch_import import torch

LogLikelihood = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]


def class_log_likelihood(output: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Log-probability of a class under the softmax of the network's output."""
    return torch.log_softmax(output, dim=-1).gather(-1, label[..., None])[..., 0]


def diagonal_fisher(
    network: torch.nn.Module,
    X: Any,
    y: Any = None,
    *,
    log_likelihood: LogLikelihood = class_log_likelihood,
    batch_size: int = 64,
    random_state: int = 0,
) -> dict[str, torch.Tensor]:
    """Mean squared gradient of the log-likelihood of single samples, for every weight.

    The square is taken sample by sample (a batch's gradient squared is not the Fisher information). Without labels they
    are drawn from the network's own softmax, which gives the true Fisher information; with labels it is the empirical
    one.

    Parameters
    ----------
    network : torch.nn.Module
        A network; it does not change, and is taken in evaluation mode.
    X : array-like or tensor of shape (n_samples, ...)
        Inputs.
    y : array-like or tensor of shape (n_samples,), optional
        Labels.
    log_likelihood : callable (output, label) -> tensor, optional
        Log-likelihood of one sample; by default that of a class under the softmax. Any other needs labels.
    batch_size : int, default=64
        Samples whose gradients are held at a time.
    random_state : int, default=0
        Seed of drawn labels.

    Returns
    -------
    dict
        Fisher information by the names of the network's parameters.
    """
    if y is None and log_likelihood is not class_log_likelihood:
        raise InputError("y is None; labels can only be drawn for the softmax of classes. Give the labels.")
    parameters = {name: p.detach() for name, p in network.named_parameters() if p.requires_grad}
    like = next(iter(parameters.values()))
    # Where the network is: gradients of single samples cannot cross from one device to another.
    inputs, given = as_tensor(X).to(like), None if y is None else as_tensor(y).to(like.device)
    if not len(inputs):
        raise InputError("X has no rows; the Fisher information is a mean over samples.")
    generator = torch.Generator(like.device).manual_seed(random_state)
    # Dropout and batch statistics would make the gradient of a sample depend on chance or on its batch.
    training = network.training
    network.eval()
    try:
        squares = _squares_of(network, log_likelihood)
        total = {name: torch.zeros_like(p) for name, p in parameters.items()}
        for start in range(0, len(inputs), batch_size):
            x = inputs[start : start + batch_size]
            labels = _drawn(network, x, generator) if given is None else given[start : start + batch_size]
            for name, square in squares(parameters, x, labels).items():
                total[name] += square
    finally:
        network.train(training)
    return {name: value / len(inputs) for name, value in total.items()}


def as_tensor(values: Any) -> torch.Tensor:
    """A tensor of an array or a tensor."""
    return values if isinstance(values, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(values))


def _squares_of(network: torch.nn.Module, log_likelihood: LogLikelihood) -> Callable[..., dict[str, torch.Tensor]]:
    """Function of (parameters, inputs, labels): sum over samples of each one's squared gradient."""
    buffers = dict(network.named_buffers())

    def of_one(parameters: dict[str, torch.Tensor], x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        output = torch.func.functional_call(network, (parameters, buffers), (x[None],))
        return log_likelihood(output[0], label)

    # vmap gives a gradient for each sample in one pass; backward() would give their sum, whose square is another thing.
    gradients = torch.func.vmap(torch.func.grad(of_one), in_dims=(None, 0, 0))

    def squares(parameters: dict[str, torch.Tensor], x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: g.square().sum(dim=0) for name, g in gradients(parameters, x, labels).items()}

    return squares


def _drawn(network: torch.nn.Module, x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    # Labels from the network's own softmax: E over its predictions is what makes it the Fisher information.
    with torch.no_grad():
        probabilities = torch.softmax(network(x), dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]
