"""`StreamingPosterior`: what a model of the user's own knows of its parameters, batch after batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from everlearn.errors import InputError, MergeError
from everlearn.gaussian.gaussian import Gaussian, inverse, log_density
from everlearn.gaussian.merge import mean_imm
from everlearn.typing import Array

# Eigenvalues of a precision down to this share of the largest count as zero: what the products X'X round to.
_ROUNDING = 1e-10


class ConjugatePrior(Protocol):
    """A density of parameters in an exponential family; its class takes the natural parameters alone."""

    @property
    def natural(self) -> Any:
        """Natural parameters, an array."""

    def log_prob(self, theta: Any) -> Any:
        """Log-density at theta."""


class StreamingPosterior:
    """Posterior of the parameters of a model of your own: that of one batch is the prior of the next.

    By Bayes' rule ``p(theta | C_1 ... C_k)`` is proportional to ``p(C_k | theta) p(theta | C_1 ... C_{k-1})``
    [1]_. For a conjugate prior both factors have natural parameters, and these add. `everlearn.merge` joins posteriors
    that were learned apart from one prior, and counts that prior once.

    Parameters
    ----------
    prior : tuple (mean, precision) or conjugate prior
        Mean and precision (a matrix, or a number for the same in every direction) of a Gaussian; or any object with
        `natural`, the array of its natural parameters, and `log_prob(theta)`, whose class takes natural parameters.

    Attributes
    ----------
    prior : tuple or object
        As it was given.
    n_updates : int
        Batches learned.

    References
    ----------
    .. [1] Broderick et al., "Streaming variational Bayes", NIPS 2013.

    Examples
    --------
    The weights of a linear regression with noise of variance one; a batch says its own estimate and X'X:

    >>> import numpy as np
    >>> from everlearn import StreamingPosterior
    >>> rng = np.random.default_rng(0)
    >>> weights = StreamingPosterior((np.zeros(2), 1e-6))
    >>> for _ in range(50):
    ...     X = rng.normal(size=(20, 2))
    ...     y = X @ [1.0, -2.0] + rng.normal(size=20)
    ...     weights = weights.update((np.linalg.lstsq(X, y)[0], X.T @ X))
    >>> print(weights.mean.round(), weights.n_updates)
    [ 1. -2.] 50
    """

    def __init__(self, prior: tuple[ArrayLike, ArrayLike] | ConjugatePrior) -> None:
        self.prior: Any = prior
        self.n_updates = 0
        # Gaussians are kept relative to the prior's mean: far from zero, Lambda mu alone would lose its digits.
        self._reference: Array | None = None
        if isinstance(prior, tuple):
            self._reference, precision = _mean_and_precision(prior, "prior")
            _require_definite(precision, "prior")
            self._eta0 = _pack(np.zeros_like(self._reference), precision)
        else:
            self._eta0 = _natural(prior, "prior")
        self._eta = self._eta0.copy()

    # -- learning ---------------------------------------------------------------------------------

    def update(self, evidence: tuple[ArrayLike, ArrayLike] | ArrayLike) -> Self:
        """Learn a batch: multiply by its likelihood.

        Parameters
        ----------
        evidence : tuple (mean, precision) or array-like
            With a Gaussian prior, where the likelihood of the batch has its maximum and how sharp it is there; the
            precision may be singular, as where a batch has fewer rows than parameters. With another prior, what the
            batch adds to the natural parameters: the sums of its sufficient statistics, and its number of rows.

        Returns
        -------
        self
            The posterior after it.
        """
        if self._reference is None:
            added = _finite(evidence, "evidence")
            if added.shape != self._eta.shape:
                raise InputError(
                    f"evidence has the shape {added.shape}, the natural parameters of the prior {self._eta.shape}: a "
                    "conjugate likelihood adds one statistic to each of them."
                )
        else:
            mean, precision = self._pair(evidence, "evidence")
            _require_nonnegative(precision)
            added = _pack(precision @ (mean - self._reference), precision)
        self._eta = self._eta + added
        self.n_updates += 1
        return self

    def assign(self, posterior: tuple[ArrayLike, ArrayLike] | ConjugatePrior) -> Self:
        """Take over a posterior that was computed elsewhere with this one as its prior, as a Laplace fit does.

        Parameters
        ----------
        posterior : tuple (mean, precision) or conjugate prior
            In the form of the prior.

        Returns
        -------
        self
            The posterior after it.
        """
        if self._reference is None:
            if type(posterior) is not type(self.prior):
                raise InputError(
                    f"posterior must be of the prior's class {type(self.prior).__name__}; got "
                    f"{type(posterior).__name__}."
                )
            known = _natural(posterior, "posterior")
            if known.shape != self._eta.shape:
                raise InputError(f"posterior has natural parameters of shape {known.shape}; prior {self._eta.shape}.")
        else:
            mean, precision = self._pair(posterior, "posterior")
            _require_definite(precision, "posterior")
            known = _pack(precision @ (mean - self._reference), precision)
        self._eta = known
        self.n_updates += 1
        return self

    def forget(self, factor: float) -> Self:
        """Move back towards the prior: ``posterior^factor prior^(1 - factor)`` (Hirayama and others, eq. 6).

        Parameters
        ----------
        factor : float
            1 keeps everything, 0 nothing.

        Returns
        -------
        self
            The posterior after it.
        """
        if not 0.0 <= factor <= 1.0:
            raise InputError(f"factor must be from 0 (forget everything) to 1 (nothing); got {factor!r}.")
        self._eta = factor * self._eta + (1.0 - factor) * self._eta0
        return self

    # -- asking -----------------------------------------------------------------------------------

    @property
    def posterior(self) -> Any:
        """What is known now, in the form of the prior."""
        if self._reference is None:
            return type(self.prior)(self._eta.copy())
        return self.mean, self.precision

    @property
    def mean(self) -> Array:
        """Mean of a Gaussian posterior."""
        reference, pull, precision = self._gaussian("mean")
        return np.asarray(reference + inverse(precision) @ pull)

    @property
    def precision(self) -> Array:
        """Precision of a Gaussian posterior."""
        return self._gaussian("precision")[2].copy()

    @property
    def covariance(self) -> Array:
        """Covariance of a Gaussian posterior."""
        return inverse(self._gaussian("covariance")[2])

    def log_prob(self, theta: ArrayLike) -> Any:
        """Log-density of the posterior at parameters.

        Parameters
        ----------
        theta : array-like
            Parameters; for a Gaussian, one vector or one in each row.

        Returns
        -------
        float or ndarray
            What the prior's own `log_prob` gives; for a Gaussian one number a vector.
        """
        if self._reference is None:
            return self.posterior.log_prob(theta)
        return log_density(np.asarray(theta, dtype=np.float64), Gaussian(self.mean, self.covariance))

    def __repr__(self) -> str:
        known = self.prior if self._reference is None else f"Gaussian of {len(self._reference)} parameters"
        return f"StreamingPosterior({known}, n_updates={self.n_updates})"

    # -- merging ----------------------------------------------------------------------------------

    def merge(self, *others: Self, method: str = "auto", weights: ArrayLike | None = None) -> Self:
        """Return the posterior of all batches that this one and others have learned, each from the same prior.

        Parameters
        ----------
        *others : StreamingPosterior
            Learned elsewhere, from other batches.
        method : {"auto", "bayes", "mode", "mean"}, default="auto"
            "bayes", the default: ``eta_0 + sum (eta_i - eta_0)``, every batch counts and the prior once. "mode": the
            log-linear pool, ``sum a_i eta_i``. "mean": the moments of the mixture of all, for Gaussians.
        weights : array-like, optional
            Relative trust in each, this one first.

        Returns
        -------
        StreamingPosterior
            A new one.
        """
        models = [self, *others]
        self._check_same_prior(others)
        if method not in ("auto", "bayes", "mode", "mean"):
            raise MergeError(f"method={method!r}: posteriors are merged by 'bayes', 'mode' or 'mean'.")
        trust = np.ones(len(models)) if weights is None else _finite(weights, "weights")
        if trust.shape != (len(models),) or np.any(trust < 0.0) or trust.sum() <= 0.0:
            raise InputError(
                f"weights must be {len(models)} non-negative numbers with a positive sum; got {weights!r}."
            )
        # Trust of the same in all gives ones exactly: then nothing is rounded but the sum.
        shares = trust * ((1.0 if method in ("mode", "mean") else len(models)) / trust.sum())
        merged = type(self)(self.prior)
        merged.n_updates = sum(model.n_updates for model in models)
        if method == "mean":
            merged._eta = self._moments(models, shares)
        else:
            # Shares that sum to one give sum a_i eta_i, the log-linear pool; shares of one give streaming
            # Bayes, in which the prior is counted once.
            parts = [share * (model._eta - self._eta0) for share, model in zip(shares, models, strict=True)]
            merged._eta = self._eta0 + np.sum(parts, axis=0)
        if self._reference is not None and not _is_definite(_unpack(merged._eta, len(self._reference))[1]):
            raise MergeError(
                "The precisions, less the copies of the prior's, do not add up to a positive definite one: a posterior "
                "is less certain than its prior. Give the prior that all were learned from, or merge with "
                "method='mean' or 'mode'."
            )
        return merged

    def __add__(self, other: Self) -> Self:
        return self.merge(other) if isinstance(other, StreamingPosterior) else NotImplemented

    def _check_same_prior(self, others: Sequence[Self]) -> None:
        for other in others:
            if not isinstance(other, StreamingPosterior):
                raise InputError(f"A StreamingPosterior merges with others of its kind; got {type(other).__name__}.")
            same = (
                type(self.prior) is type(other.prior)
                and np.array_equal(self._eta0, other._eta0)
                and (self._reference is None or np.array_equal(self.prior[0], other.prior[0]))
            )
            if not same:
                raise MergeError(
                    "The posteriors have different priors: what each learned beyond a common prior is added, and there "
                    "is none. Begin each with the same prior; one that began with the posterior of another holds its "
                    "batches already."
                )

    def _moments(self, models: Sequence[Self], shares: Array) -> Array:
        if self._reference is None:
            raise MergeError(
                f"method='mean' keeps the moments of Gaussians; the prior is of the class {type(self.prior).__name__}. "
                "Use method='bayes' (every batch counts) or 'mode' (the weighted mean of natural parameters)."
            )
        # Moments do not add in natural parameters: to means and covariances, and back.
        g = mean_imm(shares, np.array([m.mean for m in models]), np.array([m.covariance for m in models]))
        precision = inverse(g.covariance)
        return _pack(precision @ (g.mean - self._reference), precision)

    # -- checks -----------------------------------------------------------------------------------

    def _pair(self, given: Any, name: str) -> tuple[Array, Array]:
        """Mean and precision that fit the prior's."""
        if not isinstance(given, tuple):
            raise InputError(f"{name} must be a tuple (mean, precision), as the prior is; got {type(given).__name__}.")
        mean, precision = _mean_and_precision(given, name)
        if len(mean) != len(self._eta0):
            raise InputError(f"{name} has {len(mean)} parameters, the prior {len(self._eta0)}.")
        return mean, precision

    def _gaussian(self, name: str) -> tuple[Array, Array, Array]:
        if self._reference is None:
            raise AttributeError(
                f"{name} is that of a Gaussian; this posterior is of the class {type(self.prior).__name__}: ask "
                f"`posterior`."
            )
        return self._reference, *_unpack(self._eta, len(self._reference))


