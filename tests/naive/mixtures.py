"""Learning a mixture: one row at a time in covariance form, O(D^3) a row; blocks; batch EM."""

import numpy as np

from naive.gaussians import condition, log_joint_with_gaps, log_normal, mahalanobis


class IGMN:
    """The incremental Gaussian mixture network with covariances, full or diagonal, and explicit inverses."""

    def __init__(
        self, initial_variance, threshold, *, paper=False, forgetting=1.0, prune=None, centre=None, diagonal=False
    ):
        self.diagonal = diagonal
        self.initial = np.diag(initial_variance)
        self.threshold = threshold  # function of the number of observed columns
        self.paper, self.forgetting, self.prune = paper, forgetting, prune
        self.centre = np.zeros(len(initial_variance)) if centre is None else centre
        self.means, self.covariances, self.counts, self.ages = [], [], [], []
        self.log_densities, self.distances = [], []

    def learn(self, x, weight=1.0):
        seen = ~np.isnan(x)
        if not seen.any():
            self.log_densities.append(0.0), self.distances.append(0.0)
            return
        d2, log_joint, filled, extra = self._measure(x, seen)
        self.distances.append(min(d2, default=np.inf))
        self.log_densities.append(np.log(np.sum(np.exp(log_joint)) / np.sum(self.counts)) if d2 else np.nan)
        posterior = np.exp(log_joint - np.max(log_joint, initial=-np.inf))
        posterior = posterior / posterior.sum() if d2 else posterior
        self.counts = [self.forgetting * count for count in self.counts]
        if min(d2, default=np.inf) >= self.threshold(seen.sum()):
            self._create(x, weight, posterior, filled)
        else:
            self._update(weight * posterior, filled, extra)
            if self.prune is not None:
                self._prune(*self.prune)

    def _measure(self, x, seen):
        d2, log_joint, filled, extra = [], [], [], []
        for mean, covariance, count in zip(self.means, self.covariances, self.counts, strict=True):
            marginal = covariance[np.ix_(seen, seen)]
            e = x[seen] - mean[seen]
            gain = covariance[np.ix_(~seen, seen)] @ np.linalg.inv(marginal)
            full = x.copy()
            full[~seen] = mean[~seen] + gain @ e
            conditional = np.zeros_like(covariance)
            conditional[np.ix_(~seen, ~seen)] = (
                covariance[np.ix_(~seen, ~seen)] - gain @ covariance[np.ix_(seen, ~seen)]
            )
            d2.append(e @ np.linalg.inv(marginal) @ e)
            log_det = np.linalg.slogdet(2 * np.pi * marginal)[1]
            log_joint.append(np.log(count) - 0.5 * (d2[-1] + log_det))
            filled.append(full)
            extra.append(conditional)
        return d2, np.array(log_joint), filled, extra

    def _create(self, x, weight, posterior, filled):
        guess = np.sum([p * f for p, f in zip(posterior, filled, strict=True)], axis=0) if filled else self.centre
        self.means.append(np.where(np.isnan(x), guess, x))
        self.covariances.append(self.initial / weight)  # count times covariance holds the prior once
        self.counts.append(weight)
        self.ages.append(1)

    def _update(self, shares, filled, extra):
        for j, p in enumerate(shares):
            self.ages[j] += 1
            self.counts[j] += p
            # A faded component keeps a thousandth of its shape.
            w = min(p / self.counts[j], 0.999 if self.forgetting < 1 else 1.0)
            e = filled[j] - self.means[j]
            new_mean = self.means[j] + w * e
            if self.paper:
                e_star, step = filled[j] - new_mean, new_mean - self.means[j]
                spread = w * np.outer(e_star, e_star) - np.outer(step, step)
            else:
                spread = w * (1 - w) * np.outer(e, e)
            covariance = (1 - w) * self.covariances[j] + spread + w * extra[j]
            if self.diagonal:
                covariance = np.diag(np.diag(covariance))
            self.means[j] = new_mean if np.linalg.eigvalsh(covariance)[0] > 0 else self.means[j]
            self.covariances[j] = covariance if np.linalg.eigvalsh(covariance)[0] > 0 else self.covariances[j]

    def _prune(self, min_age, min_count):
        heaviest = int(np.argmax(self.counts))
        keep = [
            j == heaviest or not (self.ages[j] > min_age and self.counts[j] < min_count) for j in range(len(self.means))
        ]
        for name in ("means", "covariances", "counts", "ages"):
            setattr(self, name, [value for value, kept in zip(getattr(self, name), keep, strict=True) if kept])


class HomogeneousBlock:
    """Rows learned in homogeneous coordinates: P_ik = 1 + (x_i - mu)' Lambda (x_k - mu), in full after every row."""

    def __init__(self, P, counts, log_dets, forgetting):
        self.P, self.forgetting = np.array(P), forgetting
        self.counts, self.log_dets = np.array(counts), np.array(log_dets)
        self.shares = np.ones(len(counts))
        self.distances, self.log_densities = [], []

    def learn(self, t, D):
        d2 = self.P[:, t, t] - 1.0
        joint = np.log(self.counts) - 0.5 * (d2 + self.log_dets + D * np.log(2 * np.pi))
        self.distances.append(d2.min())
        self.log_densities.append(np.logaddexp.reduce(joint) - np.log(self.counts.sum()))
        p = np.exp(joint - np.logaddexp.reduce(joint))
        w = p / (self.forgetting * self.counts + p)
        for j, column in enumerate(self.P[:, :, t].copy()):
            outer = w[j] / (1 - w[j] + w[j] * column[t]) * np.outer(column, column)
            self.P[j] = (self.P[j] - outer) / (1 - w[j])
        self.counts = self.forgetting * self.counts + p
        self.log_dets += D * np.log(1 - w) + np.log(1 + w * d2)
        self.shares *= 1 - w


