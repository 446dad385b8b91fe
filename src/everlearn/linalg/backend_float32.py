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
from scipy.linalg import lapack

from everlearn.linalg import blas
from everlearn.linalg import dense as kernels
from everlearn.linalg.backend import TRIANGLE, Host, divided, gram, project

if TYPE_CHECKING:
    from everlearn.figmn.learn import MixtureState

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


class SingleHost(Host):
    """This machine's memory and BLAS, with products in single precision; for mixtures of `LARGE` columns and more."""

    root_unit = 2.5e-4

    def adopt(self, precisions: Array) -> Any:
        """Work on the array itself, and on a rounded copy."""
        return SingleMatrices(precisions, np.zeros(len(precisions), dtype=bool), precisions.astype(np.float32))

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
        return project(E, matrices.rounded[which])

    def gram(self, E: Any, Y: Any, P: Array) -> None:
        """P = 1 + E Y'."""
        rounded = np.zeros(P.shape, dtype=np.float32)
        gram(E, Y, rounded)
        P[:] = rounded

    def downdate(self, matrices: Any, which: slice, Z: Any, share: Array) -> None:
        """Rank-m update of one triangle: the product in single precision, its difference in double."""
        for j, rows in enumerate(Z, start=which.start):
            _downdate(matrices.precisions[j], matrices.rounded[j], rows, 1.0 / share[j - which.start])
        matrices.half[which] = True


SINGLE = SingleHost()


def _downdate(precision: Array, rounded: Array32, Z: Array32, scale: float) -> None:
    """The upper triangle of Lambda = scale (Lambda - Z'Z), and its rounded copy."""
    product = np.empty(precision.shape, dtype=np.float32)

    def change(start: int, stop: int) -> None:
        blas.square_rows(1.0, Z, 0.0, start, stop, product)
        kernels.subtract_rows(precision, product, scale, start, stop, rounded)

    divided(change, len(precision), TRIANGLE)


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
