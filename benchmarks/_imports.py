"""Which models a script of the reproduction runs, by its imports: a change of another cannot change its figures.

Not by grimp's graph, as in tools/house.py: `everlearn` gives its classes by name when they are asked for, and modules
that are imported by a string count as well; neither is in that graph.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from _page import ROOT

PACKAGE = ROOT / "src" / "everlearn"
# They reach every model by its name, when one is merged or loaded: their imports inside of functions say nothing.
BY_NAME = ("base", "persistence")
# Folders that hold no model and make no data: what writes and draws, and what runs the scripts.
NO_FIGURES = ("experiments", "persistence", "reporting")


def places(script: Path) -> list[str]:
    """Paths of the repository that the figures of a script depend on: scripts of papers, and folders of models."""
    found, waiting = {script}, [script]
    while waiting:
        new = imported(waiting.pop()) - found
        found |= new
        waiting += new
    scripts = {path for path in found if path.parent.parent == script.parent.parent}
    folders = {PACKAGE / path.relative_to(PACKAGE).parts[0] for path in found if path.parent != PACKAGE}
    folders -= {PACKAGE / name for name in NO_FIGURES}
    return sorted(str(path.relative_to(ROOT)) for path in scripts | folders)


@functools.cache
def imported(path: Path) -> frozenset[Path]:
    """Files of everlearn that a file imports."""
    within = path.relative_to(PACKAGE).parts[0] not in BY_NAME
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
