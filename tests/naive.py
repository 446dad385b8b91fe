"""Slow, obvious twins of the kernels: NumPy with explicit inverses, one row and one component at a time."""

import copy

import numpy as np
from scipy.integrate import quad
from scipy.special import gammaln

# -- incremental mixture (IGMN in covariance form, O(D^3) a row) ------------------------------------


class IGMN:
    """The incremental Gaussian mixture network with covariances and explicit inverses."""

    def __init__(self, initial_variance, threshold, *, paper=False, forgetting=1.0, prune=None, centre=None):
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
        self.covariances.append(self.initial.copy())
        self.counts.append(weight)
        self.ages.append(1)

    def _update(self, shares, filled, extra):
        for j, p in enumerate(shares):
            self.ages[j] += 1
            self.counts[j] += p
            w = min(p / self.counts[j], 0.999)  # a faded component keeps a thousandth of its shape
            e = filled[j] - self.means[j]
            new_mean = self.means[j] + w * e
            if self.paper:
                e_star, step = filled[j] - new_mean, new_mean - self.means[j]
                spread = w * np.outer(e_star, e_star) - np.outer(step, step)
            else:
                spread = w * (1 - w) * np.outer(e, e)
            covariance = (1 - w) * self.covariances[j] + spread + w * extra[j]
            self.means[j] = new_mean if np.linalg.eigvalsh(covariance)[0] > 0 else self.means[j]
            self.covariances[j] = covariance if np.linalg.eigvalsh(covariance)[0] > 0 else self.covariances[j]

    def _prune(self, min_age, min_count):
        heaviest = int(np.argmax(self.counts))
        keep = [
            j == heaviest or not (self.ages[j] > min_age and self.counts[j] < min_count) for j in range(len(self.means))
        ]
        for name in ("means", "covariances", "counts", "ages"):
            setattr(self, name, [value for value, kept in zip(getattr(self, name), keep, strict=True) if kept])


# -- Gaussians and mixtures, with explicit inverses -------------------------------------------------


def mahalanobis(X, mean, covariance):
    precision = np.linalg.inv(covariance)
    return np.array([(x - mean) @ precision @ (x - mean) for x in X])


def log_normal(x, mean, covariance):
    d2 = mahalanobis([x], mean, covariance)[0]
    return -0.5 * (d2 + np.linalg.slogdet(covariance)[1] + len(x) * np.log(2 * np.pi))


def condition(mean, covariance, given, values, target):
    """Mean of each row and covariance of the target columns once the given ones are known."""
    gain = covariance[np.ix_(target, given)] @ np.linalg.inv(covariance[np.ix_(given, given)])
    means = np.array([mean[target] + gain @ (x - mean[given]) for x in values])
    return means, covariance[np.ix_(target, target)] - gain @ covariance[np.ix_(given, target)]


def kl(mean, covariance, other_mean, other_covariance):
    precision = np.linalg.inv(other_covariance)
    d = mean - other_mean
    log_dets = np.linalg.slogdet(other_covariance)[1] - np.linalg.slogdet(covariance)[1]
    return 0.5 * (np.trace(precision @ covariance) + d @ precision @ d - len(d) + log_dets)


def moment_match(weights, means, covariances):
    shares = np.array(weights) / np.sum(weights)
    mean = sum(p * m for p, m in zip(shares, means, strict=True))
    spread = [S + np.outer(m - mean, m - mean) for m, S in zip(means, covariances, strict=True)]
    return mean, sum(p * S for p, S in zip(shares, spread, strict=True))


def log_joint_with_gaps(X, weights, means, covariances):
    """log w_k + log N over the observed columns of each row."""
    rows = []
    for x in X:
        seen = np.flatnonzero(~np.isnan(x))
        block = np.ix_(seen, seen)
        parts = zip(weights, means, covariances, strict=True)
        rows.append([np.log(w) + log_normal(x[seen], m[seen], S[block]) for w, m, S in parts])
    return np.array(rows)


