"""What a release says of itself agrees: version, changelog, citation."""

import re

import everlearn


def test_changelog_and_citation_name_the_version(repository):
    changelog = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date = re.search(r"^## (\S+) \((\S+)\)$", changelog, re.MULTILINE).groups()
    citation = (repository / "CITATION.cff").read_text(encoding="utf-8")
    assert version == everlearn.__version__
    assert f"\nversion: {version}\n" in citation
    assert f"\ndate-released: {date}\n" in citation


def test_every_extra_is_installed_the_same_way(repository):
    """By the package's name and extras that exist; where to write a dot instead is said in two places only."""
    project = (repository / "pyproject.toml").read_text(encoding="utf-8")
    extras = set(re.findall(r"^(\w+) = \[", project.partition("[project.optional-dependencies]")[2], re.MULTILINE))
    pages = [repository / "README.md", *(repository / "docs").glob("*.md"), *(repository / "docs").glob("*/*.md")]
    named = {
        name
        for page in pages
        for found in re.findall(r"pip install '(?:everlearn|\.)\[([\w,]+)\]'", page.read_text(encoding="utf-8"))
        for name in found.split(",")
    }
    assert {"plot", "serve", "river"} <= named <= extras
    dotted = {page.name for page in pages if "pip install '.[" in page.read_text(encoding="utf-8")}
    assert dotted <= {"README.md", "start.md"}
