"""scikit-learn's models: most need all rows at once."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from everlearn.experiments.peers.adapter import Contender, Model, Supervised, gaussian_log_density
from everlearn.typing import Array

PACKAGE = "sklearn"
GRID = (1, 2, 4, 8, 16)
FIRST_FIT = 20  # rows: with more, streams of a few hundred rows would hardly be scored
"""Rows after which a batch detector is fitted; again whenever they have doubled."""
BATCH = 100


class Mixture(Model):
    """GaussianMixture with as many components as BIC prefers, or as are given."""

    def __init__(self, n_components: int | None = None) -> None:
        self.n_components = n_components

    def fit(self, X: Array) -> None:
        """Fit all rows; without a number of components once for each that the rows can bear, and keep the best."""
        self.model = best_mixture(X, self.n_components)

    def log_density(self, X: Array) -> Array:
        """Log-density of rows."""
        return np.asarray(self.model.score_samples(X))


class BayesianMixture(Mixture):
    """BayesianGaussianMixture, which switches off the components that it does not need."""

    def fit(self, X: Array) -> None:
        """Fit a mixture of at most 16 components."""
        from sklearn.mixture import BayesianGaussianMixture

        K = self.n_components or affordable(X)[-1]
        self.model = BayesianGaussianMixture(n_components=K, random_state=0).fit(X)


class PCA(Model):
    """IncrementalPCA, whose covariance makes it a Gaussian."""

    def __init__(self) -> None:
        from sklearn.decomposition import IncrementalPCA

        self.model = IncrementalPCA()

    def learn(self, piece: Array) -> None:
        """Go on learning."""
        self.model.partial_fit(piece)

    def fit(self, X: Array) -> None:
        """Learn in batches of its own size, five rows a column."""
        self.model.fit(X)

    def log_density(self, X: Array) -> Array:
        """Log-density of rows under the Gaussian of its mean and precision."""
        return gaussian_log_density(X, self.model.mean_, self.model.get_precision())


class Forest(Model):
    """IsolationForest, fitted anew whenever the rows have doubled."""

    def fit(self, X: Array) -> None:
        """Fit all rows."""
        from sklearn.ensemble import IsolationForest

        self.model = IsolationForest(random_state=0).fit(X)

    def score_then_learn(self, X: Array) -> Array:
        """How odd each row is to the forest of the rows that came before the last doubling."""
        scores = np.full(len(X), np.nan)
        start = FIRST_FIT
        # Each row is judged by a model of earlier rows only. Doubling keeps the number of fits logarithmic in the
        # stream.
        while start < len(X):
            self.fit(X[:start])
            scores[start : 2 * start] = -self.model.score_samples(X[start : 2 * start])
            start *= 2
        return scores


class Neighbours(Forest):
    """LocalOutlierFactor of standardised columns, fitted anew whenever the rows have doubled; at most 3,000 rows."""

    def fit(self, X: Array) -> None:
        """Fit a random part of the rows."""
        from sklearn.neighbors import LocalOutlierFactor
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        rows = np.random.default_rng(0).permutation(len(X))[:3000]
        self.model = make_pipeline(StandardScaler(), LocalOutlierFactor(novelty=True)).fit(X[rows])


class Imputer(Model):
    """One of scikit-learn's imputers."""

    def __init__(self, name: str) -> None:
        import sklearn.experimental.enable_iterative_imputer
        import sklearn.impute

        settings = {"random_state": 0} if name == "IterativeImputer" else {}
        self.model = getattr(sklearn.impute, name)(**settings)

    def fit(self, X: Array) -> None:
        """Fit all rows."""
        self.model.fit(X)

    def impute(self, X: Array) -> Array:
        """Rows without gaps."""
        return np.asarray(self.model.transform(X))


class Classifier(Supervised):
    """A classifier that is fitted to all rows."""

    def __init__(self, path: str, **settings: Any) -> None:
        self.model = named(path, **settings)

    def learn(self, piece: Array, y: Array) -> None:
        """Fit all rows."""
        self.model.fit(piece, y)

    def probabilities(self, X: Array) -> Array:
        """Probability of each class."""
        return np.asarray(self.model.predict_proba(X))


class Descent(Classifier):
    """SGDClassifier by `partial_fit`, in batches of 100 rows; it must be told the classes beforehand."""

    def __init__(self) -> None:
        super().__init__("linear_model.SGDClassifier", loss="log_loss", random_state=0)

    def learn(self, piece: Array, y: Array) -> None:
        """Learn in one pass."""
        classes = np.unique(y)
        for start in range(0, len(y), BATCH):
            rows = slice(start, start + BATCH)
            self.model.partial_fit(piece[rows], y[rows], classes=classes)


class Regressor(Supervised):
    """A regression that is fitted to all rows, and gives no interval."""

    def __init__(self, path: str, **settings: Any) -> None:
        self.model = named(path, **settings)

    def learn(self, piece: Array, y: Array) -> None:
        """Fit all rows."""
        self.model.fit(piece, y)

    def predict(self, X: Array) -> tuple[Array, Array, Array]:
        """Mean, without limits of an interval."""
        none = np.full(len(X), np.nan)
        return np.asarray(self.model.predict(X)), none, none


class RegressionDescent(Regressor):
    """SGDRegressor by `partial_fit`, in batches of 100 rows."""

    def __init__(self) -> None:
        super().__init__("linear_model.SGDRegressor", random_state=0)

    def learn(self, piece: Array, y: Array) -> None:
        """Learn in one pass."""
        for start in range(0, len(y), BATCH):
            rows = slice(start, start + BATCH)
            self.model.partial_fit(piece[rows], y[rows])


