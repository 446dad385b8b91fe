"""The numba wrapper: fresh caches, no cache at all, and the JIT switched off."""

import ast
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numba
import pytest

import everlearn
from everlearn.linalg import compile as jit

PACKAGE = Path(everlearn.__file__).parent


@pytest.fixture
def package(tmp_path):
    """A package with the wrapper, a helper and a kernel that calls it, in files of their own."""
    folder = tmp_path / "toy" / "kernels"
    folder.mkdir(parents=True)
    for path in (folder.parent / "__init__.py", folder / "__init__.py"):
        path.write_text("")
    shutil.copy(PACKAGE / "linalg" / "compile.py", folder / "compile.py")
    write_helper(folder, "x + 1")
    (folder / "outer.py").write_text(
        textwrap.dedent(
            """
            from toy.kernels.helper import helper
            from toy.kernels.compile import kernel

            @kernel
            def outer(x):
                return helper(x)
            """
        )
    )
    return folder


def write_helper(folder, expression):
    (folder / "helper.py").write_text(
        f"from toy.kernels.compile import kernel\n\n@kernel\ndef helper(x):\n    return {expression}\n"
    )


def run(folder, **environment):
    """Result of outer(1) in a fresh process, and how often its cache was hit."""
    code = (
        "from toy.kernels.outer import outer\n"
        "print(outer(1), sum(getattr(outer, 'stats', None).cache_hits.values()) if hasattr(outer, 'stats') else -1)"
    )
    value, hits = output(folder, code, **environment).split()
    return int(value), int(hits)


def output(folder, code, **environment):
    """What a fresh process prints."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder.parents[1],
        env={**plain, "PYTHONPATH": str(folder.parents[1]), **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.slow
def test_a_changed_helper_in_another_file_is_not_served_from_the_cache(package):
    assert run(package) == (2, 0)
    assert run(package) == (2, 1)
    write_helper(package, "x + 10")
    assert run(package) == (11, 0)


def imports_by_parser(path, seen):
    """Twin of `_sources`: Python's own parser says what a file imports."""
    if path in seen:
        return
    seen.add(path)
    if path.parent.name == "kernels" and (path.parent.parent / "state.py").is_file():
        seen.add(path.parent.parent / "state.py")
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("everlearn."):
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                file = PACKAGE.parent.joinpath(*name.split(".")).with_suffix(".py")
                if file.is_file():
                    imports_by_parser(file, seen)


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.glob("*/kernels/*.py")), ids=lambda path: f"{path.parts[-3]}-{path.stem}"
)
def test_a_kernel_is_compiled_again_when_a_file_that_it_imports_has_changed(path):
    expected = set()
    imports_by_parser(path, expected)
    assert jit._sources(path) == expected


def test_without_a_writable_folder_kernels_are_compiled_in_memory(monkeypatch):
    if numba.config.DISABLE_JIT:
        pytest.skip("the JIT is off: there is no cache")

    def refuse(self):
        raise PermissionError("read-only")

    from numba.core import caching

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)

    def plus_two(x):
        return x + 2

    plus_two.__code__ = plus_two.__code__.replace(co_filename=str(PACKAGE / "linalg" / "dense.py"))
    assert jit.kernel(plus_two)(1) == 3


def test_the_jit_can_be_switched_off(package):
    assert run(package, NUMBA_DISABLE_JIT="1") == (2, -1)


# -- parts -----------------------------------------------------------------------------------------


def test_what_a_kernel_calls_is_compiled_as_a_part_and_python_can_call_it_all_the_same(package):
    code = (
        "from toy.kernels.outer import helper, outer\n"
        "print(outer(1), len(helper.part.overloads), len(helper.overloads))\n"
        "print(helper(1), helper(1.5), len(helper.overloads))\n"
        "print(outer(2.5), outer(1))"
    )
    assert output(package, code) == "2 1 0\n2 2.5 2\n3.5 2\n"
    assert output(package, code) == "2 0 0\n2 2.5 2\n3.5 2\n", "parts lie in the cached kernel"


@pytest.mark.slow
def test_a_part_finds_its_constants_fresh_and_from_the_cache(package):
    (package / "helper.py").write_text(
        "from toy.kernels.compile import kernel\n\n@kernel\ndef helper(x):\n    print('part', x)\n"
        "    if x < 0:\n        raise ValueError('below zero:', x)\n    return x + 1\n"
    )
    code = (
        "from toy.kernels.outer import outer\n"
        "print(outer(1))\n"
        "try:\n    outer(-1)\nexcept ValueError as error:\n    print(error.args)"
    )
    for _ in ("fresh", "cached"):
        assert output(package, code) == "part 1\n2\npart -1\n('below zero:', -1)\n"


def test_a_kernel_can_be_sent_to_another_process(package):
    code = (
        "import pickle\n"
        "from toy.kernels.outer import outer\n"
        "again = pickle.loads(pickle.dumps(outer))\n"
        "print(again(1), type(again) is type(outer))"
    )
    assert output(package, code) == "2 True\n"


@pytest.mark.slow
def test_with_a_numba_that_was_not_tried_kernels_are_compiled_in_full(package):
    code = (
        "import numba\n"
        "numba.version_info = numba.version_info._replace(major=9)\n"
        "from toy.kernels.outer import helper, outer\n"
        "print(outer(1), len(helper.overloads), hasattr(helper, 'part'))"
    )
    assert output(package, code) == "2 1 False\n"


ARRAYS = """
import gc, sys
import numpy as np
from toy.kernels.compile import kernel

@kernel
def doubled(x):
    out = np.zeros(len(x))
    for i in range(len(x)):
        out[i] = 2.0 * x[i]
    return out
"""


@pytest.mark.slow
def test_a_cached_kernel_that_allocates_runs_without_the_compiler_and_another_is_compiled_after_it(package):
    """Loading machine code imports nothing that only compiling needs; what it calls of the runtime is there."""
    (package / "arrays.py").write_text(ARRAYS)
    code = (
        "from toy.kernels.arrays import *\n"
        "print(*doubled(np.ones(3)), *doubled.stats.cache_hits.values(), 'numba.typed.typeddict' in sys.modules)\n"
        "print(*doubled(np.ones(3, dtype=np.float32)))"
    )
    assert output(package, code) == "2.0 2.0 2.0 True\n2.0 2.0 2.0\n"
    assert output(package, code) == "2.0 2.0 2.0 1 False\n2.0 2.0 2.0\n"


@pytest.mark.slow
@pytest.mark.parametrize("before", ["enable", "disable"])
def test_the_garbage_collector_waits_for_the_compiler(package, before):
    (package / "arrays.py").write_text(ARRAYS)
    code = (
        "from toy.kernels.arrays import *\n"
        "from numba.core import event\n"
        "class Listener(event.Listener):\n"
        "    on_start = on_end = lambda self, _: print(gc.isenabled())\n"
        f"gc.{before}()\n"
        "with event.install_listener('numba:compile', Listener()):\n"
        "    doubled(np.ones(3))\n"
        "print(gc.isenabled())"
    )
    *meanwhile, after = output(package, code).split()
    assert set(meanwhile) == {"False"}
    assert after == str(before == "enable")
