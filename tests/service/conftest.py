"""A service in the test's own process, and one in a process that can be killed."""

import pytest

from everlearn.service.app import create_app
from everlearn.service.settings import Settings
from service_tools import Service, TestClient


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


@pytest.fixture(scope="module")
def module_client(tmp_path_factory):
    """A service that the tests of a file share: they ask, and change nothing."""
    app = create_app(tmp_path_factory.mktemp("state") / "run.db", Settings())
    with TestClient(app, base_url="http://localhost") as client:
        yield client


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
