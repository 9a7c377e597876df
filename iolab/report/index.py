# SPDX-License-Identifier: MIT
"""Index of verdicts: a row for each report and kernel, filtered without a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from iolab.pathology import get_pathology
from iolab.shown import NO_MATH, rendered, terminal
from iolab.stats.conditions import kernels_of
from iolab.stats.verdicts import VERDICTS, verdict_summary

__all__ = ["VerdictIndex", "verdict_index"]

_COLUMNS: Final = ("mechanism", "magnitude", "secondary claims", "confidence")
_TONES: Final = dict(zip(VERDICTS, ("yes", "no", "open", "none", "none", "none"), strict=True))


@dataclass(frozen=True, repr=False, eq=False)
class VerdictIndex:
    """Verdicts as a table with links, which a notebook displays.

    With several reports it has filters by report, kernel and verdict. They are rules of style, not
    a script: a page keeps them under the strictest policy.

    Parameters
    ----------
    table : DataFrame
        Rows of `iolab.stats.verdicts.verdict_table`, of any number of reports.
    links : mapping of str to str
        The address of each report's page, relative to this one.
    experiments : mapping of str to mapping of str to str
        Of each report the address of each kernel's page.
    """

    table: pd.DataFrame
    links: Mapping[str, str] = field(default_factory=dict)
    experiments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return terminal(verdict_summary(self.table).drop(columns="page").to_string(index=False))

    def _repr_html_(self) -> str:
        reports = [str(name) for name in self.table["pathology"].unique()]
        verdicts = [verdict for verdict in VERDICTS if verdict in set(self.table["verdict"])]
        groups = {"Report": reports, "Kernel": kernels_of(self.table), "Verdict": verdicts}
        marks = {
            (group, value): f"{group[0].lower()}{place}"
            for group, values in groups.items()
            for place, value in enumerate(values)
        }
        several = len(reports) > 1
        rows = verdict_summary(self.table).to_dict("records")
        columns = [*(["report"] if several or self.links else []), "kernel", *_COLUMNS]
        columns = [name for name in columns if any(row.get(name) != "no claim" for row in rows)]
        choices = {
            group: [(marks[group, value], terminal(value)) for value in values]
            for group, values in groups.items()
            if several
        }
        return rendered(
            "verdicts.html.j2",
            no_math=NO_MATH,
            choices=choices,
            columns=columns,
            rows=[self._row(row, columns, marks) for row in rows],
        )

    def _row(
        self, row: Mapping[Any, Any], columns: Sequence[str], marks: Mapping[tuple[str, str], str]
    ) -> tuple[str, dict[str, dict[str, str]]]:
        """Return the classes of a row, and the parts of its cells by column."""
        name, kernel = str(row["pathology"]), str(row["kernel"])
        own = (self.table["pathology"] == name) & (self.table["kernel"] == kernel)
        classes = [marks["Report", name], marks["Kernel", kernel]]
        classes += [marks["Verdict", verdict] for verdict in self.table.loc[own, "verdict"]]
        return " ".join(classes), {column: self._cell(row, column) for column in columns}

    def _cell(self, row: Mapping[Any, Any], column: str) -> dict[str, str]:
        name, kernel = str(row["pathology"]), str(row["kernel"])
        if column == "report":
            title = get_pathology(name).title
            return {"words": terminal(name), "address": self.links.get(name, ""), "more": title}
        address = self.experiments.get(name, {}).get(kernel, "")
        if column == "kernel" and address:
            return {"words": terminal(kernel), "address": address}
        # The count is followed by the claims that were not reproduced.
        words, _, others = terminal(str(row[column])).partition(" (")
        tone = _TONES.get(words, "mixed" if words.endswith("reproduced") else "")
        return {"words": words, "tone": tone, "more": others.removesuffix(")")}


def verdict_index(
    table: pd.DataFrame,
    links: Mapping[str, str] | None = None,
    experiments: Mapping[str, Mapping[str, str]] | None = None,
) -> VerdictIndex:
    """Return the verdicts as a table that a reader filters; parameters as of `VerdictIndex`."""
    return VerdictIndex(table, links or {}, experiments or {})
