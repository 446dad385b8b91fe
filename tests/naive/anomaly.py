"""Slow twins of the detector's kernels: plain numpy and scipy, one row at a time."""

import numpy as np
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import chi2, fisk, gamma, multivariate_normal, norm


def surprisal(x, weights, means, covariances):
    """-log density of the observed part of a row, or of rows that lack the same columns."""
    seen = ~np.isnan(np.atleast_2d(x)[0])
    parts = [
        np.log(w) + multivariate_normal(m[seen], C[np.ix_(seen, seen)]).logpdf(x[..., seen])
        for w, m, C in zip(weights, means, covariances, strict=True)
    ]
    return -logsumexp(parts, axis=0)


def atypicality(x, weights, means, covariances):
    """-log of the probability of a component and a row of it that is farther out, by the observed columns."""
    seen = ~np.isnan(x)
    total = 0.0
    for w, m, C in zip(weights, means, covariances, strict=True):
        away = (x - m)[seen]
        total += w * chi2.sf(away @ np.linalg.solve(C[np.ix_(seen, seen)], away), seen.sum())
    return -np.log(total)


def column_rarity(x, rows, scales, near):
    """Sum over the columns of -log((values near + 1/2) / (values + 1))."""
    total = 0.0
    for j, value in enumerate(x):
        column = rows[:, j]
        count = (np.abs(column - value) <= near * scales[j]).sum()
        total -= np.log((count + 0.5) / (len(column) + 1))
        if count == 0:
            outside = max(column.min() - value, value - column.max(), 0.0) / scales[j]
            total += np.log1p(outside)
    return total


