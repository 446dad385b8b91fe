"""Learning rows of many columns in blocks, by matrix products, in this machine's memory or on a device of torch's.

Factors are frozen between refreshes, so that the rows between two of them are independent: their distances to a
component are one product, what they add to its scatter is another. `kernels.walk` shares the rows out between the two,
one by one, so that the model is that of `kernels.rows.learn_rows` up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk, dtrmm

from everlearn.linalg.backend_torch import Slabs, TorchDevice
from everlearn.linalg.chunked import has_gaps
from everlearn.mixture.kernels import rows as kernels
from everlearn.mixture.kernels.covariance import LOG_2PI, factors_of_counts, inverse_factor, posterior_scatters
from everlearn.mixture.kernels.rows import FARTHEST
from everlearn.mixture.kernels.walk import Block, walk
from everlearn.mixture.kernels.wide import inverse_factors
from everlearn.mixture.state import Array, Components, Frame, Model, Settings

# Columns and rows from which on rows are learned in blocks. Refreshes by SIMD rows make row by row as fast up to 250
# columns; blocks take 1 / 1.3 of its time at 512 and 1 / 2.2 at 784 (one BLAS thread, two components;
# benchmarks/mixture_speed.py, wide rows).
COLUMNS, ROWS = 160, 64
# Columns from which on a device pays: components travel to it and back.
DEVICE_COLUMNS = 256
# Rows of a block. A component is refreshed about once in `growth` times the rows before it: in blocks as long as that,
# half of its distances are worked out twice.
FEWEST, MOST = 64, 1024


class Work(NamedTuple):
    """What rows are learned by: a handle of a `kernels.rows.Task`, and what of it blocks need."""

    handle: Any
    learn_contiguous: Callable[[Array, Array, Any, Array], int]  # `kernels.rows.learn_contiguous` of the handle
    model: Model
    frame: Frame
    rule: Settings


def pay(X: Array, work: Work) -> bool:
    """Whether blocks are faster; only rows without gaps, of models that keep rows, can be learned in them."""
    return len(X) >= ROWS and X.shape[1] >= COLUMNS and not work.rule.parts and not has_gaps(X)


def learn_rows(X: Array, weights: Array, work: Work, out: Array, device: TorchDevice | None = None) -> int:
    """`kernels.rows.learn_rows` in blocks where they pay."""
    if pay(X, work):
        return learn_in_blocks(X, weights, work, out, device)
    return int(kernels.learn_rows(X, weights, work.handle, out))


def learn_in_blocks(X: Array, weights: Array, work: Work, out: Array, device: TorchDevice | None) -> int:
    """`kernels.rows.learn_rows` of rows of positive weight without gaps; returns how many they are."""
    there = device if X.shape[1] >= DEVICE_COLUMNS else None
    place = Memory(X, work) if there is None else Resident(X, work, there)
    at = 0
    while at < len(X):
        rows = int(np.clip(work.rule.growth * work.model.components.total[0], FEWEST, MOST))
        part = slice(at, min(at + rows, len(X)))
        place.load(part.start, part.stop)
        _learn_block(X[part], weights[part], work, out[:, part], place)
        at = part.stop
    place.release()
    return len(X)


def _learn_block(X: Array, weights: Array, work: Work, out: Array, place: Memory | Resident) -> None:
    """Learn the rows that `place` has loaded."""
    c, fading = work.model.components, work.rule.fading
    C, D = c.means.shape
    m = len(X)
    added, due = np.zeros(C, np.int64), np.zeros(C, np.bool_)
    block = Block(np.empty((m, C)), np.zeros((m, C)), added, due, np.empty(D), np.empty(D), np.empty(C + 1))
    K, at = int(c.size[0]), 0
    block.distances[:, :K] = place.distances(slice(0, K), 0)
    while at < m:
        steps = c.rows[0] // fading.every
        at = walk(at, X, weights, work.handle, block, out)
        place.fade(fading.factor ** (c.rows[0] // fading.every - steps))
        for k in map(int, np.flatnonzero(due)):
            if k == K:
                place.create(k)
                K += 1
            else:
                place.add(k, int(added[k]), block.shares[added[k] : at, k])
            place.refresh(k)
            added[k] = at
            block.distances[at:, k] = place.distances(slice(k, k + 1), at)[:, 0]
    for k in range(K):
        place.add(k, int(added[k]), block.shares[added[k] :, k])


class Memory:
    """Components in this machine's memory: the arrays of the model themselves."""

    def __init__(self, X: Array, work: Work) -> None:
        self.X, self.model, self.frame = X, work.model, work.frame
        self.rows: Array = X[:0]

    def load(self, start: int, stop: int) -> None:
        """Take these rows of the data as the block."""
        rows = (self.X[start:stop] - self.frame.centre) * self.frame.inverse
        self.rows = np.clip(rows, -FARTHEST, FARTHEST, out=rows)

    def distances(self, which: Any, start: int) -> Array:
        """Squared distances of the rows of the block from `start` on to some components."""
        c = self.model.components
        Z = self.rows[start:]
        found = np.empty((len(Z), len(c.means[which])))
        for column, mean, factor in zip(found.T, c.means[which], c.factors[which], strict=True):
            # F E': the transposes are in Fortran's order, in which BLAS multiplies in place.
            Y = dtrmm(1.0, factor.T, (Z - mean).T, trans_a=1, overwrite_b=1)
            np.einsum("ij,ij->j", Y, Y, out=column)
        return found

    def add(self, k: int, start: int, shares: Array) -> None:
        """Add the rows of the block from `start` on to component k, each by its share."""
        used = np.flatnonzero(shares)
        if not len(used):
            return
        c = self.model.components
        E = self.rows[start + used]
        E -= c.means[k]
        c.shift[k] += shares[used] @ E
        E *= np.sqrt(shares[used])[:, None]
        # The lower triangle in C's order is the upper one in Fortran's.
        dsyrk(1.0, E.T, beta=1.0, c=c.scatter[k].T, overwrite_c=1)

    def create(self, k: int) -> None:
        """Nothing is left to do."""

    def refresh(self, k: int) -> None:
        """`kernels.rows.refresh` of component k."""
        c, shape = self.model.components, self.model.shape
        _begin_refresh(k, c)
        count, shift = c.counts[k], c.shift[k]
        shift /= count
        c.means[k] += shift
        c.scatter[k] -= np.tril(np.outer(count * shift, shift))
        shift[:] = 0.0
        factors, log_dets = inverse_factors(posterior_scatters(c.counts[k : k + 1], c.scatter[k : k + 1], shape))
        scale = factors_of_counts(count, shape.tau)
        np.divide(factors[0], np.sqrt(scale), out=c.factors[k])
        c.heights[k] = _height(k, c, scale, log_dets[0])

    def fade(self, factor: float) -> None:
        """Nothing is left to do: the arrays of the model are the components."""

    def release(self) -> None:
        """Nothing is left to do."""