class Boosting(Supervised):
    """HistGradientBoostingRegressor; two more of them, with the quantile loss, are the limits of the interval."""

    def __init__(self) -> None:
        path = "ensemble.HistGradientBoostingRegressor"
        limits = [named(path, loss="quantile", quantile=quantile, random_state=0) for quantile in (0.05, 0.95)]
        self.model = [named(path, random_state=0), *limits]

    def learn(self, piece: Array, y: Array) -> None:
        """Fit all rows three times."""
        for model in self.model:
            model.fit(piece, y)

    def predict(self, X: Array) -> tuple[Array, Array, Array]:
        """Mean and limits of the 90 % interval."""
        mean, low, high = (np.asarray(model.predict(X)) for model in self.model)
        return mean, low, high


class Ridge(Supervised):
    """BayesianRidge."""

    def learn(self, piece: Array, y: Array) -> None:
        """Fit all rows."""
        self.model = named("linear_model.BayesianRidge").fit(piece, y)

    def predict(self, X: Array) -> tuple[Array, Array, Array]:
        """Mean and limits of the 90 % interval."""
        mean, std = self.model.predict(X, return_std=True)
        return gaussian_interval(mean, std)


def named(path: str, **settings: Any) -> Any:
    """A new estimator of scikit-learn's."""
    module, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(f"sklearn.{module}"), name)(**settings)


def gaussian_interval(mean: Array, std: Array) -> tuple[Array, Array, Array]:
    """Mean and the limits between which nine tenths of a Gaussian lie."""
    # The 95 % quantile of the standard normal distribution: 5 % lie beyond it on either side.
    half = 1.6448536269514722 * std
    return mean, mean - half, mean + half


def best_mixture(X: Array, n_components: int | None = None) -> Any:
    """EM with the number of components of least BIC, unless one is given."""
    from sklearn.mixture import GaussianMixture

    fitted = [GaussianMixture(k, random_state=0).fit(X) for k in ([n_components] if n_components else affordable(X))]
    return min(fitted, key=lambda mixture: mixture.bic(X))


def affordable(X: Array) -> list[int]:
    """Numbers of components that leave five rows for each."""
    return [k for k in GRID if k == 1 or 5 * k <= len(X)]


_BIC = "components by BIC among 1, 2, 4, 8, 16"
MIXTURE = Contender("GaussianMixture", PACKAGE, Mixture, _BIC, batch=True, joint=True)
BAYESIAN = Contender("BayesianGaussianMixture", PACKAGE, BayesianMixture, "16 components", batch=True, joint=True)
PCA_CONTENDER = Contender("IncrementalPCA", PACKAGE, PCA, joint=True)
FOREST = Contender("IsolationForest", PACKAGE, Forest, "fitted anew whenever the rows have doubled", batch=True)
LOF = Contender(
    "LocalOutlierFactor",
    PACKAGE,
    Neighbours,
    "fitted anew whenever the rows have doubled, to 3,000 of them",
    batch=True,
)

RIDGE = Contender("BayesianRidge", PACKAGE, Ridge, batch=True)
ONE_PASS = f"one pass, batches of {BATCH}"


def _classifier(name: str, path: str, settings: str = "defaults", **parameters: Any) -> Contender:
    return Contender(name, PACKAGE, lambda: Classifier(f"{path}.{name}", **parameters), settings, batch=True)


FOREST_CLASSIFIER = _classifier("RandomForestClassifier", "ensemble", random_state=0)
# Its default solver refuses classes with fewer rows than columns; this one came with scikit-learn 1.8.
QDA = _classifier(
    "QuadraticDiscriminantAnalysis",
    "discriminant_analysis",
    'solver="eigen", shrinkage="auto"',
    solver="eigen",
    shrinkage="auto",
)
FOREST_REGRESSOR = Contender(
    "RandomForestRegressor",
    PACKAGE,
    lambda: Regressor("ensemble.RandomForestRegressor", random_state=0),
    batch=True,
)

CONTENDERS = {
    "classification": [
        FOREST_CLASSIFIER,
        _classifier("HistGradientBoostingClassifier", "ensemble", random_state=0),
        QDA,
        Contender("SGDClassifier", PACKAGE, Descent, f'loss="log_loss", {ONE_PASS}, told the classes beforehand'),
    ],
    "regression": [
        FOREST_REGRESSOR,
        Contender(
            "HistGradientBoostingRegressor", PACKAGE, Boosting, 'intervals by two more with loss="quantile"', batch=True
        ),
        RIDGE,
        Contender("SGDRegressor", PACKAGE, RegressionDescent, ONE_PASS),
    ],
    "speed": [
        MIXTURE._replace(make=lambda: Mixture(5), settings="5 components"),
        BAYESIAN._replace(make=lambda: BayesianMixture(5), settings="5 components"),
        PCA_CONTENDER,
        FOREST._replace(settings="defaults"),
    ],
    "density": [MIXTURE, BAYESIAN, PCA_CONTENDER],
    "missing": [
        MIXTURE,
        BAYESIAN,
        PCA_CONTENDER,
        Contender("IterativeImputer", PACKAGE, lambda: Imputer("IterativeImputer"), batch=True),
        Contender("KNNImputer", PACKAGE, lambda: Imputer("KNNImputer"), batch=True),
        Contender("column means", PACKAGE, lambda: Imputer("SimpleImputer"), "SimpleImputer", baseline=True),
    ],
    "conditional": [RIDGE],
    "anomaly": [FOREST, LOF],
    "change": [],
}
