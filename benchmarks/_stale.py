"""Whether figures are older than the code that they measure."""

from __future__ import annotations

import subprocess
from typing import Any

from _page import ROOT, code_digest

SHARED = ("linalg", "gaussian", "base")  # folders that every model is made of


def why_changed(made: dict[str, Any], places: list[str]) -> str:
    """Why figures with this origin do not show what these paths of the repository are now; nothing if they do."""
    if not made["commit"]:
        return "it was made outside of a checkout"
    if made["changed"]:
        return f"it was made with changes that were not committed: {', '.join(made['changed'][:3])}"
    if "code" in made:
        changed = [place for place in places if made["code"].get(place) != code_digest(ROOT / place)]
    else:
        changed = changed_since(made["commit"], places)
    return "" if not changed else f"changed since {made['commit'][:12]}: {', '.join(changed[:5])}"


def changed_since(commit: str, places: list[str]) -> list[str]:
    """Files of some places that are not what they were at a commit."""
    command = ["git", "-C", str(ROOT), "diff", "--name-only", commit, "--", *places]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else [f"(commit {commit[:12]} is not known here)"]
