# SPDX-License-Identifier: MIT
"""The atlas as a table, a row for each report and a column for each kernel; what a report says."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pandas as pd

from iolab.pathology import get_pathology
from iolab.pathology.base import Pathology
from iolab.report.pages import TONES
from iolab.shown import NO_MATH, rendered, terminal
from iolab.stats.conditions import kernels_of
from iolab.stats.verdicts import VERDICTS, verdict_text

_ANSWERS: Final = {"reproduced": "yes", "not reproduced": "no"}
_FILES: Final = ("mail", "script")


def published_table(pathology: Pathology) -> pd.DataFrame:
    """Return what a pathology's report says of itself: rows of ``what`` and ``as published``."""
    published = pathology.published
    if published is None:
        return pd.DataFrame(columns=["what", "as published"])
    rows = [
        ("report", published.citation),
        ("happens", published.happens),
        *(("number", number) for number in published.numbers),
        ("cause", published.cause),
        *(("address", link) for link in published.links),
    ]
    return pd.DataFrame([row for row in rows if row[1]], columns=["what", "as published"])


@dataclass(frozen=True, repr=False, eq=False)
class AtlasIndex:
    """Reports as rows and kernels as columns, which a notebook displays.

    ``table`` has rows of `iolab.stats.verdicts.verdict_table`. ``controls`` has the names of each
    report's controls, which are rows of the table, too. ``links`` has by report the addresses of
    its page, mail and reproducer.
    """

    table: pd.DataFrame
    controls: Mapping[str, Sequence[str]] = field(default_factory=dict)
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each report: ``report``, ``published``, an answer on each kernel, ``cause``."""
        rows = []
        for name in self._reports():
            published = get_pathology(name).published
            row = {"report": name, "published": "; ".join(published.numbers) if published else ""}
            answers = {column: self._answer(name, kernel) for kernel, column in self._columns()}
            row |= {c: f"{one['words']} {one['estimate']}".strip() for c, one in answers.items()}
            rows.append({**row, "cause": published.cause if published else ""})
        return pd.DataFrame(rows)

    def _columns(self) -> list[tuple[str, str]]:
        """Return each kernel with the name of its column."""
        return [(kernel, f"kernel {kernel}") for kernel in kernels_of(self.table)]

    def _reports(self) -> list[str]:
        own = {control for names in self.controls.values() for control in names}
        return [str(name) for name in self.table["pathology"].unique() if name not in own]

    def __repr__(self) -> str:
        return terminal(self.frame.to_string(index=False))

    def _repr_html_(self) -> str:
        found = set(self.table["verdict"])
        marks = {verdict: f"v{n}" for n, verdict in enumerate(VERDICTS) if verdict in found}
        kernels = {kernel: f"k{n}" for n, kernel in enumerate(kernels_of(self.table))}
        rows = []
        for name in self._reports():
            own = self._primary(name)
            classes = [marks[verdict] for verdict in own["verdict"].unique()]
            classes += [kernels[kernel] for kernel in own["kernel"].unique()]
            rows.append((" ".join(classes), self._cells(name)))
        choices = {
            "Verdict": [(mark, verdict) for verdict, mark in marks.items()],
            "Kernel": [(mark, terminal(kernel)) for kernel, mark in kernels.items()],
        }
        columns = list(dict.fromkeys(column for _, cells in rows for column in cells))
        return rendered(
            "verdicts.html.j2", no_math=NO_MATH, choices=choices, columns=columns, rows=rows
        )

    def _primary(self, name: str) -> pd.DataFrame:
        table = self.table
        return table[(table["pathology"] == name) & ~table["secondary"]]

    def _cells(self, name: str) -> dict[str, dict[str, str]]:
        """Return the parts of a report's cells by column."""
        pathology, links = get_pathology(name), self.links.get(name, {})
        published = pathology.published
        page = links.get("page", "")
        cells = {"report": {"words": terminal(name), "address": page, "more": pathology.title}}
        cells |= {column: self._answer(name, kernel) for kernel, column in self._columns()}
        if published:
            # Small print wraps.
            numbers = terminal("; ".join(published.numbers))
            cells["published"] = {"words": published.date or "-", "more": numbers}
            cells["cause"] = {"words": "", "more": terminal(published.cause)}
        for what in _FILES:
            address = links.get(what, "")
            cells[what] = {"words": what if address else "-", "address": address}
        return cells

    def _answer(self, name: str, kernel: str) -> dict[str, str]:
        own = self._primary(name)
        own = own[own["kernel"] == kernel]
        if own.empty:
            return {"words": "not measured", "tone": TONES["not measured"], "estimate": ""}
        words, tone = answer(own)
        # A reason may have the last words of fio.
        said = [textwrap.shorten(verdict_text(own.iloc[0].to_dict()), 120, placeholder=" ...")]
        estimate = said[0] if own["n"].iloc[0] else ""
        for control in self.controls.get(name, ()):
            rows = self._primary(control)
            rows = rows[rows["kernel"] == kernel]
            if len(rows):
                said.append(f"{get_pathology(control).title}: {answer(rows)[0]}")
        more = terminal("; ".join(filter(None, said)))
        return {"words": words, "tone": tone, "more": more, "estimate": estimate}


def answer(rows: pd.DataFrame) -> tuple[str, str]:
    """Return the verdict on claims of a report on a kernel in a word or two, and its tone."""
    judged = rows.loc[rows["verdict"] != "cannot run here", "verdict"]
    yes = int((judged == "reproduced").sum())
    if 0 < yes < len(judged):
        return f"partly: {yes} of {len(judged)}", "mixed"
    verdict = str(judged.iloc[0]) if len(judged) else "cannot run here"
    if judged.nunique() > 1:
        verdict = "inconclusive" if "inconclusive" in set(judged) else "not reproduced"
    return _ANSWERS.get(verdict, verdict), TONES[verdict]
