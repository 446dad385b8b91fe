"""The one wrapper around numba, and its flags.

Functions that kernels call are compiled as parts of them only, by subclasses of numba's compiler: without these every
inner function is optimised and turned into machine code once by itself and once in each kernel that calls it. The
first `FIGMN().fit` and `score_samples` on a machine take 17 s of CPU with them and 34 s without (one core, numba 0.68;
set `TRIED = (0, 0)` to measure it again).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba
from numba import _dynfunc, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys

Function = TypeVar("Function", bound=Callable[..., Any])

# Reductions may be reordered and fused, so that they vectorise; NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}
FLAGS = {"nopython": True, "nogil": True, "error_model": "numpy", "fastmath": FASTMATH, "no_cfunc_wrapper": True}

# Parts reach into numba: with a newer one every kernel is compiled in full, until it has been tried.
TRIED = (0, 68)

# An import at the left margin: module, and what is imported from it. Found by a pattern, as Python's parser takes 0.1 s
# for the 40 files of a mixture's kernels, at every start of a program.
_IMPORT, _NAME = re.compile(r"^from ([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE), re.compile(r"\w+")


@functools.cache
def _sources(path: Path) -> frozenset[Path]:
    """A kernel file and the compiled files of its package that it imports, directly or not.

    A model's kernels take the tuples of its `state.py` without importing it: they are compiled for the order of the
    fields, which is not part of the types that numba looks a compiled function up by.
    """
    found = {path}
    if path.parent.name == "kernels" and (path.parent.parent / "state.py").is_file():
        found.add(path.parent.parent / "state.py")
    for module, names in _IMPORT.findall(path.read_text()):
        own = _file_of(module, path)
        # What is imported from a file are its functions; from a folder, other files.
        files = [own] if own else [_file_of(f"{module}.{name}", path) for name in _NAME.findall(names)]
        for imported in files:
            if imported is not None and imported != path:
                found |= _sources(imported)
    return frozenset(found)


def _file_of(module: str, importer: Path) -> Path | None:
    """File of a module in the importer's own package; None for modules from elsewhere."""
    package, *rest = module.split(".")
    root = next((folder for folder in importer.parents if folder.name == package), None)
    file = None if root is None else root.joinpath(*rest).with_suffix(".py")
    return file if file is not None and file.is_file() else None


@functools.cache
def _source_stamp(path: Path) -> bytes:
    """Digest of all that a kernel in `path` is compiled from."""
    # The files, and not what they mean, are compared: a changed comment compiles
    # again, a changed formula is never missed.
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

    A kernel that another one calls becomes a part of it: optimised there, once, with all that it calls.
    """
    # Said outright: a kernel that is called by an `inner` function would otherwise be compiled without counts as well.
    return _compiled(function, _nrt=True)


def inner(function: Function) -> Function:
    """Compile a function of a kernel's inner loop, which neither makes nor returns an array.

    As `kernel`, but numba keeps no count of the references to the arrays that pass through, which
    costs more than the arithmetic when they are small.
    """
    # Nor does it sort: numba's sort makes an array, and is compiled as the first function that calls it. Here that
    # would fail, unless a kernel has sorted before.
    return _compiled(function, _nrt=False)


def inlined(function: Function) -> Function:
    """Compile a function that becomes a part of every place that calls it, as `inner`.

    A call hands over the address, shape and strides of every array of its tuples: 100 ns for the components of a
    mixture, as much as the work on a row of eight columns.
    """
    return _compiled(function, _nrt=False, forceinline=True)


def loop(function: Function) -> Function:
    """Compile a function around a loop that must vectorise, as `inner`, but optimised by itself.

    As a part of a kernel with loops of its own around it, it may be made into one that does not.
    """
    return _compiled(function, CPUDispatcher, _nrt=False)


class _PartCode(JITCodeLibrary):
    """Code that other kernels link in: neither optimised nor made into machine code by itself."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


