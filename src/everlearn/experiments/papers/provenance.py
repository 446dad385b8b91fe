"""With what a result was made: version, commit, machine."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import everlearn


def provenance() -> dict[str, Any]:
    """Return the version, the commit if this is a checkout, and the machine."""
    return {
        "everlearn": everlearn.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def commit() -> str | None:
    """Return the commit of the checkout that this file is tracked in, "+" behind it if files were changed."""
    here = Path(__file__)
    # An installed package may lie inside somebody else's repository (a virtual environment in a checkout), whose commit
    # would be the wrong one.
    if _git(here, "ls-files", "--error-unmatch", here.name) is None:
        return None
    head = _git(here, "rev-parse", "--short=12", "HEAD")
    # The whole source, and new files too: a run depends on more than the folder of this file.
    changed = _git(here, "status", "--porcelain", "--untracked-files=normal", ":/src")
    return None if head is None else head + ("+" if changed else "")


def _git(here: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(here.parent), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
