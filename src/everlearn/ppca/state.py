"""What online EM for probabilistic PCA keeps between rows, its constants, and what it reports of a batch.

The model is x = W z + mu + eps with z ~ N(0, I_q) and eps ~ N(0, sigma2 I_d), so that x ~ N(mu, C), C = W W' + sigma2 I
(Tipping and Bishop, 1999). Numbers that change with every row are arrays of one element, so that kernels can update
them in place. Annotations name the axes of an array, d columns and q latent axes, and are checked when a file is
loaded; "any" allows numbers that are not finite, which the formulas as printed may reach.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.linalg.dense import invert_spd
from everlearn.ppca.kernels.constraint import Fisher as Fisher
from everlearn.ppca.kernels.density import FactoredPPCA as FactoredPPCA
from everlearn.typing import Array

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]


class PPCA(NamedTuple):
    """Parameters of a model."""

    mu: Array  # (d,)
    W: Array  # (d, q)
    sigma2: float


class Reference(NamedTuple):
    """Parameters that the natural constraint holds the model to; r, s = d, q, or 0, 0 without one."""

    mu: Annotated[Array, "any r"]
    W: Annotated[Array, "any r s"]
    sigma2: Annotated[Array, "any 1"]
    F_mu: Annotated[Array, "any r"]  # Fisher information at these parameters
    F_W: Annotated[Array, "any r s"]
    F_sigma2: Annotated[Array, "any 1"]
    is_active: Annotated[Flags, "bool 1"]  # whether a reference has been taken


class State(NamedTuple):
    """Statistics and parameters of online EM; `learn` updates the arrays in place."""

    m: Annotated[Array, "any d"]  # running mean
    S0: Annotated[Array, "any 1"]  # expected square of a row about the mean
    S1: Annotated[Array, "any d q"]  # expected (x - m) z'
    S2: Annotated[Array, "any q q"]  # expected z z'
    mu: Annotated[Array, "any d"]
    W: Annotated[Array, "any d q"]
    sigma2: Annotated[Array, "any 1"]
    M_inv: Annotated[Array, "any q q"]  # (W'W + sigma2 I)^-1
    log_det: Annotated[Array, "any 1"]  # ln|W'W + sigma2 I|
    k: Annotated[Counts, "int64 1"]  # rows learned
    seen: Annotated[Flags, "bool d"]  # columns that were ever observed
    n_unseen: Annotated[Counts, "int64 1"]  # how many were not
    reference: Reference
    detector: Annotated[Array, "61"]  # numbers of the ChangeState of the Page-Hinkley test of `OnChange`

    @property
    def model(self) -> FactoredPPCA:
        """The parameters, ready to score rows; they share memory with the state."""
        return FactoredPPCA(self.mu, self.W, float(self.sigma2[0]), self.M_inv, float(self.log_det[0]))


class Settings(NamedTuple):
    """Constants of a stream, in one flat tuple: a nested one would cost a microsecond a call to hand to a kernel."""

    gain_scale: float  # row k has the weight scale * k^-exponent
    gain_exponent: float
    strength_scale: float  # and the constraint beta = scale * k^-exponent
    strength_exponent: float
    centred: bool  # statistics about the running mean; False: as the paper prints them
    expand: bool  # parameter expansion
    policy: int  # when a reference is taken: a constant of `kernels.online_em`
    period: int  # rows between references under the policy EVERY
    paper_form: bool  # the printed constraint in place of the proximal one
    body: bool  # the Fisher information that the paper's body prints
    clip: bool  # keep the printed weights beta/F at most at one
    unit_mu: float  # what turns 1/F_mu from the model's unit into the data's, on which the printed form depends
    unit_W: float
    unit_sigma2: float
    drift: float  # numbers of the Page-Hinkley test, see `everlearn.PageHinkley`
    threshold: float
    min_rows: float
    limit: float


class Info(NamedTuple):
    """What happened to a batch of n rows."""

    taken: Flags  # (n,): a reference was taken before this row
    overshot: Counts  # (1,): weights beta/F of the printed constraint above one
    not_positive: Counts  # (1,): noise variances that were not positive
    overflowed: Counts  # (1,): rows whose printed constraint overflowed and was left out


def factor(model: PPCA) -> FactoredPPCA:
    """Compute M^-1 and ln|M|."""
    M = model.W.T @ model.W
    M.flat[:: len(M) + 1] += model.sigma2
    log_det = invert_spd(M, np.empty(len(M)))
    return FactoredPPCA(
        np.ascontiguousarray(model.mu), np.ascontiguousarray(model.W), float(model.sigma2), M, float(log_det)
    )


def parameters(model: FactoredPPCA) -> PPCA:
    """The parameters alone."""
    return PPCA(model.mu, model.W, model.sigma2)


def no_reference(d: int, q: int) -> Reference:
    """Room for a reference that has not been taken yet; with d = 0 for none ever."""
    mu, W, sigma2 = np.zeros(d), np.zeros((d, q)), np.zeros(1)
    return Reference(mu, W, sigma2, mu.copy(), W.copy(), sigma2.copy(), np.zeros(1, dtype=np.bool_))


def init(model: PPCA, k: int, seen: Flags | None = None, *, constrained: bool = False) -> State:
    """State with statistics that agree with a model of k rows: S0 = |W|^2 + d sigma2, S1 = W, S2 = I, m = mu."""
    d, q = model.W.shape
    factored = factor(model)
    seen = np.ones(d, dtype=np.bool_) if seen is None else seen
    return State(
        m=factored.mu.copy(),
        S0=np.array([float(np.sum(model.W**2)) + d * model.sigma2]),
        S1=factored.W.copy(),
        S2=np.eye(q),
        mu=factored.mu.copy(),
        W=factored.W.copy(),
        sigma2=np.array([factored.sigma2]),
        M_inv=factored.M_inv,
        log_det=np.array([factored.log_det]),
        k=np.array([k], dtype=np.int64),
        seen=seen.copy(),
        n_unseen=np.array([d - np.count_nonzero(seen)], dtype=np.int64),
        reference=no_reference(d, q) if constrained else no_reference(0, 0),
        detector=np.zeros(61),
    )


def init_paper(d: int, q: int, rng: np.random.Generator, scale: float = 1.0, *, constrained: bool = False) -> State:
    """The paper's start for rows divided by `scale`: orthonormal W, mu = 0, sigma2 = 1, and statistics of zero."""
    # The unit is limited so that its square, the noise variance, stays a normal number.
    unit = min(max(1.0 / scale, 2.0**-90), 2.0**90)
    W = np.linalg.qr(rng.standard_normal((d, q)))[0]
    state = init(PPCA(np.zeros(d), W * unit, unit * unit), 0, constrained=constrained)
    for statistic in (state.S0, state.S1, state.S2):
        statistic[:] = 0.0
    return state
