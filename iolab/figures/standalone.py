# SPDX-License-Identifier: MIT
"""Bokeh models as an HTML document of its own, which may run its own scripts and nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from html.parser import HTMLParser
from typing import Final

from bokeh.embed import json_item
from bokeh.models.ui import UIElement
from bokeh.resources import Resources

__all__ = ["document", "frame", "script_hashes"]

# The same for every document, so that a page of several timelines allows two scripts. It reads
# the models from a block of data, which is no script: no text of a trace is ever compiled.
_LOADER: Final = """
Bokeh.set_log_level("error");
const place = document.getElementById("timeline");
place.textContent = "";
Bokeh.embed.embed_item(JSON.parse(document.getElementById("models").textContent), place);
"""
# The variables are Bokeh's (core/visuals): it reads the colours of text and lines from them.
# Those of the tooltip are its own, on an element below the body.
_STYLE: Final = """
:root { color-scheme: light dark; --page: #fff; --ink: #222; --faint: #ddd; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16181c; --ink: #ddd; --faint: #3a3d44; --bokeh-icon-color: #aaa; }
}
:root {
  --bk-background-fill-color: var(--page); --bk-border-fill-color: var(--page);
  --bk-outline-line-color: var(--faint); --bk-grid-line-color: var(--faint);
  --bk-axis-line-color: var(--faint); --bk-major-tick-line-color: var(--faint);
  --bk-major-label-text-color: var(--ink); --bk-axis-label-text-color: var(--ink);
  --bk-text-color: var(--ink);
}
.bk-Tooltip {
  --tooltip-color: var(--page); --tooltip-text: var(--ink); --tooltip-border: var(--faint);
  --tooltip-arrow-color: var(--page);
}
body { margin: 0; background: var(--page); color: var(--ink); font: 13px/1.5 sans-serif; }
main { padding: 0 2px; }
main.page { max-width: 80rem; margin: 0 auto; padding: 0.5rem 1rem 2rem; }
.key { display: flex; flex-wrap: wrap; gap: 0 1.2em; margin: 0 0 4px; font-size: 12px; }
.key span { display: inline-flex; align-items: center; gap: 0.4em; }
"""


def document(model: UIElement, *, title: str, above: str = "", below: str = "") -> str:
    """Return a model as one HTML document without any address in it.

    Its Content-Security-Policy allows its two scripts by their hashes. Bokeh compiles code
    (``unsafe-eval``) for its CustomJS models only.

    Parameters
    ----------
    model : UIElement
        The model.
    title : str
        The document's title, as text.
    above, below : str
        HTML before and after the model.
    """
    scripts = (_bokeh(), _LOADER)
    allowed = " ".join(f"'{_hash(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{_STYLE}</style>\n</head>\n<body>",
            above,
            '<div id="timeline">This timeline needs its scripts, and they may not run here.</div>',
            below,
            f'<script type="application/json" id="models">{_models(model)}</script>',
            *(f"<script>{script}</script>" for script in scripts),
            "</body>\n</html>\n",
        ]
    )


def frame(inside: str, *, height_px: int, title: str) -> str:
    """Return a document as a frame within another page, apart from that page's scripts and data.

    Parameters
    ----------
    inside : str
        The document.
    height_px : int
        The frame's height.
    title : str
        What a screen reader says of it, as text.
    """
    # Scripts and JSON have far more of the other quotation mark.
    quoted = inside.replace("&", "&amp;").replace("'", "&#39;")
    return (
        f'<iframe sandbox="allow-scripts allow-downloads" title="{html.escape(title)}" '
        f'style="width: 100%; height: {height_px}px; border: 0; color-scheme: light dark" '
        f"srcdoc='{quoted}'></iframe>"
    )


def script_hashes(page: str) -> list[str]:
    """Return the hashes by which a Content-Security-Policy allows the inline scripts of a page.

    Parameters
    ----------
    page : str
        HTML; scripts within the ``srcdoc`` of a frame, which inherits the page's policy, count.

    Returns
    -------
    list of str
        ``sha256-…`` of each script that a browser would run, each once.
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
    """Tell whether a browser runs a script of a type; it takes any other type for data."""
    kind = kind.strip().lower()
    return kind in ("", "module") or kind.endswith(("javascript", "ecmascript"))


def _hash(script: str) -> str:
    # A browser reads every end of a line as \n.
    read = script.replace("\r\n", "\n").replace("\r", "\n")
    return f"sha256-{base64.b64encode(hashlib.sha256(read.encode()).digest()).decode()}"


@cache
def _bokeh() -> str:
    return str(Resources(mode="inline", components=["bokeh"]).js_raw[0])


def _models(model: UIElement) -> str:
    """Return a model as JSON that cannot end the script element around it."""
    return json.dumps(json_item(model), separators=(",", ":")).replace("<", "\\u003c")
