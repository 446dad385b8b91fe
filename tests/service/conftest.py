"""A service in the test's own process, and one in a process that can be killed."""

import os
import subprocess
import sys
import time
import warnings

import httpx
import pytest

from everlearn.service.app import create_app
from everlearn.service.settings import Settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from starlette.testclient import TestClient


@pytest.fixture
def state(tmp_path):
    return tmp_path / "run.db"


@pytest.fixture
def open_client(state):
    """Start services on the same state file, each with its own settings."""
    opened = []

    def start(**settings):
        client = TestClient(create_app(state, Settings(**settings)), base_url="http://localhost")
        opened.append(client.__enter__())
        return client

    yield start
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(open_client):
    return open_client()


class Service:
    """`everlearn serve` as a process of its own."""

    def __init__(self, state, *options):
        command = [sys.executable, "-m", "everlearn.cli", "serve", "--state", str(state), "--port", "0", *options]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
        line = self.process.stdout.readline()
        assert "http://" in line, f"the service did not start: {line!r}"
        self.url = line.split()[2].rstrip("/")
        self._wait()

    def _wait(self, seconds=60.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if httpx.get(f"{self.url}/health", timeout=2.0).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError("the service does not answer")

    def client(self):
        return httpx.Client(base_url=self.url, timeout=30.0)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        self.process.terminate()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture
def start_service(state):
    services = []

    def start(*options):
        services.append(Service(state, *options))
        return services[-1]

    yield start
    for service in services:
        if service.process.poll() is None:
            service.kill()
