"""The list of mutants: every patch applies, every test that must notice it is there, and verdicts are recorded."""

import importlib.util
import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def tool(repository):
    spec = importlib.util.spec_from_file_location("mutants", repository / "tools" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def mutants(tool):
    return tool.MUTANTS


def test_every_patch_applies_once_and_changes_something(mutants, repository):
    wrong = []
    for name, mutant in mutants.items():
        path = mutant.place(repository)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text.count(mutant.old) != 1 or mutant.old == mutant.new:
            wrong.append(name)
    assert wrong == []


def test_every_mutant_names_tests_that_are_there(mutants, repository):
    for name, mutant in mutants.items():
        files = [part for part in mutant.tests if part.endswith(".py")]
        assert files, name
        for file in files:
            assert (repository / file).exists(), (name, file)
        if "-k" in mutant.tests:
            words = mutant.tests[mutant.tests.index("-k") + 1].replace("(", " ").replace(")", " ").split(" or ")
            text = "".join((repository / file).read_text(encoding="utf-8") for file in files)
            assert any(word.strip() in text for word in words), name


@pytest.fixture
def small(tool, tmp_path, monkeypatch):
    """The tool in a repository of one file and one test, with two mutants of it."""
    files = {
        "src/everlearn/__init__.py": "",
        "src/everlearn/toy/sum.py": "def add(a, b):\n    return a + b\n",
        "tests/toy/test_sum.py": "from everlearn.toy.sum import add\n\ndef test_add():\n    assert add(2, 2) == 4\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    made = {
        "difference": tool.Mutant("sums", "toy/sum.py", "a + b", "a - b", ("tests/toy/test_sum.py",)),
        "product": tool.Mutant("sums", "toy/sum.py", "a + b", "a * b", ("tests/toy/test_sum.py",)),
    }
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "RECORD", tmp_path / "mutants.json")
    monkeypatch.setattr(tool, "MUTANTS", made)
    return tool


def run(tool, monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["mutants", *arguments])
    tool.main()


def passes_without_pytest(folder, tests):
    """Pytest takes seconds to start, and eight of them are asked for."""
    code = f"import runpy; runpy.run_path({tests[0]!r})['test_add']()"
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=False, capture_output=True)
    return done.returncode == 0


def test_verdicts_are_recorded_and_a_run_goes_on_with_those_that_are_missing(small, tmp_path, monkeypatch, capsys):
    """2 * 2 is 2 + 2: the second mutant survives until its test asks for more."""
    monkeypatch.setattr(small, "passes", passes_without_pytest)
    with pytest.raises(SystemExit, match="not noticed: product"):
        run(small, monkeypatch)
    assert {name: made["verdict"] for name, made in small.read_record().items()} == {
        "difference": "noticed",
        "product": "SURVIVED",
    }
    capsys.readouterr()
    run(small, monkeypatch, "--stale")
    assert capsys.readouterr().out.splitlines() == ["product: SURVIVED"]
    test = tmp_path / "tests/toy/test_sum.py"
    test.write_text(test.read_text() + "    assert add(2, 3) == 5\n")
    run(small, monkeypatch, "--only", "product")
    assert [name for name in small.MUTANTS if small.why_stale(name, small.read_record())] == ["difference"]
    capsys.readouterr()
    run(small, monkeypatch, "--resume")
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 1 mutants are noticed"
    run(small, monkeypatch, "--stale")
    assert not capsys.readouterr().out.strip()


def test_tests_that_fail_anyhow_and_patches_that_do_not_apply_are_no_notice(small, tmp_path):
    mutant = small.MUTANTS["difference"]
    assert small.judge(mutant._replace(old="a+b")).startswith("the patch does not apply")
    (tmp_path / "tests/toy/test_sum.py").write_text("def test_add():\n    assert False\n")
    assert small.judge(mutant) == "its tests fail without it"
