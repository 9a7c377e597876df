# SPDX-License-Identifier: MIT
"""HTML page of an executed notebook: one file that loads nothing and runs only our own scripts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from nbformat import NotebookNode

from iolab.shown import CAPTION, SCRIPTS, terminal

__all__ = ["html_page"]

# Words, tables and pictures need no script and load nothing; the page tells the browser so. A
# script runs only if an object of iolab's own declared its hash: text of a measured machine that
# became markup by mistake has none. Frames (srcdoc) inherit the rule.
_TEMPLATE: Final = """\
{%- extends 'lab/index.html.j2' -%}
{%- block html_head -%}
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; \
font-src data:; style-src 'unsafe-inline'; {{ resources.iolab_scripts }}base-uri 'none'; \
form-action 'none'">
<meta name="color-scheme" content="light dark">
{{ super() }}
{%- endblock html_head -%}
{%- block html_head_js -%}{%- endblock html_head_js -%}
{%- block html_head_js_mathjax -%}{%- endblock html_head_js_mathjax -%}
{%- block html_head_js_mermaidjs -%}{%- endblock html_head_js_mermaidjs -%}
{%- block notebook_css -%}
{{ super() }}
{{ resources.include_css("static/theme-dark.css")
   | replace('<style type="text/css">', '<style media="(prefers-color-scheme: dark)">') }}
<style>{{ resources.iolab_style }}</style>
{%- endblock notebook_css -%}
{%- block body_header -%}
{{ super() }}{{ resources.iolab_navigation }}
{%- endblock body_header -%}
{%- block data_png scoped -%}
<div class="jp-RenderedImage jp-OutputArea-output">
<img src="data:image/png;base64,{{ output.data['image/png'] | escape_html }}" \
alt="{{ output.metadata.iolab_alt | default('') | escape_html }}">
</div>
{%- endblock data_png -%}
"""

# A figure is drawn on white: in the dark it stays a light card.
_STYLE: Final = f"""
:root {{ color-scheme: light dark; }}
body.jp-Notebook {{
  margin: 0; padding: 0; overflow: visible; background: var(--jp-layout-color0); }}
main {{ box-sizing: border-box; max-width: 64rem; margin: 0 auto; padding: 1rem; }}
main .jp-Cell {{ padding: 0.15rem 0; }}
main .jp-OutputArea-child, main .jp-InputArea, main .jp-OutputArea {{
  display: block; max-width: 100%; overflow: visible; }}
main .jp-RenderedHTMLCommon, main .jp-OutputArea-child .jp-OutputArea-output {{
  display: block; box-sizing: border-box; width: auto; max-width: 100%; padding: 0; margin: 0;
  overflow-wrap: break-word; }}
main h1, main h2, main h3 {{ overflow-wrap: anywhere; }}
main pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
main code {{ overflow-wrap: anywhere; }}
main .jp-RenderedMarkdown table {{
  display: block; width: fit-content; max-width: 100%; overflow-x: auto; margin: 0.5em 0; }}
