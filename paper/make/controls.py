# SPDX-License-Identifier: MIT
"""Tables of the page of controls: kernels around a commit, neighbourhoods, recipes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from iolab.pathology import PATHOLOGIES
from iolab.pathology.factors import INTERVENTION
from iolab.shown import markdown
from iolab.stats.claims import Selected
from iolab.stats.conditions import kernels_of
from iolab.stats.estimates import number_text
from iolab.stats.verdicts import neighbourhood_table
from iolab.store.dataset import load
from paper.make.marked import WORDS, table, verdict_cell
from paper.make.results import judged_at

_MITIGATED = "boot.mitigations=auto"


def brackets(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return reports between yes and no (rows of `bracket_rows`) as a Markdown table."""
    head = (
        *("report", "claim", "published"),
        *("its own kernel", "has the effect", "commit", "no longer"),
    )
    found = []
    for row in rows:
        own, there, gone = (
            f"{markdown(row[part]['kernel'])} {verdict_cell(row[part])}{_control(row[part])}"
            for part in ("own", "with", "without")
        )
        commit = f"{row['does']} `{row['commit']}` {row['subject']} ({row['release']})"
        claim = f"{row['claim']} ({row['rule']})"
        published = "-" if row["published"] is None else f"{row['published']:.3g}"
        found.append((row["pathology"], claim, published, own, there, commit, gone))
    return table(head, found)


def _control(side: Mapping[str, Any]) -> str:
    """Return the estimate of a side's negative control, "" without one."""
    return "" if side["control"] is None else f"; negative control {number_text(side['control'])}"


def trials(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return single changes of a kernel (rows of `trial_rows`), with a column for each claim."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["kernel"], row["change"]), []).append(row)
    claims = [row["claim"] for row in next(iter(found.values()))]
    cells = ((*names, *map(verdict_cell, judged)) for names, judged in found.items())
    return table(("kernel", "change", *claims), cells)


def first_of_each(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the first row of each report."""
    found: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        found.setdefault(row["pathology"], row)
    return list(found.values())


def neighbourhoods(data: Path) -> str:
    """Return in how much of a report's neighbourhood the effect is, from ``near`` in `data`."""
    found = []
    for folder in sorted((data / "near").iterdir()):
        judged = neighbourhood_table(load(folder))
        for (kernel, claim), rows in judged.groupby(["kernel", "claim"], sort=False):
            own, measured = rows[rows["place"] == ""].iloc[0], rows[rows["n"] > 0]
            there = measured["verdict"] == "reproduced"
            lacking = measured[~there & (measured["place"] != "")]
            places = lacking.groupby("verdict", sort=False)["place"].agg("; ".join)
            elsewhere = ", ".join(f"{verdict} ({at})" for verdict, at in places.items())
            value = f"{WORDS[own['verdict']]}: {number_text(own['estimate'])}"
            share = f"{there.sum()} of {len(measured)}"
            where = (folder.name, markdown(str(kernel)), str(claim))
            found.append((*where, value, share, elsewhere or "-"))
    return table(("report", "kernel", "claim", "its own set-up", "reproduced in", "not in"), found)


def mitigated(data: Path) -> str:
    """Return the claims with mitigations on, from ``mitigations`` in `data`, beside those off."""
    found = []
    for folder in sorted((data / "mitigations").iterdir()):
        off, on = (Selected(load(where)) for where in (data / folder.name, folder))
        for kernel in kernels_of(on.data.cells):
            for claim in on.pathology.claims:
                judged = [
                    judged_at(off, claim, kernel, {}),
                    judged_at(on, claim, kernel, {INTERVENTION: _MITIGATED}),
                ]
                if all(one["n"] for one in judged):
                    sides = map(verdict_cell, judged)
                    found.append((folder.name, markdown(kernel), claim.name, *sides))
    return table(("report", "kernel", "claim", "off", "on"), found)


def recipes() -> str:
    """Return how each recipe deviates from its report as a Markdown table."""
    rows = (
        (name, row.option, row.asked, row.measured, row.why)
        for name, pathology in PATHOLOGIES.items()
        for row in pathology.translation
    )
    return table(("report", "what", "there", "here", "why"), rows)
