"""The one wrapper around numba, and its flags."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

# Reductions may be reordered and fused, so that they vectorise; NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}


def _source_stamp() -> bytes:
    """Digest of every file in this folder: what a compiled kernel may depend on."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


_STAMP = _source_stamp()


def kernel(function: Function) -> Function:
    """Compile `function` with numba: no interpreter lock, cached on disk where a folder is writable.

    numba stamps a cached function with its own source file only, so that a kernel whose helper
    lives in another file would go stale unseen. Here the stamp is the digest of all kernel files.
    Without a writable folder (neither the package's nor the user's) the kernel is compiled in
    memory.
    """
    compiled = numba.njit(nogil=True, error_model="numpy", fastmath=FASTMATH)(function)
    if numba.config.DISABLE_JIT:
        return compiled  # type: ignore[no-any-return]
    try:
        compiled.enable_caching()
    except RuntimeError:
        return compiled  # type: ignore[no-any-return]
    compiled._cache._cache_file._source_stamp = _STAMP
    return compiled  # type: ignore[no-any-return]