class Resident:
    """Components on a device of torch's, until they are released; the same face as `Memory`."""

    def __init__(self, X: Array, work: Work, device: TorchDevice) -> None:
        self.device, self.torch, self.model = device, device.torch, work.model
        self.sent: Slabs = device.rows(X)
        self.rows: Any = None
        self.centre, self.inverse = device.tensor(work.frame.centre), device.tensor(work.frame.inverse)
        shape = work.model.shape
        self.prior, self.ridge = device.tensor(shape.tau * shape.matrix), device.tensor(shape.ridge)
        self.means: list[Any] = []
        self.shifts: list[Any] = []
        self.scatters: list[Any] = []
        self.factors: list[Any] = []
        for k in range(int(work.model.components.size[0])):
            self.create(k)

    def create(self, k: int) -> None:
        """Take over component k, which was made of one row."""
        c, send = self.model.components, self.device.tensor
        lower = send(c.scatter[k]).tril()
        self.scatters.append(lower + lower.tril(-1).mT)
        self.means.append(send(c.means[k]))
        # Where the device is this machine, a tensor is the array itself, and `fade` would take both.
        self.shifts.append(send(c.shift[k]).clone())
        self.factors.append(send(c.factors[k]).tril())

    def load(self, start: int, stop: int) -> None:
        """Take these rows of the data as the block."""
        rows = (self.sent.part(start, stop) - self.centre) * self.inverse
        self.rows = rows.clamp_(-FARTHEST, FARTHEST)

    def distances(self, which: Any, start: int) -> Array:
        """Squared distances of the rows of the block from `start` on to some components."""
        Z = self.rows[start:]
        pairs = zip(self.means[which], self.factors[which], strict=True)
        found = [((Z - mean) @ factor.mT).square_().sum(dim=1) for mean, factor in pairs]
        return self.device.array(self.torch.stack(found, dim=1))

    def add(self, k: int, start: int, shares: Array) -> None:
        """Add the rows of the block from `start` on to component k, each by its share."""
        used = np.flatnonzero(shares)
        if not len(used):
            return
        E = self.rows[self.device.numbers(start + used)] - self.means[k]
        weights = self.device.numbers(shares[used])
        self.shifts[k] += weights @ E
        self.scatters[k].addmm_(E.mT, E * weights[:, None])

    def refresh(self, k: int) -> None:
        """`kernels.rows.refresh` of component k."""
        c, shape, torch = self.model.components, self.model.shape, self.torch
        _begin_refresh(k, c)
        count, scatter = float(c.counts[k]), self.scatters[k]
        shift = self.shifts[k] / count
        self.means[k] = self.means[k] + shift
        scatter.addr_(shift, shift, alpha=-count)
        self.shifts[k] = torch.zeros_like(shift)
        B = self.prior + scatter
        B.diagonal().add_(self.ridge, alpha=count + shape.tau)
        if shape.diagonal:
            B = torch.diag(B.diagonal())
        L, failed = torch.linalg.cholesky_ex(B)
        if failed:
            # Not definite to rounding: the way that inflates variances step by step.
            inverse, log_det = inverse_factor(self.device.array(B))
            factor = self.device.tensor(inverse)
        else:
            factor = torch.linalg.solve_triangular(L, torch.eye(len(L), dtype=L.dtype, device=L.device), upper=False)
            log_det = 2.0 * float(L.diagonal().log().sum())
        scale = float(factors_of_counts(count, shape.tau))
        self.factors[k] = factor.div_(np.sqrt(scale))
        c.heights[k] = _height(k, c, scale, log_det)

    def fade(self, factor: float) -> None:
        """Multiply by a factor what all components know, as the arrays of the model have been."""
        if factor != 1.0:
            for tensor in (*self.shifts, *self.scatters):
                tensor.mul_(factor)

    def release(self) -> None:
        """Bring the arrays of the model up to date."""
        c = self.model.components
        held = ((self.means, c.means), (self.shifts, c.shift), (self.scatters, c.scatter), (self.factors, c.factors))
        for tensors, arrays in held:
            for tensor, array in zip(tensors, arrays, strict=False):
                self.device.fetch(tensor, array)


def _begin_refresh(k: int, c: Components) -> None:
    """Rows since the last refresh count as those behind the moments."""
    c.counts[k] += c.fresh[k]
    c.fresh[k] = 0.0


def _height(k: int, c: Components, scale: float, log_det: float) -> float:
    return float(np.log(c.mass[k]) - 0.5 * (c.means.shape[1] * (LOG_2PI + np.log(scale)) + log_det))
