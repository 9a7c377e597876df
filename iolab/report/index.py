# SPDX-License-Identifier: MIT
"""Index of verdicts: a row for each report and kernel, filtered without a script."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import pandas as pd

from iolab.pathology import get_pathology
from iolab.shown import NO_MATH, terminal
from iolab.stats.conditions import kernels_of
from iolab.stats.verdicts import VERDICTS, verdict_summary

__all__ = ["VerdictIndex", "verdict_index"]

_COLUMNS: Final = ("mechanism", "magnitude", "secondary claims", "confidence")
_TONES: Final = dict(zip(VERDICTS, ("yes", "no", "open", "none", "none", "none"), strict=True))
# Translucent colours lie well on light and dark. Where it is narrow, each row becomes a card. A
# container's own counter does not count what is inside it, so the table has the counter.
_STYLE: Final = """\
.iolab-index{container-type:inline-size;font-size:14px;line-height:1.4}
.iolab-index form{display:grid;gap:.4em;margin:.5em 0}
.iolab-index fieldset{border:0;margin:0;padding:0;display:flex;flex-wrap:wrap;gap:.3em;\
align-items:baseline}
.iolab-index legend{float:left;width:5.5em;padding:0;font-weight:600}
.iolab-index label{position:relative;border:1px solid #8888;border-radius:1em;padding:.1em .7em;\
cursor:pointer}
.iolab-index input{position:absolute;opacity:0;margin:0}
.iolab-index label:has(:checked){background:#3b82f64d;border-color:#3b82f6}
.iolab-index label:has(:focus-visible){outline:2px solid #3b82f6}
.iolab-index table{counter-reset:iolab-row;border-collapse:collapse;margin:.5em 0;width:100%;\
border:0;font-size:inherit;table-layout:auto}
.iolab-index tr{background:transparent!important}
.iolab-index tbody tr{counter-increment:iolab-row}
.iolab-index th,.iolab-index td{text-align:left!important;vertical-align:top;\
padding:.3em .8em .3em 0;border:0;border-bottom:1px solid #8884;white-space:normal;max-width:none}
.iolab-index small{display:block;opacity:.8;white-space:normal}
.iolab-index a{text-decoration:underline}
.iolab-index :is(.yes,.no,.open,.none,.mixed)::before{content:"";display:inline-block;\
width:.7em;height:.7em;margin-right:.4em;border-radius:50%;background:#8888;box-sizing:border-box}
.iolab-index .yes::before{background:#d9691f}
.iolab-index .no::before{background:#3b82c4}
.iolab-index .open::before{background:none;border:2px solid #b8960c}
.iolab-index .none::before{background:none;border:2px dotted #8889}
.iolab-index .iolab-count::before{content:counter(iolab-row)}
@container (min-width:58rem){.iolab-index :is(th,td):not(:first-child){white-space:nowrap}}
@container (max-width:40rem){
.iolab-index table,.iolab-index tbody{display:block}
.iolab-index thead{display:none}
.iolab-index tbody tr{display:grid;grid-template-columns:9.5em 1fr;border:1px solid #8886;\
border-radius:6px;margin:.5em 0;padding:.4em .6em}
.iolab-index td{display:contents}
.iolab-index td::before{content:attr(data-label);opacity:.8}
}
"""


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
        kernels = kernels_of(self.table)
        verdicts = [verdict for verdict in VERDICTS if verdict in set(self.table["verdict"])]
        rows = verdict_summary(self.table).to_dict("records")
        several = len(reports) > 1
        groups = {"Report": reports, "Kernel": kernels, "Verdict": verdicts} if several else {}
        marks = {
            (group, value): f"{group[0].lower()}{place}"
            for group, values in (("Report", reports), ("Kernel", kernels), ("Verdict", verdicts))
            for place, value in enumerate(values)
        }
        columns = [*(["report"] if several or self.links else []), "kernel", *_COLUMNS]
        columns = [name for name in columns if any(row.get(name) != "no claim" for row in rows)]
        head = "".join(f'<th scope="col">{name}</th>' for name in columns)
        body = "".join(self._row(row, columns, marks) for row in rows)
        count = f'<p><span class="iolab-count"></span> of {len(rows)} rows</p>' if several else ""
        return (
            f'<div class="iolab-index {NO_MATH}"><style>{_STYLE}{_rules(groups, marks)}</style>'
            f"{_filters(groups, marks)}"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{count}</div>"
        )

    def _row(
        self, row: Mapping[Any, Any], columns: Sequence[str], marks: Mapping[tuple[str, str], str]
    ) -> str:
        name, kernel = str(row["pathology"]), str(row["kernel"])
        own = (self.table["pathology"] == name) & (self.table["kernel"] == kernel)
        classes = [marks["Report", name], marks["Kernel", kernel]]
        classes += [marks["Verdict", verdict] for verdict in self.table.loc[own, "verdict"]]
        cells = [f'<td data-label="{c}">{self._cell(row, c)}</td>' for c in columns]
        return f'<tr class="{" ".join(classes)}">{"".join(cells)}</tr>'

    def _cell(self, row: Mapping[Any, Any], column: str) -> str:
        own = self.experiments.get(str(row["pathology"]), {})
        if column == "kernel" and str(row["kernel"]) in own:
            return f"<span>{_link(str(row['kernel']), own[str(row['kernel'])])}</span>"
        if column != "report":
            # Behind a count stand the claims that were not reproduced.
            words, _, others = html.escape(terminal(str(row[column]))).partition(" (")
            tone = _TONES.get(words, "mixed" if words.endswith("reproduced") else "")
            listed = f"<small>{others.removesuffix(')')}</small>" if others else ""
            return f'<span class="{tone}">{words}{listed}</span>'
        name = str(row["pathology"])
        title = f"<small>{html.escape(get_pathology(name).title)}</small>"
        words = _link(name, self.links[name]) if name in self.links else html.escape(name)
        return f"<span>{words}{title}</span>"


def verdict_index(
    table: pd.DataFrame,
    links: Mapping[str, str] | None = None,
    experiments: Mapping[str, Mapping[str, str]] | None = None,
) -> VerdictIndex:
    """Return the verdicts as a table that a reader filters; parameters as of `VerdictIndex`."""
    return VerdictIndex(table, links or {}, experiments or {})


def _link(words: str, address: str) -> str:
    return f'<a href="{quote(address)}">{html.escape(terminal(words))}</a>'


def _filters(groups: Mapping[str, Sequence[str]], marks: Mapping[tuple[str, str], str]) -> str:
    """Return a line of choices for each group: all, or one value."""
    lines = []
    for group, values in groups.items():
        choices = [("all", "all"), *((marks[group, value], value) for value in values)]
        inputs = "".join(
            f'<label><input type="radio" name="{group}" value="{mark}"'
            f"{' checked' if mark == 'all' else ''}>{html.escape(terminal(value))}</label>"
            for mark, value in choices
        )
        lines.append(f"<fieldset><legend>{group}</legend>{inputs}</fieldset>")
    return f"<form>{''.join(lines)}</form>" if lines else ""


def _rules(groups: Mapping[str, Sequence[str]], marks: Mapping[tuple[str, str], str]) -> str:
    """Return the rules that hide the rows without the chosen values."""
    chosen = [marks[group, value] for group, values in groups.items() for value in values]
    return "".join(
        f'.iolab-index:has([value="{mark}"]:checked) tbody tr:not(.{mark}){{display:none}}\n'
        for mark in chosen
    )