def impute(x, weights, means, covariances):
    """Conditional mean and standard deviation of the gaps of one row, by the law of total variance."""
    seen, gaps = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
    joint = log_joint_with_gaps([x], weights, means, covariances)[0]
    share = np.exp(joint - joint.max()) / np.exp(joint - joint.max()).sum()
    parts = [condition(m, S, seen, [x[seen]], gaps) for m, S in zip(means, covariances, strict=True)]
    mean = sum(p * m[0] for p, (m, _) in zip(share, parts, strict=True))
    second = sum(p * (np.diagonal(S) + m[0] ** 2) for p, (m, S) in zip(share, parts, strict=True))
    return mean, np.sqrt(second - mean**2)


# -- mixture reduction ------------------------------------------------------------------------------


def runnalls_cost(weights, means, covariances, i, j):
    pair = [i, j]
    _, merged = moment_match(weights[pair], means[pair], covariances[pair])
    log_dets = np.linalg.slogdet(covariances[pair])[1]
    return 0.5 * ((weights[i] + weights[j]) * np.linalg.slogdet(merged)[1] - weights[pair] @ log_dets)


def reduce_greedy(weights, means, covariances, *, n_components=1, max_cost=np.inf):
    """Every cost anew before every merge; returns the members of each component that is left."""
    groups = [[k] for k in range(len(weights))]
    weights, means, covariances = np.array(weights), np.array(means), np.array(covariances)
    while len(groups) > n_components:
        pairs = [(i, j) for i in range(len(groups)) for j in range(i + 1, len(groups))]
        costs = [runnalls_cost(weights, means, covariances, i, j) for i, j in pairs]
        if min(costs) > max_cost:
            break
        i, j = pairs[int(np.argmin(costs))]
        means[i], covariances[i] = moment_match(weights[[i, j]], means[[i, j]], covariances[[i, j]])
        weights[i] += weights[j]
        groups[i] += groups.pop(j)
        weights, means, covariances = (np.delete(a, j, axis=0) for a in (weights, means, covariances))
    return groups


def partitions(K, m):
    """All ways to put K things into m groups that are not empty, as labels."""

    def extend(labels):
        if len(labels) == K:
            if len(set(labels)) == m:
                yield labels
            return
        for label in range(min(max(labels, default=-1) + 2, m)):
            yield from extend([*labels, label])

    return [np.array(labels) for labels in extend([])]


def best_partition(weights, means, covariances, m):
    """The least sum of w_i KL(f_i, g_j) over all partitions, each g_j fitted to its members; and its labels."""
    best = np.inf, None
    for labels in partitions(len(weights), m):
        total = 0.0
        for j in range(m):
            mine = np.flatnonzero(labels == j)
            g = moment_match(weights[mine], means[mine], covariances[mine])
            total += sum(weights[i] * kl(means[i], covariances[i], *g) for i in mine)
        if total < best[0]:
            best = total, labels
    return best


# -- PPCA from a covariance -------------------------------------------------------------------------


def closed_form_ppca(covariance, q):
    """W and sigma2 of maximum likelihood, from the whole covariance."""
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    sigma2 = values[q:].mean()
    return vectors[:, :q] * np.sqrt(np.maximum(values[:q] - sigma2, 0)), sigma2


# -- modes of a mixture in the plane ----------------------------------------------------------------


def grid_modes(mixture, n=150):
    """Highest points of a dense grid among their neighbours, polished by scipy, duplicates joined."""
    from scipy.optimize import minimize

    low, high = mixture.means.min(axis=0) - 1.5, mixture.means.max(axis=0) + 1.5
    axes = [np.linspace(a, b, n) for a, b in zip(low, high, strict=True)]
    X = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    precisions = np.linalg.inv(mixture.covariances)
    log_scale = np.log(mixture.weights) - 0.5 * np.linalg.slogdet(mixture.covariances)[1]

    def height(x):
        E = x[..., None, :] - mixture.means
        logs = log_scale - 0.5 * np.einsum("...ki,kij,...kj->...k", E, precisions, E)
        top = logs.max(axis=-1)
        return top + np.log(np.exp(logs - top[..., None]).sum(axis=-1))

    h = np.pad(height(X), 1, constant_values=-np.inf)
    shifts = [(a, b) for a in (0, 1, 2) for b in (0, 1, 2) if (a, b) != (1, 1)]
    peaks = np.all([h[1:-1, 1:-1] > h[a : a + n, b : b + n] for a, b in shifts], axis=0)
    found = []
    for x in X[peaks]:
        x = minimize(lambda v: -height(v), x, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-13}).x
        if all(np.linalg.norm(x - y) > 1e-3 for y in found):
            found.append(x)
    return np.array(found)


