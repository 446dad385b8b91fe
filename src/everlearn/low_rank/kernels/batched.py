"""Folds, read-outs and distances of many components at once, by batched products: the twins of `fold` and `shape`.

Arrays are tensors of torch's, on any device; F is the number of components that are folded, W the rows that wait for
one at most, Q the most directions of one.
"""

from typing import Any, NamedTuple

from everlearn.low_rank.kernels.shape import KAPPA, PSI_FLOOR


class Sketches(NamedTuple):
    """What has D columns of each component, and the read-out made of it."""

    mean: Any  # (K, D)
    directions: Any  # (K, Q, D)
    diagonal: Any  # (K, D)
    B: Any  # (K, Q + 1, D)
    offset: Any  # (K, Q + 1)
    inverse_psi: Any  # (K, D)
    log_det: Any  # (K,)


class Fold(NamedTuple):
    """The matrices of some folds."""

    Z: Any  # (F, Q + W + 1, D): scaled directions, rows about their mean, step between both means
    mean: Any  # (F, D), after the fold
    diagonal: Any  # (F, D), after the fold
    gram: Any  # (F, Q + W + 1, Q + W + 1)


def fold_matrices(torch: Any, old: Sketches, rows: Any, scale: Any) -> Fold:
    """Z of the folds of some components, and their Gram matrices; `scale` is that of `ahead.fold_weights`."""
    Q, W = old.directions.shape[1], rows.shape[1]
    root, share = scale[:, Q : Q + W, None], scale[:, Q + W : Q + 2 * W]
    step, part, fade = (scale[:, Q + 2 * W + i, None] for i in range(3))
    mean = (share[:, None] @ rows)[:, 0]
    delta = mean - old.mean
    fresh = torch.cat([root * (rows - mean[:, None]), (step * delta)[:, None]], dim=1)
    diagonal = fade * old.diagonal + (fresh * fresh).sum(dim=1)
    Z = torch.cat([scale[:, :Q, None] * old.directions, fresh], dim=1)
    return Fold(Z, old.mean + part * delta, diagonal, Z @ Z.mT)


def sketches(torch: Any, fold: Fold, mix: Any, numbers: Any, isotropic: bool = False) -> Sketches:
    """Components after their folds, with read-outs; `mix` and `numbers` are those of `ahead.fold_spectrum`."""
    Q = mix.shape[1]
    U = mix @ fold.Z
    loading, scatter = numbers[:, :Q], numbers[:, Q : 2 * Q]
    s, rows, grow = (numbers[:, 2 * Q + i, None] for i in range(3))
    psi = fold.diagonal - (scatter[:, None] @ (U * U))[:, 0]
    psi = torch.maximum((grow * psi.clamp(min=0.0) + KAPPA * s) / rows, PSI_FLOOR * s)
    psi = s.expand_as(psi) if isotropic else psi
    loadings = loading.sqrt()[:, :, None] * U
    scaled = loadings / psi[:, None]
    M = scaled @ loadings.mT
    # I + W psi^-1 W', made symmetric to the last bit for the factor.
    M = (M + M.mT) / 2.0 + torch.eye(Q, dtype=M.dtype, device=M.device)
    L = torch.linalg.cholesky_ex(M)[0]
    B = torch.cat([(fold.mean / psi)[:, None], torch.linalg.solve_triangular(L, scaled, upper=False)], dim=1)
    log_det = psi.log().sum(dim=1) + 2.0 * L.diagonal(dim1=1, dim2=2).log().sum(dim=1)
    return Sketches(fold.mean, U, fold.diagonal, B, (B @ fold.mean[:, :, None])[:, :, 0], 1.0 / psi, log_det)


def squared_distances(rows: Any, B: Any, offset: Any, inverse_psi: Any) -> Any:
    """Squared distances of rows without gaps to components, (n, K); see `state.squared_distances`."""
    K, size, D = B.shape
    P = (rows @ B.reshape(-1, D).T).reshape(len(rows), K, size)
    d2 = (rows * rows) @ inverse_psi.T - 2.0 * P[:, :, 0] + offset[:, 0]
    along = P[:, :, 1:] - offset[:, 1:]
    return (d2 - (along * along).sum(dim=2)).clamp(min=0.0)
