"""Which files figures depend on, by imports: a change of another cannot change them.

Not by grimp's graph, as in tools/house.py: `everlearn` gives its classes by name when they are asked for, and modules
that are imported by a string count as well; neither is in that graph.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from _page import ROOT
from _stale import SHARED

PACKAGE = ROOT / "src" / "everlearn"
# They reach every model by its name, when one is merged or loaded: their imports inside of functions say nothing.
BY_NAME = ("base", "persistence")
# Folders that hold no model and make no data: what writes and draws, and what runs the scripts.
NO_FIGURES = ("experiments", "persistence", "reporting")


def places(script: Path) -> list[str]:
    """Paths of the repository that the figures of a script of the reproduction depend on.

    Scripts of papers, folders of models, and in the folders that every model is made of the files that are imported.
    """
    found = _reached({script})
    scripts = {path for path in found if path.parent.parent == script.parent.parent}
    shared = {path for path in found if _folder(path) in SHARED}
    folders = {PACKAGE / _folder(path) for path in found - shared if path.parent != PACKAGE}
    folders -= {PACKAGE / name for name in NO_FIGURES}
    return sorted(str(path.relative_to(ROOT)) for path in scripts | folders | shared)


@functools.cache
def files_of(folders: tuple[str, ...]) -> list[str]:
    """Files of the package that some of its folders are made of: their own, and those of shared ones they import.

    A folder that every model is made of counts as a whole where there is no other.
    """
    within = {path for folder in folders for path in (PACKAGE / folder).rglob("*.py")}
    own = {path for path in within if _folder(path) not in SHARED}
    return sorted(str(path.relative_to(ROOT)) for path in (_reached(own, within) if own else within))


def _reached(files: set[Path], within: set[Path] | None = None) -> set[Path]:
    """Files, and those that they import, directly or not; with `within`, by way of such files only."""
    found, waiting = set(files), list(files)
    while waiting:
        new = imported(waiting.pop()) - found
        new = new if within is None else new & within
        found |= new
        waiting += new
    return found


def _folder(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


@functools.cache
def imported(path: Path) -> frozenset[Path]:
    """Files of everlearn that a file imports."""
    within = _folder(path) not in BY_NAME
    names = _names(ast.parse(path.read_text(encoding="utf-8")), within=within)
    return frozenset(found for name in names if (found := _file(name)) is not None)


def _names(tree: ast.AST, *, within: bool) -> Iterator[str]:
    """Names of modules, and of what is imported from them, for these may be modules too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (each.value for each in node.args if isinstance(each, ast.Constant))
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        elif within or not isinstance(node, ast.FunctionDef):
            yield from _names(node, within=within)


def _file(name: str) -> Path | None:
    """The file of a module, or of what `everlearn` itself gives under a name."""
    package, *parts = name.split(".")
    if package != "everlearn" or not parts:
        return None
    path = PACKAGE.joinpath(*parts)
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    module = _public().get(parts[0]) if len(parts) == 1 else None
    return None if module is None else _file(module)


@functools.cache
def _public() -> dict[str, str]:
    """Modules by the names that `everlearn` gives."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (table,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_PUBLIC"
    )
    return dict(ast.literal_eval(table))
