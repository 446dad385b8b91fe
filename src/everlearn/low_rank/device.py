"""Learning rows without gaps on a device of torch's: it multiplies, and the processor decides and solves eigenproblems.

What has D columns of the components stays on the device for a whole stretch of rows; their numbers are in the state.
The model is that of row by row, up to rounding: see `kernels.ahead`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.linalg import parallel
from everlearn.linalg.backend_torch import TorchDevice
from everlearn.low_rank.kernels import ahead, batched
from everlearn.low_rank.kernels.ahead import Lists, Plan, Spectrum, Window
from everlearn.low_rank.kernels.batched import Sketches
from everlearn.low_rank.state import Components, Frame, Info, Model, Readout, Rule
from everlearn.typing import Array

# Walks over a window in which not every fold is right; then it ends with the first that was not.
PATIENCE = 6
# Rows of a window, at least.
FEWEST_ROWS = 64
# Numbers of a block of rows that are scored, with their products (512 MiB).
BLOCK_NUMBERS = 2**26


class Taken(NamedTuple):
    """How far a window came."""

    rows: int
    strange: NDArray[np.int64]  # rows that are for the room


class Resident:
    """The components of a model, on a device; their numbers, and all else, stay in the model's arrays."""

    def __init__(self, device: TorchDevice, model: Model, rule: Rule, frame: Frame, readout: Readout) -> None:
        self.device, self.torch, self.model, self.rule = device, device.torch, model, rule
        self.now = _sent(device, model.components, readout)
        self.log_det, self.isotropic = readout.log_det, readout.isotropic
        self.centre, self.inverse = device.tensor(frame.centre), device.tensor(frame.inverse)
        self.waiting = device.tensor(model.waiting.rows)
        K, W = model.waiting.weights.shape
        self.length = FEWEST_ROWS + K * W
        self.plan = _empty_plan(K, W, len(model.room.weights))

    def internal(self, X: Any, farthest: float) -> Any:
        """Rows on the device in the coordinates of the frame."""
        return ((X - self.centre) * self.inverse).clamp_(-farthest, farthest)

    def distances(self, rows: Any, which: Any = slice(None)) -> Any:
        """Squared distances of rows to some components, on the device."""
        now = self.now
        return batched.squared_distances(rows, now.B[which], now.offset[which], now.inverse_psi[which])

    def learn(self, rows: Any, weights: Array, info: Info) -> Taken:
        """Learn rows in the coordinates of the frame, up to where a component would be folded twice or the room full.

        `info` takes what was seen of each row.
        """
        plan, n, D = self.plan, len(rows), rows.shape[1]
        before = self.device.array(self.distances(rows))
        K = before.shape[1]
        log_det = np.stack([self.log_det, self.log_det])
        tried = np.zeros(K, np.bool_)
        window = Window(weights, before, np.empty_like(before), log_det, tried, info.z, info.log_density, D)
        trial = _Trial(self, rows)
        walks, stop = 0, n
        while True:
            end = int(ahead.walk_ahead(window, stop, trial.lists, self.model, self.rule, plan))
            wrong = np.flatnonzero(plan.wrong)
            if not len(wrong):
                break
            walks += 1
            if walks > PATIENCE:
                # All before this row is right, and so is the list of the fold that follows it.
                stop = int(plan.counts[1]) + 1
                wrong = wrong[plan.fold_row[wrong] < stop]
            trial.fold(wrong, plan, window)
        self._commit(trial, plan)
        self.length = int(np.clip(2 * end, FEWEST_ROWS, FEWEST_ROWS + K * plan.folded.rows.shape[1]))
        return Taken(end, plan.room[: plan.counts[0]].copy())

    def _commit(self, trial: _Trial, plan: Plan) -> None:
        """Make what a walk came to the model's; rows for the room are left to the caller."""
        c, waiting = self.model.components, self.model.waiting
        c.mass[:] = plan.mass
        self.model.calibration[:] = plan.calibration
        folded = np.flatnonzero(plan.fold_row >= 0)
        lists = plan.folded
        if len(folded):
            for name in NUMBERS:
                getattr(c, name)[folded] = getattr(trial.numbers, name)[folded]
            trial.keep(folded)
            self.log_det[folded] = trial.log_det[folded]
            for own, new in zip(lists, plan.waiting, strict=True):
                own[folded] = new[folded]
        waiting.size[:] = lists.size
        waiting.weights[:] = lists.weights
        self.waiting = trial.gathered(lists, np.arange(len(c.n)))

    def release(self) -> None:
        """Bring the arrays of the model up to date."""
        c = self.model.components
        for name in ("mean", "directions", "diagonal"):
            self.device.fetch(getattr(self.now, name), getattr(c, name))
        self.device.fetch(self.waiting, self.model.waiting.rows)


# Numbers of a component, all of which its folds change; the rest has D columns or is counted row by row.
NUMBERS = ("n", "scatter", "used", "trace", "held", "expected", "residual", "held_rows")


