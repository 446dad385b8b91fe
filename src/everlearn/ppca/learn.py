"""Online EM for probabilistic PCA: running means of the expected statistics, and the parameters that they give.

With gain g, y = x - m and z = M^-1 W'y, one row changes the statistics (Cappe and Moulines, 2009; centred after
Welford) by

    m += g y,  S0 += g((1-g)|y|^2 - S0),  S1 += g((1-g) y z' - S1),  S2 += g(sigma2 M^-1 + (1-g) z z' - S2),

and the parameters become mu = m, W = S1 S2^-1, sigma2 = (S0 - 2 tr(S1 W') + tr(S2 W'W))/d, or are held to a reference
(see `everlearn.ppca.keep`). A row with gaps gives the expectations under its observed part. The first rows are fitted
at once, by maximum likelihood.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.ppca.keep import Every, NaturalConstraint, OnChange
from everlearn.ppca.kernels import online_em as kernels
from everlearn.ppca.kernels.density import least_noise
from everlearn.ppca.schedules import PowerSchedule, as_schedule
from everlearn.ppca.state import PPCA, Flags, Info, Settings, State, factor, init, init_paper
from everlearn.typing import Array

__all__ = [
    "em_step",
    "fit_rows",
    "init",
    "init_paper",
    "learn",
    "maximum_likelihood",
    "noise_floor",
    "of_factor",
    "settings",
]

# EM of the first rows stops after this many rounds, or when the noise variance moves by less than this share.
EM_ROUNDS = 100
EM_TOLERANCE = 1e-4
# Numbers of a change detector that are constants of a stream.
TEST = ("drift", "threshold", "min_rows", "limit")


def settings(
    gain: PowerSchedule, constraint: NaturalConstraint | None, *, mode: str = "robust", scale: float = 1.0
) -> Settings:
    """Constants of a stream whose rows are divided by `scale` before they are learned.

    The mode is "robust", "plain" (without parameter expansion) or "paper" (with the printed statistics).
    """
    plain = Settings(
        gain_scale=float(gain.scale),
        gain_exponent=float(gain.exponent),
        strength_scale=0.0,
        strength_exponent=0.0,
        centred=mode != "paper",
        expand=mode == "robust",
        policy=kernels.NEVER,
        period=1,
        paper_form=False,
        body=False,
        clip=False,
        unit_mu=0.0,
        unit_W=0.0,
        unit_sigma2=0.0,
        drift=0.0,
        threshold=0.0,
        min_rows=0.0,
        limit=0.0,
    )
    if constraint is None:
        return plain
    strength = as_schedule(constraint.strength, "constraint.strength")
    body, square, reference = constraint.fisher == "body", scale * scale, constraint.reference
    policies = {"step": kernels.STEP, "class": kernels.CLASS}
    on_change, every = isinstance(reference, OnChange), isinstance(reference, Every)
    test: Any = {name: float(getattr(reference.detector, name)) for name in TEST} if on_change else {}
    return plain._replace(
        strength_scale=float(strength.scale),
        strength_exponent=float(strength.exponent),
        policy=kernels.CHANGE if on_change else kernels.EVERY if every else policies[reference],
        period=int(reference.n) if every else 1,
        paper_form=constraint.form == "paper",
        body=body,
        clip=bool(constraint.clip),
        # 1/F has the unit of the squared parameter; the body's formulas, that of another power of it.
        unit_mu=square * square if body else square,
        unit_W=square,
        unit_sigma2=square if body else square * square,
        **test,
    )


def learn(state: State, X: Array, settings: Settings, class_ends: Flags | None = None) -> tuple[State, Info]:
    """Learn the rows of X in order, updating the arrays of `state` in place.

    `class_ends` says before which rows a class ended.
    """
    ends = np.zeros(len(X), dtype=np.bool_) if class_ends is None else class_ends
    counts = np.zeros((3, 1), dtype=np.int64)
    info = Info(np.zeros(len(X), dtype=np.bool_), counts[0], counts[1], counts[2])
    kernels.learn_rows(X, ends, state, settings, info)
    return state, info


# -- the first rows --------------------------------------------------------------------------------


def noise_floor(mean_variance: float, mu: Array) -> float:
    """Least noise variance that keeps C definite, and no finer than the rounding of the data."""
    return float(least_noise(mean_variance, mu))


def maximum_likelihood(X: Array, q: int) -> PPCA:
    """Closed-form maximum likelihood from complete rows (Tipping and Bishop, 1999, eq. 7 and 8).

    sigma2 is the mean of the discarded eigenvalues of the rows' covariance, W = U_q (Lambda_q - sigma2 I)^(1/2).
    """
    mu = X.mean(axis=0)
    return of_factor(mu, (X - mu).T / np.sqrt(len(X)), 0.0, q)


def of_factor(mu: Array, V: Array, noise: float, q: int) -> PPCA:
    """Closed-form PPCA with q axes of the covariance V V' + noise I, from the thin singular value decomposition of V.

    Directions beyond the q-th go into the noise variance.
    """
    d = len(mu)
    # V has at most as many columns as there are rows: its singular values give the eigenvalues of V V' without d x d.
    U, singular, _ = np.linalg.svd(V, full_matrices=False)
    spread = np.zeros(max(q, len(singular)))
    spread[: len(singular)] = singular**2
    # The mean of the discarded eigenvalues, over all d - q directions that are left.
    rest = float(spread[q:].sum()) / max(d - q, 1) + noise
    sigma2 = max(rest, noise_floor(float(spread.sum()) / d + noise, mu))
    # W W' + sigma2 I has the kept eigenvalues exactly; where the floor of sigma2 exceeds one, the axis has length zero.
    W = np.zeros((d, q))
    kept = min(q, len(singular))
    W[:, :kept] = U[:, :kept] * np.sqrt(np.maximum(spread[:kept] + noise - sigma2, 0.0))
    return PPCA(mu, W, sigma2)


def fit_rows(X: Array, q: int) -> PPCA:
    """Maximum likelihood from a few rows: in closed form, or by EM from their means where they have gaps.

    n rows leave room for at most n - 2 axes; the further ones have length zero.
    """
    # n rows span n - 1 directions about their mean, and one has to be left for the noise.
    kept = min(q, max(len(X) - 2, 0))
    seen = ~np.isnan(X)
    if seen.all():
        model = maximum_likelihood(X, kept)
    else:
        # Columns without any value start at zero.
        mean = np.where(seen, X, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
        model = maximum_likelihood(np.where(seen, X, mean), kept)
        for _ in range(EM_ROUNDS):
            last, model = model, em_step(model, X)
            if abs(model.sigma2 - last.sigma2) <= EM_TOLERANCE * last.sigma2:
                break
    return model._replace(W=np.hstack([model.W, np.zeros((X.shape[1], q - kept))]))


def em_step(model: PPCA, X: Array) -> PPCA:
    """One round of batch EM over rows with gaps; the likelihood of the observed cells does not fall."""
    d, q = model.W.shape
    n = len(X)
    sums = kernels.Sums(np.zeros(d), np.zeros(q), np.zeros((d, q)), np.zeros((q, q)))
    # E-step: expected statistics of all rows about the old mean; gaps enter with conditional mean and variance.
    S0 = kernels.sum_rows(X, factor(model), sums) / n
    y, z = sums.y / n, sums.z / n
    # Centred second moments: EM for the mean and the loadings at once.
    S1, S2 = sums.S1 / n - np.outer(y, z), sums.S2 / n - np.outer(z, z)
    # M-step: the regression of the rows on their expected latent variables, with an intercept.
    W: Array = np.ascontiguousarray(np.linalg.solve(S2, S1.T).T)
    mu = model.mu + y - W @ z
    mean_variance = (S0 - float(y @ y)) / d
    # At W = S1 S2^-1 the terms -2 tr(S1 W') + tr(S2 W'W) of the M-step are -tr(S1 W').
    sigma2 = mean_variance - float(np.sum(S1 * W)) / d
    return PPCA(mu, W, max(sigma2, noise_floor(mean_variance, mu)))
