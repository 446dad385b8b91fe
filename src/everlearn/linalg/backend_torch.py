"""The operations of the block algorithm on a device of torch's: a graphics processor, or this machine's cores."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError, require
from everlearn.typing import Array

# Rows are copied in chunks of SLAB_NUMBERS (32 MiB); AHEAD chunks are prefetched.
SLAB_NUMBERS = 2**22
AHEAD = 3
# E and Y of a block hold at most so many numbers each (512 MiB): components beyond are taken in further stacks.
STACK_NUMBERS = 2**26


class TorchMatrices(NamedTuple):
    """Precision matrices on the device, and the array that they came from."""

    precisions: Any
    origin: Array
    device: TorchDevice

    def diagonals(self, n: int) -> Array:
        """Diagonals of the first n matrices."""
        return self.device.array(self.precisions[:n].diagonal(dim1=1, dim2=2))

    def upper(self) -> Array:
        """A copy of the matrices."""
        return self.device.array(self.precisions)

    def place(self, j: int, precision: Array) -> None:
        """Lambda_j = diag(precision)."""
        self.precisions[j] = self.device.torch.diag(self.device.tensor(precision))

    def move(self, source: int, target: int) -> None:
        """Copy one matrix over another."""
        self.precisions[target].copy_(self.precisions[source])

    def release(self, n: int) -> None:
        """Copy the matrices back, exactly symmetric."""
        for part in _chunks(self.origin[:n]):
            # Batched products are not symmetric to the last bit, and learning row by row relies on that.
            held = self.precisions[part]
            self.device.fetch((held + held.mT).mul_(0.5), self.origin[part])


class Slabs:
    """Rows on their way to a device, prefetched in slabs by another thread. Blocks are taken in order."""

    def __init__(self, X: Array, device: TorchDevice) -> None:
        self._X, self._device = X, device
        self._length = max(1, SLAB_NUMBERS // X.shape[1])
        self._sent: dict[int, Future[Any]] = {}

    def part(self, start: int, stop: int) -> Any:
        """Consecutive rows on the device; a block may begin in one slab and end in another."""
        first, last = start // self._length, (stop - 1) // self._length
        # Blocks are taken in order: slabs behind the first are never asked for again.
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
    batched = True
    stack_numbers = STACK_NUMBERS

    def __init__(self, name: str) -> None:
        self.name = name
        self.torch = require("torch", extra="torch")
        self.where = _find(self.torch, name)
        self.copiers = ThreadPoolExecutor(2, "everlearn-copier")
        self.stream = self.torch.cuda.Stream(self.where) if self.where.type == "cuda" else None

    def rows(self, X: Array) -> Slabs:
        """Rows that the next blocks are taken from, on their way to the device."""
        return Slabs(X, self)

    def send(self, array: Array) -> Future[Any]:
        """Rows that another thread copies to the device while other work goes on."""
        stream = None if self.stream is None else self.torch.cuda.current_stream(self.where)
        return self.copiers.submit(self._copy_beside, array, stream)

    def matrices(self, precisions: Array) -> TorchMatrices:
        """Copy the matrices to the device."""
        held = self.torch.empty(precisions.shape, dtype=self.torch.float64, device=self.where)
        for part in _chunks(precisions):
            held[part] = self.tensor(precisions[part])
        return TorchMatrices(held, precisions, self)

    def project(self, X: Any, means: Array, matrices: TorchMatrices, which: slice) -> tuple[Any, Any]:
        """E = X - mu and Y = E Lambda."""
        E = X - self.tensor(means)[:, None]
        return E, E @ matrices.precisions[which]

    def squares(self, E: Any, Y: Any) -> Array:
        """Squared distances."""
        return self.array((E * Y).sum(dim=-1))

    def gram(self, E: Any, Y: Any, P: Array) -> None:
        """P = 1 + E Y'."""
        self.fetch(self.torch.baddbmm(E.new_ones(()), E, Y.mT), P)

    def combine(self, coefficients: Array, E: Any) -> Array:
        """Sums of rows."""
        return self.array((self.tensor(coefficients)[:, None] @ E)[:, 0])

    def solve(self, R: Array, Y: Any, learned: NDArray[np.bool_]) -> Any:
        """Forward substitution."""
        if not learned.all():
            Y = Y * self.tensor(learned)[..., None]
        return self.torch.linalg.solve_triangular(self.tensor(R).mT, Y, upper=False)

    def rank_update(self, matrices: TorchMatrices, which: slice, Z: Any, share: Array) -> None:
        """Rank-m update of whole matrices."""
        held = matrices.precisions[which]
        # One call where there is one scale; baddbmm takes a number for all matrices, not one for each.
        if len(share) == 1:
            held.baddbmm_(Z.mT, Z, beta=1.0 / share[0], alpha=-1.0 / share[0])
        else:
            held.baddbmm_(Z.mT, Z, alpha=-1.0).mul_(self.tensor(1.0 / share)[:, None, None])

    # -- copies between memory and device ---------------------------------------------------------

    def tensor(self, array: NDArray[Any]) -> Any:
        """A copy on the device."""
        return self._staged(array).to(self.where, non_blocking=True)

    def numbers(self, array: NDArray[Any]) -> Any:
        """A copy of few numbers on the device: staging them would take longer than the copy."""
        return self.torch.from_numpy(array).to(self.where)

    def _staged(self, array: NDArray[Any]) -> Any:
        """The array, in memory that the device can read by itself."""
        here = self.torch.from_numpy(np.require(array, requirements=["C", "W"]))
        return here if self.stream is None else here.pin_memory()

    def fetch(self, tensor: Any, array: Array) -> None:
        """Copy to an array, by way of memory that the device can write to by itself."""
        if self.stream is not None:
            tensor = self.torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)
        self.torch.from_numpy(array).copy_(tensor)

    def _copy_beside(self, array: Array, stream: Any) -> Any:
        """Copy rows that are for the work on `stream`, beside it."""
        if self.stream is None:
            return self.tensor(array)
        with self.torch.cuda.stream(self.stream):
            rows = self.tensor(array)
        # The memory belongs to the copying stream: without the record it could be
        # given away while the other stream reads it.
        rows.record_stream(stream)
        # Nobody may see the rows before they have arrived; only this thread waits.
        self.stream.synchronize()
        return rows

    def array(self, tensor: Any) -> Array:
        """A copy in memory."""
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
    """InputError for a device failure, usually out of memory."""
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
