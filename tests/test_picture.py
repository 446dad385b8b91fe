"""The picture of the README is drawn by its script, and says what the script's says."""

import re
import runpy

import pytest

from everlearn.cli.commands import doctor

pytestmark = pytest.mark.slow


def words(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_script_draws_the_picture_that_is_kept(repository):
    docs = repository / "docs"
    kept = (docs / "_static" / "stream.svg").read_text(encoding="utf-8")
    drawn = runpy.run_path(str(docs / "picture.py"))["draw"]()
    assert words(drawn) == words(kept)
    assert drawn.count("<circle") == kept.count("<circle")
    assert "nan" not in drawn


def test_script_draws_the_logo_that_is_kept(repository):
    docs = repository / "docs"
    script = runpy.run_path(str(docs / "logo.py"))
    for name, drawn in script["files"]().items():
        assert drawn == (docs / "_static" / name).read_text(encoding="utf-8")
    assert script["text"]() == f"{doctor._LOGO}  everlearn"
