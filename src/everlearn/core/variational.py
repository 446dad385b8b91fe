"""On-line variational Bayes for probabilistic PCA, with fixed or adaptive forgetting (Hirayama and others, 2007).

The model is x = Theta y + noise with y ~ N(0, I_m), a constant 1 after it that carries the mean, and noise of precision
tau. The trial posterior is q(Theta | tau) = N(M, (tau K)^-1) for every column, q(tau) = Ga(a, b). A row x changes it by

    S^-1 = I + tau M'M + n K^-1,  ybar = tau S M'x,  Y = S + ybar ybar',
    K_t = lambda K + (1 - lambda) K0,  M_t = lambda M K K_t^-1  (the past, weakened),
    K' = K_t + Y,  M' = M_t + (x ybar' - M_t Y) K'^-1,

and then the latent axes are brought back to mean zero and unit second moment. A bank of such models that differ in how
many rows they remember decides how much is forgotten, see `everlearn.core.forgetting`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from everlearn.core import forgetting, ppca
from everlearn.core.forgetting import BankState
from everlearn.core.ppca import PPCA
from everlearn.kernels import variational_bank as kernels
from everlearn.kernels.forgetting import ROWS
from everlearn.kernels.variational import K0

Array = NDArray[np.float64]

NOISE_PRIOR = 1e-3
NODES = 1024
KNOTS = 1024
SMALLEST, LARGEST = 1e-3, 1e12


class State(NamedTuple):
    """Models of a bank, (slots, members, ...), or of one; the arrays are changed in place.

    Rows are relative to `origin`; `rows` are those of young banks, as they came.
    """

    B: Array  # (slots, J, p, n): M K, transposed
    K: Array  # (slots, J, p, p)
    C: Array  # (slots, J, p, p): B B'
    K_inv: Array  # (slots, J, p, p)
    seen: Array  # (slots, J, n): effective rows that observed a column, once there were gaps
    noise: Array  # (slots, J, 2): a and b
    origin: Array  # (n,)
    rounding: Array  # (1,): least noise variance
    gappy: NDArray[np.bool_]  # (1,): whether there were gaps
    young: NDArray[np.int64]  # (slots,): rows of a young bank, -1 when it is grown
    rows: Array  # (slots, rows, n)
    prior_B: Array  # (slots, p, n): what a young bank starts from
    prior_K: Array  # (slots, p, p)
    prior_noise: Array  # (slots, 2)
    bank: BankState


class Settings(NamedTuple):
    """Constants of a stream, as the kernel takes them."""

    fixed: float  # forgetting factor, negative when it adapts
    tau: float  # noise precision, 0 when it is learned
    noise_prior: Array  # a0, b0
    table: Array  # log background over ln s
    knots: Array  # first knot and step
    nodes: Array  # (3, nodes)


class Posterior(NamedTuple):
    """Of one model: mean of the loadings (n, m), their precision K (m, m), the mean (n,), noise shape and rate."""

    M: Array
    K: Array
    mu: Array
    a: float
    b: float


def warmup_rows(m: int) -> int:
    """Rows that a model starts from."""
    return max(10, 5 * m + 5)


def init(model: PPCA, n_rows: int, *, adaptive: bool, stream_row: int, seen: Array | None = None) -> State:
    """State of a bank, or of one model, that starts from a maximum likelihood model of `n_rows` rows.

    `stream_row` is the number of the next row in the stream, `seen` how many of the rows observed each column.
    """
    n, m = model.W.shape
    caps = forgetting.CAPS if adaptive else (math.inf,)
    J, slots, p = len(caps), (2 if adaptive else 1), m + 1
    bank = forgetting.init(float(n_rows), caps)
    bank.control[ROWS] = stream_row
    B, K = np.zeros((slots, J, p, n)), np.zeros((slots, J, p, p))
    B[:, :, :m] = model.W.T * n_rows
    K[:, :] = n_rows * np.eye(p)
    observed = np.full(n, float(n_rows)) if seen is None else seen
    return State(
        B=B,
        K=K,
        C=B @ B.swapaxes(2, 3),
        K_inv=np.linalg.inv(K),
        seen=np.broadcast_to(observed, (slots, J, n)).copy(),
        noise=np.broadcast_to(_noise_of(model, n_rows, observed), (slots, J, 2)).copy(),
        origin=model.mu.copy(),
        rounding=np.array([ppca.noise_floor(0.0, model.mu)]),
        gappy=np.array([bool((observed < n_rows).any())]),
        young=np.full(slots, kernels.GROWN, dtype=np.int64),
        rows=np.zeros((slots, warmup_rows(m) if adaptive else 0, n)),
        prior_B=np.zeros((slots, p, n)),
        prior_K=np.zeros((slots, p, p)),
        prior_noise=np.zeros((slots, 2)),
        bank=bank,
    )


def _noise_of(model: PPCA, n_rows: int, seen: Array) -> Array:
    """Shape and rate: half the degrees of freedom left by the loadings and the mean, half the sum of squares."""
    n, m = model.W.shape
    share = float(seen.sum()) / (n * n_rows)
    free = max((n_rows - 1 - m) * (n - m) * share, 1.0)
    squares = n_rows * (n - m) * share * model.sigma2 if n > m else free * model.sigma2
    return np.array([0.5 * free, 0.5 * squares])


def settings(n: int, m: int, *, forgetting: float | None, tau: float, sigma2: float) -> Settings:
    """Constants of a stream: `forgetting` None adapts; `tau` 0 learns the noise, which began at `sigma2`."""
    table, knots, nodes = background_table(n, m)
    fixed = -1.0 if forgetting is None else forgetting
    return Settings(fixed, tau, np.array([NOISE_PRIOR, NOISE_PRIOR * sigma2]), table, knots, nodes)


@lru_cache(maxsize=8)
def background_table(n: int, m: int) -> tuple[Array, Array, Array]:
    """The log background of complete rows over ln s, its first knot and step, and the nodes of the integral.

    ln of int p(r) (1 + r/K0)^(-n/2) exp(-s/(2 (1 + r/K0))) dr for r = |y|^2 ~ chi^2_m, by the trapezoid rule in ln r.
    """
    z = np.linspace(math.log(1e-10), math.log(1e9), NODES)
    r = np.exp(z)
    log_weight = 0.5 * m * (z - math.log(2.0)) - 0.5 * r - gammaln(0.5 * m) + math.log(z[1] - z[0])
    v = 1.0 + r / K0
    nodes = np.stack([log_weight, np.log(v), 1.0 / v])
    ln_s = np.linspace(math.log(SMALLEST), math.log(LARGEST), KNOTS)
    table = np.array([kernels.log_background(s, n, nodes) for s in np.exp(ln_s)])
    return table, np.array([ln_s[0], ln_s[1] - ln_s[0]]), nodes


def learn(state: State, X: Array, constants: Settings, *, trace: bool = False) -> tuple[float, Array]:
    """Learn the rows of X in order, changing `state` in place.

    Returns the last forgetting factor and, with `trace`, the factor and the memory in use after each row, (2, rows).
    """
    kept = np.empty((2, len(X) if trace else 0))
    return float(kernels.learn_rows(X, state, constants, kept)), kept


def answer(state: State, tau: float = 0.0) -> Posterior:
    """The posterior that answers; with a known tau its noise is exact."""
    slot, k = forgetting.answer(state.bank)
    K, B = state.K[slot, k], state.B[slot, k]
    m = len(K) - 1
    M = np.linalg.solve(K, B)
    a, b = (math.inf, math.inf / tau) if tau else state.noise[slot, k]
    return Posterior(M[:m].T, K[:m, :m], state.origin + M[m], float(a), float(b))
