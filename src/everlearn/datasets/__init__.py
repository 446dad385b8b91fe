"""Data to try things on: the seven Weka sets of the FIGMN paper, and MNIST and CIFAR-10 from files on disk.

The seven sets come from the UCI Machine Learning Repository, in the version that the Weka workbench distributes;
the file ATTRIBUTION.md beside the data names their donors. The breast cancer data was obtained from the University
Medical Centre, Institute of Oncology, Ljubljana. Thanks go to M. Zwitter and M. Soklic for providing it.
"""

from everlearn.datasets.cifar10 import load_cifar10
from everlearn.datasets.mnist import fetch_mnist, load_mnist
from everlearn.datasets.weka import (
    NAMES,
    load,
    load_breast_cancer,
    load_diabetes,
    load_glass,
    load_ionosphere,
    load_iris,
    load_labor,
    load_soybean,
)

__all__ = [
    "NAMES",
    "fetch_mnist",
    "load",
    "load_breast_cancer",
    "load_cifar10",
    "load_diabetes",
    "load_glass",
    "load_ionosphere",
    "load_iris",
    "load_labor",
    "load_mnist",
    "load_soybean",
]
