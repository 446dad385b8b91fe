"""The operations of the block algorithm on a device of torch's: a graphics processor, or this machine's cores."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError, require

Array = NDArray[np.float64]

# Rows travel to the device in slabs of so many numbers (128 MiB), the next one while this one is learned from; two
# slabs share enough rows for a block.
SLAB_NUMBERS = 2**24
OVERLAP = 256
# E and Y of a block hold at most so many numbers each (512 MiB): components beyond are taken in further stacks.
STACK_NUMBERS = 2**26


class TorchMatrices(NamedTuple):
    """Precision matrices on the device, and the array that they came from."""

    precisions: Any
    origin: Array


class Slabs:
    """Rows on their way to a device: a slab at a time, and the next one ahead of time. Blocks are taken in order."""

    def __init__(self, X: Array, send: Callable[[Array], Any], courier: ThreadPoolExecutor) -> None:
        self._X, self._send, self._courier = X, send, courier
        self._length = OVERLAP + SLAB_NUMBERS // X.shape[1]
        self._start, self._slab = 0, send(X[: self._length])
        self._next = self._ahead()

    def part(self, start: int, stop: int) -> Any:
        """Consecutive rows on the device, at most as many as two slabs share."""
        while stop > self._start + len(self._slab):
            self._start, self._slab = self._start + self._length - OVERLAP, self._next.result()
            self._next = self._ahead()
        return self._slab[start - self._start : stop - self._start]

    def _ahead(self) -> Future[Any]:
        start = self._start + self._length - OVERLAP
        return self._courier.submit(self._send, self._X[start : start + self._length])


class TorchDevice:
    """A device of torch's. Components are taken together, in batched products, and no screen leaves any of them out."""

    root_unit = 1e-8
    screens = False

    def __init__(self, name: str) -> None:
        self.torch = require("torch", extra="torch")
        self.where = _find(self.torch, name)
        self.courier = ThreadPoolExecutor(1, "everlearn-courier")

    # -- precision matrices -----------------------------------------------------------------------

    def adopt(self, precisions: Array) -> TorchMatrices:
        """Copy the matrices to the device."""
        return TorchMatrices(self.torch.tensor(precisions, device=self.where), precisions)

    def release(self, matrices: TorchMatrices, n: int) -> None:
        """Copy the matrices back, exactly symmetric."""
        held = matrices.precisions[:n]
        held.add_(held.mT.clone()).mul_(0.5)
        self.torch.from_numpy(matrices.origin)[:n].copy_(held)

    def diagonals(self, matrices: TorchMatrices, n: int) -> Array:
        """Diagonals of the first n matrices."""
        return self._array(matrices.precisions[:n].diagonal(dim1=1, dim2=2))

    def upper(self, matrices: TorchMatrices) -> Array:
        """A copy of the matrices."""
        return self._array(matrices.precisions)

    def stacks(self, n: int, b: int, D: int) -> list[slice]:
        """As many components together as the memory for their E and Y allows."""
        step = max(1, STACK_NUMBERS // (b * D))
        return [slice(j, min(j + step, n)) for j in range(0, n, step)]

    def place(self, matrices: TorchMatrices, j: int, precision: Array) -> None:
        """Lambda_j = diag(precision)."""
        matrices.precisions[j] = self.torch.diag(self._tensor(precision))

    def move(self, matrices: TorchMatrices, source: int, target: int) -> None:
        """Copy one matrix over another."""
        matrices.precisions[target].copy_(matrices.precisions[source])

    # -- rows -------------------------------------------------------------------------------------

    def rows(self, X: Array) -> Slabs:
        """Rows that the next blocks are taken from, on their way to the device."""
        return Slabs(X, self._tensor if self.where.type == "cpu" else self._send, self.courier)

    def take(self, X: Any, rows: NDArray[np.integer[Any]]) -> Any:
        """Some rows of a block."""
        return X[self._tensor(rows)]

    def pick(self, A: Any, rows: NDArray[np.integer[Any]]) -> Any:
        """Rows of the matrices in a stack."""
        return A[self.torch.arange(len(A), device=self.where)[:, None], self._tensor(rows)]

    def deviations(self, X: Any, means: Array) -> Any:
        """E = X - mu."""
        return X - self._tensor(means)[:, None]

    # -- products ---------------------------------------------------------------------------------

    def project(self, matrices: TorchMatrices, which: slice, E: Any) -> Any:
        """Y = E Lambda."""
        return E @ matrices.precisions[which]

    def gram(self, E: Any, Y: Any, P: Array) -> None:
        """P = 1 + E Y'."""
        self.torch.from_numpy(P).copy_(self.torch.baddbmm(E.new_ones(()), E, Y.mT))

    def squares(self, E: Any, Y: Any) -> Array:
        """Squared distances."""
        return self._array((E * Y).sum(dim=-1))

    def combine(self, coefficients: Array, E: Any) -> Array:
        """Sums of rows."""
        return self._array((self._tensor(coefficients)[:, None] @ E)[:, 0])

    def solve(self, R: Array, Y: Any, learned: NDArray[np.bool_]) -> Any:
        """Forward substitution."""
        if not learned.all():
            Y = Y * self._tensor(learned)[..., None]
        return self.torch.linalg.solve_triangular(self._tensor(R).mT, Y, upper=False)

    def downdate(self, matrices: TorchMatrices, which: slice, Z: Any, share: Array) -> None:
        """Rank-m update of whole matrices."""
        held = matrices.precisions[which]
        if len(share) == 1:
            held.baddbmm_(Z.mT, Z, beta=1.0 / share[0], alpha=-1.0 / share[0])
        else:
            held.baddbmm_(Z.mT, Z, alpha=-1.0).mul_(self._tensor(1.0 / share)[:, None, None])

    # -- to and fro -------------------------------------------------------------------------------

    def _tensor(self, array: NDArray[Any]) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(array)).to(self.where)

    def _send(self, array: Array) -> Any:
        """Copy rows to the device by way of memory that it can read by itself."""
        staged = self.torch.empty(array.shape, dtype=self.torch.float64, pin_memory=True)
        return staged.copy_(self.torch.from_numpy(array)).to(self.where, non_blocking=True)

    def _array(self, tensor: Any) -> Array:
        array: Array = tensor.cpu().numpy()
        return array


@cache
def torch_device(name: str) -> TorchDevice:
    """The device of torch's with this name, such as "cuda", "cuda:1" or "cpu"."""
    return TorchDevice(name)


def _find(torch: Any, name: str) -> Any:
    """The device, if it is there and has double precision."""
    try:
        where = torch.device(name)
        torch.zeros(1, dtype=torch.float64, device=where)
    except (RuntimeError, AssertionError, TypeError) as error:
        found = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        raise InputError(
            f"device={name!r} cannot be used here ({str(error).splitlines()[0]}). torch finds {', '.join(found)}; "
            "device=None works without torch."
        ) from error
    return where
