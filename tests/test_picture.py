"""The picture of the README is what its script draws."""

import re
import runpy

import numpy as np


def numbers(svg):
    return np.array(re.findall(r'(?<=[" ,])-?\d+(?:\.\d+)?(?=[" ,])', svg), dtype=float)


def test_picture_is_what_the_script_draws(repository):
    docs = repository / "docs"
    kept = (docs / "_static" / "stream.svg").read_text(encoding="utf-8")
    drawn = runpy.run_path(str(docs / "picture.py"))["draw"]()
    assert re.sub(r"[\d.,-]+", "", drawn) == re.sub(r"[\d.,-]+", "", kept)
    np.testing.assert_allclose(numbers(drawn), numbers(kept), atol=2.0)  # of 900 pixels
