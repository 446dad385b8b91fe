"""The one wrapper around numba, and its flags."""

from __future__ import annotations

import ast
import ctypes
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba
from numba import types

Function = TypeVar("Function", bound=Callable[..., Any])

# Reductions may be reordered and fused, so that they vectorise; NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}


@functools.cache
def _sources(path: Path) -> frozenset[Path]:
    """A kernel file and the files of its folder that it imports, directly or not."""
    found = {path}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module.rpartition(".")[2], *(alias.name for alias in node.names)]
            imported = {path.with_name(f"{name}.py") for name in names} - {path}
            found |= {source for file in imported if file.exists() for source in _sources(file)}
    return frozenset(found)


@functools.cache
def _source_stamp(path: Path) -> bytes:
    """Digest of all that a kernel in `path` is compiled from."""
    digest = hashlib.sha256()
    for source in sorted(_sources(path)):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.digest()


def kernel(function: Function) -> Function:
    """Compile `function` with numba: no interpreter lock, cached on disk where a folder is writable.

    numba stamps a cached function with its own source file only, so that a kernel whose helper
    lives in another file would go stale unseen. Here the stamp covers the files that it imports, too.
    Without a writable folder (neither the package's nor the user's) the kernel is compiled in
    memory.
    """
    return _compiled(function)


def inner(function: Function) -> Function:
    """Compile a function of a kernel's inner loop, which neither makes nor returns an array.

    As `kernel`, but numba keeps no count of the references to the arrays that pass through, which
    costs more than the arithmetic when they are small.
    """
    return _compiled(function, _nrt=False)


def _compiled(function: Function, **options: Any) -> Function:
    compiled = numba.njit(nogil=True, error_model="numpy", fastmath=FASTMATH, **options)(function)
    if numba.config.DISABLE_JIT:
        return compiled  # type: ignore[no-any-return]
    try:
        compiled.enable_caching()
    except RuntimeError:
        return compiled  # type: ignore[no-any-return]
    compiled._cache._cache_file._source_stamp = _source_stamp(Path(function.__code__.co_filename))
    return compiled  # type: ignore[no-any-return]


def external(name: str, address: int, arguments: int) -> Any:
    """Give kernels a compiled function that takes so many addresses and returns nothing.

    Kernels find it by its name, so that they can be cached; its address is another one in each process.
    """
    if numba.config.DISABLE_JIT:
        return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)
    llvmlite.binding.add_symbol(name, address)
    return types.ExternalFunction(name, types.void(*[types.intp] * arguments))
