"""Data sets of the quality benchmark: those that constants were chosen on, and those kept aside.

A set is (X, y), with y the order of the sorted stream: classes, or quarters of the first column.
"""

import csv
import gzip
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn import datasets as sk
from sklearn.decomposition import PCA

from everlearn import datasets

Set = tuple[np.ndarray, np.ndarray]


def data_folder():
    """Folder of the public data that does not come with the package."""
    return Path(os.environ.get("EVERLEARN_DATA", Path(__file__).parents[2] / "shared" / "data"))


def by_quarter(X):
    return X, np.searchsorted(np.quantile(X[:, 0], [0.25, 0.5, 0.75]), X[:, 0])


def weka(name):
    bunch = datasets.load(name)
    return np.asarray(bunch.data, dtype=float), np.asarray(bunch.target)


def scikit(name):
    bunch = getattr(sk, f"load_{name}")()
    return bunch.data, bunch.target


def digits(axes):
    bunch = sk.load_digits()
    return PCA(axes, random_state=0).fit_transform(bunch.data), bunch.target


def wall_robot():
    with (data_folder() / "streams/wall_robot/sensor_readings_24.csv").open() as file:
        _, *rows = csv.reader(file)
    return np.array([row[:-1] for row in rows], dtype=float), np.array([row[-1] for row in rows])


def diabetes_progression():
    bunch = sk.load_diabetes(scaled=False)
    return by_quarter(np.column_stack([bunch.data, bunch.target]))


def series(path):
    return np.genfromtxt(data_folder() / "streams/nab" / f"{path}.csv", delimiter=",", skip_header=1)[:, 1]


def lags(path, width=4, step=2):
    return by_quarter(np.lib.stride_tricks.sliding_window_view(series(path), width)[::step].copy())


def mnist_axes(axes, n):
    folder = data_folder() / "mnist"
    with gzip.open(folder / "t10k-images-idx3-ubyte.gz") as file:
        _, count, height, width = struct.unpack(">4i", file.read(16))
        X = np.frombuffer(file.read(), np.uint8).reshape(count, height * width)
    with gzip.open(folder / "t10k-labels-idx1-ubyte.gz") as file:
        y = np.frombuffer(file.read()[8:], np.uint8)
    return PCA(axes, random_state=0).fit_transform(X[:n].astype(float)), y[:n]


def gaussians(K, D, n, spread, seed, width=0.6, shares=None):
    """K Gaussians with normal centres and square normal matrices as factors."""
    rng = np.random.default_rng(seed)
    centres, factors = spread * rng.normal(size=(K, D)), width * rng.normal(size=(K, D, D))
    p = np.ones(K) if shares is None else np.asarray(shares, dtype=float)
    label = rng.choice(K, size=n, p=p / p.sum())
    noise = rng.normal(size=(n, D))
    X = centres[label]
    for k in range(K):
        X[label == k] += noise[label == k] @ factors[k].T
    return X, label


def friedman():
    X, y = sk.make_friedman1(1200, n_features=6, random_state=0)
    return by_quarter(np.column_stack([X, y]))


def spirals(n=3000):
    rng = np.random.default_rng(8)
    angle, arm = np.pi * rng.uniform(0.5, 3.5, n), rng.integers(2, size=n)
    turn = angle + np.pi * arm
    return angle[:, None] * np.column_stack([np.cos(turn), np.sin(turn)]) + 0.3 * rng.normal(size=(n, 2)), arm


def heavy_tails(n=3000):
    return by_quarter(np.random.default_rng(21).standard_t(2.5, size=(n, 4)))


def lognormal(n=3000):
    mixing = np.array([[1.0, 0.5, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 0.5]])
    return by_quarter(np.exp(np.random.default_rng(22).normal(size=(n, 3)) @ mixing))


def discrete(n=2500):
    rng = np.random.default_rng(23)
    k = rng.integers(3, size=n)
    columns = [rng.poisson(3 + 2 * k), rng.integers(2, size=n), k + 0.5 * rng.normal(size=n), rng.normal(size=n)]
    return np.column_stack(columns).astype(float), k


def constant_column():
    X, y = gaussians(3, 3, 2000, 2.0, 9)
    return np.column_stack([X, 5.0 + 1e-9 * np.random.default_rng(24).normal(size=2000)]), y


def anisotropic():
    X, y = gaussians(4, 6, 3000, 2.0, 10)
    return X @ (np.diag([1, 0.3, 0.1, 0.03, 0.01, 3]) @ np.random.default_rng(25).normal(size=(6, 6))), y


