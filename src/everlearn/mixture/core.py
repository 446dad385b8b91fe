"""What an `IncrementalGaussianMixture` learns and answers with: settings and caches; the state is passed in and out.

There are three cores with one face: `FullCore` for full and diagonal covariances, `AdaptiveCore`, which finds how fast
to forget, and `everlearn.low_rank.core.LowRankCore`. The estimator makes one and asks no further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from everlearn.gaussian import mixture as mixtures
from everlearn.linalg.backend_torch import torch_device
from everlearn.mixture import adaptive, anonymous, ask, columns, learn, loading
from everlearn.mixture import merge as merging
from everlearn.mixture.adaptive import Bank
from everlearn.mixture.answers import FullAnswers
from everlearn.mixture.ask import Asked, Look
from everlearn.mixture.keep.world import frame_of_spread
from everlearn.mixture.learn import Progress
from everlearn.mixture.merge import Part
from everlearn.mixture.state import Array, Settings, State
from everlearn.monitoring import event_log
from everlearn.monitoring.event_log import Watch
from everlearn.persistence.schema import expect_fields, require


class Donor(NamedTuple):
    """Another model, which knows columns that one lacks."""

    names: list[Any]
    core: Any
    state: Any
    rows: int


class Answering(NamedTuple):
    """The state that answers, and what belongs to it."""

    state: State
    settings: Settings
    progress: Progress


@dataclass
class FullCore:
    """Full or diagonal covariances."""

    settings: Settings
    reservoir: int
    progress: Progress = field(default_factory=Progress)
    asked: Asked = field(default_factory=Asked)
    device: str | None = None  # of torch's, on which many rows are learned and scored

    def fresh(self) -> FullCore:
        """The same settings without caches."""
        return FullCore(self.settings, self.reservoir)

    def init(self, D: int, scale: Array | None) -> Any:
        """A state that has seen nothing; `scale` is that of the columns, if it is known."""
        frame = None if scale is None else frame_of_spread(np.zeros(D), scale)
        return learn.init(D, self.reservoir, self.settings, frame)

    def adopted(self, state: State) -> Any:
        """A state of this core that knows what `state` does, which forgets nothing and is used up."""
        return state

    def snapshot(self, state: Any) -> Any:
        """A copy to go back to."""
        return learn.snapshot(state)

    def answering(self, state: Any) -> Answering:
        """The one place that decides which state answers."""
        return Answering(state, self.settings, self.progress)

    def learn(self, state: Any, X: Array, weights: Array, watch: Watch) -> tuple[Any, Array]:
        """Learn and watch rows; returns the state after them, and of each row before it was learned, (2, n), its
        log-density in the units of the data and its squared distance to the nearest component.
        """
        self.progress.watch = watch
        self.progress.device = None if self.device is None else torch_device(self.device)
        state, told = learn.learn(state, X, weights, self.settings, self.progress)
        if self.asked.look is not None:
            ask.follow(self.asked, X, weights, self.settings, state)
        return state, told

    def searches_within(self, state: Any, n_rows: int) -> bool:
        """Whether a search is worked out to its end within so many rows: the only part of learning that takes long."""
        return learn.adopts_within(state, n_rows, self.settings, self.progress)

    def is_searching(self, state: Any, n_rows: int) -> bool:
        """Whether a search is under way after so many more rows; its slices run between rows."""
        return learn.rows_seen(state) + n_rows >= learn.next_search(state, self.settings)

    def rows_seen(self, state: Any) -> int:
        """Rows learned so far."""
        return learn.rows_seen(self.answering(state).state)

    def look(self, state: Any) -> Look:
        """The full or diagonal mixture that answers."""
        look = ask.answering_state(*self.answering(state), self.asked)
        look.device = self.device
        return look

    def answers(self, state: Any) -> FullAnswers:
        """What questions are passed on to."""
        return FullAnswers(self.look(state))

    def between_searches(self, state: Any) -> mixtures.Mixture | None:
        """The components as they are, without a search for the question; None while warming up."""
        look = ask.components_as_they_are(*self.answering(state))
        return None if look is None else ask.whole_mixture(look)

    def factors_between_searches(self, state: Any) -> None:
        """There are no factors: covariances are matrices."""
        return

    def n_between_searches(self, state: Any) -> int | None:
        """Components that would be shown without a search for the question; None while warming up."""
        look = ask.components_as_they_are(*self.answering(state))
        return None if look is None else len(ask.shown_components(look))

    def effective_samples(self, state: Any) -> float:
        """Weight of the rows that the model remembers."""
        own, settings, _ = self.answering(state)
        known = 0.0 if own.model is None else own.model.components.total[0]
        pending, rate = own.pending, settings.fading.rate
        fresh = pending.weights[: pending.size] @ np.exp(-rate * np.arange(pending.size)[::-1])
        return float(known * np.exp(-rate * pending.size) + fresh)

    def keeps_rows(self, state: Any) -> bool:
        """Whether the state holds rows of the stream."""
        own = self.answering(state).state
        return len(own.reservoir.rows) > 0 or own.pending.size > 0

    def rows_inside(self, state: Any) -> int:
        """Rows of the stream that the state holds."""
        own = self.answering(state).state
        return int(own.reservoir.size[0]) + own.pending.size

    def rows_of_components(self, state: Any) -> Array:
        """Rows behind each component."""
        model = learn.working_model(*self.answering(state))
        if model is None:
            return np.empty(0)
        components = model.components
        return np.asarray((components.counts + components.fresh)[: components.size[0]])

    def column_moments(self, state: Any) -> tuple[Array, Array] | None:
        """Mean and standard deviation of each column; None where a column was never seen."""
        own = self.answering(state)
        model, frame = learn.working_model(*own), own.state.frame
        if model is None or frame is None:
            rows = own.state.pending.rows[: own.state.pending.size]
            if not len(rows) or np.isnan(rows).all(axis=0).any():
                return None
            return np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
        c, K = model.components, int(model.components.size[0])
        # Rows since a component was refreshed are in its scatter, about the mean that it had then.
        weights, counts = c.mass[:K] / c.mass[:K].sum(), np.maximum(c.counts[:K] + c.fresh[:K], 1.0)[:, None]
        shift = c.shift[:K] / counts
        means = c.means[:K] + shift
        variances = c.scatter[:K].diagonal(axis1=1, axis2=2) / counts - shift**2
        mean = weights @ means
        std = np.sqrt(weights @ (variances + (means - mean) ** 2))
        return mean / frame.inverse + frame.centre, std / frame.inverse

    def content(self, state: Any) -> bytes:
        """What models of as many rows are ordered by before they are merged."""
        own = self.answering(state).state
        if own.model is None:
            return own.pending.rows[: own.pending.size].tobytes()
        return own.model.components.means[: own.model.components.size[0]].tobytes()

    def part(self, state: Any, share: float) -> Part:
        """The state as a part of a merge, each of whose rows counts for `share` rows."""
        return Part(state, self.progress, share)

    def merge(self, parts: Sequence[Part], names: Sequence[str] | None, *, search: bool, most: int | None) -> Any:
        """One state for the rows of all parts."""
        merging.check_units([part.state for part in parts], names)
        if most is None:
            return self.adopted(merging.merge(parts, self.settings, self.reservoir, search=search))
        limited = self.settings._replace(most=min(self.settings.most, most), fixed=0)
        state = merging.merge(parts, limited, self.reservoir, search=True, reduce=True)
        # From here on the model's own limit holds, not that of the reduction.
        return self.adopted(merging.with_room(state, self.settings))

    def aggregated(self, part: Part, source: Any, min_rows: int) -> Any:
        """A state without rows, of which each component stands for `min_rows` or more; `source` is the part's core."""
        return self.adopted(anonymous.aggregated(source.whole(part), self.settings, min_rows))

    def whole(self, part: Part) -> State:
        """The state of a part with components in which all of its rows are: none waits for a search."""
        return merging.without_pending(merging.settled(part, self.settings), self.settings)

    def over_columns(self, state: Any, own: list[Any], names: list[Any], donors: Sequence[Donor]) -> Any:
        """The state over other columns, for a core of so many; what donors know fills those that it lacks."""
        part, own = self.part(state, 1.0), list(own)
        # Rows of a warm-up are learned after those of others: the search would not see the columns that others lack.
        state = self.whole(part) if donors or part.state.model is not None else part.state
        for name in names:
            if name not in own:
                donor, gap = _best_donor(name, own, donors)
                known = donor.core.whole(donor.core.part(donor.state, 1.0))
                state = columns.with_gap(state, known, gap, self.settings)
                own.append(name)
        order = np.array([own.index(name) for name in names])
        return columns.reordered(state, order, self.settings)

    def check_loaded(self, state: Any, D: int) -> None:
        """Refuse a state from a file that does not fit."""
        loading.check(state, D, self.reservoir, self.settings)


