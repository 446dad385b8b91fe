"""The tools that attack, as modules."""

import importlib
import sys

import pytest


@pytest.fixture(scope="session")
def tool(repository):
    """Import a tool by name."""

    def load(name):
        folder = str(repository / "tools")
        if folder not in sys.path:
            sys.path.insert(0, folder)
        return importlib.import_module(name)

    return load
