"""PPCA through d x d matrices: closed form, online EM with the natural constraint."""

import numpy as np


def closed_form_ppca(covariance, q):
    """W and sigma2 of maximum likelihood, from the whole covariance."""
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    sigma2 = values[q:].mean()
    return vectors[:, :q] * np.sqrt(np.maximum(values[:q] - sigma2, 0)), sigma2


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
        for i in range(len(self.W)):  # the gradient of each row is linear in it
            H = self.S2 / s + beta * np.diag(F_W[i])
            rows = np.linalg.solve(H, self.S1[i] / s + beta * F_W[i] * W_ref[i])
            self.W = np.vstack([self.W[:i], rows, self.W[i + 1 :]])
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
