# SPDX-License-Identifier: MIT
"""Markdown tables, and how their cells name a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from iolab.stats.estimates import COVERS
from iolab.stats.verdicts import verdict_text

WORDS: Final = {
    "reproduced": "yes",
    "not reproduced": "no",
    "other cause": "other cause",
    "inconclusive": "?",
    "not applicable": "n/a",
    "not measured": "not measured",
    "cannot run here": "-",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of cells below a head as a Markdown table."""
    first, *others = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return "\n".join([first, "|---" * len(head) + "|", *others])


def verdict_cell(row: Mapping[Any, Any]) -> str:
    """Return a verdict, its estimate and its boots as a cell."""
    word = WORDS[row["verdict"]]
    if not row["n"]:
        return word
    covers = f" ({COVERS[row['n']]})" if row["n"] in COVERS else ""
    return f"{word}: {verdict_text(row)}, n = {row['n']}{covers}"
