# SPDX-License-Identifier: MIT
"""HTML page of an executed notebook, by nbconvert and ``iolab/templates/page.html.j2``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from nbconvert import HTMLExporter
from nbformat import NotebookNode

from iolab.paths import TEMPLATES
from iolab.shown import CAPTION, SCRIPTS, terminal

__all__ = ["html_page", "script_hashes_of"]

_HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)
# Markup in our own notebooks, which an alternative text does not need.
_MARKUP = re.compile(r"[*`]|<[^>]*>")
_HASH = re.compile(r"sha(256|384|512)-[A-Za-z0-9+/]+={0,2}")


def html_page(
    notebook: NotebookNode, links: Mapping[str, str] | None = None, heading: str = ""
) -> str:
    """Return the page of an executed notebook, without code and without cells that show nothing.

    ``links`` maps words to relative addresses. ``heading`` replaces the notebook's first heading
    and is the title. Each picture gets its caption as alternative text.
    """
    if heading:
        _head(notebook.cells, heading)
    notebook.cells = list(_cells_with_something_to_show(notebook.cells))
    _add_alternative_texts(notebook.cells)
    exporter: Any = HTMLExporter
    made = exporter(
        template_file="page.html.j2",
        extra_template_paths=[str(TEMPLATES)],
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )
    resources = {
        "metadata": {"name": _title(notebook)},
        "scripts": script_hashes_of(notebook),
        "links": {terminal(words): address for words, address in (links or {}).items()},
    }
    page, _ = made.from_notebook_node(notebook, resources=resources)
    return str(page)


def _head(cells: Iterable[NotebookNode], heading: str) -> None:
    for cell in cells:
        if cell.cell_type == "markdown" and _HEADING.search(cell.source):
            cell.source = _HEADING.sub(lambda _: f"# {heading}", cell.source, count=1)
            return


def script_hashes_of(notebook: NotebookNode) -> list[str]:
    """Return the hashes of the scripts that outputs declare under `iolab.shown.SCRIPTS`.

    Text cannot declare one: neither printed output nor markup in a table.
    """
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    marks = [mark for output in outputs for mark in output.get("metadata", {}).get(SCRIPTS, [])]
    return [mark for mark in dict.fromkeys(marks) if _HASH.fullmatch(str(mark))]


def _cells_with_something_to_show(cells: Iterable[NotebookNode]) -> Iterable[NotebookNode]:
    """Yield the cells of a page, without code that shows nothing and text that introduces it.

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