def one_column(n=5000):
    rng = np.random.default_rng(26)
    k = rng.choice(4, n, p=[0.5, 0.3, 0.15, 0.05])
    return (np.array([0, 2, 7, 7.5])[k] + np.array([1, 0.2, 0.5, 0.05])[k] * rng.normal(size=n))[:, None], k


def cube(n=2000):
    return by_quarter(np.random.default_rng(27).uniform(size=(n, 5)))


def three_rings(n=20000):
    rng = np.random.default_rng(28)
    angle, k = rng.uniform(0, 2 * np.pi, n), rng.integers(3, size=n)
    height = 0.3 * k + 0.3 * np.sin(3 * angle)
    X = np.column_stack([(1 + k) * np.cos(angle), (1 + k) * np.sin(angle), height])
    return X + 0.08 * rng.normal(size=(n, 3)), k


NAB = ("ambient_temperature", "ec2_request_latency", "machine_temperature")

DEVELOPMENT: dict[str, Callable[[], Set]] = {
    **{name: (lambda name=name: weka(name)) for name in ("diabetes", "glass", "ionosphere", "iris")},
    "wine": lambda: scikit("wine"),
    "breast cancer": lambda: scikit("breast_cancer"),
    "digits, 16 axes": lambda: digits(16),
    "wall robot": wall_robot,
    "diabetes progression": diabetes_progression,
    **{f"{name}, lags": (lambda name=name: lags(f"{name}_system_failure")) for name in NAB},
    "taxi, lags": lambda: lags("nyc_taxi"),
    "cpu": lambda: by_quarter(series("cpu_utilization_asg_misconfiguration")[::4, None].copy()),
    "seven Gaussians": lambda: gaussians(7, 5, 1500, 2.0, 0),
    "Swiss roll": lambda: by_quarter(sk.make_swiss_roll(1500, noise=0.3, random_state=0)[0]),
    "moons": lambda: sk.make_moons(1000, noise=0.1, random_state=0),
    "Friedman": friedman,
    "3 Gaussians, D=2": lambda: gaussians(3, 2, 1500, 2.0, 1),
    "12 Gaussians, D=3": lambda: gaussians(12, 3, 3000, 2.5, 2),
    "5 Gaussians, D=8": lambda: gaussians(5, 8, 4000, 1.5, 3, 0.4),
    "20 Gaussians, D=8": lambda: gaussians(20, 8, 20000, 2.0, 4, 0.4),
    "4 Gaussians, D=30": lambda: gaussians(4, 30, 3000, 0.7, 5, 0.2),
    "6 overlapping, D=4": lambda: gaussians(6, 4, 3000, 0.7, 6, 0.5),
    "1000:100:1, D=4": lambda: gaussians(3, 4, 6000, 3.0, 7, 0.5, [1000, 100, 1]),
    "rings": lambda: sk.make_circles(3000, noise=0.05, factor=0.5, random_state=0),
    "spirals": spirals,
    "heavy tails": heavy_tails,
    "lognormal": lognormal,
    "discrete columns": discrete,
    "constant column": constant_column,
    "anisotropic": anisotropic,
    "one column": one_column,
    "uniform cube": cube,
    "8 Gaussians, D=10": lambda: gaussians(8, 10, 30000, 1.2, 11, 0.4),
    "three rings, D=3": three_rings,
}

# Nothing was chosen on these: they are run when the constants are fixed.
KEPT_ASIDE: dict[str, Callable[[], Set]] = {
    "MNIST, 12 axes": lambda: mnist_axes(12, 5000),
    "digits, 30 axes": lambda: digits(30),
    "S-curve": lambda: by_quarter(sk.make_s_curve(2000, noise=0.05, random_state=3)[0]),
    "blobs": lambda: sk.make_blobs(
        3000, 6, centers=9, cluster_std=np.linspace(0.3, 3.0, 9), random_state=5, return_centers=False
    ),
    "classes": lambda: sk.make_classification(
        4000, 12, n_informative=8, n_redundant=2, n_classes=4, n_clusters_per_class=2, random_state=7
    ),
    "Friedman 3": lambda: by_quarter(np.column_stack(sk.make_friedman3(2000, noise=0.1, random_state=2))),
    "travel time, lags": lambda: lags("realTraffic/TravelTime_451", 5, 1),
    "occupancy, lags": lambda: lags("realTraffic/occupancy_6005", 3, 1),
    "key hold, lags": lambda: lags("rogue_agent_key_hold", 3, 1),
    "cloud cpu, lags": lambda: lags("realAWSCloudwatch/ec2_cpu_utilization_5f5533", 6, 1),
}
