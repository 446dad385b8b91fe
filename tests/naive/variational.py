"""On-line variational Bayes for PPCA, with loadings and explicit inverses."""

import copy

import numpy as np
from scipy.integrate import quad
from scipy.special import gammaln


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
        # Cov[x] = E[Theta y y' Theta'] less the mean's square, + noise, with E[y y'] = I over the latent entries.
        second = sum(np.outer(M[:, j], M[:, j]) + np.eye(n) * np.linalg.inv(tau * K)[j, j] for j in range(m + 1))
        C = second - np.outer(M[:, m], M[:, m]) + np.eye(n) / tau
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
        kept = self._leave_out_outliers() if len(self.rows) >= 3 * len(self.K) else self.rows
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

    def _leave_out_outliers(self):
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
    """The decisions of a bank of horizons, with weights instead of their logarithms."""

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
