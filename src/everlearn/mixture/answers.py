"""Answers of a mixture with full or diagonal covariances, by the names that low-rank mixtures answer to as well."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.base.conditioning import to_scale
from everlearn.gaussian import conditional
from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.conditional import ConditionalMixture
from everlearn.gaussian.gaussian import Indices, other_columns
from everlearn.mixture import ask
from everlearn.mixture.ask import Look
from everlearn.mixture.keep.evidence import n_parameters
from everlearn.mixture.p_values import p_values
from everlearn.mixture.shrinkage import conditional_mixture
from everlearn.typing import Array


class FullAnswers(NamedTuple):
    """What a question to the estimator is passed on to; see `everlearn.low_rank.ask.Look` for the other one."""

    look: Look

    @property
    def weights(self) -> Array:
        """Mixture weights."""
        return ask.components_mixture(self.look).weights

    @property
    def means(self) -> Array:
        """Means of the components."""
        return ask.components_mixture(self.look).means

    @property
    def covariances(self) -> Array:
        """Covariances of the components."""
        return ask.components_mixture(self.look).covariances

    @property
    def precisions(self) -> Array:
        """Inverses of the covariances."""
        whitening = mixtures.whitenings(ask.components_mixture(self.look))
        matrix = whitening.matrix
        return matrix**2 if whitening.is_diagonal else matrix @ matrix.transpose(0, 2, 1)

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.weights)

    @property
    def n_parameters(self) -> float:
        """Free parameters of all components."""
        K, D = self.means.shape
        return K * n_parameters(D, self.look.model.shape.diagonal) + K - 1

    def log_density(self, X: Array) -> Array:
        """Log-density of each row; of its observed part where it has gaps."""
        return ask.log_density(self.look, X)

    def responsibilities(self, X: Array) -> Array:
        """Posterior probability of each component for each row, (n, K)."""
        return ask.responsibilities(self.look, X)

    def p_values(self, X: Array) -> Array:
        """Probability that a row of the same law has a density as low or lower."""
        return p_values(self.look, X)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
        """Draw rows and the components that they came from."""
        return mixtures.sample(ask.components_mixture(self.look), n, rng)

    def condition(self, rows: Array, columns: Indices) -> tuple[ConditionalMixture, Array]:
        """The mixture of some columns for each row, given what else is observed in it, and the scale of each column."""
        others = other_columns(columns, rows.shape[1])
        mixture, scale = conditional_mixture(self.look)
        known = to_scale(rows[:, others], scale[others])
        return conditional.condition(mixture, others, known, columns), scale[columns]

    def impute(self, rows: Array) -> tuple[Array, Array]:
        """The expectation of every missing value given its row, and its standard deviation, zero elsewhere."""
        mixture, scale = conditional_mixture(self.look)
        values, std = conditional.impute(to_scale(rows, scale), mixture)
        return values * scale, std * scale
