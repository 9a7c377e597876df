# SPDX-License-Identifier: MIT
"""Text as it leaves: words for a terminal, a page or Markdown, whatever they are made of.

Two places need no escaping, since they take no text for code: figures (``text.parse_math`` is off
in `iolab.figures.style.STYLE`), and the write-up, whose Typst reads strings from files.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iolab import foreign

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

__all__ = ["Paragraph", "markdown", "terminal", "text_table"]

# JupyterLab sets formulas in HTML, too.
_NO_MATH = "tex2jax_ignore mathjax_ignore"
# ASCII punctuation is what Markdown escapes; of it, this is never markup inside of a line.
_MARKUP = re.compile(r"[!-/:-@\[-`{-~]")
_NO_MARKUP = frozenset("%'()+,-./;?\"")


def terminal(words: str) -> str:
    """Return words without any character that a terminal obeys, but new lines and tabs."""
    return foreign.printable(words, keep="\n\t")


def markdown(words: str) -> str:
    """Return words as Markdown for one line that shows them as they are."""
    escaped = _MARKUP.sub(lambda m: m[0] if m[0] in _NO_MARKUP else f"\\{m[0]}", words)
    return foreign.printable(escaped)


@dataclass(frozen=True)
class Paragraph:
    """Words in a notebook, shown as they are: a caption. Neither Markdown nor HTML is in them."""

    words: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        words = terminal(self.words)
        return {
            "text/plain": words,
            "text/html": f'<p class="{_NO_MATH}">{html.escape(words)}</p>',
        }


def text_table(
    frame: pd.DataFrame, *, precision: int | None = None, na_rep: str | None = None
) -> Styler:
    """Return a table for a notebook with its texts in full length and no index.

    Unlike pandas' own styled tables, it shows markup in cells and column names as text. `precision`
    is the number of digits behind the point, `na_rep` what stands for what is missing.
    """
    options: Mapping[str, Any] = {"escape": "html", "precision": precision, "na_rep": na_rep}
    styled = frame.style.format(**options).format_index(axis=1, escape="html").hide()
    return styled.set_table_attributes(f'class="{_NO_MATH}"')
