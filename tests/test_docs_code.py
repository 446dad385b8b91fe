"""Code and commands in README and docs run, links lead somewhere, and the reference leaves no public name out."""

import re
from pathlib import Path

import pytest

import everlearn
from code_blocks import Reader, blocks, commands, program_of

ROOT = Path(__file__).parents[1]
MADE = {"_build", "gallery", "generated", "results"}
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.relative_to(ROOT).parts[1] not in MADE]
PROSE = [*sorted(ROOT.glob("*.md")), *PAGES]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.md"))


def name_of(path):
    return str(path.relative_to(ROOT))


def pages_with_code():
    """README is always run; the others, two minutes of whole programs, with the slow tests."""
    for page in PROSE:
        if blocks(page, "python", "console"):
            yield pytest.param(page, marks=() if page == ROOT / "README.md" else pytest.mark.slow, id=name_of(page))


@pytest.mark.parametrize("page", list(pages_with_code()))
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Reader(tmp_path).follow(page)


def test_code_has_a_language_that_is_run_or_is_no_code():
    known = ("python", "console", "text", "make", "c")  # C is compiled by tests/export
    found = {(name_of(page), language) for page in PROSE for language in _languages(page) if language not in known}
    assert found == set()


def _languages(page):
    """Languages of the fenced blocks of a page; directives in braces are Sphinx's."""
    fences = re.findall(r"^```(\S*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [language for language in fences[::2] if not language.startswith("{")]


def test_make_targets_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    calls = [
        command
        for page in PROSE
        for block in blocks(page, "console")
        for command in commands(block.text)
        if program_of(command) == "make"
    ]
    named = {word for command in calls for word in command.line.partition("#")[0].split()[1:]}
    assert {"run", "test"} <= named <= targets


@pytest.mark.parametrize("page", [*PROSE, *RESULTS], ids=name_of)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not _is_there((page.parent / link).resolve())] == []


def _is_there(target):
    """Pages of the gallery are made from the examples, those of results are copies: look where they come from."""
    docs = ROOT / "docs"
    if target.parent == docs / "gallery":
        return target.stem == "index" or (docs / "examples" / f"{target.stem}.py").exists()
    if target.parent == docs / "results":
        return ROOT / "benchmarks" / "results" / target.name in RESULTS
    return target.exists()


def test_files_that_the_architecture_names_are_there():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", page))
    places = [ROOT / "src" / "everlearn", ROOT / "src" / "everlearn" / "mixture", ROOT]  # `keep/` is in a model
    assert len(named) > 30
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_the_life_of_a_row_has_at_most_ten_steps():
    life = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## The life of a row")[2]
    steps = re.findall(r"^\d+\. \*\*`([\w/]+\.py)`\*\*", life.partition("\n## ")[0], re.MULTILINE)
    assert 5 <= len(steps) <= 10
    assert all((ROOT / "src" / "everlearn" / step).is_file() for step in steps)


def test_reference_names_every_public_name():
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    public = [name for name in everlearn.__all__ if not name.startswith("_")]
    assert [name for name in public if not re.search(rf"\b{name}\b", page)] == []


def test_readme_shows_the_peers_as_they_were_measured():
    """The figures of each row of a table stand, in their order, in one line of a result page that is linked to."""
    section = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("## What it is best at")[2].partition("\n## ")[0]
    )
    shown = [figures for line in section.splitlines() if line.startswith("|") and (figures := _figures(line))]
    linked = re.findall(r"\]\((benchmarks/results/\w+\.md)\)", section)
    measured = [_figures(line) for page in linked for line in (ROOT / page).read_text(encoding="utf-8").splitlines()]
    assert sum(map(len, shown)) >= 12
    assert [figures for figures in shown if not any(_in_order(figures, line) for line in measured)] == []


def _figures(line):
    """Numbers of a line, signs and separators included; that of a percentile is no figure but a heading."""
    return re.findall(r"[-+−]?\d[\d,.]*\d|\d", line.replace("90th percentile", ""))


def _in_order(figures, line):
    rest = iter(line)
    return all(figure in rest for figure in figures)
