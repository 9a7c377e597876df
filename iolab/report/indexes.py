# SPDX-License-Identifier: MIT
"""Indexes that a reader filters: the verdicts, and the atlas; what a report says of itself."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from iolab.pathology import get_pathology
from iolab.pathology.base import Pathology, Published
from iolab.shown import NO_MATH, rendered, terminal
from iolab.stats.conditions import kernels_of
from iolab.stats.verdicts import VERDICTS, verdict_summary, verdict_text

_COLUMNS: Final = ("mechanism", "magnitude", "secondary claims", "confidence")
# The column of each filter's values.
_FILTERS: Final = {"Report": "pathology", "Kernel": "kernel", "Verdict": "verdict"}
_TONES: Final = dict(zip(VERDICTS, ("yes", "no", *["open"] * 2, *["none"] * 3), strict=True))
_ANSWERS: Final = {"reproduced": "yes", "not reproduced": "no"}


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


def _facts(pathology: Pathology) -> dict[str, str]:
    """Return when and with which numbers a report was published, and its cause."""
    published = pathology.published or Published("", "", "")
    parts = filter(None, [published.date, "; ".join(published.numbers)])
    return {"published": ": ".join(parts), "cause": published.cause}


def _estimate(name: str, row: dict[Any, Any]) -> str:
    """Return a row's `verdict_text`; nanoseconds are shown as milliseconds."""
    claim = get_pathology(name).claim(row["claim"])
    if claim.contrast == "ratio" or not claim.value.endswith("_ns") or not row["n"]:
        return verdict_text(row)
    return verdict_text(row | {end: row[end] / 1e6 for end in ("estimate", "low", "high")}) + " ms"


@dataclass(frozen=True, repr=False, eq=False)
class AtlasIndex:
    """Reports as rows and kernels as columns, which a notebook displays.

    ``table`` has rows of `iolab.stats.verdicts.verdict_table`. ``controls`` has the names of each
    report's controls, which are rows of the table, too. ``links`` has by report the addresses of
    its page, mail and reproducer. A ``brief`` index shows answers and causes alone, unfiltered.
    """

    table: pd.DataFrame
    controls: Mapping[str, Sequence[str]] = field(default_factory=dict)
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    brief: bool = False

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each report: ``report``, ``published``, an answer on each kernel, ``cause``."""
        rows = []
        for name in self._reports():
            facts, parts = _facts(get_pathology(name)), self._answers(name).items()
            answers = {c: f"{one['words']}, {one['estimate']}".rstrip(", ") for c, one in parts}
            row = {"report": name, "published": facts["published"], **answers}
            rows.append({**row, "cause": facts["cause"]})
        return pd.DataFrame(rows)

    def _reports(self) -> list[str]:
        own = {control for names in self.controls.values() for control in names}
        return [str(name) for name in self.table["pathology"].unique() if name not in own]

    def __repr__(self) -> str:
        return terminal(self.frame.to_string(index=False))

    def _repr_html_(self) -> str:
        names = self._reports()
        rows = [(self._primary(name), self._cells(name)) for name in names]
        filters = () if self.brief else ("Verdict", "Kernel")
        return _filtered(self._primary(*names), filters, rows)

    def _primary(self, *names: str) -> pd.DataFrame:
        return self.table[self.table["pathology"].isin(names) & ~self.table["secondary"]]

    def _cells(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the parts of a report's cells by column."""
        pathology, links = get_pathology(name), self.links.get(name, {})
        facts = _facts(pathology)
        if self.brief:
            del facts["published"]
        first = {
            "words": terminal(name),
            "address": links.get("page", ""),
            "more": pathology.title,
            "facts": {what: terminal(words) for what, words in facts.items()},
            "files": {what: address for what, address in links.items() if what != "page"},
        }
        return {"report": first, **self._answers(name)}

    def _answers(self, name: str) -> dict[str, dict[str, str]]:
        return {f"kernel {kernel}": self._answer(name, kernel) for kernel in kernels_of(self.table)}

    def _answer(self, name: str, kernel: str) -> dict[str, str]:
        own = self._primary(name)
        own = own[own["kernel"] == kernel]
        if own.empty:
            return {"words": "not measured", "tone": _TONES["not measured"], "estimate": ""}
        words, tone = answer(own)
        if self.brief:
            return {"words": words, "tone": tone, "estimate": ""}
        # A reason may have the last words of fio.
        said = [textwrap.shorten(_estimate(name, own.iloc[0].to_dict()), 120, placeholder=" ...")]
        estimate = said[0] if own["n"].iloc[0] else ""
        for control in self.controls.get(name, ()):
            rows = self._primary(control)
            rows = rows[rows["kernel"] == kernel]
            if len(rows):
                said.append(f"{get_pathology(control).title}: {answer(rows)[0]}")
        more = terminal("; ".join(filter(None, said)))
        return {"words": words, "tone": tone, "more": more, "estimate": estimate}


