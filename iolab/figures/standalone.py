# SPDX-License-Identifier: MIT
"""Bokeh models as an HTML document of its own that can run only its own scripts."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from html.parser import HTMLParser

from bokeh.embed import json_item
from bokeh.models.ui import UIElement
from bokeh.resources import Resources

from iolab.paths import TEMPLATES
from iolab.shown import rendered

__all__ = ["document", "frame", "script_hashes"]


def document(model: UIElement, *, title: str, above: str = "", below: str = "") -> str:
    """Return a model as one HTML document, with HTML above and below it (`timeline.html.j2`)."""
    scripts = (_bokeh(), _loader())
    return rendered(
        "timeline.html.j2",
        title=title,
        above=above,
        below=below,
        models=_models(model),
        scripts=scripts,
        hashes=[_hash(script) for script in scripts],
    )


def frame(inside: str, *, height_px: int, title: str) -> str:
    """Return a document as a sandboxed frame, isolated from the page's scripts and data."""
    # Scripts and JSON contain far more double quotes.
    quoted = inside.replace("&", "&amp;").replace("'", "&#39;")
    return (
        f'<iframe sandbox="allow-scripts allow-downloads" title="{html.escape(title)}" '
        f'style="width: 100%; height: {height_px}px; border: 0; color-scheme: light dark" '
        f"srcdoc='{quoted}'></iframe>"
    )


def script_hashes(page: str) -> list[str]:
    """Return the hash (``sha256-…``) of each inline script of a page that a browser would run.

    Includes scripts in the ``srcdoc`` of a frame, which inherits the page's policy.
    """
    found = _Scripts()
    found.feed(page)
    found.close()
    return list(dict.fromkeys(found.hashes))


class _Scripts(HTMLParser):
    """Collects the hashes of inline scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.hashes: list[str] = []
        self._script: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "iframe" and given.get("srcdoc"):
            self.hashes += script_hashes(given["srcdoc"])
        elif tag == "script" and "src" not in given and _runs(given.get("type", "")):
            self._script = []

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self._script.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self._script is not None:
            self.hashes.append(_hash("".join(self._script)))
            self._script = None


def _runs(kind: str) -> bool:
    """Return whether a browser runs a script of a type; other types are data."""
    kind = kind.strip().lower()
    return kind in ("", "module") or kind.endswith(("javascript", "ecmascript"))


def _hash(script: str) -> str:
    # A browser normalises every line end to \n.
    read = script.replace("\r\n", "\n").replace("\r", "\n")
    return f"sha256-{base64.b64encode(hashlib.sha256(read.encode()).digest()).decode()}"


@cache
def _loader() -> str:
    # The same for every document, so that a page of several timelines allows two scripts.
    return (TEMPLATES / "timeline.js").read_text()


@cache
def _bokeh() -> str:
    return str(Resources(mode="inline", components=["bokeh"]).js_raw[0])


def _models(model: UIElement) -> str:
    """Return a model as JSON that cannot end the script element around it."""
    return json.dumps(json_item(model), separators=(",", ":")).replace("<", "\\u003c")
