"""Mixtures learned apart become one: frames united, samples merged by priority, components searched together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from everlearn.errors import MergeError
from everlearn.gaussian import reduction
from everlearn.mixture import learn
from everlearn.mixture.keep import carry
from everlearn.mixture.keep.by_moments import pooled_world, renewed_world, share_since
from everlearn.mixture.keep.carry import Stock
from everlearn.mixture.keep.em import MOST_TAU
from everlearn.mixture.keep.evidence import n_parameters
from everlearn.mixture.keep.forgetting import sample_weights
from everlearn.mixture.keep.reconsider import fill, reconsider, refreshed
from everlearn.mixture.keep.world import frame_of_rows, frame_of_spread, world_of_moments, world_of_rows
from everlearn.mixture.kernels.covariance import covariances_of
from everlearn.mixture.learn import Progress
from everlearn.mixture.state import Fading, Frame, Model, Reservoir, Settings, Shape, State, World
from everlearn.typing import Array

# Components side by side are reduced by their moments whenever there are so many times more than may be kept.
SIDE_BY_SIDE = 3
# Rows that a merge learns anew, in sizes of a sample: a second or two of work.
MOST_RELEARNED = 8


class Part(NamedTuple):
    """A model that takes part, and how many rows each of its rows counts for."""

    state: State
    progress: Progress
    share: float


def merge(parts: Sequence[Part], settings: Settings, room: int, *, search: bool = True, reduce: bool = False) -> State:
    """One state that stands for the rows of all parts, which stay as they are; it has room for `room` sampled rows.

    Parts that have components are united: the priority samples become one (the rows of highest priority of all are a
    priority sample of all rows), the components stand side by side, those that differ by no more than chance are
    joined by their moments, and one search begins from them; statistics of all rows are carried over where the sample
    agrees. Rows of parts that are still warming up are learned then. Where the samples together hold every row, and
    these are few, they are learned anew instead: a pass that searches again and again while it grows finds more than
    one search over parts that saw too little each. Without `search` the density is the average of the parts' densities,
    up to the reduction to the components that may be kept. With `reduce` the warm-up ends here for all, so that there
    are at most `settings.most` components.
    """
    D = parts[0].state.reservoir.rows.shape[1]
    if search and (everything := _all_rows(parts, settings, MOST_RELEARNED * room)) is not None:
        state, progress = _relearned(*everything, _common_frame(parts), settings, room)
        part = Part(state, progress, 1.0)
        if reduce:
            part = settled(part, settings)
        if part.state.model is None:
            return state
        state = without_pending(part, settings)
        return state._replace(model=learn.finish(reconsider(state, settings), D))
    if reduce:
        parts = [settled(part, settings) for part in parts]
    known = [taken_in(part, settings) for part in parts if part.state.model is not None]
    waiting = [part for part in parts if part.state.model is None]
    if known:
        state = _united(known, settings, room, search=search)
    else:
        state = learn.init(D, room, settings, parts[0].state.frame)
    progress = Progress()
    for part in waiting:
        rows, weights, n = part.state.pending
        state, _ = learn.learn(state, rows[:n].copy(), weights[:n] * part.share, settings, progress)
    return state


def _all_rows(parts: Sequence[Part], settings: Settings, most: int) -> tuple[Array, Array] | None:
    """Rows of all parts with their weights, in an order that does not depend on the parts; None if some are gone, or
    if there are more than `most`.
    """
    n = sum(learn.rows_seen(part.state) for part in parts)
    # Rows of different times have no common clock: under forgetting their weights would not be known.
    if not n or n > most or settings.fading.rate or not all(_has_all_rows(part.state) for part in parts):
        return None
    rows, weights = (np.concatenate(values) for values in zip(*map(_own_rows, parts), strict=True))
    # Sorted and then shuffled: models that were merged in another order, or in steps, are the same rows.
    order = np.lexsort([*rows.T[::-1]])[np.random.default_rng([len(rows), 7]).permutation(len(rows))]
    return rows[order], weights[order]


def _has_all_rows(state: State) -> bool:
    sample = state.reservoir
    return int(sample.size[0]) == state.n and sample.level[0] == -np.inf


def _own_rows(part: Part) -> tuple[Array, Array]:
    """Rows of the sample and those pending, in the units of the data."""
    sample, (rows, weights, n) = part.state.reservoir, part.state.pending
    rows, weights = rows[:n], weights[:n]
    if m := int(sample.size[0]):
        frame = _frame(part.state)
        rows = np.concatenate([sample.rows[:m].astype(np.float64) / frame.inverse + frame.centre, rows])
        weights = np.append(np.exp(sample.log_weights[:m]), weights)
    return rows, weights * part.share


def _common_frame(parts: Sequence[Part]) -> Frame | None:
    """The frame that all parts have, if it is the same: that of a scale which was given."""
    frames = [part.state.frame for part in parts]
    first = frames[0]
    same = all(
        first is not None and frame is not None and all(map(np.array_equal, first, frame)) for frame in frames[1:]
    )
    return first if same and len(parts) > 1 else None


def _relearned(X: Array, weights: Array, frame: Frame | None, settings: Settings, room: int) -> tuple[State, Progress]:
    """A model that has learned the rows in one pass."""
    progress = Progress()
    state, _ = learn.learn(learn.init(X.shape[1], room, settings, frame), X, weights, settings, progress)
    return state, progress


def with_room(state: State, settings: Settings) -> State:
    """The state with room for the components that may be created under other settings."""
    model = _model(state)
    room = carry.room_for(model.known, settings)
    return state._replace(model=model._replace(components=carry.with_room(model.components, room)))


def settled(part: Part, settings: Settings) -> Part:
    """The part with components: a search on its first rows, if it has none yet."""
    if part.state.model is not None:
        return part
    state = learn.opened(part.state, part.state.pending.size, settings)
    model = learn.finish(reconsider(state, settings), state.pending.rows.shape[1])
    empty = learn.no_rows(0, state.reservoir.rows.shape[1])
    # Where no rows are to be kept, those of the warm-up go now.
    kept = state.reservoir if len(part.state.reservoir.rows) else part.state.reservoir
    done = state._replace(model=model, searched=state.n, reservoir=kept, pending=empty)
    return Part(done, Progress(), part.share)


def taken_in(part: Part, settings: Settings) -> Part:
    """The part with its pending rows in components and sample, in arrays of its own."""
    state, progress, share = part
    working = learn.working_model(state, settings, progress)
    assert working is not None
    whole = learn.with_pending_sampled(state, settings)._replace(model=refreshed(working))
    return Part(whole, progress, share)


def without_pending(part: Part, settings: Settings) -> State:
    """The state of a part with all rows in its components and sample; none of them waits for a search."""
    state = taken_in(part, settings).state
    return state._replace(searched=state.n, pending=learn.no_rows(0, state.reservoir.rows.shape[1]))


def _united(parts: Sequence[Part], settings: Settings, room: int, *, search: bool) -> State:
    frame = united_frame([part.state for part in parts])
    sample = _united_sample(parts, frame, settings.fading, room)
    model = _side_by_side(parts, frame, settings, join=search)
    if not room:
        model = model._replace(world=_world_of_parts(parts, frame, model.fine, settings))
    n = sum(part.state.n for part in parts)
    state = State(n, frame, model, n, sample, learn.no_rows(0, len(frame.centre)))
    if search:
        # No component counts as known: the search then tries other starts too.
        anew = reconsider(state._replace(model=model._replace(known=0)), settings)
        model = learn.finish(anew, len(frame.centre))
        return state._replace(model=model)
    return state._replace(model=model._replace(world=_world(state, model, settings)) if room else model)


def _model(state: State) -> Model:
    """The components of a state that is past its warm-up."""
    assert state.model is not None
    return state.model


def _frame(state: State) -> Frame:
    """The frame of a state that is past its warm-up."""
    assert state.frame is not None
    return state.frame


# -- frames ------------------------------------------------------------------------------------------


def united_frame(states: Sequence[State]) -> Frame:
    """Frame of all rows together: mean of the centres, and the power of two next to the spread about it."""
    frames = [_frame(state) for state in states]
    first = frames[0]
    if all(np.array_equal(a, b) for frame in frames[1:] for a, b in zip(first, frame, strict=True)):
        return first
    share = np.array([max(_model(state).components.total[0], 1e-300) for state in states])
    share /= share.sum()
    centres, scales = (np.array(values) for values in zip(*((f.centre, 1.0 / f.inverse) for f in frames), strict=True))
    # Differences from the first centre, so that large centres lose no digits.
    d = centres - first.centre
    mean = share @ d
    # Ratios to the largest term, so that columns of any unit have finite squares.
    largest = np.max([np.abs(d - mean).max(axis=0), scales.max(axis=0)], axis=0)
    # Law of total variance: within the parts, and between their centres.
    spread = np.sqrt(share @ ((scales / largest) ** 2 + ((d - mean) / largest) ** 2)) * largest
    return frame_of_spread(first.centre + mean, spread)


class Change(NamedTuple):
    """From one frame to another: z' = z * ratio + offset. Ratios are powers of two, so only offsets round."""

    ratio: Array  # (D,)
    offset: Array  # (D,)


