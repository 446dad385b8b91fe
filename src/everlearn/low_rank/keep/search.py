"""Structure search on the reservoir: groups of rows are split and merged by held-out likelihood, then refitted.

Every function that works for long is work in slices (`slices.py`), so that the rows of a stream need not wait for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from everlearn.low_rank.device import SentRows
from everlearn.low_rank.keep import evidence
from everlearn.low_rank.keep.evidence import PRICE, Verdict
from everlearn.low_rank.keep.slices import Work, at_once
from everlearn.low_rank.kernels.fold import fold
from everlearn.low_rank.kernels.two_parts import FEWEST
from everlearn.low_rank.state import (
    Components,
    Readout,
    Settings,
    joined,
    no_components,
    nothing_waiting,
    readout_of,
    squared_distances,
)
from everlearn.typing import Array

Labels = NDArray[np.intp]
LOG_2PI = float(np.log(2.0 * np.pi))
# Rows of a group on which a split is judged, at most. On digits in 256 columns held-out rows gain 0.012 nats a column
# when it is raised from 600, and 0.001 more with 1,500.
JUDGED = 1000
# Smallest group that is tried in two.
SPLITTABLE = 16
# Rounds of classification EM over all rows after the moves.
ROUNDS = 6
# Nats a parameter that the rows of one group lose under the component of another, from which on the two are not judged:
# pieces of one group lose up to 4 where there are fewer rows than columns. On digits, two orders, held-out rows gained
# 1.3 and 5.4 nats when it was raised from 2 and `evidence.two_means` came; 20 is no better.
PLAINLY_TWO = 6.0
# Rows of one fold when a component is made from rows, at most.
FOLD_ROWS = 64
# Rows of a slice that are scored, and products of them and all directions, at most.
SCORED_ROWS, SCORED_NUMBERS = 64, 2**15


def component_of_rows(rows: Array, weights: Array, settings: Settings) -> Components:
    """One component that has learned the rows."""
    return at_once(learn_component(rows, weights, settings), rows.shape[1])  # type: ignore[no-any-return]


def learn_component(rows: Array, weights: Array, settings: Settings) -> Work:
    """Work that gives one component of rows, learned in folds that grow with it, so that energies are held out."""
    D = rows.shape[1]
    c, waiting = no_components(1, D, settings.rank), nothing_waiting(1, D, settings._replace(quota=FOLD_ROWS))
    at = 0
    while at < len(rows):
        # A fold of a quarter of what is there, as in learning: rows are held out
        # against directions that fit them already.
        size = min(max(8, at // 4), FOLD_ROWS, len(rows) - at)
        waiting.rows[0, :size] = rows[at : at + size]
        waiting.weights[0, :size] = weights[at : at + size]
        waiting.size[0] = size
        fold(c, waiting, 0, 1.0)
        at += size
        yield
    c.mass[:] = c.n
    return c


def log_joint(
    rows: Array, components: Components, readout: Readout, sent: SentRows | None = None, some: Labels | None = None
) -> Work:
    """Log-density of each row and component, with the mixture weights, (n, K); of some rows, where they are given.

    `readout` is that of the components; `sent` are the rows on a device, if they are there. Work in slices.
    """
    yield
    if sent is None:
        d2 = np.empty((len(rows) if some is None else len(some), len(components.n)))
        step = max(SCORED_ROWS, SCORED_NUMBERS // (readout.B.shape[0] * readout.B.shape[1]))
        for start in range(0, len(d2), step):
            part = slice(start, start + step)
            d2[part] = squared_distances(rows[part] if some is None else rows[some[part]], readout)
            yield
    else:
        d2 = sent.distances(readout, some)
    share = components.mass / components.mass.sum()
    return np.log(np.maximum(share, 1e-300)) - 0.5 * (d2 + readout.log_det + rows.shape[1] * LOG_2PI)


def numbered(labels: Labels) -> Labels:
    """The same groups, numbered from 0 without gaps."""
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


class Search:
    """The rows that a search works on and the groups that it has come to."""

    def __init__(
        self,
        rows: Array,
        weights: Array,
        labels: Labels,
        prior_noise: float,
        settings: Settings,
        sent: SentRows | None = None,
    ) -> None:
        self.rows, self.weights, self.labels, self.sent = rows, weights, numbered(labels), sent
        self.prior_noise, self.settings = prior_noise, settings
        self.reparted = 0
        self.verdicts: dict[tuple[bytes, bytes], Verdict] = {}
        self.made: dict[bytes, Components] = {}

    @property
    def K(self) -> int:
        """Number of groups."""
        return int(self.labels.max()) + 1

    def readout(self, components: Components) -> Readout:
        """What components say."""
        return readout_of(components, self.prior_noise, self.settings.isotropic)

    def components(self) -> Work:
        """A component for each group; those of groups that have not changed are not made again."""
        groups = [np.flatnonzero(self.labels == k) for k in range(self.K)]
        made = yield [self.component(own) for own in groups]
        self.made = {own.tobytes(): component for own, component in zip(groups, made, strict=True)}
        return joined(made)

    def component(self, own: Labels) -> Work:
        """The component of some rows."""
        found = self.made.get(own.tobytes())
        if found is None:
            found = yield from learn_component(self.rows[own], self.weights[own], self.settings)
        return found

    def group(self, own: Labels) -> Work:
        """Some rows as a group, with columns in units of their noise."""
        component = yield from self.component(own)
        psi = 1.0 / self.readout(component).inverse_psi[0]
        Y = self.rows[own] / np.sqrt(psi)
        yield
        found = evidence.group_of(Y, self.weights[own])
        yield
        return found

    def judged(self, own: Labels) -> Labels:
        """Rows of a group on which it is judged: evenly spread over it."""
        return own[:: max(1, -(-len(own) // JUDGED))]

    def verdict(self, k: int) -> Work:
        """Whether a group is better as two; None where it is too small to tell."""
        own = self.judged(np.flatnonzero(self.labels == k))
        return None if len(own) < SPLITTABLE else (yield from self.judge(own))

    def judge(self, own: Labels, side: NDArray[np.bool_] | None = None) -> Work:
        """`evidence.judge` of some rows; what was judged before is remembered."""
        key = own.tobytes(), b"" if side is None else side.tobytes()
        if key not in self.verdicts:
            group = yield from self.group(own)
            self.verdicts[key] = yield from evidence.judge(group, self.settings.rank, side)
        return self.verdicts[key]

    def part(self, own: Labels, side: NDArray[np.bool_]) -> Work:
        """The side of every row of a group, from that of the judged ones; None if one side is empty."""
        some = self.judged(own)
        halves = some[side], some[~side]
        parts = joined((yield [learn_component(self.rows[half], self.weights[half], self.settings) for half in halves]))
        joint = yield from log_joint(self.rows, parts, self.readout(parts), self.sent, own)
        first = np.argmax(joint, axis=1) == 0
        return None if first.all() or not first.any() else first

    def split_all(self) -> Work:
        """Split groups while that predicts held-out rows better; returns how many were."""
        most, fixed = self.settings.fixed or self.settings.most, self.settings.fixed
        if self.K >= most:
            return 0
        verdicts = dict(enumerate((yield [self.verdict(k) for k in range(self.K)])))
        splits = 0
        while self.K < most:
            open_ = {k: v for k, v in verdicts.items() if v is not None and v.gain > (-np.inf if fixed else PRICE)}
            if not open_:
                break
            # Best first: what is split changes which groups are worth splitting.
            k = max(open_, key=lambda group: open_[group].gain)
            own = np.flatnonzero(self.labels == k)
            first = yield from self.part(own, open_[k].side)
            verdicts[k] = None
            if first is not None:
                self.labels[own[~first]] = new = self.K
                verdicts[k], verdicts[new] = yield [self.verdict(k), self.verdict(new)]
                splits += 1
        return splits

    def refine(self) -> Work:
        """Classification EM over all rows: components from groups, groups from components."""
        components = yield from self.components()
        for _ in range(ROUNDS):
            if self.K == 1:
                break
            joint = yield from log_joint(self.rows, components, self.readout(components), self.sent)
            new = np.argmax(joint, axis=1)
            # A group of too few rows has no shape; its rows go to their next best component.
            few = np.bincount(new, self.weights, self.K) < FEWEST
            if few.any():
                joint[:, few] = -np.inf
                new = np.argmax(joint, axis=1)
            if (new == self.labels).all():
                break
            self.labels = numbered(new)
            components = yield from self.components()
        return components

    def merge_all(self, components: Components) -> Work:
        """Merge pairs of groups that are not better apart, or part them in a better way; returns how many were."""
        moves = 0
        while self.K > 1:
            pair = yield from self._pair_to_merge(components)
            if pair is None:
                break
            self.labels[self.labels == pair[1]] = pair[0]
            self.labels = numbered(self.labels)
            components = yield from self.components()
            moves += 1
        return moves + self.reparted

    def _pair_to_merge(self, components: Components) -> Work:
        """The pair of groups that are least worth being two, if they are not: those that lose least by the other's."""
        self.reparted = 0
        forced = self.K > (self.settings.fixed or self.settings.most)
        readout = self.readout(components)
        joint = yield from log_joint(self.rows, components, readout, self.sent)
        # Log-likelihood that the rows of group k lose under the component of another group.
        loss = np.empty((self.K, self.K))
        for k in range(self.K):
            own = self.labels == k
            loss[k] = self.weights[own] @ (joint[own, k][:, None] - joint[own])
        np.fill_diagonal(loss, np.inf)
        partner = np.argmin(loss, axis=1)
        parameters = self.rows.shape[1] * (2.0 + readout.rank)
        for k in np.argsort(loss[np.arange(self.K), partner]):
            i, j = int(min(k, partner[k])), int(max(k, partner[k]))
            if forced:
                return i, j
            # Beyond what so many parameters can overfit, the groups are plainly two.
            if loss[k, partner[k]] > PLAINLY_TWO * parameters[k]:
                break
            both = self.judged(np.flatnonzero((self.labels == i) | (self.labels == j)))
            if len(both) < SPLITTABLE:
                if self.settings.fixed:
                    continue
                return i, j
            found = yield from self.judge(both, self.labels[both] == i)
            if not self.settings.fixed and found.gain <= PRICE:
                return i, j
            # A bad split does not mend itself: groups are parted anew where another parting predicts better.
            own = np.flatnonzero((self.labels == i) | (self.labels == j))
            better = found.gain > found.gain_of_given + PRICE
            first = (yield from self.part(own, found.side)) if better else None
            if first is not None:
                self.labels[own[first]], self.labels[own[~first]] = i, j
                self.reparted += 1
        return None


def search(
    rows: Array, weights: Array, labels: Labels, prior_noise: float, settings: Settings, sent: SentRows | None = None
) -> Work:
    """Components of the rows and the group of each row, from groups to start with; `sent` are the rows on a device."""
    found = Search(rows, weights, labels, prior_noise, settings, sent)
    components = yield from found.components()
    for _ in range(3):
        moves = yield from found.split_all()
        components = yield from found.refine()
        moves += yield from found.merge_all(components)
        if not moves:
            break
        components = yield from found.refine()
    return components, found.labels
