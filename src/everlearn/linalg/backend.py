"""Where the matrices of the block algorithm live, and the few operations it asks of them.

A device holds precision matrices between `adopt` and `release` in any form it likes, and makes the tall arrays E, Y
and Z. All of them are stacks over components: E, Y and Z are (k, m, D), R and P (k, m, m), and can be cut like NumPy's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from everlearn.linalg import blas
from everlearn.linalg import dense as kernels
from everlearn.linalg import parallel as threads

Array = NDArray[np.float64]
Indices = NDArray[np.integer[Any]]

# From this many columns on, what a block does to one component is work enough to be handed to a thread.
SHARED = 192
# What is done to a component that is alone is divided into pieces of about so many columns, a multiple of STEP.
PIECE, STEP = 400, 16
# Rows of triangles become shorter: with these powers of what is left, the pieces have about the same size. Of a Gram
# matrix each piece is a rectangle.
TRIANGLE, RECTANGLES = 0.5, 0.7

# From this many columns on, the products of one component are long enough for a BLAS call each.
LARGE = 96
# Most rows in a block of screened rows.
MAX_SCREENED_ROWS = 1024


@lru_cache(maxsize=4096)
def block_rows(D: int, K: int = 1, *, screened: bool = False) -> int:
    """Rows in a block: a power of two near D/5, where products are fast and the recursion small.

    With screening, long enough for about 20 rows per component (clipped).
    """
    rows = int(np.clip(2 ** np.round(np.log2(max(D, 1) / 5)), 16, 256))
    return int(np.clip(20 * K, min(2 * rows, 256), MAX_SCREENED_ROWS)) if screened else rows


class Device(Protocol):
    """The operations of the block algorithm. `which` is a slice of components."""

    root_unit: float  # square root of the rounding unit of its products
    screens: bool  # whether it pays to leave out components that cannot matter to a row

    def adopt(self, precisions: Array) -> Any:
        """Take precision matrices in. The array may be changed; `release` makes it valid again."""

    def release(self, matrices: Any, n: int) -> None:
        """Bring the array that was adopted up to date, for its first n components."""

    def diagonals(self, matrices: Any, n: int) -> Array:
        """Diagonals of the first n matrices, as a NumPy array (n, D)."""

    def upper(self, matrices: Any) -> Array:
        """The matrices as a NumPy array whose upper triangles are valid."""

    def block_rows(self, D: int, K: int, *, screened: bool) -> int:
        """Rows in a block of K components."""

    def stacks(self, n: int, b: int, D: int) -> list[slice]:
        """How n components are best taken together for b rows."""

    def each(self, work: Callable[[Any], Any], stacks: Sequence[Any], D: int) -> list[Any]:
        """The results of independent work on stacks of D x D matrices."""

    def place(self, matrices: Any, j: int, precision: Array) -> None:
        """Lambda_j is diagonal with the given precision of each column."""

    def move(self, matrices: Any, source: int, target: int) -> None:
        """Lambda_target is what Lambda_source is."""

    def rows(self, X: Array) -> Any:
        """Take in the rows of the blocks to come; `part(start, stop)` of the answer is one block."""

    def take(self, X: Any, rows: Indices) -> Any:
        """Some rows of a block."""

    def pick(self, A: Any, rows: Indices) -> Any:
        """Rows (k, m) of the matrices in a stack."""

    def deviations(self, X: Any, means: Array) -> Any:
        """E = X - mu for each mean."""

    def project(self, matrices: Any, which: slice, E: Any) -> Any:
        """Y = E Lambda."""

    def gram(self, E: Any, Y: Any, P: Array) -> None:
        """P = 1 + E Y', into a NumPy array; its upper triangle is enough."""

    def squares(self, E: Any, Y: Any) -> Array:
        """Squared distances, the diagonals of E Y', as a NumPy array (k, m)."""

    def combine(self, coefficients: Array, E: Any) -> Array:
        """Sum of the rows of E with coefficients (k, m), as a NumPy array (k, D)."""

    def factor(self, E: Any, Y: Any, ridge: Array) -> tuple[Any, Array, Array]:
        """Factorise H = P + diag(ridge), P = 1 + E Y', of one component: its upper factor R for `solve`, over anything.

        With it come, as NumPy arrays, the diagonal of P and what the rows above have left of it, P_tt - sum_s R_st^2;
        NaN where H cannot be factorised.
        """

    def solve(self, R: Any, Y: Any, learned: NDArray[np.bool_]) -> Any:
        """Z with R'Z = Y for upper triangles R, and zero in the rows that are not learned. Y may be overwritten."""

    def downdate(self, matrices: Any, which: slice, Z: Any, share: Array) -> None:
        """Lambda = (Lambda - Z'Z)/share."""


