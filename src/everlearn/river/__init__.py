"""The models as river learners; needs the extra `everlearn[river]`."""

from everlearn.river.detector import StreamAnomalyDetector
from everlearn.river.drift import ChangeDetector
from everlearn.river.supervised import Classifier, Regressor
from everlearn.river.transformers import Imputer, Transformer
from everlearn.river.unsupervised import AnomalyDetector, Clusterer, Density

__all__ = [
    "AnomalyDetector",
    "ChangeDetector",
    "Classifier",
    "Clusterer",
    "Density",
    "Imputer",
    "Regressor",
    "StreamAnomalyDetector",
    "Transformer",
]
