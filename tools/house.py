"""Figures of the source: sizes of functions, parameters, comments, frames to a kernel, import circles.

    python tools/house.py            tables
    python tools/house.py --frames   the calls from `partial_fit` and `everlearn learn` to a kernel, one by one

tests/test_house.py holds the source to `LIMITS`.
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import json
import os
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parent.parent / "src" / "everlearn"
LIMITS = {"kernel parameters": 7, "comment share": 0.03, "frames of partial_fit": 7, "frames of learn": 14}
BRANCHES = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match)
COMPILED = {"kernel", "inner", "loop"}  # decorators of everlearn.linalg.compile


class Function(NamedTuple):
    """One function of the source."""

    place: str  # file:line name
    folder: str
    body: int  # lines without docstring, blank lines and comments
    parameters: int  # without self and cls
    depth: int  # of nested blocks
    is_kernel: bool


class File(NamedTuple):
    """Lines of one file."""

    path: Path
    lines: int
    blank: int
    comments: int  # lines that hold a comment only


# -- functions -------------------------------------------------------------------------------------


def files(source: Path = SOURCE) -> list[Path]:
    """All Python files."""
    return sorted(path for path in source.rglob("*.py") if "__pycache__" not in path.parts)


def count_lines(path: Path) -> File:
    """Count lines of a file; a comment line inside a string is none."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {
        t.start[0] for t in tokens if t.type == tokenize.COMMENT and not lines[t.start[0] - 1][: t.start[1]].strip()
    }
    return File(path, len(lines), sum(not line.strip() for line in lines), len(comments))


def functions(path: Path, source: Path = SOURCE) -> Iterator[Function]:
    """All functions of a file, inner ones included."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    inside = path.relative_to(source)
    folder = inside.parts[0] if len(inside.parts) > 1 else "."
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names = {getattr(d, "id", getattr(d, "attr", "")) for d in node.decorator_list}
            place = f"{inside}:{node.lineno} {node.name}"
            yield Function(
                place, folder, _body_lines(node, lines), _parameters(node), _depth(node), bool(names & COMPILED)
            )


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    if not body:
        return 0
    counted = lines[body[0].lineno - 1 : node.end_lineno]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in counted)


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    a = node.args
    names = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")]) + (a.vararg is not None) + (a.kwarg is not None)


def _depth(node: ast.AST) -> int:
    below = [_depth(child) for child in ast.iter_child_nodes(node)]
    return max(below, default=0) + isinstance(node, BRANCHES)


def percentile(values: list[int], share: float) -> int:
    """The value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0


def summary(source: Path = SOURCE) -> list[list[object]]:
    """A row of figures for each folder, and one for all."""
    counted = [count_lines(path) for path in files(source)]
    found = [function for path in files(source) for function in functions(path, source)]
    top = lambda file: file.path.relative_to(source).parts  # noqa: E731
    folders = sorted({top(file)[0] for file in counted if len(top(file)) > 1})
    rows = [_row("all", counted, found)]
    for folder in folders:
        inside = [file for file in counted if top(file)[0] == folder]
        rows.append(_row(folder, inside, [function for function in found if function.folder == folder]))
    return rows


def _row(name: str, counted: list[File], found: list[Function]) -> list[object]:
    bodies = [function.body for function in found]
    kernels = [function for function in found if function.is_kernel]
    limit = LIMITS["kernel parameters"]
    return [
        name,
        len(counted),
        sum(file.lines for file in counted),
        len(found),
        percentile(bodies, 0.5),
        percentile(bodies, 0.9),
        max(bodies, default=0),
        sum(function.parameters > limit for function in found),
        f"{sum(function.parameters > limit for function in kernels)} of {len(kernels)}",
        sum(function.depth >= 4 for function in found),
        f"{100 * comment_share(counted):.1f}",
    ]


def comment_share(counted: list[File]) -> float:
    """Lines that hold a comment only, as a share of the lines that are not blank."""
    return sum(file.comments for file in counted) / max(sum(file.lines - file.blank for file in counted), 1)


def long_kernels(source: Path = SOURCE) -> list[str]:
    """Kernels with more parameters than promised."""
    found = (function for path in files(source) for function in functions(path, source))
    limit = LIMITS["kernel parameters"]
    long = [f for f in found if f.is_kernel and f.parameters > limit]
    return [f"{f.place}: {f.parameters} parameters" for f in long]


def files_in_folders(source: Path = SOURCE) -> dict[str, int]:
    """Number of Python files that lie in each folder, not counting folders below it."""
    found: dict[str, int] = {}
    for path in files(source):
        folder = str(path.parent.relative_to(source))
        found[folder] = found.get(folder, 0) + (path.name != "__init__.py")
    return found