main .jp-RenderedImage {{ padding: 0; }}
main img {{
  display: block; box-sizing: border-box; max-width: 100%; height: auto; padding: 6px;
  background: #fff; border-radius: 6px; }}
main nav {{
  display: flex; flex-wrap: wrap; gap: 0.2em 1.2em; padding: 0.3em 0 0.8em; font-size: 0.9em;
  font-family: var(--jp-content-font-family); color: var(--jp-content-font-color1); }}
main nav a {{ color: var(--jp-content-link-color); }}
main iframe {{ max-width: 100%; }}
main .{CAPTION} {{ margin: 0.3em 0 1.2em; font-size: 0.9em; opacity: 0.85; }}
@media print {{
  main nav {{ display: none; }} main {{ max-width: none; padding: 0; }}
  main img {{ break-inside: avoid; }} }}
"""

_HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)
# Markup of our own notebooks' sentences, which an alternative text does not need.
_MARKUP = re.compile(r"[*`]|<[^>]*>")
_HASH = re.compile(r"sha(256|384|512)-[A-Za-z0-9+/]+={0,2}")


def html_page(
    notebook: NotebookNode, links: Mapping[str, str] | None = None, heading: str = ""
) -> str:
    """Return the page of an executed notebook.

    The page holds no code. It omits a cell that shows nothing, with the sentences that introduce
    it, and gives each picture its caption as the alternative text.

    Parameters
    ----------
    notebook : NotebookNode
        The notebook; its outputs get their alternative texts here.
    links : mapping of str to str, optional
        Other pages, by the words that lead to them, above the first heading. Addresses are paths
        relative to this page.
    heading : str, optional
        Stands for the notebook's first heading, and is the page's title.

    Returns
    -------
    str
        The page.
    """
    from nbconvert import HTMLExporter  # noqa: PLC0415 - a second that figures do not need

    if heading:
        _head(notebook.cells, heading)
    notebook.cells = list(_cells_with_something_to_show(notebook.cells))
    _add_alternative_texts(notebook.cells)
    allowed = script_hashes_of(notebook)
    sources = " ".join(f"'{mark}'" for mark in allowed)
    exporter: Any = HTMLExporter
    made = exporter(
        raw_template=_TEMPLATE,
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )
    resources = {
        "metadata": {"name": _title(notebook)},
        "iolab_scripts": f"script-src {sources}; " if sources else "",
        "iolab_style": _STYLE,
        "iolab_navigation": _navigation(links or {}),
    }
    page, _ = made.from_notebook_node(notebook, resources=resources)
    return str(page)


def _head(cells: Iterable[NotebookNode], heading: str) -> None:
    for cell in cells:
        if cell.cell_type == "markdown" and _HEADING.search(cell.source):
            cell.source = _HEADING.sub(lambda _: f"# {heading}", cell.source, count=1)
            return


def _navigation(links: Mapping[str, str]) -> str:
    anchors = "".join(
        f'<a href="{quote(address)}">{html.escape(terminal(words))}</a>'
        for words, address in links.items()
    )
    return f'<nav aria-label="Pages">{anchors}</nav>' if anchors else ""


def script_hashes_of(notebook: NotebookNode) -> list[str]:
    """Return the hashes of the scripts that a notebook's outputs may run, each once.

    An object of iolab that brings a script declares its hash in the metadata of its output, under
    `iolab.shown.SCRIPTS`. Text cannot: neither what a cell prints nor markup in a table.

    Parameters
    ----------
    notebook : NotebookNode
        An executed notebook.

    Returns
    -------
    list of str
        Sources for the rule ``script-src``, such as "sha256-…".
    """
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    marks = [mark for output in outputs for mark in output.get("metadata", {}).get(SCRIPTS, [])]
    return [mark for mark in dict.fromkeys(marks) if _HASH.fullmatch(str(mark))]


def _cells_with_something_to_show(cells: Iterable[NotebookNode]) -> Iterable[NotebookNode]:
    """Yield the cells of a page: no code without outputs, no sentence that introduces such code.

    A cell with a heading introduces more than the next cell and stays.
    """
    waiting: NotebookNode | None = None
    for cell in cells:
        if cell.cell_type == "code" and not cell.outputs:
            if waiting is not None and not _HEADING.search(waiting.source):
                waiting = None
            continue
        if waiting is not None:
            yield waiting
        waiting = cell if cell.cell_type == "markdown" else None
        if waiting is None:
            yield cell
    if waiting is not None:
        yield waiting


def _add_alternative_texts(cells: Iterable[NotebookNode]) -> None:
    """Give each picture its caption, else the sentences that introduce its cell."""
    introduction = ""
    for cell in cells:
        if cell.cell_type == "markdown":
            introduction = " ".join(_MARKUP.sub("", _HEADING.sub("", cell.source)).split())
        outputs = cell.get("outputs", [])
        for place, output in enumerate(outputs):
            if "image/png" in output.get("data", {}):
                after = outputs[place + 1] if place + 1 < len(outputs) else {}
                output.metadata["iolab_alt"] = _caption_of(after) or introduction or "A figure."


def _caption_of(output: Any) -> str:
    data = output.get("data", {})
    is_caption = str(data.get("text/html", "")).startswith(f'<p class="{CAPTION}')
    return terminal(data["text/plain"]) if is_caption else ""


def _title(notebook: NotebookNode) -> str:
    headings = (
        _HEADING.search(cell.source) for cell in notebook.cells if cell.cell_type == "markdown"
    )
    first = next((match[1] for match in headings if match), "iolab")
    return _MARKUP.sub("", first)
