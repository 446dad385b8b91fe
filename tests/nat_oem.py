"""The data and protocol of the NAT-oEM paper (section IV), with the noise of the table that the tests compare with."""

from everlearn.experiments.papers.nat_oem.protocol import SIGMA, TEST, TRAIN, D, Data, Q, make, shuffled

__all__ = ["SIGMA", "TEST", "TRAIN", "D", "Data", "Q", "make", "shuffled"]
