"""The built site, where EVERLEARN_SITE names its folder: `make test-site` does, after `make docs`."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def site():
    folder = os.environ.get("EVERLEARN_SITE")
    if not folder:
        pytest.skip("no site to look at: make docs, then make test-site")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def pages(site):
    found = sorted(site.rglob("*.html"))
    assert len(found) > 50
    return found
