"""Sphinx settings; `make docs` builds the site and treats every warning as an error."""

import re
import shutil
from pathlib import Path

import plotly.io as pio
from docutils import nodes
from latex2mathml.converter import convert
from plotly.io.base_renderers import MimetypeRenderer
from plotly.offline import get_plotlyjs

import everlearn

HERE = Path(__file__).parent

project = "everlearn"
author = "everlearn developers"
copyright = author
version = release = everlearn.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "examples", "gallery/**.ipynb"]
html_theme = "furo"
html_title = "everlearn"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_theme_options = {
    "light_logo": "logo.svg",
    "dark_logo": "logo-dark.svg",
    "sidebar_hide_name": True,
    "light_css_variables": {"color-brand-primary": "#0f766e", "color-brand-content": "#0f766e"},
    "dark_css_variables": {"color-brand-primary": "#5eead4", "color-brand-content": "#5eead4"},
}
default_role = "literal"
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
autodoc_mock_imports = ["torch"]
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py",
    "within_subsection_order": "ExampleTitleSortKey",
    "abort_on_example_error": True,
    "image_scrapers": (),
    "reset_modules": (),
    "capture_repr": ("_repr_html_", "__repr__"),
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,  # its page fetches programs from other machines
    "min_reported_time": 10,
}


def escape_mathematics(app, what, name, obj, options, lines):
    """Write |Sigma| and (n_components_,) as they are; reStructuredText would read substitutions and links."""
    for number, line in enumerate(lines):
        head, colon, kind = line.partition(" : ")
        if colon and head.strip().isidentifier():
            line = head + colon + re.sub(r"(\w)_(?=[,)])", r"\1\\_", kind)
        lines[number] = re.sub(r"(``.*?``)|\|", lambda found: found[1] or r"\|", line)


def write_inline_formula(translator, node):
    """A formula as MathML: browsers draw it without a program from elsewhere."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def write_formula(translator, node):
    """A formula on a line of its own."""
    translator.body.append(translator.starttag(node, "div", CLASS="formula"))
    translator.body.append(convert(node.astext(), display="block") + "</div>")
    raise nodes.SkipNode


class SiteRenderer(MimetypeRenderer):
    """Figures of the gallery, drawn by the plotly.min.js that comes with the site."""

    def to_mimebundle(self, figure):
        return {"text/html": pio.to_html(figure, include_plotlyjs="../_static/plotly.min.js", full_html=False)}


pio.renderers["site"] = SiteRenderer()
pio.renderers.default = "site"


def write_plotly(app, error):
    """Put plotly's program among the site's files, so that the pictures need nothing from elsewhere."""
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "_static" / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")


def copy_results(app):
    """Put the tables that the benchmarks wrote beside the pages, under `results/`."""
    shutil.rmtree(HERE / "results", ignore_errors=True)
    shutil.copytree(HERE.parent / "benchmarks" / "results", HERE / "results")


def setup(app):
    app.add_html_math_renderer("mathml", (write_inline_formula, None), (write_formula, None))
    app.connect("builder-inited", copy_results)
    app.connect("build-finished", write_plotly)
    app.connect("autodoc-process-docstring", escape_mathematics, priority=100)  # before numpydoc
