"""Whether figures are older than the code that they measure."""

from __future__ import annotations

import subprocess
from typing import Any

from _page import ROOT, code_digest

SHARED = ("linalg", "gaussian", "base")  # folders that every model is made of


def why_changed(made: dict[str, Any], places: list[str], files: list[str] | None = None) -> str:
    """Why figures with this origin do not show what these paths of the repository are now; nothing if they do.

    With `files`, those of them alone count in the folders that every model is made of: the ones that are imported.
    """
    if not made["commit"]:
        return "it was made outside of a checkout"
    if made["changed"]:
        return f"it was made with changes that were not committed: {', '.join(made['changed'][:3])}"
    if "code" not in made:
        changed = changed_since(made["commit"], places)
    else:
        changed = [place for place in places if made["code"].get(place) != code_digest(ROOT / place)]
        if files is not None:
            changed = [each for place in changed for each in _changed_files(made["commit"], place, files)]
    return "" if not changed else f"changed since {made['commit'][:12]}: {', '.join(changed[:5])}"


def _changed_files(commit: str, place: str, files: list[str]) -> list[str]:
    """The files by which a folder that every model is made of has changed; other places as they are."""
    if place not in {f"src/everlearn/{folder}" for folder in SHARED} or not is_known(commit):
        return [place]
    return changed_since(commit, [file for file in files if file.startswith(f"{place}/")])


def is_known(commit: str) -> bool:
    """Whether the history has a commit: those that are rebased or squashed go."""
    command = ["git", "-C", str(ROOT), "cat-file", "-e", commit]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def changed_since(commit: str, places: list[str]) -> list[str]:
    """Files of some places whose code is not what it was at a commit: lines that hold a comment only do not count."""
    if not places:
        return []
    # Lines added, lines removed and the path; of files in which nothing but ignored lines has changed nothing is said.
    command = ["git", "-C", str(ROOT), "diff", "--numstat", "-I", r"^[[:space:]]*#", commit, "--", *places]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return [f"(commit {commit[:12]} is not known here)"]
    return [line.split("\t")[2] for line in done.stdout.splitlines()]
