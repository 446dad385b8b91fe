"""On-line variational Bayes for probabilistic PCA, with fixed or adaptive forgetting (Hirayama and others, 2007).

The model is x = Theta y + noise with y ~ N(0, I_m), a constant 1 after it that carries the mean, and noise of precision
tau. The trial posterior is q(Theta | tau) = N(M, (tau K)^-1) for every column, q(tau) = Ga(a, b). A row x changes it by

    S^-1 = I + tau M'M + n K^-1,  ybar = tau S M'x,  Y = S + ybar ybar',
    K_t = lambda K + (1 - lambda) K0,  M_t = lambda M K K_t^-1  (the past, weakened),
    K' = K_t + Y,  M' = M_t + (x ybar' - M_t Y) K'^-1,

and then the latent axes are brought back to mean zero and unit second moment. A bank of such models that differ in how
many rows they remember decides how much is forgotten, see `everlearn.forgetting.bank`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from everlearn.errors import InputError
from everlearn.forgetting import bank as forgetting
from everlearn.forgetting.bank import CAPS as CAPS
from everlearn.forgetting.bank import BankState
from everlearn.forgetting.kernels.bank import ROWS
from everlearn.gaussian import merge as merging
from everlearn.linalg.dense import invert_spd
from everlearn.ppca import learn as online_em
from everlearn.ppca.state import PPCA
from everlearn.ppca.state import FactoredPPCA as Ready
from everlearn.variational.kernels import bank as kernels
from everlearn.variational.kernels import paper as paper_kernels
from everlearn.variational.kernels.posterior import K0 as K0

Array = NDArray[np.float64]

NOISE_PRIOR = 1e-3
NODES = 1024
KNOTS = 1024
SMALLEST, LARGEST = 1e-3, 1e12
ALIGNMENTS = 50


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
    learned: NDArray[np.int64]  # (1,): rows with something observed
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


class PaperState(NamedTuple):
    """The paper's model, without a mean; the arrays are changed in place."""

    B: Array  # (m, n): M K, transposed
    K: Array  # (m, m): G/tau
    C: Array  # (m, m): B B'


class Posterior(NamedTuple):
    """Of one model: the loadings' mean (n, m) and precision K (m, m), the mean and its weight, the noise.

    `seen` counts the effective rows that observed each column.
    """

    M: Array
    K: Array
    mu: Array
    N: float
    a: float
    b: float
    seen: Array

    @property
    def sigma2(self) -> float:
        """Noise variance."""
        return self.b / self.a


def warmup_rows(m: int) -> int:
    """Rows that a model starts from."""
    return max(10, 5 * m + 5)


def of_rows(model: PPCA, n_rows: int, seen: Array) -> Posterior:
    """Posterior that agrees with a maximum likelihood model of a few rows, of which `seen` observed each column.

    The noise has half the degrees of freedom left by the loadings and the mean, and half the sum of squares.
    """
    n, m = model.W.shape
    share = float(seen.sum()) / (n * n_rows)
    free = max((n_rows - 1 - m) * (n - m) * share, 1.0)
    squares = n_rows * (n - m) * share * model.sigma2 if n > m else free * model.sigma2
    return Posterior(model.W, n_rows * np.eye(m), model.mu, float(n_rows), 0.5 * free, 0.5 * squares, seen)


def init(posterior: Posterior, *, adaptive: bool, stream_row: int) -> State:
    """State of a bank, or of one model, that starts from a posterior; `stream_row` is the number of the next row."""
    n, m = posterior.M.shape
    caps = CAPS if adaptive else (math.inf,)
    J, slots, p = len(caps), (2 if adaptive else 1), m + 1
    bank = forgetting.init(posterior.N, caps)
    bank.control[ROWS] = stream_row
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
        noise=np.broadcast_to([posterior.a, posterior.b], (slots, J, 2)).copy(),
        origin=posterior.mu.copy(),
        rounding=np.array([online_em.noise_floor(0.0, posterior.mu)]),
        gappy=np.array([bool((posterior.seen < posterior.N).any())]),
        learned=np.zeros(1, dtype=np.int64),
        young=np.full(slots, kernels.GROWN, dtype=np.int64),
        rows=np.zeros((slots, warmup_rows(m) if adaptive else 0, n)),
        prior_B=np.zeros((slots, p, n)),
        prior_K=np.zeros((slots, p, p)),
        prior_noise=np.zeros((slots, 2)),
        bank=bank,
    )


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


def answer(state: State, tau: float = 0.0) -> Ready:
    """The model that answers; `tau` is the noise precision if it is known."""
    slot, k = forgetting.answer(state.bank)
    n, m = len(state.origin), state.K.shape[2] - 1
    mu, W, M_inv = np.empty(n), np.empty((n, m)), np.empty((m, m))
    sigma2, log_det = kernels.fill_answer(slot, k, state, tau, mu, W, M_inv)
    return Ready(mu, W, float(sigma2), M_inv, float(log_det))


def posterior(state: State) -> Posterior:
    """What the member that answers knows."""
    slot, k = forgetting.answer(state.bank)
    K = state.K[slot, k]
    m = len(K) - 1
    M = state.K_inv[slot, k] @ state.B[slot, k]
    N = float(K[m, m])
    a, b = state.noise[slot, k]
    seen = state.seen[slot, k] if state.gappy[0] else np.full(len(state.origin), N)
    return Posterior(np.ascontiguousarray(M[:m].T), K[:m, :m].copy(), state.origin + M[m], N, a, b, seen.copy())


