"""The README keeps its word: its code and its commands run."""

import re

from code_blocks import blocks, commands, run_command, run_python


def test_python_runs(repository, tmp_path, monkeypatch):
    readme = repository / "README.md"
    assert blocks(readme, "python")
    monkeypatch.chdir(tmp_path)
    run_python(readme)


def test_commands_run(repository, tmp_path):
    lines = commands(repository / "README.md", "everlearn")
    assert lines
    for line in lines:
        result = run_command(line, tmp_path)
        assert result.returncode == 0, f"{line}\n{result.stdout}{result.stderr}"


def test_make_targets_exist(repository):
    targets = set(re.findall(r"^([\w-]+):", (repository / "Makefile").read_text(), re.MULTILINE))
    named = {line.split()[1] for line in commands(repository / "README.md", "make")}
    assert {"run", "test"} <= named <= targets
