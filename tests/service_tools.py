"""What the tests of the service share."""

import os
import subprocess
import sys
import time
import warnings

import httpx
import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a newer httpx is recommended
    from starlette.testclient import TestClient

__all__ = ["Service", "TestClient", "as_json", "http_client", "learned"]


def http_client(**options):
    """A client for plain HTTP: reading certificates for each would cost more than its requests."""
    return httpx.Client(timeout=120.0, verify=False, **options)


def as_json(X):
    """Rows as lists, with None for NaN."""
    return [[None if value != value else value for value in row] for row in np.asarray(X).tolist()]


def learned(client, name, seconds=240.0):
    """The summary of a model once its inbox is empty."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        summary = client.get(f"/models/{name}").json()
        if summary["waiting"] == 0:
            return summary
        time.sleep(0.02)
    raise AssertionError(f"rows of {name} still wait after {seconds} s: {summary}")


class Service:
    """`everlearn serve` as a process of its own."""

    def __init__(self, state, *options):
        command = [sys.executable, "-m", "everlearn", "serve", "--state", str(state), "--port", "0", *options]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
        line = self.process.stdout.readline()
        assert "http://" in line, f"the service did not start: {line!r}"
        self.url = line.split()[2].rstrip("/")
        self._wait()

    def _wait(self, seconds=240.0):
        end = time.monotonic() + seconds
        with self.client() as client:
            while time.monotonic() < end:
                try:
                    if client.get("/health", timeout=2.0).status_code == 200:
                        return
                except httpx.TransportError:
                    time.sleep(0.05)
        raise AssertionError("the service does not answer")

    def client(self):
        return http_client(base_url=self.url)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()
