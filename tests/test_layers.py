"""The import contract of pyproject.toml holds, and notices when it is broken."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LINT_IMPORTS = str(Path(sys.executable).with_name("lint-imports"))


def lint_imports(folder):
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    command = [LINT_IMPORTS, "--no-cache"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copy_of_source(repository, tmp_path):
    shutil.copytree(repository / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(repository / "pyproject.toml", tmp_path)
    return tmp_path


def test_contract_holds(repository):
    result = lint_imports(repository)
    assert result.returncode == 0, result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("gaussian/gaussian.py", "import everlearn.base.estimator", "Imports run downwards only BROKEN"),
        ("linalg/dense.py", "import everlearn.gaussian.gaussian", "Imports run downwards only BROKEN"),
        ("base/estimator.py", "import numba", "Only the kernels import numba BROKEN"),
        ("ppca/kernels/online_em.py", "import everlearn.ppca.learn", "then state, then kernels BROKEN"),
        (
            "continual/metrics.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import everlearn.continual.results",
            "No import circles BROKEN",
        ),
        ("stray.py", "", "stray"),
    ],
)
def test_breach_is_noticed(copy_of_source, module, line, contract):
    with open(copy_of_source / "src" / "everlearn" / module, "a", encoding="utf-8") as source:
        source.write(f"\n{line}\n")
    result = lint_imports(copy_of_source)
    assert result.returncode != 0
    assert contract in result.stdout
