"""A search where no rows are kept: components are divided and joined by their moments, which are those of all rows.

Rows drawn from the components would say nothing that the components do not: EM on them takes the chance of the draws
for structure and pays the price of every component once more. So a component that nothing speaks against stays exactly
as it is.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from everlearn.mixture.keep import carry
from everlearn.mixture.keep.carry import Stock
from everlearn.mixture.keep.em import MIN_COUNT, MOST_TAU
from everlearn.mixture.keep.evidence import common_shape, n_parameters, price
from everlearn.mixture.keep.search import TAUS
from everlearn.mixture.keep.world import ridge_of, world_of_moments
from everlearn.mixture.kernels import fitting as kernels
from everlearn.mixture.kernels.covariance import factors_of_counts, posterior_scatters
from everlearn.mixture.kernels.em import Moments
from everlearn.mixture.kernels.projection import LEAST, SEEDS
from everlearn.mixture.state import Array, Components, Fading, Model, Settings, Shape, World

Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]

# Gaussians along the axis of a component, and a single one beside them.
PARTS = len(SEEDS) + 1
# Nats that they must have gained on new rows before a component is divided: chance in one of 3,000.
PAYS = 8.0
# Where so many components are allowed, room for those that rows will open is made by joining the cheapest pairs: with
# none, a group that comes later would never be learned.
ALLOWED = 4 * carry.SPARE


def reconsidered(old: Model, searched: int, n: int, settings: Settings) -> Model:
    """The model of n rows with other components, where its own moments ask for them; the last search was at `searched`.

    The model must have been refreshed, and stays as it is.
    """
    world = renewed_world(old, share_since(searched, n, settings.fading))
    K = int(old.components.size[0])
    stock, source = _divided_where_it_pays(old.components, settings)
    # Those that a search has found stay; rows have opened the others, and nobody has asked yet whether they pay.
    stock, source = _joined(stock, source, (source >= old.known) & (source < K), old.shape, settings)
    if not settings.fixed:
        stock, source = _of_several_rows(stock, source, _weight_of_row(old, n, settings.fading))
    moments = Moments(stock.counts, stock.means, stock.scatter)
    shape = _shape(moments, world, old, settings)
    total = float(old.components.total[0])
    room = carry.room_for(len(stock.mass), settings)
    components = carry.components_of(stock, total, shape, room, settings.parts)
    stays = np.flatnonzero(source >= 0)
    for new, own in zip(components[-3:], old.components[-3:], strict=True):
        new[stays] = own[source[stays]]  # what was learned along the axis
    return Model(components, shape, world, old.fine, len(stock.mass))


def _weight_of_row(model: Model, n: int, fading: Fading) -> float:
    """What a row weighs, on average; under forgetting at most one, as merged models remember more than one does."""
    weight = float(model.components.total[0]) / max(remembered(n, fading), 1.0)
    return min(weight, 1.0) if fading.rate else weight


def _of_several_rows(stock: Stock, source: Indices, row: float) -> tuple[Stock, Indices]:
    """The components that stand for more than one row, each of which weighs `row`: others are outliers or forgotten.

    The broad Gaussian explains them, and no row of the stream stays in the model as a mean.
    """
    several = stock.mass > MIN_COUNT * row
    if not several.any():
        return stock, source
    return Stock(*(values[several] for values in stock)), source[several]


# -- what all have in common ------------------------------------------------------------------------


def share_since(searched: int, n: int, fading: Fading) -> float:
    """Share of the first `searched` of n rows in what is remembered, if rows weigh the same but for their age."""
    return math.exp(-fading.rate * (n - searched)) * remembered(searched, fading) / max(remembered(n, fading), 1.0)


def remembered(n: int, fading: Fading) -> float:
    """What n rows of weight one weigh: the last one, and those before it by their age."""
    return math.expm1(-fading.rate * n) / math.expm1(-fading.rate) if fading.rate else float(n)


def renewed_world(model: Model, share_known: float) -> World:
    """Mean and covariance of all rows: what was known of the first ones, and what the components say of the others.

    Not what the components say of all rows: outliers, which the broad Gaussian explains and no component keeps, would
    be forgotten, and that Gaussian would become so narrow that an outlier costs hundreds of nats.
    """
    known, K = model.world, model.known
    stock, total = carry.stock_of_components(model.components), float(model.components.total[0])
    # Components that rows have opened are made of new rows alone; the other new rows came as the rest always did.
    opened = min(float(stock.mass[K:].sum()) / total, 1.0 - share_known)
    shares, centres, covariances = [share_known], [known.background.centre], [known.covariance]
    for share, some in ((opened, slice(K, None)), (1.0 - share_known - opened, slice(K))):
        if share > 0.0 and len(stock.mass[some]):
            own = carry.sum_of(Stock(*(values[some] for values in stock)))
            shares.append(share)
            centres.append(own.means[0])
            covariances.append(own.scatter[0] / own.counts[0])
    centre, covariance = _pooled(np.array(shares), np.array(centres), np.array(covariances))
    return world_of_moments(centre, covariance, known.typical, known.variance, known.smooth, model.fine)


def pooled_world(shares: Array, worlds: list[World], fine: float) -> World:
    """The world of rows of several worlds together."""
    centres = np.array([world.background.centre for world in worlds])
    centre, covariance = _pooled(shares, centres, np.array([world.covariance for world in worlds]))
    _, typical = _pooled(shares, centres, np.array([world.typical for world in worlds]))
    variance = shares @ np.array([world.variance for world in worlds]) / shares.sum()
    smooth = np.all([world.smooth for world in worlds], axis=0)
    return world_of_moments(centre, covariance, typical, variance, smooth, fine)


def _pooled(shares: Array, centres: Array, covariances: Array) -> tuple[Array, Array]:
    """Mean and covariance of groups together, by the law of total variance."""
    weights = shares / shares.sum()
    centre = weights @ centres
    E = centres - centre
    return centre, np.tensordot(weights, covariances + E[:, :, None] * E[:, None, :], 1)


def _shape(moments: Moments, world: World, old: Model, settings: Settings) -> Shape:
    """The common shape; its weight falls to what the marginal likelihood prefers, but does not rise.

    The warm-up has chosen it leaving rows out, which is better; but if it saw one group, it knew nothing of how much
    the components have in common.
    """
    ridge = ridge_of(world.variance, world.smooth, old.fine)
    K, D = moments.means.shape
    shape = common_shape(moments, world, ridge, min(old.shape.tau, MOST_TAU), settings.diagonal)
    if K == 1:
        return shape
    lower = [tau for tau in TAUS if (D / 24) ** 2 <= tau < shape.tau]
    shapes = [shape, *(shape._replace(tau=tau) for tau in lower)]
    values = [kernels.log_marginals(moments, one, world.background).sum() for one in shapes]
    return shapes[int(np.argmax(values))]


# -- divisions --------------------------------------------------------------------------------------


def _divided_where_it_pays(components: Components, settings: Settings) -> tuple[Stock, Indices]:
    """Moments of the components, in two where the axis has found that, and which component each is, or -1."""
    stock = carry.stock_of_components(components)
    K = len(stock.mass)
    parts, source = [], []
    room = 0 if settings.fixed else settings.most - K
    for k in range(K):
        own = Stock(*(values[k : k + 1] for values in stock))
        evidence, _, left = components.progress[k]
        # Who tries many axes finds one by chance.
        pays = room > 0 and evidence > PAYS + np.log1p(left)
        room -= pays
        parts.append(divided(own, components, k) if pays else own)
        source += [-1] * (PARTS - 1) if pays else [k]
    return _side_by_side(parts), np.array(source)


def divided(own: Stock, components: Components, k: int) -> Stock:
    """The Gaussians that component k has found along its axis: together they have the moments `own` of its rows.

    A row's place along the axis is t = g'(x - mean), and x given t is the regression on it: with S the covariance and
    h = S g / sqrt(g'S g), a part with mean m and variance v of the standardised t has the mean `mean + m h` and the
    covariance S + (v - 1) h h'.
    """
    counts, means, squares = components.along[k, :-1].T
    weights = counts / counts.sum()
    variances = np.maximum(squares / counts, LEAST)
    middle = weights @ means
    spread = np.sqrt(weights @ (variances + (means - middle) ** 2))
    m, v = (means - middle) / spread, variances / spread**2
    S = own.scatter[0] / own.counts[0]
    g = components.factors[k].T @ components.axes[k]
    h = S @ g / np.sqrt(max(g @ S @ g, 1e-300))
    # With fewer counts coming rows would change the parts faster, but the common shape would weigh more: in spambase,
    # where many columns hardly vary within a component, held-out rows then lose 9 nats.
    n = weights * own.counts[0]
    S = S + (v - 1.0)[:, None, None] * np.outer(h, h)
    return Stock(weights * own.mass[0], n, own.means[0] + m[:, None] * h, n[:, None, None] * S)


def _side_by_side(parts: list[Stock]) -> Stock:
    return Stock(*(np.concatenate(values) for values in zip(*parts, strict=True)))


# -- unions -----------------------------------------------------------------------------------------


def _joined(stock: Stock, source: Indices, is_open: Mask, shape: Shape, settings: Settings) -> tuple[Stock, Indices]:
    """Components in question joined with others where they do not pay, the cheapest pair first.

    A component pays that gains its price and what its p parameters gain by chance, p / 2 nats. As long as there are
    more than may be, pairs are joined whatever it costs.
    """
    D, most = len(shape.ridge), settings.fixed or settings.most
    limit = most - carry.SPARE if most >= ALLOWED and not settings.fixed else most
    least = price(D, shape.diagonal) + 0.5 * n_parameters(D, shape.diagonal)
    parts = Parts(stock, shape, is_open | (np.count_nonzero(~is_open) > limit))
    groups = {k: [k] for k in range(len(source))}
    while len(groups) > 1:
        i, j, cost = parts.cheapest_pair()
        if len(groups) <= limit and not (cost < least and not settings.fixed):
            break
        parts.join(i, j)
        groups[i] += groups.pop(j)
    left = np.array(sorted(groups))
    source = np.where([len(groups[k]) > 1 for k in left], -1, source[left])
    return Stock(*(values[left] for values in parts.stock)), source


class Parts:
    """Components, and what it would cost to join any two of which one is in question."""

    def __init__(self, stock: Stock, shape: Shape, is_open: Mask) -> None:
        self.stock, self.shape, self.is_open = Stock(*(values.copy() for values in stock)), shape, is_open.copy()
        K = len(stock.mass)
        scales = factors_of_counts(stock.counts, shape.tau)
        self.covariances = posterior_scatters(stock.counts, stock.scatter, shape) * scales[:, None, None]
        self.log_dets = np.linalg.slogdet(self.covariances)[1]
        self.costs = np.full((K, K), np.inf)
        self.is_left = np.ones(K, dtype=bool)
        for k in np.flatnonzero(is_open):
            self._renew_costs(int(k))

    def cheapest_pair(self) -> tuple[int, int, float]:
        """The pair that costs least, and its cost; infinite if none is in question."""
        i, j = divmod(int(np.argmin(self.costs)), len(self.costs))
        return min(i, j), max(i, j), float(self.costs[i, j])

    def join(self, i: int, j: int) -> None:
        """Component j goes into component i."""
        both = carry.sum_of(Stock(*(values[[i, j]] for values in self.stock)))
        for values, joined in zip(self.stock, both, strict=True):
            values[i] = joined[0]
        scale = factors_of_counts(both.counts, self.shape.tau)[0]
        self.covariances[i] = posterior_scatters(both.counts, both.scatter, self.shape)[0] * scale
        self.log_dets[i] = np.linalg.slogdet(self.covariances[i])[1]
        self.is_open[i] &= self.is_open[j]
        self.is_left[j] = False
        self.costs[j], self.costs[:, j] = np.inf, np.inf
        self._renew_costs(i)

    def _renew_costs(self, k: int) -> None:
        others = self.is_left & (self.is_open | self.is_open[k])
        others[k] = False
        some = np.flatnonzero(others)
        self.costs[k], self.costs[:, k] = np.inf, np.inf
        if len(some):
            self.costs[k, some] = self.costs[some, k] = self._costs(k, some)

    def _costs(self, k: int, some: Indices) -> Array:
        """Nats of the log-likelihood that are lost if component k and each of the others become one, at most.

        With N rows and shares w_1, w_2 this is Runnalls' bound less N I(label; row), of which that bound knows
        nothing: I >= h(w) - 2 ln 2 sqrt(w_1 w_2) BC, with the entropy h and the Bhattacharyya coefficient BC (Lin,
        1991). Of groups that lie apart it is exact.
        """
        counts, means = self.stock.counts, self.stock.means
        N = counts[k] + counts[some]
        w1, w2 = counts[k] / N, counts[some] / N
        d = means[some] - means[k]
        own, each = self.covariances[k], self.covariances[some]
        joint = w1[:, None, None] * own + w2[:, None, None] * each
        joint += (w1 * w2)[:, None, None] * d[:, :, None] * d[:, None, :]
        before = counts[k] * self.log_dets[k] + counts[some] * self.log_dets[some]
        bound = 0.5 * (N * np.linalg.slogdet(joint)[1] - before)
        middle = 0.5 * (own + each)
        distance = 0.125 * np.einsum("kd,kd->k", d, np.linalg.solve(middle, d[:, :, None])[:, :, 0])
        distance += 0.5 * np.linalg.slogdet(middle)[1] - 0.25 * (self.log_dets[k] + self.log_dets[some])
        entropy = -(w1 * np.log(w1) + w2 * np.log(w2))
        unknown = 2.0 * np.log(2.0) * np.sqrt(w1 * w2) * np.exp(-distance)
        return np.asarray(bound - N * np.maximum(entropy - unknown, 0.0))
