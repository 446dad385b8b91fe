"""The figures of the README are those of the page that a command wrote."""

import re


def test_quality_figures_are_those_of_the_page(repository):
    page = (repository / "benchmarks" / "results" / "mixture_quality.md").read_text(encoding="utf-8")
    readme = (repository / "README.md").read_text(encoding="utf-8")
    gaps = re.findall(r"Gap (\w+): median (\S+), 90th percentile (\S+), worst (\S+)\.", page)
    assert len(gaps) == 4
    rows = re.findall(r"^\| (?:that the|kept aside)[^|]*\| (\w+) \| (\S+) \| (\S+) \| (\S+) \|$", readme, re.M)
    assert rows == gaps