# -- import circles --------------------------------------------------------------------------------


def import_circles() -> list[list[str]]:
    """Groups of modules that import each other, type-checking and late imports included."""
    import grimp

    graph = grimp.build_graph("everlearn", cache_dir=None)
    return strongly_connected({m: sorted(graph.find_modules_directly_imported_by(m)) for m in sorted(graph.modules)})


def strongly_connected(graph: dict[str, list[str]]) -> list[list[str]]:
    """Strongly connected components of more than one node (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return found


# -- frames ----------------------------------------------------------------------------------------

# Runs without compilation, where a kernel is a Python frame that the profiler sees; once for all, as imports take most
# of the time. `start` is the function from which frames are counted, down to the kernel that learns rows: the path of
# every row, and not that of the rare searches for better components, which call other kernels from deeper down.
TRACED = """
import json, os, sys, tempfile
import numpy as np
import everlearn

PACKAGE = os.path.dirname(everlearn.__file__) + os.sep

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 2)) + 9 * rng.integers(2, size=(300, 1))

def watched(start, call, *arguments, **options):
    # The last chain from the function `start` to a kernel that learns rows, while `call` runs.
    chains = []

    def watch(frame, event, _):
        if event != "call" or frame.f_code.co_name != "learn_rows" or "/kernels/" not in frame.f_code.co_filename:
            return
        chain, walker = [], frame
        while walker is not None:
            ours = walker.f_code.co_filename.startswith(PACKAGE)
            if ours:
                chain.append(walker.f_code.co_filename.removeprefix(PACKAGE) + ":" + walker.f_code.co_qualname)
            if ours and walker.f_code.co_name == start:
                chains.append(chain[::-1])
                return
            walker = walker.f_back

    sys.setprofile(watch)
    try:
        call(*arguments, **options)
    finally:
        sys.setprofile(None)
    return chains[-1]

found = {}
# One component: searches without compilation take most of a minute, and are not what is looked at.
models = everlearn.IncrementalGaussianMixture(1), everlearn.FIGMN(), everlearn.OnlinePPCA(), everlearn.VariationalPPCA()
for model in models:
    found[type(model).__name__] = watched("partial_fit", model.partial_fit(X).partial_fit, X[:1])
from everlearn.cli import main
with tempfile.TemporaryDirectory() as folder:
    # Two files are two batches: the first one also starts the model.
    for name, part in (("first", X[:270]), ("second", X[270:])):
        np.savetxt(f"{folder}/{name}.csv", part, delimiter=",", header="a,b", comments="")
    files = [folder + "/first.csv", folder + "/second.csv"]
    arguments = ["learn", *files, "--set", "n_components=1", "--model-file", folder + "/m.evl"]
    found["learn"] = watched("command", main, arguments, standalone_mode=False)
print("CHAINS " + json.dumps(found))
"""


@functools.cache
def _chains() -> dict[str, list[str]]:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(SOURCE.parent)}
    done = subprocess.run([sys.executable, "-c", TRACED], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    line = next(line for line in done.stdout.splitlines() if line.startswith("CHAINS "))
    found: dict[str, list[str]] = json.loads(line.removeprefix("CHAINS "))
    return found


def chain_of_the_last_row(name: str) -> list[str]:
    """The package's own frames from `partial_fit` of a model, or the command `learn`, to the kernel of rows."""
    return _chains()[name]


def frames(chain: list[str]) -> int:
    """Python frames before the kernel."""
    return max(len(chain) - 1, 0)


# -- the command -----------------------------------------------------------------------------------


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Figures of the source.")
    parser.add_argument("--frames", action="store_true", help="show the calls down to a kernel")
    options = parser.parse_args()
    sys.path.insert(0, str(SOURCE.parent))
    from everlearn.reporting.tables import Table

    chains = {name: chain_of_the_last_row(name) for name in _chains()}
    if options.frames:
        for name, chain in chains.items():
            print(f"{name}: {frames(chain)} frames", *chain, sep="\n  ", end="\n\n")
        return
    columns = (
        "folder", "files", "lines", "functions", "body median", "p90", "longest", "> 7 parameters", "of them kernels",
        "depth >= 4", "comment lines, %",
    )  # fmt: skip
    print(Table(columns, summary()).text(), end="\n\n")
    print(
        Table(("entry", "Python frames to the kernel"), [(n, frames(c)) for n, c in chains.items()]).text(), end="\n\n"
    )
    crowded = sorted(files_in_folders().items(), key=lambda entry: -entry[1])[:8]
    print(Table(("folder", "files in it"), crowded).text(), end="\n\n")
    circles = import_circles()
    print("Import circles:", "none" if not circles else "", *(", ".join(group) for group in circles), sep="\n  ")


if __name__ == "__main__":
    main()
