"""Modules that others import and the program does not need, imported when something of them is used."""

from __future__ import annotations

import importlib
import sys
import threading
import types
from typing import Any

_lock = threading.RLock()


class _Deferred(types.ModuleType):
    """Stands for a module until something of it is used; then the module takes its place."""

    def __getattr__(self, name: str) -> Any:
        # The import system asks for `__path__` before it imports a submodule. Whoever walks through all modules asks
        # for other names of this kind, and needs nothing of this one.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        # Taken out first: the import system would otherwise find the stand-in and give it back.
        with _lock:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def defer(name: str) -> None:
    """Let imports of a module wait until something of it is used, unless it has been imported."""
    sys.modules.setdefault(name, _Deferred(name))