class AdaptiveCore(FullCore):
    """Mixtures that remember differently long, of which the best answers; the state is a `Bank`."""

    def __init__(self, settings: Settings, reservoir: int, D: int) -> None:
        super().__init__(settings, reservoir)
        self.members = adaptive.settings_of_members(settings, D)
        self.progresses = [Progress() for _ in self.members]
        self.best = -1  # the member that answered last

    def fresh(self) -> AdaptiveCore:
        """The same settings without caches."""
        return AdaptiveCore(self.settings, self.reservoir, len(self.settings.thresholds) - 1)

    def init(self, D: int, scale: Array | None) -> Any:
        """A bank of members that have seen nothing."""
        return self.adopted(super().init(D, scale))

    def adopted(self, state: State) -> Any:
        """A bank whose members all know what `state` does, which forgets nothing and is used up."""
        return adaptive.init(state, self.members)

    def snapshot(self, state: Bank) -> Any:
        """A copy to go back to."""
        return state._replace(members=[learn.snapshot(member) for member in state.members])

    def answering(self, state: Bank) -> Answering:
        """The best member."""
        best = adaptive.answering(state)
        if best != self.best:
            self.best, self.asked.look = best, None
        return Answering(state.members[best], self.members[best], self.progresses[best])

    def learn(self, state: Bank, X: Array, weights: Array, watch: Watch) -> tuple[Any, Array]:
        """Let all members learn rows; what each row told is what the best member before it said."""
        state, told = adaptive.learn_rows(state, X, weights, self.members, self.progresses)
        own = self.answering(state)
        ask.follow(self.asked, X, weights, own.settings, own.state)
        event_log.watch_rows(watch, X, *told)
        return state, told

    def searches_within(self, state: Bank, n_rows: int) -> bool:
        """Whether a member works a search out to its end within so many rows."""
        members = zip(state.members, self.members, self.progresses, strict=True)
        return any(learn.adopts_within(one, n_rows, settings, progress) for one, settings, progress in members)

    def is_searching(self, state: Bank, n_rows: int) -> bool:
        """Whether a member's search is under way after so many more rows."""
        members = zip(state.members, self.members, strict=True)
        return any(learn.rows_seen(one) + n_rows >= learn.next_search(one, settings) for one, settings in members)

    def part(self, state: Bank, share: float) -> Part:
        """The best member as one that forgets nothing from here on."""
        own = self.answering(state)
        if own.state.model is None:
            return Part(own.state, own.progress, share)
        taken = adaptive.taken_in(*own)
        return Part(adaptive.with_fading(taken, own.settings.fading, self.settings.fading), Progress(), share)

    def check_loaded(self, state: Any, D: int) -> None:
        """Refuse a state from a file that does not fit."""
        expect_fields(state, Bank, {"J": len(self.members)}, log_weights="J", rows=int)
        states = state.members
        require(type(states) is list and len(states) == len(self.members), "it has another number of memories")
        for one, settings in zip(states, self.members, strict=True):
            loading.check(one, D, self.reservoir, settings)


def _best_donor(name: Any, own: list[Any], donors: Sequence[Donor]) -> tuple[Donor, columns.Gap]:
    """The model that tells most about a column: it has the column, and most others in common with `own`."""
    # The more columns both have, the better the new one can be predicted from what the model knows.
    donor = max(
        (donor for donor in donors if name in donor.names),
        key=lambda donor: (len(set(own) & set(donor.names)), donor.rows),
    )
    shared = [(own.index(column), donor.names.index(column)) for column in own if column in donor.names]
    mine, other = np.array(shared, dtype=np.intp).reshape(-1, 2).T
    return donor, columns.Gap(mine, other, donor.names.index(name))
