"""Code in the documentation runs, its links lead somewhere, and the reference leaves no public name out."""

import re
from pathlib import Path

import pytest

import everlearn
from code_blocks import blocks, run_python

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
PROSE = [*PAGES, *sorted(ROOT.glob("*.md"))]


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_python_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_python(page)


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_reference_names_every_public_name():
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    public = [name for name in everlearn.__all__ if not name.startswith("_")]
    assert [name for name in public if not re.search(rf"\b{name}\b", page)] == []
