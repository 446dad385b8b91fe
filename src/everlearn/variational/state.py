"""What on-line variational Bayes for probabilistic PCA keeps between rows, its constants, and what it reports.

The axes of arrays: s slots of a bank with J members each, p = m + 1 latent entries (m latent variables and a constant
that carries the mean), n columns. Annotations are checked when a file is loaded.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError
from everlearn.forgetting import bank as forgetting
from everlearn.forgetting.bank import HORIZONS, BankState
from everlearn.ppca.kernels.density import least_noise
from everlearn.ppca.state import PPCA
from everlearn.typing import Array
from everlearn.variational.kernels.bank import OVER

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]


class State(NamedTuple):
    """Models of a bank, or one (s = J = 1), of rows relative to `origin`; `learn` updates the arrays in place."""

    B: Annotated[Array, "s J p n"]  # M K, transposed
    K: Annotated[Array, "s J p p"]  # precision of the loadings in units of the noise's
    C: Annotated[Array, "s J p p"]  # B B'
    K_inv: Annotated[Array, "s J p p"]
    seen: Annotated[Array, "s J n"]  # effective rows that observed a column, once there were gaps
    a: Annotated[Array, "positive s J 1"]  # shape of the noise precision
    b: Annotated[Array, "positive s J 1"]  # and its rate
    origin: Annotated[Array, "n"]
    rounding: Annotated[Array, "1"]  # least noise variance
    gappy: Annotated[Flags, "bool 1"]  # whether there were gaps
    learned: Annotated[Counts, "int64 1"]  # rows with something observed
    burn_in: Annotated[Counts, "int64 s"]  # rows since a restart, -1 once the burn-in is over
    rows: Annotated[Array, "gaps s r n"]  # rows of a burn-in, as they came
    prior_B: Annotated[Array, "s p n"]  # what a restarted bank starts from
    prior_K: Annotated[Array, "s p p"]
    prior_a: Annotated[Array, "s 1"]
    prior_b: Annotated[Array, "s 1"]
    bank: BankState


class Settings(NamedTuple):
    """Constants of a stream."""

    fixed: float  # forgetting factor, negative when the bank finds it
    tau: float  # noise precision, 0 when it is learned
    a0: float  # prior of the noise precision
    b0: float
    first_knot: float  # of the table, over ln s
    knot_step: float
    table: Array  # (knots,): log background of complete rows
    nodes: Array  # (3, nodes): see `kernels.bank.log_background`


class Info(NamedTuple):
    """What was in use after each of n rows."""

    forgetting: Array  # (n,): forgetting factor of the model that answers, 0 when a change was suspected
    horizon: Array  # (n,): effective rows that it may remember


class PaperState(NamedTuple):
    """The paper's model, without a mean; `learn_paper` updates the arrays in place."""

    B: Annotated[Array, "any m n"]  # M K, transposed
    K: Annotated[Array, "any m m"]  # G/tau
    C: Annotated[Array, "any m m"]  # B B'


class PaperSettings(NamedTuple):
    """Constants of a stream under the paper's rule."""

    rule: int  # how lambda is found: a constant of `kernels.paper`
    fixed: float  # lambda under the rule FIXED
    k0: float  # G0/tau, prior precision of the loadings
    tau: float  # noise precision
    prior_odds: float  # ln of p(lambda=1)/p(lambda=0)
    has_mean: bool  # whether M0 is other than zero
    M0: Array  # (m, n): prior mean of the loadings, transposed


class Posterior(NamedTuple):
    """What one model knows: q(loadings, mean, noise)."""

    M: Array  # (n, m): mean of the loadings
    K: Array  # (m, m): their precision in units of the noise's
    mu: Array  # (n,): mean of a row
    N: float  # effective rows
    a: float  # shape of the noise precision
    b: float  # and its rate
    seen: Array  # (n,): effective rows that observed each column

    @property
    def sigma2(self) -> float:
        """Noise variance."""
        return self.b / self.a


def warmup_rows(m: int) -> int:
    """Rows that a model starts from, and of the burn-in after a restart."""
    return max(10, 5 * m + 5)


def posterior_of_rows(model: PPCA, n_rows: int, seen: Array) -> Posterior:
    """Posterior that agrees with a maximum likelihood model of a few rows, of which `seen` observed each column.

    The noise has half the degrees of freedom left by the loadings and the mean, and half the sum of squares.
    """
    n, m = model.W.shape
    share = float(seen.sum()) / (n * n_rows)
    # n_rows less one for the mean and m for the axes, in each of the n - m directions that the axes leave free.
    free = max((n_rows - 1 - m) * (n - m) * share, 1.0)
    squares = n_rows * (n - m) * share * model.sigma2 if n > m else free * model.sigma2
    return Posterior(model.W, n_rows * np.eye(m), model.mu, float(n_rows), 0.5 * free, 0.5 * squares, seen)


def init(posterior: Posterior, *, adaptive: bool, stream_row: int) -> State:
    """State of a bank, or of one model, that starts from a posterior; `stream_row` is the number of the next row."""
    n, m = posterior.M.shape
    horizons = HORIZONS if adaptive else (math.inf,)
    J, slots, p = len(horizons), (2 if adaptive else 1), m + 1
    bank = forgetting.init(posterior.N, horizons)
    bank.n_rows[0] = stream_row
    B, K = np.zeros((slots, J, p, n)), np.zeros((slots, J, p, p))
    B[:, :, :m] = posterior.K @ posterior.M.T
    K[:, :, :m, :m] = posterior.K
    K[:, :, m, m] = posterior.N
    return State(
        B=B,
        K=K,
        C=B @ B.swapaxes(2, 3),
        K_inv=np.linalg.inv(K),
        seen=np.broadcast_to(posterior.seen, (slots, J, n)).copy(),
        a=np.full((slots, J, 1), float(posterior.a)),
        b=np.full((slots, J, 1), float(posterior.b)),
        origin=posterior.mu.copy(),
        rounding=np.array([least_noise(0.0, posterior.mu)]),
        gappy=np.array([bool((posterior.seen < posterior.N).any())]),
        learned=np.zeros(1, dtype=np.int64),
        burn_in=np.full(slots, OVER, dtype=np.int64),
        rows=np.zeros((slots, warmup_rows(m) if adaptive else 0, n)),
        prior_B=np.zeros((slots, p, n)),
        prior_K=np.zeros((slots, p, p)),
        prior_a=np.zeros((slots, 1)),
        prior_b=np.zeros((slots, 1)),
        bank=bank,
    )


def init_paper(M: Array, K: float) -> PaperState:
    """State with loadings M (n, m) and K = G/tau times I. M = 0 is a fixed point that no row can leave: refused."""
    if not M.any():
        raise InputError("The first loadings are all zero, a fixed point of the paper's rule; draw them at random.")
    B = K * np.ascontiguousarray(M.T)
    return PaperState(B, K * np.eye(M.shape[1]), B @ B.T)