# -- online EM for PPCA with the natural constraint, through d x d matrices ------------------------


def ppca_covariance(W, sigma2):
    return W @ W.T + sigma2 * np.eye(len(W))


def ppca_posterior(x, mu, W, sigma2):
    """Means and covariances of (x, z) given the observed part of x, by conditioning their joint Gaussian."""
    d, q = W.shape
    joint = np.block([[ppca_covariance(W, sigma2), W], [W.T, np.eye(q)]])
    mean = np.concatenate([mu, np.zeros(q)])
    seen = np.flatnonzero(~np.isnan(x))
    gain = joint[:, seen] @ np.linalg.inv(joint[np.ix_(seen, seen)])
    covariance = joint - gain @ joint[seen]
    mean = mean + gain @ (x[seen] - mu[seen])
    return mean[:d], mean[d:], covariance[:d, :d], covariance[:d, d:], covariance[d:, d:]


def ppca_fisher(W, sigma2):
    """Diagonal Fisher information by the Slepian-Bangs formula, one trace a parameter."""
    d, q = W.shape
    C_inv = np.linalg.inv(ppca_covariance(W, sigma2))
    F_W = np.empty((d, q))
    for i in range(d):
        for j in range(q):
            J = np.zeros((d, q))
            J[i, j] = 1.0
            A = C_inv @ (W @ J.T + J @ W.T)
            F_W[i, j] = 0.5 * np.trace(A @ A)
    return np.diag(C_inv), F_W, 0.5 * np.trace(C_inv @ C_inv)


def ppca_fisher_body(W, sigma2):
    """Equations 19 to 21 of NAT-oEM as printed."""
    C_inv = np.linalg.inv(ppca_covariance(W, sigma2))
    return np.diag(C_inv @ C_inv), 2 * ppca_fisher(W, sigma2)[1], np.trace(C_inv)


class OnlineEM:
    """NAT-oEM, row by row from its equations; `form` is None, "proximal" or "paper"."""

    def __init__(self, mu, W, sigma2, k, gain, *, mode="robust", zero=False, form=None, strength=None, body=False):
        self.mu, self.W, self.sigma2, self.k, self.gain = mu, W, sigma2, k, gain
        self.centred, self.expand = mode != "paper", mode == "robust"
        self.form, self.strength, self.body = form, strength, body
        self.m, self.S0 = mu, np.sum(W**2) + len(mu) * sigma2
        self.S1, self.S2 = W, np.eye(W.shape[1])
        if zero:
            self.S0, self.S1, self.S2 = 0.0, 0 * W, 0 * self.S2
        self.reference, self.overshot = None, 0

    def take_reference(self):
        F = (ppca_fisher_body if self.body else ppca_fisher)(self.W, self.sigma2)
        self.reference = (self.mu, self.W, self.sigma2), F

    def learn(self, x):
        if np.isnan(x).all():
            return
        self.k += 1
        self._expect(x, self.gain(self.k))
        d = len(x)
        self.mu, self.W = self.m, self.S1 @ np.linalg.inv(self.S2)
        if self.expand:
            self.W = self.S1 = self.W @ np.linalg.cholesky(self.S2)
            self.S2 = np.eye(len(self.S2))
        self.sigma2, previous = self._residual() / d, self.sigma2
        if self.reference is not None and self.form == "proximal":
            self._proximal(previous, self.strength(self.k))
        if self.reference is not None and self.form == "paper":
            self._printed(self.strength(self.k))

    def _expect(self, x, g):
        base = self.m if self.centred else self.mu
        xhat, z, var_x, cov_xz, var_z = ppca_posterior(x, base, self.W, self.sigma2)
        keep = 1 - g if self.centred else 1.0
        y = xhat - base
        s0 = keep * y @ y + np.trace(var_x)
        s1 = keep * np.outer(y, z) + cov_xz
        s2 = keep * np.outer(z, z) + var_z
        self.m = self.m + g * (xhat - self.m)
        self.S0 = self.S0 + g * (s0 - self.S0)
        self.S1 = self.S1 + g * (s1 - self.S1)
        self.S2 = self.S2 + g * (s2 - self.S2)

    def _residual(self):
        return self.S0 - 2 * np.trace(self.S1 @ self.W.T) + np.trace(self.S2 @ self.W.T @ self.W)

    def _proximal(self, s, beta):
        (mu_ref, W_ref, s_ref), (F_mu, F_W, F_s) = self.reference
        self.mu = (self.m + s * beta * F_mu * mu_ref) / (1 + s * beta * F_mu)
        curvature = np.trace(self.S2) / len(self.S2) / s
        self.W = (curvature * self.W + beta * F_W * W_ref) / (curvature + beta * F_W)
        A = self._residual() + np.sum((self.m - self.mu) ** 2)
        d = len(self.mu)
        roots = np.roots([-2 * beta * F_s, 2 * beta * F_s * s_ref, -d, A])
        low, high = sorted((A / d, s_ref))
        inside = [
            r.real for r in roots if abs(r.imag) < 1e-9 * abs(r) and low * (1 - 1e-9) <= r.real <= high * (1 + 1e-9)
        ]
        self.sigma2 = inside[0]

    def _printed(self, beta):
        (mu_ref, W_ref, s_ref), (F_mu, F_W, F_s) = self.reference
        self.overshot += np.sum(beta / F_mu > 1) + np.sum(beta / F_W > 1) + np.sum(beta / F_s > 1)
        self.mu = self.mu - beta / F_mu * (self.mu - mu_ref)
        self.W = self.W - beta / F_W * (self.W - W_ref)
        self.sigma2 = self.sigma2 - beta / F_s * (self.sigma2 - s_ref)


