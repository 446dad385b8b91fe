"""Pages of the benchmarks: written whole, from one run or from parts that ran each on its own."""

import importlib

import pytest

MADE = {"commit": "abc", "changed": [], "versions": {}, "machine": "here", "finished": "later"}


@pytest.fixture
def page(repository, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    module = importlib.import_module("_page")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def write_part(page, monkeypatch, part, body, figures, **made):
    monkeypatch.setattr(page, "finished", lambda: {**MADE, **made})
    page.write_part("shown", part, body, figures=figures)


def test_a_page_is_made_of_the_parts_that_are_there(page, tmp_path, monkeypatch):
    first, second = "## One\n\nA.\n", "## Two\n\n| a |\n|---|\n| 3 |\n"
    write_part(page, monkeypatch, "two", second, {"kills": 3}, command="do two", started="2026-01-02")
    page.write_page_of_parts("shown", "Shown", ("one", "two"))
    assert "do two" in (tmp_path / "shown.md").read_text()
    write_part(page, monkeypatch, "one", first, {"inputs": 5}, command="do one", started="2026-01-01", machine="there")
    page.write_page_of_parts("shown", "Shown", ("one", "two"))
    text = (tmp_path / "shown.md").read_text()
    assert text.startswith("# Shown\n\n## One\n")
    assert text.index("do one") < text.index("there") < text.index("## Two") < text.index("do two")
    record = page.read("shown")
    assert record["figures"] == {"inputs": 5, "kills": 3}
    assert record["origin"]["command"] == "do one", "the page is as old as its oldest part"
    assert record["tables"] == [{"heading": "Two", "columns": ["a"], "rows": [["3"]]}]


def test_a_quick_run_writes_nothing(page, tmp_path, capsys):
    page.write_part("shown", "one", "## One\n", quick=True)
    page.write_page("shown", "# Shown\n", quick=True)
    assert list(tmp_path.iterdir()) == []
    assert "stays as it is" in capsys.readouterr().err
