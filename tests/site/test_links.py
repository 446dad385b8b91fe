"""Links of the built site lead somewhere, and nothing is fetched from another machine."""

import functools
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

# What a page fetches by itself, and what a reader follows.
_FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """Addresses that a page follows and fetches, and the places in it that can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.fetched, self.places = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.places |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in _FETCHED and values.get(_FETCHED[tag]) and values.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(values[_FETCHED[tag]])


@functools.cache
def read(page):
    return Page(page.read_text(encoding="utf-8"))


def broken_links(pages):
    """Links inside the site that lead to no file or no place in it."""
    parsed = {page.resolve(): read(page) for page in pages}
    broken = []
    for page, content in parsed.items():
        for link in {*content.links, *content.fetched}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            known = parsed[target].places if target in parsed else None
            lost = known is not None and parts.fragment and unquote(parts.fragment) not in known
            if not target.is_file() or lost:
                broken.append((page.name, link))
    return broken


def foreign_files(pages):
    """Programs, styles and pictures that pages fetch from other machines."""
    return [(page.name, address) for page in pages for address in read(page).fetched if urlsplit(address).netloc]


def test_links_inside_the_site_lead_somewhere(pages):
    assert broken_links(pages) == []


def test_pages_fetch_nothing_from_elsewhere(pages):
    assert foreign_files(pages) == []


def test_broken_and_foreign_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="here"></p><a href="#here"></a><a href="b.html#there"></a><a href="b.html#gone"></a>'
        '<a href="c.html"></a><a href="https://example.org/x"></a><script src="https://example.org/x.js"></script>'
    )
    (tmp_path / "b.html").write_text('<img src="no.png"><h1 id="there"></h1>')
    pages = sorted(tmp_path.glob("*.html"))
    assert sorted(broken_links(pages)) == [("a.html", "b.html#gone"), ("a.html", "c.html"), ("b.html", "no.png")]
    assert foreign_files(pages) == [("a.html", "https://example.org/x.js")]
