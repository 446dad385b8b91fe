"""The live page and its files, read once and served from memory: no path of a request meets the disk."""

from __future__ import annotations

import functools
import gzip
import hashlib
import re
from importlib import resources
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from everlearn.reporting.assets import asset, plotly_js
from everlearn.service.errors import answer

router = APIRouter(include_in_schema=False)

_ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<rect width="32" height="32" rx="8" fill="#1d5fd6"/>
<path d="M4 24c5 0 5-16 10-16s4 10 7 10 3-4 7-4" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/>
</svg>
"""


# plotly.js brings the style sheet of its maps as a style element, which the page's policy forbids and which no picture
# here needs: an error on the console of each page.
_MAP_STYLE = re.compile(
    rb'if\(!document\.getElementById\("[0-9a-f]{64}"\)\)\{(?=var \w+=document\.createElement\("style"\))'
)


class File(NamedTuple):
    """A file as it is sent: plain, compressed, and its mark for caches."""

    kind: str
    plain: bytes
    packed: bytes
    mark: str


def _own(name: str) -> bytes:
    return resources.files("everlearn.service").joinpath("page", name).read_bytes()


_FILES = {
    "index.html": ("text/html; charset=utf-8", lambda: _own("index.html")),
    "page.css": ("text/css; charset=utf-8", lambda: _own("page.css")),
    "page.js": ("text/javascript; charset=utf-8", lambda: _own("page.js")),
    "machine.css": ("text/css; charset=utf-8", lambda: _own("machine.css")),
    "machine.js": ("text/javascript; charset=utf-8", lambda: _own("machine.js")),
    "docs.html": ("text/html; charset=utf-8", lambda: _own("docs.html")),
    "docs.css": ("text/css; charset=utf-8", lambda: _own("docs.css")),
    "docs.js": ("text/javascript; charset=utf-8", lambda: _own("docs.js")),
    "theme.css": ("text/css; charset=utf-8", lambda: asset("theme.css").encode()),
    "pictures.js": ("text/javascript; charset=utf-8", lambda: asset("pictures.js").encode()),
    "plotly.js": ("text/javascript; charset=utf-8", lambda: _MAP_STYLE.sub(b"if(false){", plotly_js())),
    "favicon.svg": ("image/svg+xml", lambda: _ICON.encode()),
}


@functools.cache
def file(name: str) -> File:
    """One of the files of the page."""
    kind, read = _FILES[name]
    plain = read()
    return File(kind, plain, gzip.compress(plain, 6), f'"{hashlib.sha256(plain).hexdigest()[:20]}"')


@router.get("/")
def index(request: Request) -> Response:
    """Show the live page."""
    return _sent("index.html", request)


@router.get("/docs")
def docs(request: Request) -> Response:
    """Show what the service answers, with forms to try it; it needs no network."""
    return _sent("docs.html", request)


@router.get("/favicon.svg")
def icon(request: Request) -> Response:
    """Show the sign of the page."""
    return _sent("favicon.svg", request)


@router.get("/static/{name}")
def static(name: str, request: Request) -> Response:
    """Send a file that the page uses."""
    if name not in _FILES:
        return answer(404, f"There is no file {name[:80]!r}.")
    return _sent(name, request)


def _sent(name: str, request: Request) -> Response:
    found = file(name)
    # no-cache means to ask again, not to keep nothing: after an upgrade the old page is not shown, and otherwise a 304
    # does.
    headers = {"Cache-Control": "no-cache", "ETag": found.mark, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == found.mark:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=found.kind)
    return Response(found.plain, headers=headers, media_type=found.kind)