def distance_to_mass(x, rows, centres, scales, share):
    """Root mean squared distance to the nearest share of the rows, in asinh units, winsorised.

    No coordinate goes farther than a quarter of a unit beyond the outer percentiles of its column.
    """
    u, U = (np.arcsinh((values - centres) / scales) for values in (x, rows))
    low, high = np.sort(U, axis=0)[[len(U) // 100, -1 - len(U) // 100]]
    u, U = (np.clip(values, low - 0.25, high + 0.25) for values in (u, U))
    squares = np.sort(((U - u) ** 2).sum(axis=1))
    return np.sqrt(squares[: max(3, int(share * len(rows)))].mean())


def log_p_by_rank(value, remembered):
    """Log of the share of remembered values that are larger, by mid-ranks: without ties and below the tail."""
    order = np.sort(remembered)
    rank = np.interp(value, order, np.arange(len(order)) + 0.5)
    return np.log((len(order) - rank + 0.5) / (len(order) + 1))


def log_p_with_rows_before(log_p, total, remembered, gate, settings):
    """Log p-value of a row that is not suspicious: level + (1 - level) times its share, as far as time counts.

    The share is the mean of that among the remembered rows and of that of a log-logistic law, worth 2,000 rows.
    """
    level, median = settings.guard_level, 1.1 + 1.34 * settings.persistence * gate
    shares = np.exp(log_p_by_rank(total, remembered)), 1.0 - fisk(7.0, scale=median).cdf(total)
    share = np.average(shares, weights=[len(remembered), 2000.0])
    return (1.0 - gate) * log_p + gate * np.log(level + (1.0 - level) * share)


def left_out_atypicality(i, X):
    """Atypicality of row i under one Gaussian that is fitted to the other rows."""
    rest = np.delete(X, i, axis=0)
    return atypicality(X[i], np.ones(1), rest.mean(axis=0)[None], np.cov(rest.T, bias=True)[None])


def as_it_fits(part, value, remembered, full, heaviness, gate):
    """Nats of mixture or columns: between those by the tail's law and by the rank, on a line.

    It is moved by how badly the mixture fits, where its memory is `full` and holds as large a value; and by neighbours
    with a tail so heavy that they weigh more than ten times as much, from 500 values on, as far as the tail of the
    mixture is not exponential. `heaviness` is of both. A value beyond all others is as far as the line goes a rank
    beyond them by the logarithm of its ratio to the largest.
    """
    remembered = np.asarray(remembered)
    if len(remembered) < 500:
        return part
    largest, mixture, neighbours = remembered.max(), *heaviness
    beyond = value > largest
    weight = np.clip((neighbours / 0.50) ** 5, 10.0, 300.0)
    doubt = np.interp(mixture, [0.75, 1.0], [0.0, 1.0])
    groups = (100.0 / weight**2) ** (doubt * (1 - gate))
    misfit = np.clip(1.25 / mixture, 1e-3, 1.0) ** (1 - gate) if full and not beyond else 1.0
    shares = (value / largest) ** -groups / (len(remembered) + 1) if beyond else None
    by_rank = -np.log(shares) if beyond else -log_p_by_rank(value, remembered)
    return np.interp(min(misfit, groups), [0, 1], [min(part, by_rank), part])


def as_usual_as_others(part, value, sampled):
    """Nats of a statistic: at most those of the share of the sample that is as strange, less three standard errors."""
    as_strange = np.count_nonzero(np.asarray(sampled) >= value)
    share = (as_strange - 3.0 * as_strange**0.5) / max(len(sampled), 1)
    return part if share <= 0.0 else min(part, -np.log(share))


def as_often_as_remembered(part, value, remembered):
    """Nats of a statistic: at most those of the share of what is remembered that is as large, less two errors."""
    as_large = np.count_nonzero(np.asarray(remembered) >= value)
    share = (as_large - 2.0 * as_large**0.5) / len(remembered)
    return part if share <= 0.0 else min(part, -np.log(share))


def combined_score(parts, heaviness, gate, settings):
    """Log of the mean of 1/p, tempered by the sharpness: over the statistics of a view, then over the views."""
    told, s = ~np.isnan(parts), settings.sharpness
    views = [v for v in range(len(settings.weights)) if told[settings.views == v].any()]
    if not views:
        return np.nan
    means, weights = [], []
    for v in views:
        own = told & (settings.views == v)
        usual = settings.usual_heaviness[own]
        ratios = np.where(usual > 0, heaviness[own] / np.where(usual > 0, usual, 1.0), 1.0)
        factors = np.clip(ratios**5, 1.0, 300.0)
        # The mixture, the first view, weighs less where its tail is twice as heavy as an exponential one.
        factor = np.clip(1.25 / heaviness[0], 1e-3, 1.0) if v == 0 else factors.max()
        means.append(np.average(np.exp(s * parts[own]), weights=factors ** (1 - gate)))
        weights.append(np.interp(gate, [0, 1], settings.weights[v]) * factor ** (1 - gate))
    return np.log(np.average(means, weights=weights)) / s


def predictive_far_p(y, excess, rows, level=2e-3, prior=10.0):
    """P(a row is far and its excess exceeds y), integrated over the rate of far rows and the rate of their excess.

    Priors: Gamma laws of the shape `prior` around the rate `level` and around 1; or, where that gives more, a Dirichlet
    process around the exponential law of scale 1, as a Polya urn of `prior` balls of it and one of each excess.
    """
    r = len(excess)
    far_rate = gamma(prior + r, scale=1.0 / (prior / level + rows))
    decay = gamma(prior + r, scale=1.0 / (prior + excess.sum()))
    share = quad(lambda v: v * far_rate.pdf(v), 0.0, far_rate.isf(1e-14), points=[far_rate.mean()], epsabs=0.0)[0]
    smooth = quad(lambda v: np.exp(-v * y) * decay.pdf(v), 0.0, decay.isf(1e-14), epsabs=0.0)[0]
    urn = np.average([np.exp(-y), *(excess > y)], weights=[prior, *np.ones(r)])
    return share * max(smooth, urn)


def surprise_given_others(x, weights, means, covariances):
    """-log of the two-sided p-value of each observed column given the others, mean over the components given those.

    Each column's law is that of the partitioned Gaussian: a system of equations is solved for each.
    """
    out = np.zeros(len(x))
    for j in np.flatnonzero(~np.isnan(x)):
        rest = np.flatnonzero(~np.isnan(x) & (np.arange(len(x)) != j))
        parts, p = [], []
        for w, m, C in zip(weights, means, covariances, strict=True):
            B = np.linalg.solve(C[np.ix_(rest, rest)], C[rest, j]) if len(rest) else np.zeros(0)
            mean, variance = m[j] + B @ (x - m)[rest], C[j, j] - B @ C[rest, j]
            parts.append(w * (multivariate_normal(m[rest], C[np.ix_(rest, rest)]).pdf(x[rest]) if len(rest) else 1.0))
            p.append(2.0 * norm.sf(abs(x[j] - mean) / np.sqrt(variance)))
        out[j] = -np.log(np.average(p, weights=parts))
    return out