def change_of_frame(old: Frame, new: Frame) -> Change:
    """What takes coordinates of `old` to those of `new`."""
    return Change(new.inverse / old.inverse, (old.centre - new.centre) * new.inverse)


# -- samples -----------------------------------------------------------------------------------------


def _united_sample(parts: Sequence[Part], frame: Frame, fading: Fading, room: int) -> Reservoir:
    """The `room` rows of highest priority of all samples; a row of a part counts for `share` rows.

    Under forgetting the last rows of all parts are the same age.
    """
    if not room:
        return learn.empty_reservoir(0, len(frame.centre))
    offered = sum(int(part.state.reservoir.offered[0]) for part in parts)
    rows, weights, keys, level = [], [], [], -np.inf
    for i, (state, _, share) in enumerate(parts):
        sample, change = state.reservoir, change_of_frame(_frame(state), frame)
        m = int(sample.size[0])
        rows.append(sample.rows[:m] * change.ratio + change.offset)
        more = np.log(share) + fading.rate * (offered - int(sample.offered[0]))
        weights.append(sample.log_weights[:m] + more)
        keys.append(_drawn_again(sample, np.random.default_rng([offered, i, 5])) + more)
        level = max(level, float(sample.level[0] + more))
    Z, log_weights, priorities = np.concatenate(rows), np.concatenate(weights), np.concatenate(keys)
    # Below the level of any part rows of that part are missing, so that others must not stay either.
    order = np.argsort(-priorities, kind="stable")
    order = order[priorities[order] >= level]
    kept, dropped = np.sort(order[:room]), order[room:]
    if len(dropped):
        level = max(level, float(priorities[dropped].max()))
    out = learn.empty_reservoir(room, Z.shape[1])
    out.size[0], out.level[0] = len(kept), level
    out.offered[0] = offered
    out.rows[: len(kept)] = Z[kept]
    out.log_weights[: len(kept)] = log_weights[kept]
    out.keys[: len(kept)] = priorities[kept]
    return out