class _Trial:
    """Folds of a window that are tried, with the lists that they were made with."""

    def __init__(self, resident: Resident, rows: Any) -> None:
        self.resident, self.rows = resident, rows
        W = resident.waiting
        # Lists number the waiting rows of all components first, then those of the window.
        self.pool = resident.torch.cat([W.reshape(-1, W.shape[2]), rows])
        c = resident.model.components
        self.numbers = c._replace(**{name: getattr(c, name).copy() for name in NUMBERS})
        self.made: list[tuple[NDArray[Any], Sketches]] = []
        self.latest = np.full(len(c.n), -1)  # where in `made` the last fold of a component is
        self.log_det = resident.log_det.copy()
        self.lists = _empty_lists(*resident.model.waiting.weights.shape)

    def gathered(self, lists: Lists, which: NDArray[Any]) -> Any:
        """Rows of the lists of some components, (F, W, D); after the last of a list comes any row."""
        filled = np.arange(lists.rows.shape[1]) < lists.size[which, None]
        return self.pool[self.resident.device.numbers(np.where(filled, lists.rows[which], 0))]

    def keep(self, folded: NDArray[Any]) -> None:
        """Make the last folds of some components those of the resident model."""
        for number, (which, found) in enumerate(self.made):
            mine = np.flatnonzero((self.latest[which] == number) & np.isin(which, folded))
            at = self.resident.device.numbers(which[mine])
            some = slice(None) if len(mine) == len(which) else self.resident.device.numbers(mine)
            for now, then in zip(self.resident.now, found, strict=True):
                now.index_copy_(0, at, then[some])

    def fold(self, which: NDArray[Any], plan: Plan, window: Window) -> None:
        """Fold the lists of a plan into some components, and score the window by them."""
        resident, device, torch = self.resident, self.resident.device, self.resident.torch
        c, rule = resident.model.components, resident.rule
        for own, new in zip(self.lists, plan.folded, strict=True):
            own[which] = new[which]
        for name in NUMBERS:
            getattr(self.numbers, name)[which] = getattr(c, name)[which]
        Q, W = c.scatter.shape[1], self.lists.weights.shape[1]
        scale = np.empty((len(which), Q + 2 * W + 3))
        for i, j in enumerate(which):
            ahead.fold_weights(plan, c, j, rule.fading, scale[i])
        at = device.numbers(which)
        old = Sketches._make(values[at] for values in resident.now)
        fold = batched.fold_matrices(torch, old, self.gathered(self.lists, which), device.numbers(scale))
        gram = device.array(fold.gram)
        spectrum = Spectrum(np.empty((len(which), Q, Q + W + 1)), np.empty((len(which), 2 * Q + 3)))
        noise = rule.prior_noise
        parallel.each(
            lambda i: ahead.fold_spectrum(i, gram, scale, self.numbers, which[i], noise, spectrum),
            range(len(which)),
        )
        numbers = device.numbers(spectrum.mix), device.numbers(spectrum.numbers)
        found = batched.sketches(torch, fold, *numbers, resident.isotropic)
        self.latest[which] = len(self.made)
        self.made.append((which, found))
        d2 = batched.squared_distances(self.rows, found.B, found.offset, found.inverse_psi)
        # One copy, for which the processor waits, instead of two.
        fetched = device.array(torch.cat([d2, found.log_det[None]]))
        window.after[:, which] = fetched[:-1]
        self.log_det[which] = window.log_det[1, which] = fetched[-1]
        window.tried[which] = True


class SentRows:
    """Rows in the coordinates of the frame that stay on a device, to be scored by one mixture after the other."""

    def __init__(self, device: TorchDevice, rows: Array) -> None:
        self.device, self.rows = device, device.tensor(rows)

    def distances(self, readout: Readout, some: NDArray[Any] | None = None) -> Array:
        """Squared distances of the rows, or of some of them, to the components of a read-out, (n, K)."""
        rows = self.rows if some is None else self.rows[self.device.tensor(some)]
        return self.device.array(batched.squared_distances(rows, *sent_products(self.device, readout)))


def distances_of_data(device: TorchDevice, X: Array, frame: Frame, products: Any, farthest: float) -> Array:
    """Squared distances of rows of the data, without gaps, to the components of `sent_products`, (n, K)."""
    sent, centre, inverse = device.rows(X), device.tensor(frame.centre), device.tensor(frame.inverse)
    K, size, D = products[0].shape
    step = max(1, BLOCK_NUMBERS // (K * size + 2 * D))
    found = []
    for at in range(0, len(X), step):
        rows = ((sent.part(at, min(at + step, len(X))) - centre) * inverse).clamp_(-farthest, farthest)
        found.append(batched.squared_distances(rows, *products))
    return device.array(device.torch.cat(found))


def sent_products(device: TorchDevice, readout: Readout) -> tuple[Any, ...]:
    """What squared distances are products with, on a device."""
    return tuple(device.tensor(array) for array in (readout.B, readout.offset, readout.inverse_psi))


def _sent(device: TorchDevice, c: Components, readout: Readout) -> Sketches:
    arrays = (c.mean, c.directions, c.diagonal, readout.B, readout.offset, readout.inverse_psi, readout.log_det)
    return Sketches._make(device.tensor(array) for array in arrays)


def _empty_plan(K: int, W: int, H: int) -> Plan:
    return Plan(
        mass=np.zeros(K),
        calibration=np.zeros(3),
        folded=_empty_lists(K, W),
        waiting=_empty_lists(K, W),
        fold_row=np.zeros(K, np.int64),
        wrong=np.zeros(K, np.bool_),
        n=np.zeros(K),
        room=np.zeros(H, np.int64),
        counts=np.zeros(2, np.int64),
    )


def _empty_lists(K: int, W: int) -> Lists:
    return Lists(np.zeros((K, W), np.int64), np.zeros((K, W)), np.zeros(K, np.int64))