def loadings_std(known: Posterior, rotation: Array) -> Array:
    """Standard deviations of the loadings M R, (n, m): those of N(M, (tau K)^-1), larger where a column had gaps."""
    variance = np.einsum("ij,ik,kj->j", rotation, _inverse(known.K), rotation) * known.sigma2
    p = len(known.K) + 1
    return np.sqrt(np.outer((known.N + p) / (known.seen + p), variance))


def _inverse(K: Array) -> Array:
    """Inverse of a positive definite matrix, kept definite where rounding has made it singular."""
    K_inv = K.copy()
    invert_spd(K_inv, np.empty(len(K)))
    return K_inv


# -- merging ---------------------------------------------------------------------------------------


def merge(parts: list[Posterior], shares: Array, K0: float = K0) -> Posterior:
    """Streaming Bayes: natural parameters add, the prior K0 is counted once (Broderick and others, 2013).

    The latent axes of the parts are first turned onto each other. `shares` multiply what each part knows. Squares by
    which the parts differ go into the noise.
    """
    parts = [_weighed(_turned(part, R), w) for part, R, w in zip(parts, _rotations(parts), shares, strict=True)]
    m = parts[0].K.shape[0]
    once = (len(parts) - 1) * K0 * np.eye(m)
    trust = np.array([part.seen / part.N for part in parts])
    trust[:, trust.sum(axis=0) <= 0.0] = 1.0
    precision = np.einsum("lc,lij->cij", trust, np.array([part.K for part in parts])) - once
    pull = sum(t[:, None] * (part.M @ part.K) for t, part in zip(trust, parts, strict=True))
    M: Array = np.linalg.solve(precision, pull[:, :, None])[:, :, 0]
    weight = trust * np.array([[part.N] for part in parts])
    mu: Array = np.sum(weight * [part.mu for part in parts], axis=0) / weight.sum(axis=0)
    squares = sum(
        float(np.sum(t[:, None] * ((part.M - M) @ part.K) * (part.M - M)) + np.sum(w * (part.mu - mu) ** 2))
        for t, w, part in zip(trust, weight, parts, strict=True)
    )
    return Posterior(
        M,
        sum(part.K for part in parts) - once,
        mu,
        sum(part.N for part in parts),
        sum(part.a for part in parts),
        sum(part.b for part in parts) + 0.5 * squares,
        np.sum([part.seen for part in parts], axis=0),
    )


def _rotations(parts: list[Posterior]) -> list[Array]:
    """Orthogonal matrices that bring the parts' loadings together: each onto the mean of all, in turn."""
    weights = [part.N for part in parts]
    target = parts[int(np.argmax(weights))].M
    for _ in range(ALIGNMENTS):
        turns = [merging.procrustes(part.M, target) for part in parts]
        last, target = target, np.average([part.M @ R for part, R in zip(parts, turns, strict=True)], 0, weights)
        if np.allclose(target, last, rtol=1e-12, atol=0.0):
            break
    return turns


def _turned(part: Posterior, R: Array) -> Posterior:
    return part._replace(M=part.M @ R, K=R.T @ part.K @ R)


def _weighed(part: Posterior, w: float) -> Posterior:
    return part._replace(K=w * part.K, N=w * part.N, a=w * part.a, b=w * part.b, seen=w * part.seen)


def rescale(part: Posterior, factor: float) -> Posterior:
    """Posterior of the rows times `factor`."""
    return part._replace(M=part.M * factor, mu=part.mu * factor, b=part.b * factor * factor)


# -- as the paper prints it ------------------------------------------------------------------------


def init_paper(M: Array, K: float) -> PaperState:
    """State with loadings M (n, m) and K = G/tau times I. M = 0 is a fixed point that no row can leave: refused."""
    if not M.any():
        raise InputError("The first loadings are all zero, where the paper's rule stays for ever; draw them at random.")
    B = K * np.ascontiguousarray(M.T)
    return PaperState(B, K * np.eye(M.shape[1]), B @ B.T)


def learn_paper(
    state: PaperState, X: Array, *, forgetting: float | None, K0: float, tau: float, p1: float, trace: bool = False
) -> tuple[float, Array]:
    """Learn the rows of X in order by eq. 5 to 10 of the paper, changing `state` in place.

    `forgetting` None finds lambda in every row from L(1), L(0) and the prior p1 of lambda = 1. Returns the last lambda
    and, with `trace`, that of every row with its memory, (2, rows).
    """
    fixed = -1.0 if forgetting is None else forgetting
    kept = np.full((2, len(X) if trace else 0), np.inf)
    odds = math.log(p1 / (1.0 - p1))
    return float(paper_kernels.learn_rows(X, *state, fixed, K0, tau, odds, kept[0])), kept


def paper_posterior(state: PaperState, tau: float) -> Posterior:
    """What the paper's model knows; its mean is zero and its noise is known."""
    M = (_inverse(state.K) @ state.B).T
    n, m = M.shape
    N = float(np.trace(state.K)) / m
    return Posterior(np.ascontiguousarray(M), state.K.copy(), np.zeros(n), N, tau, 1.0, np.full(n, N))
