"""Style and script that the live page and reports share, and plotly.js from the installed plotly package."""

from __future__ import annotations

import functools
from importlib import resources

from everlearn.errors import require


@functools.cache
def asset(name: str) -> str:
    """Text of one of the files beside this one."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def plotly_js() -> bytes:
    """The plotly.js that the installed plotly package carries."""
    package = require("plotly", extra="plot")
    return resources.files(package).joinpath("package_data", "plotly.min.js").read_bytes()