def _mean_and_precision(pair: tuple[Any, ...], name: str) -> tuple[Array, Array]:
    if len(pair) != 2:
        raise InputError(f"{name} must be a tuple (mean, precision); got {len(pair)} values.")
    mean = np.atleast_1d(_finite(pair[0], f"the mean of {name}"))
    precision = _finite(pair[1], f"the precision of {name}")
    precision = precision * np.eye(len(mean)) if precision.ndim == 0 else precision
    if mean.ndim != 1 or precision.shape != (len(mean), len(mean)):
        raise InputError(
            f"{name} must hold a vector and a square matrix of its size, or a number; got shapes {mean.shape} and "
            f"{precision.shape}."
        )
    if not np.allclose(precision, precision.T, rtol=1e-8, atol=1e-12 * np.abs(precision).max(initial=0.0)):
        raise InputError(f"The precision of {name} must be symmetric.")
    # Symmetric to the last bit, as sums of precisions are expected to be.
    return mean, 0.5 * (precision + precision.T)


def _natural(prior: Any, name: str) -> Array:
    if not hasattr(prior, "natural") or not callable(getattr(prior, "log_prob", None)):
        raise InputError(
            f"{name} must be a tuple (mean, precision) or an object with `natural` and `log_prob`; got "
            f"{type(prior).__name__}."
        )
    return _finite(prior.natural, f"natural of {name}")


