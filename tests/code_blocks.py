"""Code blocks of Markdown files, and how tests run them."""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block: its language, its text, and the line of the file on which the text starts."""

    language: str
    text: str
    line: int


def blocks(path: Path, *languages: str) -> list[Block]:
    """Fenced blocks of a Markdown file in the given languages, in their order."""
    page = path.read_text(encoding="utf-8")
    found = (Block(m[1], m[2], page.count("\n", 0, m.start(2)) + 1) for m in _FENCE.finditer(page))
    return [block for block in found if block.language in languages]


def run_python(path: Path) -> None:
    """Run a file's Python blocks one after the other in one namespace; tracebacks show the file's own lines."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(path, "python"):
        source = "\n" * (block.line - 1) + block.text
        exec(compile(source, str(path), "exec"), namespace)


def commands(path: Path, program: str) -> list[str]:
    """Command lines of a file's shell blocks that call `program`, continuation lines joined."""
    text = "\n".join(block.text for block in blocks(path, "console", "shell", "bash", "sh"))
    lines = (line.strip().removeprefix("$ ") for line in text.replace("\\\n", " ").splitlines())
    return [line for line in lines if line.split(" ")[0] == program]


def run_command(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell command with this interpreter's programs first on the path."""
    programs = str(Path(sys.executable).parent)
    line = f'PATH="{programs}:$PATH"; {command}'
    return subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