class HostMatrices(NamedTuple):
    """Precision matrices in memory; of those that are `half`, only the upper triangle is valid."""

    precisions: Array
    half: NDArray[np.bool_]


class HostRows(NamedTuple):
    """Rows in memory."""

    X: Array

    def part(self, start: int, stop: int) -> Array:
        """Consecutive rows."""
        return self.X[start:stop]


class Host:
    """This machine's memory and BLAS."""

    root_unit = 1e-8
    screens = True

    def adopt(self, precisions: Array) -> HostMatrices:
        """Work on the array itself."""
        return HostMatrices(precisions, np.zeros(len(precisions), dtype=bool))

    def release(self, matrices: HostMatrices, n: int) -> None:
        """Complete the matrices of which there is one triangle."""
        half = np.flatnonzero(matrices.half[:n]).tolist()
        self.each(lambda j: kernels.mirror_upper(matrices.precisions[j]), half, matrices.precisions.shape[-1])
        matrices.half[:] = False

    def diagonals(self, matrices: HostMatrices, n: int) -> Array:
        """Diagonals of the first n matrices."""
        diagonals: Array = np.einsum("jaa->ja", matrices.precisions[:n])
        return diagonals

    def upper(self, matrices: HostMatrices) -> Array:
        """The array itself."""
        return matrices.precisions

    def block_rows(self, D: int, K: int, *, screened: bool) -> int:
        """So many that products are fast and the recursion small; half as many more if pieces are handed to threads."""
        rows = block_rows(D, K, screened=screened)
        return rows + rows // 2 if K == 1 and _pieces(D) > 1 else rows

    def stacks(self, n: int, b: int, D: int) -> list[slice]:
        """All together where one matrix is too small to keep BLAS busy, else one by one."""
        return [slice(j, j + 1) for j in range(n)] if D >= LARGE else [slice(0, n)] if n > 0 else []

    def each(self, work: Callable[[Any], Any], stacks: Sequence[Any], D: int) -> list[Any]:
        """On several cores if the matrices are large enough."""
        return threads.each(work, stacks) if D >= SHARED else [work(stack) for stack in stacks]

    def place(self, matrices: HostMatrices, j: int, precision: Array) -> None:
        """Lambda_j = diag(precision)."""
        matrices.precisions[j] = np.diag(precision)
        matrices.half[j] = False

    def move(self, matrices: HostMatrices, source: int, target: int) -> None:
        """Copy one matrix over another."""
        matrices.precisions[target] = matrices.precisions[source]
        matrices.half[target] = matrices.half[source]

    def rows(self, X: Array) -> HostRows:
        """The rows themselves."""
        return HostRows(X)

    def take(self, X: Array, rows: Indices) -> Array:
        """Some rows of a block."""
        return X.take(rows, axis=0)

    def pick(self, A: Array, rows: Indices) -> Array:
        """Rows of the matrices in a stack."""
        return np.take_along_axis(A, rows[:, :, None], axis=1)

    def deviations(self, X: Array, means: Array) -> Array:
        """E = X - mu."""
        E: Array = kernels.subtract_stack(X, means)
        return E

    def project(self, matrices: HostMatrices, which: slice, E: Array) -> Array:
        """Y = E Lambda, from the upper triangle where D is large."""
        precisions = matrices.precisions[which]
        return project(E, precisions) if E.shape[-1] >= LARGE else E @ precisions

    def gram(self, E: Array, Y: Array, P: Array) -> None:
        """P = 1 + E Y'."""
        if E.shape[-1] < LARGE:
            np.matmul(E, np.swapaxes(Y, 1, 2), out=P)
            P += 1.0
        else:
            gram(E, Y, P)

    def squares(self, E: Array, Y: Array) -> Array:
        """Squared distances."""
        d2: Array = np.einsum("kmd,kmd->km", E, Y)
        return d2

    def combine(self, coefficients: Array, E: Array) -> Array:
        """Sums of rows."""
        sums: Array = kernels.combine_stack(coefficients, E)
        return sums

    def factor(self, E: Array, Y: Array, ridge: Array) -> tuple[Array, Array, Array]:
        """LAPACK's Cholesky factorisation."""
        b = len(ridge)
        P = np.empty((1, b, b))
        self.gram(E, Y, P)
        origin = np.diagonal(P[0]).copy()
        np.einsum("ii->i", P[0])[:] += ridge
        # In Fortran's order our upper triangle is the lower one of the transpose.
        factor, failed = lapack.dpotrf(P[0].T, lower=1, clean=0, overwrite_a=1)
        R: Array = factor.T[None]
        return R, origin, kernels.less_squares_above(R[0], origin) if failed == 0 else np.full(b, np.nan)

    def solve(self, R: Array, Y: Array, learned: NDArray[np.bool_]) -> Array:
        """Forward substitution in steps: each takes the solved rows out of the next ones in one product."""
        if not learned.all():
            Y[~learned] = 0.0
        D = Y.shape[-1]
        if D < LARGE:
            kernels.solve_stack(R, Y)
        else:
            inverses = blas.invert_steps(R)
            divided(lambda start, stop: blas.solve_columns(R, inverses, start, stop, Y), D)
        return Y

    def downdate(self, matrices: HostMatrices, which: slice, Z: Array, share: Array) -> None:
        """Rank-m update of whole matrices, or of one triangle where D is large."""
        precisions, scale, D = matrices.precisions[which], 1.0 / share, Z.shape[-1]
        if D < LARGE:
            kernels.downdate_stack(precisions, Z, scale)
        else:
            divided(lambda start, stop: blas.downdate_rows(precisions, Z, scale, start, stop), D, TRIANGLE)
            matrices.half[which] = True