def _drawn_again(sample: Reservoir, rng: np.random.Generator) -> Array:
    """Log-priorities of the sampled rows, drawn again from their law given the level of the sample.

    Priorities come from row numbers, so that those of models with one seed are the same: the sample of a thousand
    models would be one row number of each, and ties would go to the first models. Given the level, the uniform number u
    of a kept row of weight w is uniform below w / level, and below 1.
    """
    log_weights = sample.log_weights[: sample.size[0]]
    # In logs; 1 - u in place of u, because a uniform number may be 0 but not 1.
    most = np.minimum(log_weights - sample.level[0], 0.0)
    return np.asarray(log_weights - most - np.log1p(-rng.random(len(log_weights))))


# -- components --------------------------------------------------------------------------------------


def _side_by_side(parts: Sequence[Part], frame: Frame, settings: Settings, *, join: bool) -> Model:
    """All components in one model; too many, or with `join` the same up to chance, are joined by their moments."""
    totals = np.array([_model(part.state).components.total[0] * part.share for part in parts])
    largest = _model(parts[int(np.argmax(totals))].state)
    shape = _mean_shape([part.state for part in parts], totals / totals.sum(), frame)
    limit = settings.fixed or settings.most
    # The likelihood ratio of two samples of one Gaussian is p / 2 on average for p parameters: twice that is chance.
    chance = n_parameters(len(frame.centre), settings.diagonal) if join and not settings.fixed else 0.0
    stocks: list[Stock] = []
    for part in parts:
        own = _in_frame(part, frame)
        stocks.append(own if join else _with_shape(own, part, shape, frame))
        # Reduced on the way, so that a thousand models need the room of a few.
        if sum(len(stock.mass) for stock in stocks) > SIDE_BY_SIDE * limit:
            stocks = [_reduced(_joined(stocks), shape, limit, chance)]
    stock = _reduced(_joined(stocks), shape, limit, chance)
    room = carry.room_for(len(stock.mass), settings)
    components = carry.components_of(stock, float(totals.sum()), shape, room, settings.parts)
    return Model(components, shape, largest.world, largest.fine, len(stock.mass))


def _mean_shape(states: Sequence[State], share: Array, frame: Frame) -> Shape:
    """The average of the shapes: a search replaces it.

    Its weight is at most that of several components: more rows of a shape that is not a shard's own than there are of
    the shard would leave it a scatter that is none.
    """
    D = len(frame.centre)
    matrix, ridge, tau = np.zeros((D, D)), np.zeros(D), 0.0
    for state, s in zip(states, share, strict=True):
        ratio, shape = change_of_frame(_frame(state), frame).ratio, _model(state).shape
        matrix += s * shape.matrix * ratio * ratio[:, None]
        ridge += s * shape.ridge * ratio**2
        tau += s * shape.tau
    return Shape(matrix, ridge, min(float(tau), MOST_TAU), _model(states[0]).shape.diagonal)


