"""Merging the weights of networks: mean-IMM and mode-IMM with diagonal covariances."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from everlearn.errors import MergeError
from everlearn.networks.torch_import import torch

State = Mapping[str, "torch.Tensor"]
Network = Any  # a torch.nn.Module, or the state dict of one


def mean_imm(networks: Sequence[Network], *, alphas: Sequence[float] | None = None) -> dict[str, torch.Tensor]:
    """Average the weights of networks: ``theta = sum_k alpha_k theta_k``.

    It is the mean of the mixture of their posteriors, the Gaussian g that minimises sum_k alpha_k KL(f_k, g).

    Parameters
    ----------
    networks : sequence of torch.nn.Module or state dicts
        Networks of one shape; they do not change.
    alphas : sequence of float, optional
        Weight of each; by default equal.

    Returns
    -------
    dict
        A state dict; see :func:`with_state`. Entries that are no floating-point numbers come from the last network.
    """
    states, shares = _checked(networks, alphas)
    return {name: _average([state[name] for state in states], shares) for name in states[0]}


def mode_imm(
    networks: Sequence[Network],
    fishers: Sequence[State],
    *,
    alphas: Sequence[float] | None = None,
    floor: float = 1e-8,
) -> dict[str, torch.Tensor]:
    """Merge the weights of networks, each as sure as its Fisher information says.

    ``theta = (sum_k alpha_k F_k)^-1 sum_k alpha_k F_k theta_k``, the mode of the log-linear pool of their posteriors.

    Parameters
    ----------
    networks : sequence of torch.nn.Module or state dicts
        Networks of one shape; they do not change.
    fishers : sequence of dicts
        Diagonal Fisher information of each, from :func:`diagonal_fisher`.
    alphas : sequence of float, optional
        Weight of each; by default equal.
    floor : float, default=1e-8
        Least Fisher information of a weight, as a share of the mean over the network: a weight that matters to no
        task is averaged.

    Returns
    -------
    dict
        A state dict; see :func:`with_state`. Entries without Fisher information, such as running means, are averaged.
    """
    states, shares = _checked(networks, alphas)
    if len(fishers) != len(states):
        raise MergeError(f"There are {len(states)} networks and {len(fishers)} fishers. Give one for each.")
    # The floor keeps the quotient below defined where no task has curvature.
    precisions = [_floored(fisher, floor) for fisher in fishers]
    merged = {}
    for name, last in states[-1].items():
        values = [state[name] for state in states]
        # Buffers, such as the running means of batch normalisation, have no gradient and so no Fisher information.
        known = [precision[name] for precision in precisions if name in precision]
        if len(known) < len(values):
            merged[name] = _average(values, shares)
            continue
        _check_shape(name, last, *known)
        # Precision-weighted mean, entry by entry: with diagonal Fisher matrices the inverse is a division.
        pulls = [share * F for share, F in zip(shares, known, strict=True)]
        merged[name] = sum(pull * value for pull, value in zip(pulls, values, strict=True)) / sum(pulls)
    return merged


def with_state(network: torch.nn.Module, state: State) -> torch.nn.Module:
    """Return a copy of a network with other weights.

    Parameters
    ----------
    network : torch.nn.Module
        The network; it does not change.
    state : dict
        State dict, as from :func:`mean_imm`.

    Returns
    -------
    torch.nn.Module
        The copy.
    """
    # A deep copy, because loading a state writes into the tensors of the module.
    other = copy.deepcopy(network)
    other.load_state_dict(dict(state))
    return other


def state_of(network: Network) -> dict[str, torch.Tensor]:
    """An independent copy of a network's weights and buffers."""
    state = network.state_dict() if isinstance(network, torch.nn.Module) else network
    return {name: value.detach().clone() for name, value in state.items()}


def _checked(
    networks: Sequence[Network], alphas: Sequence[float] | None
) -> tuple[list[dict[str, torch.Tensor]], list[float]]:
    states = [state_of(network) for network in networks]
    if not states:
        raise MergeError("There are no networks to merge. Give one or more.")
    for state in states[1:]:
        if state.keys() != states[0].keys():
            names = ", ".join(sorted(state.keys() ^ states[0].keys()))
            raise MergeError(f"The networks have other entries: {names}. Merge networks of one architecture.")
        for name, value in state.items():
            _check_shape(name, states[0][name], value)
    given = [1.0] * len(states) if alphas is None else [float(alpha) for alpha in alphas]
    if len(given) != len(states) or min(given) < 0.0 or not 0.0 < sum(given) < float("inf"):
        raise MergeError(f"alphas must be {len(states)} numbers from 0 on with a positive sum; got {alphas!r}.")
    return states, [alpha / sum(given) for alpha in given]


def _check_shape(name: str, value: torch.Tensor, *others: Any) -> None:
    for other in others:
        if other.shape != value.shape:
            shapes = f"{tuple(value.shape)} in one place and {tuple(other.shape)} in another"
            raise MergeError(f"{name} has the shape {shapes}. Merge networks of one architecture.")


def _average(values: list[torch.Tensor], shares: list[float]) -> torch.Tensor:
    # Counters of batches and index tables: a mean of integers would have no meaning.
    if not values[0].is_floating_point():
        return values[-1]
    return sum(share * value for share, value in zip(shares, values, strict=True))  # type: ignore[return-value]


def _floored(fisher: State, floor: float) -> dict[str, torch.Tensor]:
    # Relative to the mean over the whole network: layers differ by orders of magnitude, and a floor for each layer
    # would raise the weights of one that matters to no task.
    n = sum(F.numel() for F in fisher.values())
    least = floor * sum(float(F.sum()) for F in fisher.values()) / max(n, 1)
    return {name: F.clamp_min(least) for name, F in fisher.items()}