def _finite(values: Any, name: str) -> Array:
    array = np.array(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise InputError(f"{name} has values that are not finite.")
    return array


def _pack(pull: Array, precision: Array) -> Array:
    """Natural parameters of a Gaussian as one array, (D, D + 1): Lambda (mu - reference), then Lambda."""
    return np.column_stack([pull, precision])


def _unpack(eta: Array, D: int) -> tuple[Array, Array]:
    return eta[:, 0], eta[:, 1 : D + 1]


def _scaled_eigenvalues(precision: Array) -> Array:
    """Eigenvalues after each diagonal entry is brought to one, so that parameters may have any units."""
    scale = np.sqrt(np.abs(np.diagonal(precision)))
    scale[scale == 0.0] = 1.0
    return np.asarray(np.linalg.eigvalsh(precision / scale / scale[:, None]))


def _is_definite(precision: Array) -> bool:
    return bool(np.all(np.diagonal(precision) > 0.0) and _scaled_eigenvalues(precision).min() > 0.0)


def _require_definite(precision: Array, name: str) -> None:
    if not _is_definite(precision):
        raise InputError(
            f"The precision of {name} must be positive definite; for a prior that says almost nothing take a small "
            "number, such as 1e-6."
        )


def _require_nonnegative(precision: Array) -> None:
    if np.any(np.diagonal(precision) < 0.0) or _scaled_eigenvalues(precision).min() < -_ROUNDING:
        raise InputError(
            "The precision of evidence has a negative eigenvalue: a likelihood cannot take away what is known. At a "
            "maximum the negative Hessian of the log-likelihood has none; `forget` lowers a posterior's precision."
        )
