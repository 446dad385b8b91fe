"""The operations of the block algorithm on a device of torch's: a graphics processor, or this machine's cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError, require
from everlearn.linalg.backend import block_rows

Array = NDArray[np.float64]

# Rows travel to the device in slabs of so many numbers (32 MiB), so many of them ahead of those that are learned.
SLAB_NUMBERS = 2**22
AHEAD = 3
# E and Y of a block hold at most so many numbers each (512 MiB): components beyond are taken in further stacks.
STACK_NUMBERS = 2**26
# Rows in a block of a component that is alone, whose recursion takes place on the device.
ALONE_ROWS = 2048


class TorchMatrices(NamedTuple):
    """Precision matrices on the device, and the array that they came from."""

    precisions: Any
    origin: Array


class Slabs:
    """Rows on their way to a device, in slabs that a courier sends ahead of time. Blocks are taken in order."""

    def __init__(self, X: Array, device: TorchDevice) -> None:
        self._X, self._device = X, device
        self._length = max(1, SLAB_NUMBERS // X.shape[1])
        self._sent: dict[int, Future[Any]] = {}

    def part(self, start: int, stop: int) -> Any:
        """Consecutive rows on the device; a block may begin in one slab and end in another."""
        first, last = start // self._length, (stop - 1) // self._length
        for number in [number for number in self._sent if number < first]:
            del self._sent[number]
        for number in range(first, min(last + AHEAD, (len(self._X) - 1) // self._length) + 1):
            if number not in self._sent:
                begin = number * self._length
                self._sent[number] = self._device.send(self._X[begin : begin + self._length])
        pieces = [
            self._sent[number].result()[max(start - number * self._length, 0) : stop - number * self._length]
            for number in range(first, last + 1)
        ]
        return pieces[0] if len(pieces) == 1 else self._device.torch.cat(pieces)


class TorchDevice:
    """A device of torch's. Components are taken together, in batched products, and no screen leaves any of them out."""

    root_unit = 1e-8
    screens = False

    def __init__(self, name: str) -> None:
        self.torch = require("torch", extra="torch")
        self.where = _find(self.torch, name)
        self.couriers = ThreadPoolExecutor(2, "everlearn-courier")
        self.route = self.torch.cuda.Stream(self.where) if self.where.type == "cuda" else None

    # -- precision matrices -----------------------------------------------------------------------

    def adopt(self, precisions: Array) -> TorchMatrices:
        """Copy the matrices to the device."""
        held = self.torch.empty(precisions.shape, dtype=self.torch.float64, device=self.where)
        for part in _chunks(precisions):
            held[part] = self._tensor(precisions[part])
        return TorchMatrices(held, precisions)

    def release(self, matrices: TorchMatrices, n: int) -> None:
        """Copy the matrices back, exactly symmetric."""
        for part in _chunks(matrices.origin[:n]):
            held = matrices.precisions[part]
            self._fetch((held + held.mT).mul_(0.5), matrices.origin[part])

    def diagonals(self, matrices: TorchMatrices, n: int) -> Array:
        """Diagonals of the first n matrices."""
        return self._array(matrices.precisions[:n].diagonal(dim1=1, dim2=2))

    def upper(self, matrices: TorchMatrices) -> Array:
        """A copy of the matrices."""
        return self._array(matrices.precisions)

    def block_rows(self, D: int, K: int, *, screened: bool) -> int:
        """Many rows where the recursion, too, takes place on the device."""
        return ALONE_ROWS if K == 1 else block_rows(D, K, screened=screened)

    def stacks(self, n: int, b: int, D: int) -> list[slice]:
        """As many components together as the memory for their E and Y allows."""
        step = max(1, STACK_NUMBERS // (b * D))
        return [slice(j, min(j + step, n)) for j in range(0, n, step)]

    def each(self, work: Callable[[Any], Any], stacks: Sequence[Any], D: int) -> list[Any]:
        """One after the other: each of them can fill the device."""
        return [work(stack) for stack in stacks]

    def place(self, matrices: TorchMatrices, j: int, precision: Array) -> None:
        """Lambda_j = diag(precision)."""
        matrices.precisions[j] = self.torch.diag(self._tensor(precision))

    def move(self, matrices: TorchMatrices, source: int, target: int) -> None:
        """Copy one matrix over another."""
        matrices.precisions[target].copy_(matrices.precisions[source])

    # -- rows -------------------------------------------------------------------------------------

    def rows(self, X: Array) -> Slabs:
        """Rows that the next blocks are taken from, on their way to the device."""
        return Slabs(X, self)

    def send(self, array: Array) -> Future[Any]:
        """Rows that a courier copies to the device while other work goes on."""
        stream = None if self.route is None else self.torch.cuda.current_stream(self.where)
        return self.couriers.submit(self._carry, array, stream)

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
        self._fetch(self.torch.baddbmm(E.new_ones(()), E, Y.mT), P)

    def squares(self, E: Any, Y: Any) -> Array:
        """Squared distances."""
        return self._array((E * Y).sum(dim=-1))

    def combine(self, coefficients: Array, E: Any) -> Array:
        """Sums of rows."""
        return self._array((self._tensor(coefficients)[:, None] @ E)[:, 0])

    def factor(self, E: Any, Y: Any, ridge: Array) -> tuple[Any, Array, Array]:
        """Cholesky factorisation; only the diagonals travel."""
        torch = self.torch
        H = torch.addmm(E.new_ones(()), E[0], Y[0].mT)
        origin = H.diagonal().clone()
        H.diagonal().add_(self._tensor(ridge))
        L, failed = torch.linalg.cholesky_ex(H)
        rest = torch.where(failed > 0, torch.nan, origin - L.tril(-1).square_().sum(dim=1))
        return L.mT[None], *self._array(torch.stack([origin, rest]))

    def solve(self, R: Any, Y: Any, learned: NDArray[np.bool_]) -> Any:
        """Forward substitution."""
        if not learned.all():
            Y = Y * self._tensor(learned)[..., None]
        R = R if isinstance(R, self.torch.Tensor) else self._tensor(R)
        return self.torch.linalg.solve_triangular(R.mT, Y, upper=False)

    def downdate(self, matrices: TorchMatrices, which: slice, Z: Any, share: Array) -> None:
        """Rank-m update of whole matrices."""
        held = matrices.precisions[which]
        if len(share) == 1:
            held.baddbmm_(Z.mT, Z, beta=1.0 / share[0], alpha=-1.0 / share[0])
        else:
            held.baddbmm_(Z.mT, Z, alpha=-1.0).mul_(self._tensor(1.0 / share)[:, None, None])

    # -- to and fro -------------------------------------------------------------------------------

    def _tensor(self, array: NDArray[Any]) -> Any:
        """A copy on the device."""
        return self._staged(array).to(self.where, non_blocking=True)

    def _staged(self, array: NDArray[Any]) -> Any:
        """The array, in memory that the device can read by itself."""
        here = self.torch.from_numpy(np.require(array, requirements=["C", "W"]))
        return here if self.route is None else here.pin_memory()

    def _fetch(self, tensor: Any, array: Array) -> None:
        """Copy to an array, by way of memory that the device can write to by itself."""
        if self.route is not None:
            tensor = self.torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)
        self.torch.from_numpy(array).copy_(tensor)

    def _carry(self, array: Array, stream: Any) -> Any:
        """Copy rows that are for the work on `stream`, beside it."""
        if self.route is None:
            return self._tensor(array)
        with self.torch.cuda.stream(self.route):
            rows = self._tensor(array)
        rows.record_stream(stream)
        self.route.synchronize()
        return rows

    def _array(self, tensor: Any) -> Array:
        array: Array = tensor.cpu().numpy()
        return array


def _chunks(matrices: Array) -> list[slice]:
    """Matrices that travel together."""
    n, D = len(matrices), matrices.shape[-1]
    step = max(1, SLAB_NUMBERS // (D * D))
    return [slice(j, min(j + step, n)) for j in range(0, n, step)]


@cache
def torch_device(name: str) -> TorchDevice:
    """The device of torch's with this name, such as "cuda", "cuda:1" or "cpu"."""
    return TorchDevice(name)


def device_failure(name: str | None, error: RuntimeError) -> InputError:
    """What to tell of a device that failed in the middle, most likely for want of memory."""
    reason = str(error).splitlines()[0].partition(". ")[0].rstrip(".")
    return InputError(
        f"device={name!r} failed ({reason}). The model is as it was before the call. A smaller "
        "max_components or smaller batches need less of its memory; device=None needs none."
    )


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
