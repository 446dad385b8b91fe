"""A low-rank mixture as the estimator holds it: settings and caches; the state is passed in and out.

The face is that of `everlearn.mixture.core.FullCore`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self

import numpy as np
from scipy.special import chdtri, ndtr

from everlearn.base.snapshot import copied
from everlearn.errors import InputError
from everlearn.gaussian.factor_analysers import FactorMixture
from everlearn.linalg.backend_torch import TorchDevice, torch_device
from everlearn.linalg.chunked import has_gaps
from everlearn.linalg.column_scan import subtract_observed
from everlearn.linalg.parallel import one_blas_thread
from everlearn.low_rank import ask, columns, learn, loading
from everlearn.low_rank import merge as merging
from everlearn.low_rank.ask import Asked, Look
from everlearn.low_rank.keep.reconsider import flushed, sampled
from everlearn.low_rank.learn import Progress
from everlearn.low_rank.merge import Part
from everlearn.low_rank.state import Settings, State
from everlearn.monitoring import event_log
from everlearn.monitoring.event_log import Watch
from everlearn.typing import Array

# Directions of a component unless told otherwise: pictures gain up to 16; beyond that, more components do more.
RANK, COLUMNS_A_DIRECTION = 16, 8
# Rows of the reservoir: as many as fit 8 MiB in single precision, but 2,000, unless they take more than 32 MiB. What a
# search can find grows with them: from 2,000 rows to 8,000 of 256 columns, digits gain 0.03 nats a column.
RESERVOIR_NUMBERS, MAX_RESERVOIR_NUMBERS = 2**21, 2**23
FEWEST_ROWS, ENOUGH_ROWS, MOST_ROWS = 500, 2000, 8000
# Most components unless told otherwise, or what this many numbers of directions hold.
MAX_COMPONENTS, MAX_NUMBERS = 64, 2**24
# Fewest rows that wait for a fold, and that fill the room.
FEWEST_WAITING, FEWEST_IN_ROOM = 8, 16
# Rows of the warm-up where none are kept afterwards.
WARMUP_WITHOUT_ROWS = 500
# Rows between two searches where nothing is forgotten: row counts that double decide.
NEVER = 2**60


def reservoir_rows(D: int) -> int:
    """Rows that are kept unless told otherwise."""
    enough = min(max(RESERVOIR_NUMBERS // D, ENOUGH_ROWS), MAX_RESERVOIR_NUMBERS // D)
    return min(max(enough, FEWEST_ROWS), MOST_ROWS)


@dataclass
class LowRankCore:
    """Settings of a low-rank mixture, and what can be worked out again from its state."""

    settings: Settings
    level: float  # p-value below which a row is a novelty
    device: str | None = None  # of torch's, on which many rows are learned and scored
    progress: Progress = field(default_factory=Progress)
    asked: Asked = field(default_factory=Asked)

    @classmethod
    def of(cls, D: int, parameters: Any, seed: int) -> Self:
        """The core for an estimator with these parameters."""
        reservoir, most, forgetting = parameters.reservoir, parameters.max_components, parameters.forgetting
        rank, fixed = parameters.rank, int(parameters.n_components or 0)
        Q = min(RANK, max(1, D // COLUMNS_A_DIRECTION)) if rank == "auto" else int(rank)
        M = reservoir_rows(D) if reservoir == "auto" else int(reservoir)
        # Where no rows are kept, the only search is that of the warm-up.
        warmup = min(max(50, 5 * Q), M) if M else max(WARMUP_WITHOUT_ROWS, 5 * Q)
        fading = 1.0 if forgetting is None else float(forgetting)
        interval = NEVER if fading == 1.0 else max(round(1.0 / (1.0 - fading)), warmup)
        if most == "auto":
            most = min(MAX_COMPONENTS, max(1, MAX_NUMBERS // (D * (2 * Q + 3))))
        quota = max(Q, FEWEST_WAITING) if M else 1  # without rows kept, each is folded in at once
        room = max(Q, FEWEST_IN_ROOM) if M else 0
        settings = Settings(Q, quota, warmup, M, room, fixed, int(most), fading, interval, seed)
        return cls(settings, float(parameters.novelty_level))

    def fresh(self) -> LowRankCore:
        """The same settings without caches."""
        return LowRankCore(self.settings, self.level)

    def init(self, D: int, scale: Array | None) -> State:
        """A state that has seen nothing."""
        return learn.init(D, self.settings, None if scale is None else learn.frame_of_spread(np.zeros(D), scale))

    def adopted(self, state: State) -> State:
        """The state with as many directions as this core keeps."""
        return columns.with_rank(state, self.settings)

    def snapshot(self, state: State) -> State:
        """A copy to go back to."""
        return copied(state)  # type: ignore[no-any-return]

    @property
    def place(self) -> TorchDevice | None:
        """The device itself."""
        return None if self.device is None else torch_device(self.device)

    @property
    def reservoir(self) -> int:
        """Rows of the stream that are kept."""
        return self.settings.reservoir

    def learn(self, state: State, X: Array, weights: Array, watch: Watch) -> tuple[State, Array]:
        """Learn and watch rows. The z of the info becomes a squared distance with the row's p-value as chi-square tail.

        Only rows with a p-value below `level` are worth that; the others have the distance 0.
        """
        state, info = learn.learn(state, X, weights, self.settings, self.progress, device=self.place)
        ask.follow(self.asked, X, weights, self.settings, state, self.place)
        # A tail that has underflowed to zero would have an infinite distance.
        p = np.maximum(ndtr(-info.z), 1e-300)
        distance = np.where(np.isnan(p), np.nan, 0.0)
        for i in np.flatnonzero(p < self.level):
            distance[i] = chdtri(np.count_nonzero(~np.isnan(X[i])), p[i])
        if state.frame is not None:
            # Now in the units of the data.
            subtract_observed(X, state.frame.log_scale, has_gaps(X), info.log_density)
        event_log.watch_rows(watch, X, info.log_density, distance)
        return state, np.stack([info.log_density, distance])

    def searches_within(self, state: State, n_rows: int) -> bool:
        """Whether a search is worked out to its end within so many rows: the only part of learning that takes long."""
        return learn.adopts_within(state, n_rows, self.settings)

    def is_searching(self, state: State, n_rows: int) -> bool:
        """Whether a search is under way after so many more rows; its slices run between rows."""
        return state.model is not None and learn.rows_seen(state) + n_rows > learn.next_search(state, self.settings)

    def whole(self, state: State) -> State:
        """The state with all of its rows learned, also those that wait for a search to be adopted."""
        with one_blas_thread():
            return learn.working_state(state, self.settings, self.progress)

    def answers(self, state: State) -> Look:
        """What questions are passed on to."""
        return ask.answering(self.whole(state), self.settings, self.asked, self.place)

    def look(self, state: State) -> NoReturn:
        """Refuse what needs covariance matrices."""
        raise InputError(
            "This is not available with covariance_type='low_rank', whose covariances are not stored as matrices."
        )

    def n_between_searches(self, state: State) -> int | None:
        """Components that answer."""
        return int(self.answers(state).n_components)

    def between_searches(self, state: State) -> None:
        """There is no mixture with matrices."""
        return

    def factors_between_searches(self, state: State) -> FactorMixture | None:
        """The components as they are, without a search for the question; one during the warm-up, None before it."""
        with one_blas_thread():
            return ask.between_searches(self.whole(state), self.settings)

    @staticmethod
    def rows_seen(state: State) -> int:
        """Rows learned so far."""
        return learn.rows_seen(state)

    def effective_samples(self, state: State) -> float:
        """Weight of the rows that the model remembers."""
        state = self.whole(state)
        room = 0.0 if state.model is None else state.model.room.weights[: state.model.room.size[0]].sum()
        known = 0.0 if state.model is None else state.model.components.mass.sum()
        return float(known + room + state.pending.weights[: state.pending.size].sum())

    @staticmethod
    def keeps_rows(state: State) -> bool:
        """Whether the state holds rows of the stream."""
        return state.pending.size > 0 or (state.model is not None and len(state.model.reservoir.keys) > 0)

    @staticmethod
    def rows_inside(state: State) -> int:
        """Rows of the stream that the state holds: pending ones, and of the reservoir, the room and waiting lists."""
        if state.model is None:
            return state.pending.size
        model = state.model
        return state.pending.size + int(model.reservoir.size[0] + model.room.size[0] + model.waiting.size.sum())

    def rows_of_components(self, state: State) -> Array:
        """Rows behind each component."""
        return np.empty(0) if state.model is None else flushed(self.whole(state), self.settings).n

    def sample(self, state: State, n: int) -> tuple[Array, Array, Array]:
        """At most n rows without gaps that the state holds, the weight of each, and that of what it stands for."""
        state = self.whole(state)
        if state.model is None or state.frame is None:
            rows, own = state.pending.rows[: state.pending.size], state.pending.weights[: state.pending.size]
            stands_for = own
        else:
            rows, own, ratio = sampled(state.model.reservoir, self.settings)
            rows = rows / state.frame.inverse + state.frame.centre
            stands_for = ratio * own
        whole = np.flatnonzero(~np.isnan(rows).any(axis=1))
        chosen = np.sort(np.random.default_rng([len(whole), 3]).permutation(whole)[:n])
        return rows[chosen], own[chosen], stands_for[chosen]

    def column_moments(self, state: State) -> tuple[Array, Array] | None:
        """Mean and standard deviation of each column; None where a column was never seen."""
        state = self.whole(state)
        if state.model is None or state.frame is None:
            rows = state.pending.rows[: state.pending.size]
            if not len(rows) or np.isnan(rows).all(axis=0).any():
                return None
            return np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
        c = state.model.components
        # Law of total variance: the scatter of each component over its rows, and the spread of the means.
        share = c.mass / c.mass.sum()
        mean = share @ c.mean
        variance = c.diagonal / np.maximum(c.n + c.borrowed, 1.0)[:, None] + (c.mean - mean) ** 2
        return mean / state.frame.inverse + state.frame.centre, np.sqrt(share @ variance) / state.frame.inverse

    @staticmethod
    def content(state: State) -> bytes:
        """What models of as many rows are ordered by before they are merged."""
        pending = state.pending
        rows = pending.rows[: pending.size] if state.model is None else state.model.components.mean
        return rows.tobytes()

    def part(self, state: State, share: float) -> Part:
        """The state as a part of a merge."""
        return Part(self.whole(state), share, self.settings.isotropic)

    def merge(self, parts: Sequence[Part], names: Any, *, search: bool, most: int | None) -> State:
        """One state for the rows of all."""
        return merging.merge(parts, self.settings, search=search, most=most)

    def aggregated(self, part: Part, source: LowRankCore, min_rows: int) -> State:
        """A state without rows, of which each component stands for `min_rows` rows or more; `source` is the part's."""
        return merging.aggregated(part.state, source.settings, self.settings, min_rows)

    def over_columns(self, state: State, own: list[Any], names: list[Any], donors: Sequence[Any]) -> State:
        """The state over other columns, for a core of so many; what donors know fills those that it lacks."""
        state, own = self.whole(state), list(own)
        missing = [name for name in names if name not in own]
        with one_blas_thread():
            while missing:
                # The more columns both have, the better the new ones can be predicted from what the model knows.
                donor = max(
                    (donor for donor in donors if set(missing) & set(donor.names)),
                    key=lambda donor: (len(set(own) & set(donor.names)), donor.rows),
                )
                known = donor.core.factors_between_searches(donor.state)
                new = [name for name in missing if name in donor.names]
                place = {name: i for i, name in enumerate(donor.names)}
                both = [(i, place[name]) for i, name in enumerate(own) if name in place]
                mine, other = np.array(both, dtype=np.intp).reshape(-1, 2).T
                gap = columns.Gap(mine, other, np.array([place[name] for name in new]))
                state = columns.with_gap(state, known, gap, self.settings)
                own, missing = own + new, [name for name in missing if name not in new]
            place = {name: i for i, name in enumerate(own)}
            return columns.reordered(state, np.array([place[name] for name in names]), self.settings)

    def check_loaded(self, state: Any, D: int) -> None:
        """Refuse a state from a file that does not fit."""
        loading.check(state, D, self.settings)