def page_hinkley(values, drift, threshold, min_rows, limit):
    """Indices at which the test fires; mean and spread from scratch at every value."""
    fired, kept, drop = [], [], 0.0
    for t, value in enumerate(values):
        if len(kept) >= min_rows and np.std(kept) > 0:
            mean, std = np.mean(kept), np.std(kept)
            value = np.clip(value, mean - limit * std, mean + limit * std)
            drop = max(0.0, drop - (value - mean) / std - drift)
        if drop > threshold:
            fired.append(t)
            kept, drop = [], 0.0
        else:
            kept.append(value)
    return fired


# -- classes: one row taken out of its own class -----------------------------------------------------


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


# -- on-line variational Bayes for PPCA, with loadings and explicit inverses ------------------------


def latent_posterior(x, M, K, tau, m):
    """Mean and covariance of q(y) from the observed cells of x; after the m latent variables come ones."""
    seen = ~np.isnan(x)
    n, p = seen.sum(), M.shape[1]
    E = tau * M[seen].T @ M[seen] + n * np.linalg.inv(K)
    S = np.zeros((p, p))
    S[:m, :m] = np.linalg.inv(np.eye(m) + E[:m, :m])
    ybar = np.ones(p)
    ybar[:m] = S[:m, :m] @ (tau * M[seen].T @ x[seen] - E[:, m:].sum(axis=1))[:m]
    return ybar, S


def evidence_squares(x, M, K_new, ybar, S):
    """Q = |x - M ybar|^2 + tr(S M'M) - tr(R K'^-1 R') over the observed cells."""
    seen = ~np.isnan(x)
    M = M[seen]
    R = np.outer(x[seen], ybar) - M @ (S + np.outer(ybar, ybar))
    return np.sum((x[seen] - M @ ybar) ** 2) + np.trace(S @ M.T @ M) - np.trace(R @ np.linalg.inv(K_new) @ R.T)


def log_evidence(x, M, K, ybar, S, lam, K0, tau):
    """ln L(lambda) of the paper for q(y) = N(ybar, S)."""
    n, m = (~np.isnan(x)).sum(), len(ybar)
    Y = S + np.outer(ybar, ybar)
    K_t = lam * K + (1 - lam) * K0
    Q = evidence_squares(x, lam * M @ K @ np.linalg.inv(K_t), K_t + Y, ybar, S)
    dets = np.linalg.slogdet(K_t)[1] - np.linalg.slogdet(K_t + Y)[1]
    return 0.5 * (n * (dets - np.log(2 * np.pi / tau)) - m * np.log(2 * np.pi) - np.trace(Y) - tau * Q)


