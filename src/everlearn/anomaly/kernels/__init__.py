"""Compiled parts of the anomaly detector: arrays and NamedTuples in and out."""