def _in_frame(part: Part, frame: Frame) -> Stock:
    """Moments of the part's components in the coordinates of `frame`, each row counted `share` times."""
    ratio, offset = change_of_frame(_frame(part.state), frame)
    mass, counts, means, scatter = carry.stock_of_components(_model(part.state).components)
    s = part.share
    return Stock(mass * s, counts * s, means * ratio + offset, scatter * (s * ratio * ratio[:, None]))


def _with_shape(stock: Stock, part: Part, shape: Shape, frame: Frame) -> Stock:
    """Moments with which the covariances stay what they were when the common shape is another."""
    old, ratio = _model(part.state).shape, change_of_frame(_frame(part.state), frame).ratio
    square = ratio * ratio[:, None]
    counts = stock.counts[:, None, None]
    # Sigma = B (1 + 1/N)/(tau + N - 1) with B = tau C + S + (N + tau) ridge. For another tau, C and ridge the same
    # Sigma needs B' = B (tau' + N - 1)/(tau + N - 1), and S' is what remains of it.
    before = stock.scatter + old.tau * old.matrix * square + (counts + old.tau) * np.diag(old.ridge * ratio**2)
    spare = np.maximum(counts - 1.0, 0.0)
    after = before * (shape.tau + spare) / (old.tau + spare)
    return stock._replace(scatter=after - shape.tau * shape.matrix - (counts + shape.tau) * np.diag(shape.ridge))


def _joined(stocks: Sequence[Stock]) -> Stock:
    return Stock(*(np.concatenate(values) for values in zip(*stocks, strict=True)))


def _reduced(stock: Stock, shape: Shape, limit: int, chance: float) -> Stock:
    """Join pairs that chance does not tell apart, and then more until `limit` are left (Runnalls, 2007)."""
    K = len(stock.mass)
    components = carry.components_of(stock, float(stock.mass.sum()), shape, K)
    # Counts for weights: costs are then nats of the likelihood, comparable with what chance allows.
    found = reduction.reduce_greedy(
        stock.counts, stock.means, covariances_of(components, shape), max_cost=chance, max_components=limit
    )
    groups = [np.flatnonzero(found.labels == k) for k in range(len(found.weights))]
    return _joined([carry.sum_of(Stock(*(values[own] for values in stock))) for own in groups])


def _world_of_parts(parts: Sequence[Part], frame: Frame, fine: float, settings: Settings) -> World:
    """The world of the rows of all parts, of which none is kept."""
    shares, worlds = [], []
    for state, _, share in parts:
        model, (ratio, offset) = _model(state), change_of_frame(_frame(state), frame)
        world = renewed_world(model, share_since(state.searched, state.n, settings.fading))
        square = ratio * ratio[:, None]
        shares.append(share * float(model.components.total[0]))
        worlds.append(world_of_moments(
            world.background.centre * ratio + offset, world.covariance * square, world.typical * square,
            world.variance * ratio**2, world.smooth, fine,
        ))  # fmt: skip
    return pooled_world(np.array(shares), worlds, fine)


def _world(state: State, model: Model, settings: Settings) -> World:
    """The world of the merged sample; gaps are filled by draws."""
    slots, weights, _ = sample_weights(state.reservoir, settings.fading)
    raw = state.reservoir.rows[slots].astype(np.float64)
    rng = np.random.default_rng([state.n, 3])
    return world_of_rows(fill(raw, model, rng) if np.isnan(raw).any() else raw, weights, model.fine)


# -- units -------------------------------------------------------------------------------------------

# Spreads of one column in two models that differ by more than this are taken for different units.
MAX_SCALE_RATIO = 1000.0
# From this many rows on a model that is warming up says how wide its columns are.
ROWS_THAT_TELL = 20


def check_units(states: Sequence[State], names: Sequence[str] | None) -> None:
    """Refuse models in which a column spreads over ranges so different that the units must differ."""
    frames = [state.frame or _frame_of_pending(state) for state in states]
    scales = np.array([1.0 / frame.inverse for frame in frames if frame is not None])
    if not len(scales):
        return
    least, most = scales.min(axis=0), scales.max(axis=0)
    column = int(np.argmax(most / least))
    if most[column] / least[column] > MAX_SCALE_RATIO:
        name = column if names is None else names[column]
        raise MergeError(
            f"Column {name!r} spreads over about {least[column]:.3g} in one model and {most[column]:.3g} in "
            "another. Learn both in the same units, or give both the same scale=."
        )


def _frame_of_pending(state: State) -> Frame | None:
    rows = state.pending.rows[: state.pending.size]
    return frame_of_rows(rows) if len(rows) >= ROWS_THAT_TELL else None
