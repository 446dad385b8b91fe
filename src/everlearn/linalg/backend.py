"""Where the matrices of the block algorithm live, and the few operations it asks of them.

All arrays are stacks over components: E, Y and Z are (k, m, D), R and P (k, m, m), and can be indexed like NumPy's.
How many rows and components are taken together is decided by the caller (`everlearn.figmn.blocks`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from everlearn.linalg import blas
from everlearn.linalg import dense as kernels
from everlearn.linalg import parallel as threads
from everlearn.typing import Array

# From this many columns on, what a block does to one component is work enough to be handed to a thread.
SHARED = 192
# What is done to one component is divided into pieces of about so many columns, a multiple of STEP.
PIECE, STEP = 400, 16
# Rows of triangles become shorter: with these powers of what is left, the pieces have about the same size. Of a Gram
# matrix each piece is a rectangle.
TRIANGLE, RECTANGLES = 0.5, 0.7

# From this many columns on, the products of one component are long enough for a BLAS call each
# (benchmarks/cost_model.py times both sides of it).
LARGE = 96


class Matrices(Protocol):
    """Precision matrices where a backend keeps them, in any form it likes, until `release`."""

    def diagonals(self, n: int) -> Array:
        """Diagonals of the first n matrices, as a NumPy array (n, D)."""

    def upper(self) -> Array:
        """The matrices as a NumPy array whose upper triangles are valid."""

    def place(self, j: int, precision: Array) -> None:
        """Lambda_j becomes diagonal with the given precision of each column."""

    def move(self, source: int, target: int) -> None:
        """Lambda_target becomes what Lambda_source is."""

    def release(self, n: int) -> None:
        """Bring the array that they came from up to date, for the first n components."""


class Backend(Protocol):
    """The operations of the block algorithm. `which` is a slice of components."""

    root_unit: float  # square root of the rounding unit of its products
    batched: bool  # whether components are taken together in batched products, none of them screened out
    stack_numbers: int  # numbers that E of components taken together may have

    def rows(self, X: Array) -> Any:
        """Take in the rows of the blocks to come; `part(start, stop)` of the result is one block."""

    def matrices(self, precisions: Array) -> Any:
        """Take in precision matrices. The array may be changed; `release` of the result makes it valid again."""

    def project(self, X: Any, means: Array, matrices: Any, which: slice) -> tuple[Any, Any]:
        """E = X - mu and Y = E Lambda, for rows of a block and the means of some components."""

    def squares(self, E: Any, Y: Any) -> Array:
        """Squared distances, the diagonals of E Y', as a NumPy array (k, m)."""

    def gram(self, E: Any, Y: Any, P: Array) -> None:
        """P = 1 + E Y', into a NumPy array; its upper triangle is enough."""

    def combine(self, coefficients: Array, E: Any) -> Array:
        """Sum of the rows of E with coefficients (k, m), as a NumPy array (k, D)."""

    def solve(self, R: Array, Y: Any, learned: NDArray[np.bool_]) -> Any:
        """Z with R'Z = Y for upper triangles R, and zero in the rows that are not learned. Y may be overwritten."""

    def rank_update(self, matrices: Any, which: slice, Z: Any, share: Array) -> None:
        """Lambda = (Lambda - Z'Z)/share."""


class HostMatrices(NamedTuple):
    """Precision matrices in memory, worked on in place; of those that are `half`, only the upper triangle is valid."""

    precisions: Array
    half: NDArray[np.bool_]

    def diagonals(self, n: int) -> Array:
        """Diagonals of the first n matrices."""
        diagonals: Array = np.einsum("jaa->ja", self.precisions[:n])
        return diagonals

    def upper(self) -> Array:
        """The array itself."""
        return self.precisions

    def place(self, j: int, precision: Array) -> None:
        """Lambda_j = diag(precision)."""
        self.precisions[j] = np.diag(precision)
        self.half[j] = False

    def move(self, source: int, target: int) -> None:
        """Copy one matrix over another."""
        self.precisions[target] = self.precisions[source]
        self.half[target] = self.half[source]

    def release(self, n: int) -> None:
        """Complete the matrices of which there is one triangle."""
        half = np.flatnonzero(self.half[:n]).tolist()
        each(lambda j: kernels.mirror_upper(self.precisions[j]), half, self.precisions.shape[-1])
        self.half[:] = False


