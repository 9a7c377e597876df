# SPDX-License-Identifier: MIT
"""Pages of executed notebooks: what they leave out, what they allow, how pictures are described."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat import NotebookNode

from iolab.shown import SCRIPTS, Paragraph
from iolab.sweeps.html import html_page, script_hashes_of

# nbconvert warns of things that are not ours.
pytestmark = pytest.mark.filterwarnings("ignore")

_PNG = base64.b64encode(b"\x89PNG").decode()
_OWN = "document.title = 'own'"
_HASH = "sha256-" + base64.b64encode(hashlib.sha256(_OWN.encode()).digest()).decode()


def output(data: dict[str, str], **metadata: Any) -> NotebookNode:
    made = nbformat.v4.new_output(  # type: ignore[no-untyped-call]
        "display_data", data=data, metadata=metadata
    )
    assert isinstance(made, NotebookNode)
    return made


def picture() -> NotebookNode:
    return output({"image/png": _PNG})


def caption(words: str) -> NotebookNode:
    return output(Paragraph(words)._repr_mimebundle_())


def words(text: str) -> NotebookNode:
    made = nbformat.v4.new_markdown_cell(text)  # type: ignore[no-untyped-call]
    assert isinstance(made, NotebookNode)
    return made


def code(*outputs: NotebookNode) -> NotebookNode:
    made = nbformat.v4.new_code_cell("SOURCE", outputs=list(outputs))  # type: ignore[no-untyped-call]
    assert isinstance(made, NotebookNode)
    return made


def notebook(*cells: NotebookNode) -> NotebookNode:
    made = nbformat.v4.new_notebook(cells=list(cells))  # type: ignore[no-untyped-call]
    assert isinstance(made, NotebookNode)
    return made


def test_a_picture_has_its_caption_else_its_introduction_as_alternative_text() -> None:
    page = html_page(
        notebook(
            words("# The `title`\n\nA figure of *both*."),
            code(picture(), caption('Ratio "in" <b>words</b>'), picture()),
        )
    )
    alts = [image["alt"] for image in BeautifulSoup(page, "html.parser").find_all("img")]
    assert alts == ['Ratio "in" <b>words</b>', "A figure of both."]
    assert "No description" not in page
    assert "<title>The title</title>" in page


def test_cells_that_show_nothing_are_left_out_with_their_introduction() -> None:
    page = html_page(
        notebook(
            words("# Title\n\nSentence one."),
            words("The parameters of this page."),
            code(),
            code(),
            words("## Traces\n\nSentence two."),
            code(),
            words("The table."),
            code(caption("shown")),
            words("Write all results."),
            code(),
            words("The end."),
        )
    )
    for here in ("Sentence one", "Sentence two", "The table.", "shown", "The end."):
        assert here in page
    for gone in (
        "The parameters",
        "Write all results",
        "SOURCE",
        "cell jp-mod-noOutputs",
    ):
        assert gone not in page


def policy(page: str) -> str:
    (rule,) = re.findall(r"<meta[^>]*Content-Security-Policy[^>]*>", page)
    return str(rule)


def test_a_page_runs_no_script_but_those_that_its_own_objects_declare() -> None:
    html = f"<script>{_OWN}</script>"
    plain = policy(html_page(notebook(code(output({"text/html": html})))))
    assert "default-src 'none'" in plain
    assert "script-src" not in plain
    declared = output({"text/html": html}, **{SCRIPTS: [_HASH, _HASH]})
    assert f"script-src '{_HASH}';" in policy(html_page(notebook(code(declared))))


@pytest.mark.parametrize("mark", ["'unsafe-inline'", "sha256-x'; script-src *", "*", 3, None])
def test_a_declaration_that_is_no_hash_allows_nothing(mark: Any) -> None:
    made = notebook(code(output({"text/plain": "x"}, **{SCRIPTS: [mark]})))
    assert script_hashes_of(made) == []