class _PartCompiler(Compiler):
    """Compiles what a kernel calls, up to the code that the kernel links in."""

    def compile_extra(self, function: Function) -> CompileResult:
        """Compile without an entry for Python; what stands in its place is known to the linker only."""
        state = self.state
        state.flags.no_compile = True
        state.library = _PartCode(state.targetctx.codegen(), function.__qualname__)
        part = super().compile_extra(function)
        name = _dynfunc.make_function(
            part.fndesc.lookup_module(), function.__name__, "", 0, part.environment, (part.library,)
        )
        state.targetctx.insert_user_function(name, part.fndesc, [part.library])
        return part._replace(entry_point=name)


class _KernelCompiler(Compiler):
    """Compiles what Python calls."""

    def compile_extra(self, function: Function) -> CompileResult:
        """Compile, and tell the code where its parts find their constants."""
        whole = super().compile_extra(function)
        for environment in whole._find_referenced_environments():
            whole.library.codegen.set_env(environment.env_name, environment)
        return whole


class _Kernel(CPUDispatcher):
    """A compiled function, as Python calls it; other kernels see its part."""

    def __init__(
        self,
        py_func: Function,
        locals: dict[str, Any] | None = None,
        targetoptions: dict[str, Any] | None = None,
        pipeline_class: type[Compiler] = _KernelCompiler,
    ) -> None:
        super().__init__(py_func, locals or {}, targetoptions, pipeline_class)

    def compile(self, sig: Any) -> Any:
        """Compile for a signature, or load what was compiled for it, while no garbage is collected."""
        with _no_collection():
            return super().compile(sig)

    @functools.cached_property
    def part(self) -> CPUDispatcher:
        """What kernels that call this one link in."""
        options = {**self.targetoptions, "no_cpython_wrapper": True}
        return CPUDispatcher(self.py_func, self.locals, options, _PartCompiler)

    @property
    def _numba_type_(self) -> types.Type:
        return self.part._numba_type_


def _compiled(function: Function, dispatcher: type[CPUDispatcher] | None = None, **options: Any) -> Function:
    if numba.config.DISABLE_JIT:
        return function
    if dispatcher is None:
        dispatcher = _Kernel if numba.version_info[:2] <= TRIED else CPUDispatcher
    compiled = dispatcher(function, {}, {**FLAGS, **options})
    try:
        compiled.enable_caching()
    except RuntimeError:
        return compiled  # type: ignore[no-any-return]
    cache_file = compiled._cache._cache_file
    cache_file._source_stamp = _source_stamp(Path(function.__code__.co_filename))
    cache_file._load_index = functools.partial(_load_index, cache_file._load_index)
    if dispatcher is _Kernel:
        compiled._cache.load_overload = functools.partial(_load_overload, compiled._cache)
    return compiled  # type: ignore[no-any-return]


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Let the garbage collector wait.

    A compiler makes millions of objects that live until it is done, and the collector walks through them, and through
    all that was imported, again and again: 0.4 to 2.5 of 29 s of the program's first run (three pairs of runs of
    `everlearn learn --demo` with an empty cache, numba 0.68).
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _load_overload(cache: Any, sig: Any, target_context: Any) -> CompileResult | None:
    """Machine code of a kernel from its cache, or None.

    numba's own `load_overload` first imports and registers all that it can compile, which machine code does not need
    and a compiler does by itself: 0.2 s of a program that finds its 17 kernels cached. Of that the code needs
    the counting of references.
    """
    rtsys.initialize(target_context)
    found: CompileResult | None = None
    with cache._guard_against_spurious_io_errors():
        found = cache._load_overload(sig, target_context)
    return found


def _load_index(load: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
    """The cached functions of a kernel; none where the index cannot be read.

    It names the classes of the tuples that the kernel took. numba reads it before it compares the stamp, and would fail
    for an index of an earlier version in which such a class had another name.
    """
    # An empty index only costs compiling again.
    try:
        return load()
    except (AttributeError, ImportError, TypeError, ValueError, EOFError):
        return {}


def external(name: str, address: int, arguments: int) -> Any:
    """Give kernels a compiled function that takes so many addresses and returns nothing.

    Kernels find it by its name, so that they can be cached; its address is another one in each process.
    """
    if numba.config.DISABLE_JIT:
        return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)
    llvmlite.binding.add_symbol(name, address)
    return types.ExternalFunction(name, types.void(*[types.intp] * arguments))
