"""Tables: the same value as text, Markdown, HTML and on the terminal."""

import html.parser
import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from everlearn.reporting.tables import Cell, Table, escape_markdown, number

TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp")), max_size=12)


class _Reader(html.parser.HTMLParser):
    """Collects the text of cells, as a browser would show it."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.cells, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data):
        if self.cells and data.strip("\n"):
            self.cells[-1] += data


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4))
def test_html_shows_any_text_as_it_is(rows):
    reader = _Reader()
    reader.feed(Table(("<script>", "b&c"), rows).html())
    assert reader.cells == ["<script>", "b&c", *(cell for row in rows for cell in row)]
    assert {tag for tag, _ in reader.tags} <= {"div", "table", "thead", "tbody", "tr", "th", "td"}


def test_html_marks_rows_and_cells_and_shows_what_stands_beneath():
    table = Table(("model", "error"), [("ours", Cell("0.1", strong=True, beneath="paper 0.2")), ("peer", 0.5)],
                  title="Errors", note="lower is better", highlighted=[0])  # fmt: skip
    reader = _Reader()
    reader.feed(table.html())
    rows = [attrs for tag, attrs in reader.tags if tag == "tr"]
    assert rows == [{}, {"class": "highlighted"}, {}]
    assert "<b>0.1</b><small>paper 0.2</small>" in table.html()
    assert "<caption>Errors</caption>" in table.html()
    assert "lower is better" in table.html()


def test_text_aligns_the_first_column_left_and_numbers_right():
    lines = Table(("name", "n", "share"), [("a", 5, 0.5), ("longer", 12345, float("nan"))]).text().splitlines()
    assert lines == ["name         n   share", "a            5   0.500", "longer   12345       -"]


def test_markdown_escapes_what_would_be_markup():
    text = Table(("a|b", "*c*"), [("x_y", Cell("1", strong=True, beneath="2"))], title="t", note="n").markdown()
    assert text == "t:\n\n| a\\|b | \\*c\\* |\n| --- | ---: |\n| x\\_y | **1** (2) |\n\nn\n"


@given(TEXT)
def test_escaped_markdown_has_no_sign_without_a_backslash(text):
    plain = escape_markdown(text)
    i = 0
    found = ""
    while i < len(plain):
        if plain[i] == "\\":
            i += 1
        else:
            assert plain[i] not in "*_|<`"
        found += plain[i]
        i += 1
    assert found == text


def test_the_terminal_shows_brackets_as_they_are():
    out = io.StringIO()
    Table(("speed [rpm]", "mean"), [("[bold]", 1.0)], title="[red]").show(Console(file=out, width=60))
    assert all(text in out.getvalue() for text in ("speed [rpm]", "[bold]", "[red]"))


def test_a_number_has_four_digits_and_a_gap_none():
    assert (number(1234.567), number(0.00012345), number(float("nan"))) == ("1235", "0.0001234", "")
