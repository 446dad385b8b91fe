"""The models as river learners; needs the extra `everlearn[river]`."""

from everlearn.estimators.river.supervised import Classifier, Regressor
from everlearn.estimators.river.transformers import Imputer, Transformer
from everlearn.estimators.river.unsupervised import AnomalyDetector, Clusterer, Density

__all__ = ["AnomalyDetector", "Classifier", "Clusterer", "Density", "Imputer", "Regressor", "Transformer"]
