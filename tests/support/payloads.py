# SPDX-License-Identifier: MIT
"""Texts with which a measured machine attacks anyone who reads its results."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

MARK: Final = "iolabpwned"
# `with_text` puts the address of a listener here.
ADDRESS: Final = "127.0.0.1:9"
_URL: Final = f"http://{ADDRESS}/{MARK}"

PAYLOADS: Final[dict[str, str]] = {
    "script": f"<script>fetch('{_URL}-script')</script>",
    "handler": f"<img src=x onerror=\"fetch('{_URL}-handler')\">",
    "image": f'<img src="{_URL}-image">',
    "frame": f'"><iframe src="{_URL}-frame"></iframe>',
    "style": f'</td><style>@import "{_URL}-style";</style>',
    "refresh": f'<meta http-equiv="refresh" content="0;url={_URL}-refresh">',
    "markdown image": f"![{MARK}]({_URL}-markdown)",
    "markdown link": f"[{MARK}](javascript:{MARK}) <javascript:{MARK}> <{_URL}>",
    "markdown": f"`{MARK}` **{MARK}** | {MARK} | # {MARK}",
    "title": f"\x1b]0;{MARK}\x07",
    "clear": f"\x1b[2J\x1b[H{MARK}",
    "link": f"\x1b]8;;{_URL}\x1b\\{MARK}\x1b]8;;\x1b\\",
    "C1": f"\x9b2J\x9d0;{MARK}\x9c\x90{MARK}",
    "carriage return": f"{MARK}\riolab: all is well\x08\x7f",
    "rich link": f"[link=file:///etc/{MARK}]{MARK}[/link] [bold red]{MARK}",
    "rich end": f"[/{MARK}] :skull:",
    "typst": f'#eval("panic(1)") #link("{_URL}")[{MARK}] #read("/etc/passwd") @{MARK} <{MARK}>',
    "math": rf"$\int {MARK}$ $\undefined{{{MARK}}} $$ \(\href{{javascript:{MARK}}}{{x}}\)",
    "bidi": f"\u202e{MARK}\u2066\u200f\u2028\ufeff\u00ad",
    "surrogate": f"\ud800{MARK}\udfff",
    "new line": f"{MARK}\niolab: all is well",
}
TEXT: Final = " ".join(PAYLOADS.values())

_URLS = frozenset({"action", "background", "data", "formaction", "poster", "src", "srcset"})


def with_text(value: Any, text: str) -> Any:
    """Return a JSON value in which `text` follows on every string, in keys too."""
    if isinstance(value, str):
        return value + text
    if isinstance(value, list):
        return [with_text(item, text) for item in value]
    if isinstance(value, dict):
        return {key + text: with_text(item, text) for key, item in value.items()}
    return value


def controls(text: str) -> set[str]:
    """Return the characters of a text that a terminal obeys, new lines and tabs left out."""
    return {c for c in text if not (c.isprintable() or c in "\n\t")}


class Attacked(HTMLParser):
    """Reads a page; ``found`` is what in it runs, loads or leads to something of a payload."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.text: list[str] = []
        self._inside = ""
        self.feed(page)
        self.close()

    @classmethod
    def of(cls, path: Path) -> Attacked:
        return cls(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        given = {name: value or "" for name, value in attrs}
        # A frame of ours holds its whole document, which is read like the page.
        own = tag == "iframe" and "srcdoc" in given and "sandbox" in given and "src" not in given
        if own:
            self.found += Attacked(given["srcdoc"]).found
        wrong = tag in ("iframe", "object", "embed", "base") and not own
        wrong |= tag == "meta" and "refresh" in given.get("http-equiv", "").lower()
        wrong |= any(name.startswith("on") for name in given)
        wrong |= any(MARK in given[name] for name in _URLS & given.keys())
        wrong |= MARK in given.get("href", "") or "javascript:" in given.get("href", "")
        if wrong:
            self.found.append(f"<{tag} {given}>"[:300])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._inside = ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style") and MARK in data:
            self.found.append(f"<{self._inside}>{data}"[:300])
        elif self._inside not in ("script", "style"):
            self.text.append(data)