class HostRows(NamedTuple):
    """Rows in memory."""

    X: Array

    def part(self, start: int, stop: int) -> Array:
        """Consecutive rows."""
        return self.X[start:stop]


class Host:
    """This machine's memory and BLAS."""

    root_unit = 1e-8
    batched = False
    stack_numbers = 2**26

    def rows(self, X: Array) -> HostRows:
        """The rows themselves."""
        return HostRows(X)

    def matrices(self, precisions: Array) -> HostMatrices:
        """Work on the array itself."""
        return HostMatrices(precisions, np.zeros(len(precisions), dtype=bool))

    def project(self, X: Array, means: Array, matrices: HostMatrices, which: slice) -> tuple[Array, Array]:
        """E = X - mu and Y = E Lambda, from the upper triangle where D is large."""
        E: Array = kernels.subtract_stack(X, means)
        precisions = matrices.precisions[which]
        return E, project_upper(E, precisions) if E.shape[-1] >= LARGE else E @ precisions

    def squares(self, E: Array, Y: Array) -> Array:
        """Squared distances."""
        d2: Array = np.einsum("kmd,kmd->km", E, Y)
        return d2

    def gram(self, E: Array, Y: Array, P: Array) -> None:
        """P = 1 + E Y'."""
        if E.shape[-1] < LARGE:
            np.matmul(E, np.swapaxes(Y, 1, 2), out=P)
            P += 1.0
        else:
            gram_upper(E, Y, P)

    def combine(self, coefficients: Array, E: Array) -> Array:
        """Sums of rows."""
        sums: Array = kernels.combine_stack(coefficients, E)
        return sums

    def solve(self, R: Array, Y: Array, learned: NDArray[np.bool_]) -> Array:
        """Forward substitution in steps: each takes the solved rows out of the next ones in one product."""
        # Rows that were not learned are unit rows of R: zero in Y stays zero in Z and leaves no trace in Z'Z.
        if not learned.all():
            Y[~learned] = 0.0
        D = Y.shape[-1]
        if D < LARGE:
            kernels.solve_stack(R, Y)
        else:
            inverses = blas.invert_steps(R)
            divided(lambda start, stop: blas.solve_columns(R, inverses, start, stop, Y), D)
        return Y

    def rank_update(self, matrices: HostMatrices, which: slice, Z: Array, share: Array) -> None:
        """Rank-m update of whole matrices, or of one triangle where D is large."""
        precisions, scale, D = matrices.precisions[which], 1.0 / share, Z.shape[-1]
        if D < LARGE:
            kernels.downdate_stack(precisions, Z, scale)
        else:
            # One triangle is half the work; the other is mirrored once, when the
            # matrices are released, not after every block.
            divided(lambda start, stop: blas.downdate_rows(precisions, Z, scale, start, stop), D, TRIANGLE)
            matrices.half[which] = True


HOST = Host()


def each(work: Callable[[Any], Any], items: Any, D: int) -> list[Any]:
    """The results of independent work on matrices of D columns: on several cores if they are large enough."""
    return threads.each(work, items) if D >= SHARED else [work(item) for item in items]


def project_upper(E: Array, precisions: Array) -> Array:
    """Y = E Lambda, from the upper triangles."""
    Y = np.empty_like(E)
    divided(lambda start, stop: blas.project_columns(E, precisions, start, stop, Y), E.shape[-1])
    return Y


def gram_upper(E: Array, Y: Array, P: Array) -> None:
    """P = 1 + E Y': the upper triangle, and some more."""
    _, m, D = E.shape
    pieces = _pieces(D)
    # Two rectangles at least, also for one thread: they leave out about a quarter of the square, below the diagonal.
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
