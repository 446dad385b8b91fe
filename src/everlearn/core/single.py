"""Blocks with matrix products in single precision, which are faster, and the guards that this takes.

The precision matrices themselves stay in double precision: what float32 adds to them is rounded in proportion to what a
block changes, so that errors do not pile up over a stream. A product of float32 numbers errs by about 2^-24 of its
terms, which |Lambda_ab| <= r_a r_b bounds, r the roots of the diagonal. In units of r, the error of Lambda is therefore
about 2^-24 in every direction, and in the direction where S = Lambda/(r r') is smallest it is 2^-24 |S^-1| of what is
there. Components with |S^-1| beyond `LARGEST_INVERSE` are learned in double precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from everlearn.core.device import SOLVE_ROWS, Host
from everlearn.kernels import linalg as kernels

if TYPE_CHECKING:
    from everlearn.core.incremental import MixtureState

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

# |S^-1| up to which float32 holds: a relative error of about 1e-3 at worst, and definiteness with a margin of 1e3.
LARGEST_INVERSE = 1e4
# A trial in single precision is judged after this many rows a column, and not begun for less than MIN_TRIAL of them.
MAX_TRIAL, MIN_TRIAL = 16, 4


class SingleMatrices(NamedTuple):
    """Precision matrices in double precision, of which the upper triangle is valid if `half`; and rounded to single."""

    precisions: Array
    half: NDArray[np.bool_]
    rounded: Array32
    product: Array32  # room for one product Z'Z


class SingleHost(Host):
    """This machine's memory and BLAS, with products in single precision; for mixtures of `LARGE` columns and more."""

    root_unit = 2.5e-4

    def adopt(self, precisions: Array) -> Any:
        """Work on the array itself, and on a rounded copy."""
        half, product = np.zeros(len(precisions), dtype=bool), np.empty(precisions.shape[1:], dtype=np.float32)
        return SingleMatrices(precisions, half, precisions.astype(np.float32), product)

    def place(self, matrices: Any, j: int, precision: Array) -> None:
        """Lambda_j = diag(precision)."""
        super().place(matrices, j, precision)
        matrices.rounded[j] = matrices.precisions[j]

    def move(self, matrices: Any, source: int, target: int) -> None:
        """Copy one matrix over another."""
        super().move(matrices, source, target)
        matrices.rounded[target] = matrices.rounded[source]

    def deviations(self, X: Array, means: Array) -> Any:
        """E = X - mu, rounded after the subtraction."""
        return super().deviations(X, means).astype(np.float32)

    def project(self, matrices: Any, which: slice, E: Any) -> Any:
        """Y = E Lambda, from the upper triangles."""
        Y = np.empty_like(E)
        for j, rounded in enumerate(matrices.rounded[which]):
            blas.ssymm(1.0, rounded.T, E[j].T, c=Y[j].T, lower=1, overwrite_c=1)
        return Y

    def gram(self, E: Any, Y: Any, P: Array) -> None:
        """P = 1 + E Y'."""
        half = (E.shape[1] + 1) // 2
        for e, y, p in zip(E, Y, P, strict=True):
            np.add(blas.sgemm(1.0, y.T, e[:half].T, trans_a=1).T, 1.0, out=p[:half])
            np.add(blas.sgemm(1.0, y[half:].T, e[half:].T, trans_a=1).T, 1.0, out=p[half:, half:])

    def combine(self, coefficients: Array, E: Any) -> Array:
        """Sums of rows."""
        pairs = zip(E, coefficients.astype(np.float32), strict=True)
        return np.array([blas.sgemv(1.0, e.T, c) for e, c in pairs], dtype=np.float64)

    def solve(self, R: Array, Y: Any, learned: NDArray[np.bool_]) -> Any:
        """Forward substitution in steps, as in double precision; only the small triangles are inverted in that."""
        Y[~learned] = 0.0
        for i in range(0, Y.shape[1], SOLVE_ROWS):
            step = slice(i, i + SOLVE_ROWS)
            inverses = kernels.invert_upper(R[:, step, step]).astype(np.float32)
            for j in range(len(Y)):
                if i:
                    across = R[j, :i, step].astype(np.float32)
                    blas.sgemm(-1.0, Y[j, :i].T, across, beta=1.0, c=Y[j, step].T, overwrite_c=1)
                blas.strmm(1.0, inverses[j], Y[j, step].T, side=1, overwrite_b=1)
        return Y

    def downdate(self, matrices: Any, which: slice, Z: Any, share: Array) -> None:
        """Rank-m update of one triangle: the product in single precision, its difference in double."""
        for j, precision in enumerate(matrices.precisions[which]):
            blas.ssyrk(1.0, Z[j].T, c=matrices.product.T, lower=1, overwrite_c=1)
            kernels.subtract_upper(precision, matrices.product, 1.0 / share[j], matrices.rounded[which][j])
        matrices.half[which] = True


SINGLE = SingleHost()


def is_sound(state: MixtureState) -> bool:
    """Whether single precision can hold every component: positive definite, with |S^-1| within bounds."""
    return all(_inverse_norm(precision) <= LARGEST_INVERSE for precision in state.precisions[: state.n_components])


def _inverse_norm(precision: Array) -> float:
    """Estimate of the 1-norm of S^-1 (LAPACK's, rarely less than a third of the truth); infinite if S is indefinite."""
    root = np.sqrt(np.diagonal(precision))
    if not np.all(root > 0.0):
        return np.inf
    S = (precision / (root * root[:, None])).astype(np.float32)
    factor, failed = lapack.spotrf(S.T, lower=1, overwrite_a=1)
    if failed:
        return np.inf
    reciprocal, _ = lapack.spocon(factor, 1.0, uplo="L")
    return float(1.0 / reciprocal) if reciprocal > 0.0 else np.inf
