"""Random numbers that are functions of a row's number."""

import numpy as np
from scipy.stats import kstest

from everlearn.linalg.uniforms import normal_numbers, uniform


def splitmix64(seed, number):
    """Steele, Lea and Flood (2014), in Python's own integers."""
    mask = 2**64 - 1
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_numbers_are_those_of_splitmix64():
    for seed, number in ((0, 0), (7, 123), (2**63, 10**12)):
        with np.errstate(over="ignore"):
            found = uniform(np.uint64(seed), number)
        assert found == ((splitmix64(seed, number) >> 11) + 0.5) / 2**53


def test_numbers_are_uniform_and_normal():
    with np.errstate(over="ignore"):
        assert kstest([uniform(np.uint64(3), i) for i in range(2000)], "uniform").pvalue > 0.01
        out = np.empty(2000)
        normal_numbers(np.uint64(3), 5.0, out)
    assert kstest(out, "norm").pvalue > 0.01
