"""What the tests of the service share."""

import time

import numpy as np


def as_json(X):
    """Rows as lists, with None for NaN."""
    return [[None if value != value else value for value in row] for row in np.asarray(X).tolist()]


def learned(client, name, seconds=30.0):
    """The summary of a model once its inbox is empty."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        summary = client.get(f"/models/{name}").json()
        if summary["waiting"] == 0:
            return summary
        time.sleep(0.02)
    raise AssertionError(f"rows of {name} still wait after {seconds} s: {summary}")
