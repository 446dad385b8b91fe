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


class _Undocumented(dict[str, list[str]]):
    """Stands for what SciPy makes of a docstring, to which it adds a note: the docstring as it was."""

    def __init__(self, function: Any) -> None:
        super().__init__(Notes=[])
        self._text = function.__doc__ or ""

    def __str__(self) -> str:
        return f"signature\n{self._text}"


def _import_special_functions() -> None:
    """Import SciPy's special functions without the notes on other array libraries that it adds to their docstrings.

    It parses and formats them all at every import: 0.1 s of CPU, nearly all of the time that this module takes.
    """
    try:
        where: Any = importlib.import_module("scipy._lib._array_api")
        parser = where.FunctionDoc
    except (ImportError, AttributeError):  # another version of SciPy
        return
    where.FunctionDoc = _Undocumented
    try:
        importlib.import_module("scipy.special")
    finally:
        where.FunctionDoc = parser


def import_scikit_learn() -> None:
    """Import scikit-learn without what the program does not need of it.

    It imports pandas to know its version, which is half of the CPU time of both, and narwhals, with which it reads
    tables of other libraries: 0.08 s. joblib and numba import psutil and yaml where they are installed: 0.04 s.
    """
    for name in ("pandas", "narwhals", "narwhals.stable", "narwhals.stable.v2", "psutil", "yaml"):
        defer(name)
    _import_special_functions()
    importlib.import_module("sklearn.base")
    # Libraries look here to see whether a table can be one of pandas': with a stand-in they would import it to ask.
    if isinstance(sys.modules.get("pandas"), _Deferred):
        del sys.modules["pandas"]