def kernel_answers(table: pd.DataFrame, claim: str | None = None) -> pd.DataFrame:
    """Return a row for each kernel of a report: its answer, and the verdict and n of one claim.

    `table` has rows of `iolab.stats.verdicts.verdict_table`. By default the claim is a kernel's
    first primary one.
    """
    rows = []
    for kernel in kernels_of(table):
        here = table[table["kernel"] == kernel]
        judged = here[~here["secondary"]]
        row = (judged if claim is None else here[here["claim"] == claim]).iloc[0].to_dict()
        said = {row["claim"]: verdict_text(row), "n": row["n"]}
        rows.append({"kernel": kernel, "verdict": answer(judged)[0], **said})
    return pd.DataFrame(rows)


def unjudged(table: pd.DataFrame) -> pd.DataFrame:
    """Return which claims have no verdict and why; what shares a reason shares a row.

    `table` has rows of `iolab.stats.verdicts.verdict_table`. The columns are ``pathology``,
    ``claim`` ("every claim" of a kernel that is not here), ``reason`` and ``kernel``.
    """
    columns = ["pathology", "claim", "reason", "kernel"]
    rows = table.loc[table["reason"] != "", columns]
    claims = table.groupby(["pathology", "kernel"])["claim"].transform("size")
    alike = rows.groupby(["pathology", "kernel", "reason"])["claim"].transform("size")
    rows = rows.assign(claim=rows["claim"].mask(alike == claims[rows.index], "every claim"))
    for joined in ("kernel", "claim", "pathology"):
        others = [name for name in columns if name != joined]
        same = rows.groupby(others, sort=False)[joined]
        rows = same.agg(lambda names: "; ".join(dict.fromkeys(names))).reset_index()[columns]
    return rows


def answer(rows: pd.DataFrame) -> tuple[str, str]:
    """Return the verdict on claims of a report on a kernel in a word or two, and its tone."""
    judged = rows.loc[rows["verdict"] != "cannot run here", "verdict"]
    yes = int((judged == "reproduced").sum())
    if 0 < yes < len(judged):
        return f"partly: {yes} of {len(judged)}", "mixed"
    verdict = str(judged.iloc[0]) if len(judged) else "cannot run here"
    if judged.nunique() > 1:
        verdict = "inconclusive" if "inconclusive" in set(judged) else "not reproduced"
    return _ANSWERS.get(verdict, verdict), _TONES[verdict]


@dataclass(frozen=True, repr=False, eq=False)
class VerdictIndex:
    """Verdicts as a table with links, which a notebook displays.

    With several reports it has filters by report, kernel and verdict. They are rules of style, not
    a script: a page keeps them under the strictest policy.

    ``table`` has rows of `iolab.stats.verdicts.verdict_table`, of any number of reports. ``links``
    has the address of each report's page, relative to this one, ``experiments`` by report that of
    each kernel's page.
    """

    table: pd.DataFrame
    links: Mapping[str, str] = field(default_factory=dict)
    experiments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return terminal(verdict_summary(self.table).drop(columns="page").to_string(index=False))

    def _repr_html_(self) -> str:
        table = self.table
        several = table["pathology"].nunique() > 1
        shown = verdict_summary(table).to_dict("records")
        columns = [*(["report"] if several or self.links else []), "kernel", *_COLUMNS]
        columns = [name for name in columns if any(row.get(name) != "no claim" for row in shown)]
        rows = []
        for row in shown:
            own = (table["pathology"] == row["pathology"]) & (table["kernel"] == row["kernel"])
            rows.append((table[own], {column: self._cell(row, column) for column in columns}))
        return _filtered(table, _FILTERS if several else (), rows)

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


def _filtered(
    table: pd.DataFrame,
    filters: Collection[str],
    rows: Sequence[tuple[pd.DataFrame, Mapping[str, Mapping[str, Any]]]],
) -> str:
    """Return an index as HTML: rows of cells by column, each with its part of `table`, filtered."""
    found: dict[str, Any] = {"Report": table["pathology"].unique(), "Kernel": kernels_of(table)}
    found["Verdict"] = sorted(table["verdict"].unique(), key=VERDICTS.index)
    marks = {
        name: {value: f"{name[0].lower()}{place}" for place, value in enumerate(found[name])}
        for name in filters
    }
    shown = [
        (" ".join(marks[n][v] for n in filters for v in own[_FILTERS[n]].unique()), cells)
        for own, cells in rows
    ]
    return rendered(
        "verdicts.html.j2",
        no_math=NO_MATH,
        choices={n: [(m, terminal(str(v))) for v, m in of.items()] for n, of in marks.items()},
        rows=shown,
    )
