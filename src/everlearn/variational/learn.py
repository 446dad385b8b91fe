"""On-line variational Bayes for probabilistic PCA, with fixed or adaptive forgetting (Hirayama and others, 2007).

The model is x = Theta y + noise with y ~ N(0, I_m), a constant 1 after it that carries the mean, and noise of precision
tau. The trial posterior is q(Theta | tau) = N(M, (tau K)^-1) for every column, q(tau) = Ga(a, b). A row x changes it by

    S^-1 = I + tau M'M + n K^-1,  ybar = tau S M'x,  Y = S + ybar ybar',
    K_t = lambda K + (1 - lambda) K0,  M_t = lambda M K K_t^-1  (the past, weakened),
    K' = K_t + Y,  M' = M_t + (x ybar' - M_t Y) K'^-1,

and then the latent axes are brought back to mean zero and unit second moment. A bank of such models that differ in
their forgetting horizon decides how much is forgotten, see `everlearn.forgetting.bank`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from everlearn.typing import Array
from everlearn.variational.kernels import bank as kernels
from everlearn.variational.kernels import paper as paper_kernels
from everlearn.variational.kernels.posterior import K0 as K0
from everlearn.variational.state import Info, PaperSettings, PaperState, Settings, State

# Rows that the prior of the noise is worth: it only has to keep the noise positive.
NOISE_PRIOR = 1e-3
# The background density is a table over ln s from 1e-3 to 1e12; beyond it the integral is summed for each row.
NODES = 1024
KNOTS = 1024
SMALLEST, LARGEST = 1e-3, 1e12


def settings(n: int, m: int, *, forgetting: float | None, tau: float, sigma2: float) -> Settings:
    """Constants of a stream: `forgetting` None adapts; `tau` 0 learns the noise, which began at `sigma2`."""
    table, first_knot, knot_step, nodes = background_table(n, m)
    return Settings(
        fixed=-1.0 if forgetting is None else float(forgetting),
        tau=float(tau),
        a0=NOISE_PRIOR,
        b0=NOISE_PRIOR * float(sigma2),
        first_knot=first_knot,
        knot_step=knot_step,
        table=table,
        nodes=nodes,
    )


@lru_cache(maxsize=8)
def background_table(n: int, m: int) -> tuple[Array, float, float, Array]:
    """The log background of complete rows over ln s, its first knot and step, and the nodes of the integral.

    ln of int p(r) (1 + r/K0)^(-n/2) exp(-s/(2 (1 + r/K0))) dr for r = |y|^2 ~ chi^2_m, by the trapezoid rule in ln r.
    """
    z = np.linspace(math.log(1e-10), math.log(1e9), NODES)
    r = np.exp(z)
    # The chi-square density of r times dr = r dz: (r/2)^(m/2) e^(-r/2)/Gamma(m/2)
    # dz, in logs because both tails underflow.
    log_weight = 0.5 * m * (z - math.log(2.0)) - 0.5 * r - gammaln(0.5 * m) + math.log(z[1] - z[0])
    # Given |y|^2 = r and loadings N(0, 1/(tau K0)), a column has the variance (1 + r/K0)/tau.
    v = 1.0 + r / K0
    nodes = np.stack([log_weight, np.log(v), 1.0 / v])
    ln_s = np.linspace(math.log(SMALLEST), math.log(LARGEST), KNOTS)
    table = np.array([kernels.log_background(s, n, nodes) for s in np.exp(ln_s)])
    return table, float(ln_s[0]), float(ln_s[1] - ln_s[0]), nodes


def learn(state: State, X: Array, settings: Settings) -> tuple[State, Info]:
    """Learn the rows of X in order, updating the arrays of `state` in place."""
    info = Info(np.empty(len(X)), np.empty(len(X)))
    kernels.learn_rows(X, state, settings, info)
    return state, info


def paper_settings(
    m: int,
    n: int,
    *,
    forgetting: float | str,
    k0: float,
    tau: float,
    keep_probability: float = 0.5,
    prior_mean: Array | None = None,
) -> PaperSettings:
    """Constants of a stream under the paper's rule.

    `forgetting` is a number, "adaptive" (eq. 10: the evidence of lambda = 0 and 1) or "posterior" (eq. 9 over all of
    (0, 1)). `k0` is G0/tau, `prior_mean` M0 of shape (n, m), `keep_probability` the prior of lambda = 1.
    """
    rules = {"adaptive": paper_kernels.END_POINTS, "posterior": paper_kernels.POSTERIOR}
    M0: Array = np.zeros((m, n)) if prior_mean is None else np.ascontiguousarray(np.asarray(prior_mean).T)
    # The prior of lambda at the two end points, as log-odds; 0 for the paper's p(lambda = 1) = 1/2.
    return PaperSettings(
        rule=rules[forgetting] if isinstance(forgetting, str) else paper_kernels.FIXED,
        fixed=1.0 if isinstance(forgetting, str) else float(forgetting),
        k0=float(k0),
        tau=float(tau),
        prior_odds=math.log(keep_probability / (1.0 - keep_probability)),
        has_mean=bool(M0.any()),
        M0=M0,
    )


def learn_paper(state: PaperState, X: Array, settings: PaperSettings) -> tuple[PaperState, Info]:
    """Learn the rows of X in order by eq. 5 to 10 of the paper, updating the arrays of `state` in place."""
    info = Info(np.empty(len(X)), np.full(len(X), math.inf))
    paper_kernels.learn_rows(X, state, settings, info.forgetting)
    return state, info