HOST = Host()


def project(E: NDArray[Any], precisions: NDArray[Any]) -> NDArray[Any]:
    """Y = E Lambda, from the upper triangles."""
    Y = np.empty_like(E)
    divided(lambda start, stop: blas.project_columns(E, precisions, start, stop, Y), E.shape[-1])
    return Y


def gram(E: NDArray[Any], Y: NDArray[Any], P: NDArray[Any]) -> None:
    """P = 1 + E Y': the upper triangle, and some more."""
    _, m, D = E.shape
    pieces = _pieces(D)
    cuts = list(itertools.pairwise(_cuts(m, max(pieces, 2), RECTANGLES)))
    if pieces == 1:
        for start, stop in cuts:
            blas.gram_rows(E, Y, start, stop, P)
    else:
        threads.each(lambda cut: blas.gram_rows(E, Y, *cut, P), cuts)


def divided(work: Callable[[int, int], None], D: int, taper: float = 1.0) -> None:
    """Work on D columns or rows, in pieces for several threads if they are enough and it is not shared already."""
    threads.each(lambda cut: work(*cut), list(itertools.pairwise(_cuts(D, _pieces(D), taper))))


def _pieces(D: int) -> int:
    """Pieces into which the work on one component is divided: one by itself takes less time than several in turn."""
    alone = D < SHARED or threads.is_shared() or threads.available() == 1
    return 1 if alone else -(-D // PIECE)


@cache
def _cuts(n: int, pieces: int, taper: float) -> list[int]:
    """Where n rows are cut, the later pieces being longer where the taper is less than one."""
    left = np.linspace(1.0, 0.0, pieces + 1) ** taper
    inner = STEP * np.round(n * (1.0 - left[1:-1]) / STEP)
    return [0, *sorted({int(cut) for cut in inner if 0 < cut < n}), n]
