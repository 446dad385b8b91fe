"""Code blocks of Markdown pages, and a reader who does what a page says."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from everlearn.cli import main

_FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_INSTALLING = ("make", "pip", "git")
_PORT = "8765"
_PATIENCE = 240.0


class Block(NamedTuple):
    """One fenced block: its language, its text, and the line of the file on which the text starts."""

    language: str
    text: str
    line: int


class Command(NamedTuple):
    """A command of a console block, and the lines that the page shows as its output."""

    line: str
    shown: list[str]


def blocks(path: Path, *languages: str) -> list[Block]:
    """Fenced blocks of a Markdown file in the given languages, in their order."""
    page = path.read_text(encoding="utf-8")
    found = (Block(m[1], m[2], page.count("\n", 0, m.start(2)) + 1) for m in _FENCE.finditer(page))
    return [block for block in found if block.language in languages]


def commands(text: str) -> list[Command]:
    """Commands of a console block, continuation lines joined; what does not start with `$ ` is output."""
    found: list[Command] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append(Command(line.removeprefix("$ "), []))
        elif line.strip():
            found[-1].shown.append(line.strip())
    return found


def program_of(command: Command) -> str:
    """The program that a command calls."""
    return command.line.split(" ")[0]


class Reader:
    """Follows a page from its first block to its last, in one folder and one Python session.

    Python blocks are run in this process, tracebacks show the lines of the page. Commands of console blocks must print
    what the page shows below them; bash runs them, but for plain calls of the program, which this process makes itself.
    `everlearn serve` runs until the page ends or starts another, on a port of its own. What installs or builds is left
    to the tests of the Makefile.

    Parameters
    ----------
    folder : Path
        Where commands run, and the current folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._namespace: dict[str, object] = {"__name__": "__main__"}
        self._port = _free_port()
        self._server: subprocess.Popen[str] | None = None

    def follow(self, page: Path) -> None:
        """Do what the page says."""
        try:
            for block in blocks(page, "python", "console"):
                text = block.text.replace(_PORT, self._port)
                if block.language == "python":
                    exec(compile("\n" * (block.line - 1) + text, str(page), "exec"), self._namespace)
                else:
                    for command in commands(text):
                        self._do(command)
        finally:
            self._stop_serving()

    def _do(self, command: Command) -> None:
        if program_of(command) in _INSTALLING:
            return
        if command.line.startswith("everlearn serve"):
            self._serve(command.line)
            return
        plain = program_of(command) == "everlearn" and not set(command.line) & set("|&;<>$*?#`")
        status, output, said = _call(command.line) if plain else _run(command.line, self._folder)
        assert status == 0, f"{command.line}\n{output}{said}"
        missing = [line for line in command.shown if line not in output]
        assert missing == [], f"{command.line}\n{output}{said}"

    def _serve(self, line: str) -> None:
        self._stop_serving()
        self._server = subprocess.Popen(
            ["bash", "-c", f"exec {line} --port {self._port}"],
            cwd=self._folder,
            env=_environment(),
            stdout=subprocess.DEVNULL,
            text=True,
        )
        end = time.monotonic() + _PATIENCE
        while not _answers(self._port):
            assert self._server.poll() is None, f"it stopped: {line}"
            assert time.monotonic() < end, f"it does not answer: {line}"
            time.sleep(0.1)

    def _stop_serving(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGTERM)
            self._server.wait(_PATIENCE)
            self._server = None


def _call(line: str) -> tuple[int, str, str]:
    """Status, output and messages of the program, called in this process."""
    result = CliRunner().invoke(main, shlex.split(line)[1:])
    return result.exit_code, result.stdout, result.stderr


def _run(line: str, folder: Path) -> tuple[int, str, str]:
    """The same of a command that bash runs."""
    result = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=_environment(), capture_output=True, text=True, timeout=300, check=False
    )
    return result.returncode, result.stdout, result.stderr


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _answers(port: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def _environment() -> dict[str, str]:
    """This interpreter's programs come first."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