def left_out_log_density(x, share, counts, means, covariances, prior):
    """Log-density of x under a mixture that has lost x, which held `share` of each component's count.

    Covariances hold `prior` rows beside the counts. Gaps of x are left out of everything first.
    """
    seen = np.flatnonzero(~np.isnan(x))
    left, parts = counts - share, []
    for n, r, m, S in zip(counts, share, means, covariances, strict=True):
        m, S, e = m[seen], S[np.ix_(seen, seen)], x[seen] - m[seen]
        scatter = (n + prior) * S - r * n / (n - r) * np.outer(e, e)
        parts.append(log_normal(x[seen], (n * m - r * x[seen]) / (n - r), scatter / (n - r + prior)))
    joint = np.log(left / left.sum()) + np.array(parts)
    return joint.max() + np.log(np.exp(joint - joint.max()).sum())


def em_with_gaps(X, weights, means, covariances, *, n_steps, ridge):
    """EM from a start; gaps are filled by conditional means, and their covariance is added (Ghahramani, Jordan)."""
    for _ in range(n_steps):
        joint = log_joint_with_gaps(X, weights, means, covariances)
        R = np.exp(joint - joint.max(axis=1, keepdims=True))
        R /= R.sum(axis=1, keepdims=True)
        new_means, new_covariances = [], []
        for r, m, S in zip(R.T, means, covariances, strict=True):
            filled, extra = X.copy(), np.zeros_like(S)
            for x, full, p in zip(X, filled, r, strict=True):
                seen, gaps = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
                (full[gaps],), spread = condition(m, S, seen, [x[seen]], gaps)
                extra[np.ix_(gaps, gaps)] += p * spread
            mean = r @ filled / r.sum()
            scatter = (r[:, None] * (filled - mean)).T @ (filled - mean)
            new_means.append(mean)
            new_covariances.append((scatter + extra) / r.sum() + ridge * np.eye(len(mean)))
        weights, means, covariances = R.mean(axis=0), np.array(new_means), np.array(new_covariances)
    return weights, means, covariances


class FrozenMixture:
    """Components that hold every row with its share, fitted anew to all of them when they have grown by a share.

    Between two fits a component judges rows by its last one. `background` is the mean and covariance of all rows: half
    a row of a Gaussian four times as broad takes its share of outliers where there is no room for a component.
    """

    def __init__(self, shape, background, *, growth, threshold, room, forgetting=(1, 1.0)):
        self.shape, self.background, self.growth = shape, background, growth
        self.threshold, self.room, (self.every, self.factor) = threshold, room, forgetting
        self.parts, self.total, self.n = [], 0.0, 0

    def add(self, rows, weights):
        """A component of these rows."""
        zeros = np.zeros((rows.shape[1], rows.shape[1]))
        self.parts.append({"rows": [(w, x, zeros) for w, x in zip(weights, rows, strict=True)]})
        self.fit(self.parts[-1])

    def fit(self, part):
        w, X, rest = (np.array(values) for values in zip(*part["rows"], strict=True))
        n, tau = w.sum(), self.shape.tau
        part["mean"] = w @ X / n
        E = X - part["mean"]
        S = (w[:, None] * E).T @ E + np.tensordot(w, rest, 1)
        B = tau * self.shape.matrix + S + (n + tau) * np.diag(self.shape.ridge)
        part["covariance"] = B * (1.0 + 1.0 / max(n, 1.0)) / (tau + max(n - 1.0, 0.0))
        part["mass"], part["fitted"], part["fresh"] = n, n, 0.0

    def learn(self, x, weight):
        """Log-density and least squared distance of a row, which is then learned."""
        self.n += 1
        if self.n % self.every == 0:
            self.fade()
        gaps, seen = np.isnan(x).any(), np.flatnonzero(~np.isnan(x))
        if gaps:
            for part in self.parts:
                self.fit(part)
        distances, joint = [], []
        for part in self.parts:
            block = part["covariance"][np.ix_(seen, seen)]
            distances.append(mahalanobis([x[seen]], part["mean"][seen], block)[0])
            joint.append(np.log(part["mass"]) + log_normal(x[seen], part["mean"][seen], block))
        beyond = min(distances) > self.threshold and not gaps
        centre, covariance = self.background
        joint.append(np.log(0.5) + log_normal(x, centre, 4.0 * covariance) if beyond else -np.inf)
        log_density = np.logaddexp.reduce(joint)
        share = weight * np.exp(np.array(joint[:-1]) - log_density)
        log_density -= np.log(self.total)
        self.total += weight
        if beyond and len(self.parts) < self.room:
            self.add(x[None], [weight])
        else:
            self.spread(x, share, weight)
        return log_density, min(distances)

    def spread(self, x, share, weight):
        seen, gaps = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
        for part, r in zip(self.parts, share, strict=True):
            if r <= 1e-5 * weight:
                continue
            filled, rest = x.copy(), np.zeros_like(part["covariance"])
            (filled[gaps],), rest[np.ix_(gaps, gaps)] = condition(
                part["mean"], part["covariance"], seen, [x[seen]], gaps
            )
            part["rows"].append((r, filled, rest))
            part["fresh"] += r
            if part["fresh"] > self.growth * part["fitted"] + 0.5:
                self.fit(part)

    def fade(self):
        self.total *= self.factor
        for part in self.parts:
            part["rows"] = [(w * self.factor, x, rest) for w, x, rest in part["rows"]]
            for name in ("mass", "fitted", "fresh"):
                part[name] *= self.factor