class PaperVB:
    """Equations 3 to 10 of the paper, with G."""

    def __init__(self, M, G, G0, tau, p1=0.5):
        self.M, self.G, self.G0, self.tau, self.p1 = M, G, G0, tau, p1

    def learn(self, x, lam=None):
        tau, G, G0, m = self.tau, self.G, self.G0, len(self.G)
        ybar, S = latent_posterior(x, self.M, G / tau, tau, m)
        if lam is None:
            odds = [log_evidence(x, self.M, G / tau, ybar, S, end, G0 / tau, tau) for end in (1.0, 0.0)]
            lam = 1 / (1 + (1 - self.p1) / self.p1 * np.exp(odds[1] - odds[0]))
        Y = S + np.outer(ybar, ybar)
        self.G = tau * Y + lam * G + (1 - lam) * G0
        forgotten = lam * self.M @ G @ np.linalg.inv(lam * G + (1 - lam) * G0)
        change = tau * np.outer(x, ybar) - self.M @ (tau * Y + (1 - lam) * G0)
        self.M = np.where(np.isnan(x)[:, None], forgotten, self.M + change @ np.linalg.inv(self.G))
        return lam


class VariationalPPCA:
    """One model with a mean, its noise learned; after `reset` it is young and goes over its rows again and again."""

    K0, rounds = 1e-3, 3

    def __init__(self, M, N, a, b, noise_prior, max_rows, *, tau=0.0):
        n, p = M.shape
        self.M, self.K, self.a, self.b = M, N * np.eye(p), a, b
        self.noise_prior, self.max_rows, self.tau = noise_prior, max_rows, tau
        self.seen, self.n_eff, self.rows = np.full(n, float(N)), float(N), None

    def precision(self):
        return self.tau or self.a / self.b

    def score(self, x, lam):
        m, tau, K = len(self.K) - 1, self.precision(), (1.0 if self.rows else lam) * self.K
        seen = ~np.isnan(x)
        n, M = seen.sum(), self.M[seen]
        ybar, S = latent_posterior(x, self.M, K, tau, m)
        v = 1 + np.trace((S + np.outer(ybar, ybar)) @ np.linalg.inv(K))
        C = M[:, :m] @ M[:, :m].T + v / tau * np.eye(n)
        e = x[seen] - M[:, m]
        q, log_det = e @ np.linalg.inv(C) @ e, np.linalg.slogdet(2 * np.pi * C)[1]
        if self.tau:
            return -0.5 * (log_det + q)
        a = self.a
        return gammaln(a + n / 2) - gammaln(a) - n / 2 * np.log(a) - 0.5 * log_det - (a + n / 2) * np.log1p(q / (2 * a))

    def learn(self, x, lam, whole=False):
        """Learn x; with `whole` the latent axes are made uncorrelated, not only rescaled."""
        if self.rows is not None:
            return self._learn_young(x)
        m, K = len(self.K) - 1, lam * self.K
        seen, p = ~np.isnan(x), len(self.K)
        ybar, S = latent_posterior(x, self.M, K, self.precision(), m)
        Y = S + np.outer(ybar, ybar)
        rho = 1 - 1 / max(100.0, self.n_eff)
        self.a = rho * self.a + (1 - rho) * self.noise_prior[0] + seen.sum() / 2
        self.b = rho * self.b + (1 - rho) * self.noise_prior[1] + evidence_squares(x, self.M, K + Y, ybar, S) / 2
        self.K, self.n_eff, self.seen = K + Y, lam * self.n_eff + 1, lam * self.seen + seen
        gain = (self.K[m, m] + p) / (self.seen + p)
        gain = np.where(seen, np.where(abs(gain - 1) > 0.02, gain, 1.0), 0.0)
        R = np.outer(np.where(seen, x, 0.0), ybar) - self.M @ Y
        self.M = self.M + gain[:, None] * R @ np.linalg.inv(self.K)
        self._expand(whole=False)
        if whole:
            self._expand(whole=True)
        return self

    def _expand(self, whole):
        m, K = len(self.K) - 1, self.K
        T = np.eye(m + 1)
        T[:m, m] = shift = K[:m, m] / K[m, m]
        covariance = K[:m, :m] / K[m, m] - np.outer(shift, shift)
        T[:m, :m] = np.linalg.cholesky(covariance) if whole else np.diag(np.sqrt(np.diag(covariance)))
        inverse = np.linalg.inv(T)
        self.M, self.K = self.M @ T, inverse @ K @ inverse.T

    def reset(self, lam):
        m = len(self.K) - 1
        worth = min(1.0, self.K[m, m])
        B = lam * self.M @ self.K
        B[:, m] = worth * self.M[:, m]
        self.K = lam * self.K + (1 - lam) * self.K0 * np.eye(m + 1)
        self.K[m] = self.K[:, m] = 0.0
        self.K[m, m] = worth
        self.M = B @ np.linalg.inv(self.K)
        old_noise = min(1.0, 10 * len(self.M) / 2 / self.a)
        self.a, self.b = old_noise * self.a, old_noise * self.b
        self.prior, self.rows, self.n_eff = (B, self.K, self.a, self.b), [], lam * self.n_eff
        return self

    def _learn_young(self, x):
        self.rows.append(x)
        self._go_over(self.rows)
        kept = self._leave_out_strange() if len(self.rows) >= 3 * len(self.K) else self.rows
        self.seen, self.n_eff = np.sum(~np.isnan(kept), axis=0).astype(float), self.n_eff + 1
        if len(self.rows) == self.max_rows:
            self.rows = None
        return self

    def _go_over(self, rows):
        n, p = self.M.shape
        B0, K0, a, b = self.prior
        if len(self.rows) >= p + 2:
            B0, K0 = np.zeros((n, p)), np.diag([self.K0] * (p - 1) + [0.0])
        for _ in range(self.rounds):
            B, K, squares = B0.copy(), K0.copy(), 0.0
            for row in rows:
                ybar, S = latent_posterior(row, self.M, self.K, self.precision(), p - 1)
                Y, seen = S + np.outer(ybar, ybar), ~np.isnan(row)
                B += np.where(seen[:, None], np.outer(np.where(seen, row, 0.0), ybar), self.M @ Y)
                K += Y
                fit = self.M[seen]
                squares += np.sum((row[seen] - fit @ ybar) ** 2) + np.trace(S @ fit.T @ fit)
            cells = np.sum(~np.isnan(rows))
            self.a, self.b = a + max(cells - n * p, 0) / 2, b + squares / 2
            self.M, self.K = B @ np.linalg.inv(K), K
            self._expand(whole=True)

    def _leave_out_strange(self):
        """Up to a quarter of the rows, the farthest first, if they are outliers to a model of the others."""
        rows = list(self.rows)
        for _ in range(len(rows) // 4):
            far = int(np.argmax([np.nanmean((row - self.M[:, -1]) ** 2) for row in rows]))
            others, rest = copied(self), rows[:far] + rows[far + 1 :]
            others._go_over(rest)
            if others.score(rows[far], 1.0) + np.log(0.99) >= others.background(rows[far]) + np.log(0.01):
                break
            self.M, self.K, self.a, self.b, rows = others.M, others.K, others.a, others.b, rest
        return rows

    def background(self, x):
        """Density of x if only the mean and the noise are known, by quadrature over ln |y|^2."""
        seen, m, tau = ~np.isnan(x), len(self.K) - 1, self.precision()
        s = tau * np.sum((x[seen] - self.M[seen, m]) ** 2)
        return log_background(s, seen.sum(), m, self.K0) + 0.5 * seen.sum() * np.log(tau / (2 * np.pi))


def log_background(s, n, m, K0):
    """ln E[(1 + r/K0)^(-n/2) exp(-s/(2 + 2 r/K0))] for r ~ chi^2_m, by adaptive quadrature around the peak."""

    def log_integrand(z):
        v = 1 + np.exp(z) / K0
        return m / 2 * (z - np.log(2)) - np.exp(z) / 2 - gammaln(m / 2) - n / 2 * np.log(v) - s / (2 * v)

    grid = np.linspace(-30, 20, 2001)
    values = log_integrand(grid)
    top, peak = values.max(), grid[values.argmax()]
    return top + np.log(quad(lambda z: np.exp(log_integrand(z) - top), -40, 25, points=[peak], limit=500)[0])


class Bank:
    """The decisions of a bank of memories, told again with weights instead of their logarithms."""

    LEARN, STASH, CHANGE = 1, 2, 4

    def __init__(self, caps):
        J = len(caps)
        self.caps, self.prior = np.array(caps), np.array([0.1 / (J - 1)] * (J - 1) + [0.9])
        self.w, self.stash = self.prior.copy(), None
        self.trial = self.hold = self.row = 0
        self.changes = []

    def step(self, scores, stash_scores, background):
        self.row, self.hold = self.row + 1, max(self.hold - 1, 0)
        known, unknown = np.sum(self.w * np.exp(scores)), np.exp(background)
        if self.trial:
            return self._in_trial(scores, stash_scores, 0.99 * known, 0.01 * unknown)
        if self.hold == 0 and 0.8 * known < 0.2 * unknown:
            inlier = 0.99 * known >= 0.01 * unknown
            self.stash, self.w = (self._reweighed(self.w, scores) if inlier else self.w), self.prior.copy()
            quiet = self.row - (self.changes[-1] if self.changes else 0)
            odds = (0.99 * known + 0.01 * unknown) / unknown * quiet / np.e
            self.suspect, self.trial, self.hold, self.evidence = self.row - 1, 10, 6, np.log(max(odds, 1.0))
            return self.LEARN | self.CHANGE | (self.STASH if inlier else 0)
        self.w = self._reweighed(self.w, scores)
        return self.LEARN

    def _in_trial(self, scores, stash_scores, known, unknown):
        old = 0.99 * np.sum(self.stash * np.exp(stash_scores))
        self.evidence += np.log((old + unknown) / (known + unknown))
        self.trial -= 1
        inlier, last = old >= unknown, self.trial == 0
        stash = self._reweighed(self.stash, stash_scores) if inlier else self.stash
        if self.evidence > 5 or (last and self.evidence > 0):
            self.w, self.trial, self.hold = stash, 0, 0
            return self.LEARN if inlier else 0
        self.w = self._reweighed(self.w, scores)
        if self.evidence < -3 or last:
            self.changes.append(self.suspect)
            self.trial = 0
            return self.LEARN
        self.stash = stash
        return self.LEARN | (self.STASH if inlier else 0)

    def _reweighed(self, w, scores):
        w = w * np.exp(scores)
        return 0.999 * w / w.sum() + 0.001 * self.prior

    def reseeded(self):
        """Members that become copies of the best."""
        k = self.w.argmax()
        behind = (self.caps > self.caps[k]) & (np.log(self.w[k] / self.w) > 6)
        self.w[behind] = self.w[k] * np.exp(-4)
        return behind


def copied(model):
    """An independent copy of a twin."""
    return copy.deepcopy(model)


# -- the block algorithm ------------------------------------------------------------------------------------------


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


# -- the copy of a mixture that answers --------------------------------------------------------------


def sturdy_covariances(groups, prior, ridge):
    """Covariances of components from their rows: two rows of the common shape in place of the creation prior."""
    scatters = [(rows - rows.mean(axis=0)).T @ (rows - rows.mean(axis=0)) for rows in groups]
    common = (prior + sum(scatters)) / (1 + sum(len(rows) - 1 for rows in groups))
    return np.array(
        [(S + 2 * (common + ridge)) / (len(rows) + 1) + ridge for S, rows in zip(scatters, groups, strict=True)]
    )


# -- batch EM of a Gaussian mixture with gaps --------------------------------------------------------


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


# -- memory of an agent (regions of states, and a regression of value on state for each action) ---------


class ValueMemory:
    """Regions and values as plain Gaussians, with explicit inverses."""

    def __init__(self, rule, n_actions, capacity):
        self.rule, self.n_actions, self.capacity = rule, n_actions, capacity
        self.regions, self.values, self.used, self.time = [], [], [], 0

    def answer(self, x, action):
        """Expected value, and the variance of that expectation, by the law of total variance."""
        d, rule = len(x), self.rule
        terms = [(np.exp(rule.log_background), rule.prior_value, rule.variances[d])]
        for (count, mean, covariance), values in zip(self.regions, self.values, strict=True):
            if action in values:
                count, joint, spread = values[action]
                gain = np.linalg.solve(spread[:d, :d], spread[:d, d])
                value = joint[d] + gain @ (x - joint[:d])
                density = count * gaussian_density(x, mean, covariance)
                terms.append((density, value, (spread[d, d] - gain @ spread[:d, d]) / count))
        weights, means, variances = np.array(terms).T
        if len(terms) == 1:
            return rule.prior_value, rule.variances[d]
        weights = weights / weights.sum()
        mean = weights @ means
        return mean, weights @ (variances + (means - mean) ** 2)

    def learn(self, x, action, value):
        z = np.append(x, value)
        d2 = [(x - m) @ np.linalg.solve(C, x - m) for _, m, C in self.regions]
        if min(d2, default=np.inf) >= self.rule.threshold:
            self._create(z, action)
        else:
            densities = np.array([n * gaussian_density(x, m, C) for n, m, C in self.regions])
            for j, p in enumerate(densities / densities.sum()):
                if p >= 0.01:
                    self._update(j, action, z, p)
        self.time += 1

    def _create(self, z, action):
        if len(self.regions) == self.capacity:
            j = int(np.argmin(self.used))
        else:
            j = len(self.regions)
            self.regions.append(None), self.values.append(None), self.used.append(0)
        V = np.diag(self.rule.variances)
        self.regions[j], self.values[j], self.used[j] = (1.0, z[:-1], V[:-1, :-1]), {action: (1.0, z, V)}, self.time

    def _update(self, j, action, z, p):
        self.used[j] = self.time
        self.regions[j] = self._moved(self.regions[j], z[:-1], p, np.inf)
        known = self.values[j].get(action)
        fresh = (p, z, np.diag(self.rule.variances))
        self.values[j][action] = fresh if known is None else self._moved(known, z, p, self.rule.memory)

    def _moved(self, gaussian, z, p, memory):
        count, mean, covariance = gaussian
        count = min(count + p, memory)
        w = min(p / count, 0.9)
        e = z - mean
        floor = w * self.rule.floor * np.diag(self.rule.variances[: len(z)])
        return count, mean + w * e, (1 - w) * covariance + w * (1 - w) * np.outer(e, e) + floor

    def learn_episode(self, states, actions, rewards, discounts, terminated, trace):
        targets, G = [], 0.0
        for t in reversed(range(len(actions))):
            last = t == len(actions) - 1
            best = max(self.answer(states[t + 1], a)[0] for a in range(self.n_actions))
            if last:
                G = rewards[t] if terminated else rewards[t] + discounts[t] * best
            else:
                G = rewards[t] + discounts[t] * ((1 - trace) * best + trace * G)
            self.learn(states[t], actions[t], G)
            targets.append(G)
        return targets[::-1]


def gaussian_density(x, mean, covariance):
    e = x - mean
    return np.exp(-0.5 * e @ np.linalg.solve(covariance, e)) / np.sqrt(np.linalg.det(2 * np.pi * covariance))


# -- a second look at rows with gaps --------------------------------------------------------------------


def second_look(X, counts, means, covariances, *, diagonal=False, n_steps=10):
    """EM with each component as its own prior; rows may have gaps. Returns counts, means and covariances."""
    D = X.shape[1]
    unseen = max(0.0, 1.0 - len(X) / counts.sum())
    kappa, nu = 1.0 + 0.1 * counts * unseen, 2.0 * D + 0.1 * counts * unseen
    weights, mu, sigma = counts / counts.sum(), means, covariances
    for _ in range(n_steps):
        joint = log_joint_with_gaps(X, weights, mu, sigma)
        R = np.exp(joint - joint.max(axis=1, keepdims=True))
        R /= R.sum(axis=1, keepdims=True)
        new_mu, new_sigma = [], []
        for j, r in enumerate(R.T):
            filled, extra = X.copy(), np.zeros((D, D))
            for x, full, p in zip(X, filled, r, strict=True):
                seen, gaps = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
                (full[gaps],), spread = condition(mu[j], sigma[j], seen, [x[seen]], gaps)
                extra[np.ix_(gaps, gaps)] += p * spread
            m = (r @ filled + kappa[j] * means[j]) / (r.sum() + kappa[j])
            E, shift = filled - m, m - means[j]
            scatter = (r[:, None] * E).T @ E + extra + nu[j] * covariances[j] + kappa[j] * np.outer(shift, shift)
            new_mu.append(m)
            new_sigma.append((scatter * np.eye(D) if diagonal else scatter) / (r.sum() + nu[j]))
        weights, mu, sigma = (R.sum(axis=0) + 0.5) / (len(X) + 0.5 * len(counts)), np.array(new_mu), np.array(new_sigma)
    return weights * counts.sum(), mu, sigma
