"""Transfer from one task to the next, so that merged weights lie in one valley of the loss.

Weight-transfer starts a task from the weights of the one before. L2-transfer also pulls towards them. Drop-transfer
drops, with probability p and sample by sample, what a unit has learned since: its weights fall back to the earlier
ones, and the others' changes count 1/(1-p) times. From earlier weights of zero this is dropout.

References
----------
Lee et al., "Overcoming catastrophic forgetting by incremental moment matching", NIPS 2017, section 4.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from everlearn.errors import InputError
from everlearn.networks.torch_import import torch


def l2_penalty(network: torch.nn.Module, previous: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Squared distance of a network's parameters from earlier ones, to be added to a loss.

    Parameters
    ----------
    network : torch.nn.Module
        The network that is being trained.
    previous : dict
        State dict of the task before.

    Returns
    -------
    torch.Tensor
        A number that gradients flow through.
    """
    return sum(  # type: ignore[return-value]
        (parameter - previous[name]).square().sum() for name, parameter in network.named_parameters()
    )


@contextmanager
def drop_transfer(
    network: torch.nn.Module, previous: Mapping[str, torch.Tensor] | None = None, p: float = 0.5
) -> Iterator[None]:
    """Train with drop-transfer inside this context.

    In training mode every layer with parameters of its own, the last one aside, answers
    ``f_previous(x) + dropout(f(x) - f_previous(x))``. Layers must be affine in their parameters, as linear and
    convolution layers are.

    Parameters
    ----------
    network : torch.nn.Module
        The network that is being trained.
    previous : dict, optional
        State dict of the task before; without it earlier weights are zero, which makes it dropout.
    p : float, default=0.5
        Probability with which a unit falls back.
    """
    if not 0.0 <= p < 1.0:
        raise InputError(f"p must be from 0 up to but not including 1; got {p}.")
    earlier = _frozen(network, previous)
    # Layers with parameters of their own: containers answer by their parts, and would fall back twice.
    layers = [
        (layer, old)
        for layer, old in zip(network.modules(), earlier.modules(), strict=True)
        if next(layer.parameters(recurse=False), None) is not None
    ]
    # Hidden units only: those of the last layer are the answer itself.
    handles = [layer.register_forward_hook(_falling_back(old, p)) for layer, old in layers[:-1]]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _frozen(network: torch.nn.Module, state: Mapping[str, torch.Tensor] | None) -> torch.nn.Module:
    """A copy with earlier weights, or with weights of zero, that is not trained."""
    earlier = copy.deepcopy(network).requires_grad_(False)
    if state is not None:
        earlier.load_state_dict(dict(state))
        return earlier
    for parameter in earlier.parameters():
        parameter.zero_()
    return earlier


def _falling_back(old: torch.nn.Module, p: float) -> Any:
    def hook(layer: torch.nn.Module, inputs: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        if not layer.training:
            return output
        before = old(*inputs)
        # Dropout of the difference: a dropped unit answers as before, the others' changes are scaled by 1/(1 - p).
        return before + torch.nn.functional.dropout(output - before, p)

    return hook
