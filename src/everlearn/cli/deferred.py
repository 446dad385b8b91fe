"""Modules that others import and the program does not need, imported when something of them is used."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import types
from typing import Any

_lock = threading.RLock()


class _Deferred(types.ModuleType):
    """Stands for a module until something of it is used; then the module takes its place."""

    def __getattr__(self, name: str) -> Any:
        # The import system asks for `__path__` before it imports a submodule, and libraries ask each other for their
        # version. Whoever walks through all modules asks for other names of this kind, and needs nothing of this one.
        if name.startswith("__") and name not in ("__path__", "__version__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        # Taken out first: the import system would otherwise find the stand-in and give it back.
        with _lock:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def defer(name: str) -> None:
    """Let imports of a module wait until something of it is used, unless it has been imported, or is not installed."""
    package, _, child = name.rpartition(".")
    # Of a submodule the package is asked for, which would be imported to find the submodule itself.
    found = name in sys.modules or importlib.util.find_spec(name.partition(".")[0])
    if name in sys.modules or found is None:
        return
    module = sys.modules[name] = _Deferred(name)
    # `find_spec` by others takes a module without one for a mistake.
    module.__spec__ = None if package else found  # type: ignore[assignment]
    # An import statement ends by asking a package for its submodule.
    if package in sys.modules:
        setattr(sys.modules[package], child, module)


def import_scikit_learn() -> None:
    """Import scikit-learn without pandas, which it imports to know its version: half of the CPU time of both."""
    defer("pandas")
    importlib.import_module("sklearn.base")
    # Libraries look here to see whether a table can be one of pandas': with a stand-in they would import it to ask.
    if isinstance(sys.modules.get("pandas"), _Deferred):
        del sys.modules["pandas"]
