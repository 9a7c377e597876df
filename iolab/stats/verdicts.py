# SPDX-License-Identifier: MIT
"""Verdicts: whether a report's claims hold, by rules that were fixed before measuring.

A claim is *reproduced* if the whole interval over boots lies on the claimed side of its limit, *not
reproduced* if the whole interval lies on the other side, and *inconclusive* otherwise. What is
reproduced where the report's mechanism cannot act, too, has an *other cause*
(``docs/statistics.md``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from iolab.pathology import get_pathology
from iolab.pathology.base import NEAR, neighbours
from iolab.pathology.claims import Claim
from iolab.stats.claims import Selected, judge_selected
from iolab.stats.conditions import kernels_of, pathology_of, refuse_contexts
from iolab.stats.estimates import CONFIDENCE, boots_text, interval_text
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError

VERDICTS: Final = (
    *("reproduced", "not reproduced", "other cause", "inconclusive"),
    *("not applicable", "not measured", "cannot run here"),
)


_COLUMNS: Final = (
    *("pathology", "kernel", "claim", "kind", "secondary", "statement"),
    *("estimate", "low", "high", "n", "rule", "published", "verdict", "reason", "clock"),
)


def verdict_table(data: Dataset, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Judge every claim of a pathology on every kernel; those that cannot run here come last.

    A row has ``pathology``, ``kernel``, the claim's ``claim`` (name), ``kind``, ``secondary`` and
    ``statement``, then ``estimate``, ``low``, ``high`` and ``n`` as in `Judged`, ``rule`` (the
    limit in words), ``published`` (the report's number, in the unit of the estimate; NaN if it
    gives none), ``verdict``, ``reason`` and ``clock``. Raises UserError if there is no cell, or
    cells of different pathologies, targets, clocks or kernel releases would be pooled.

    >>> table = verdict_table(data)
    >>> table.loc[table["claim"] == "IOPS lost", ["kernel", "n", "verdict"]]
       kernel  n          verdict
    3     6.1  6   not reproduced
    10   6.12  6   not reproduced
    17    6.8  0  cannot run here
    """
    pathology = pathology_of(data.cells)
    refuse_contexts(data.cells)
    kernels = kernels_of(data.cells)
    rows = []
    cells = Selected(data)
    unavailable = [kernel for kernel in data.unavailable["kernel"] if kernel not in kernels]
    for kernel in (*kernels, *unavailable):
        for claim in pathology.claims:
            judged = judge_selected(cells, claim, kernel, confidence)
            rows.append(
                {
                    "pathology": pathology.name,
                    "kernel": kernel,
                    "claim": claim.name,
                    "kind": claim.kind,
                    "secondary": claim.secondary,
                    "statement": claim.statement,
                    **{name: getattr(judged, name) for name in ("estimate", "low", "high", "n")},
                    "rule": rule_text(claim),
                    "published": math.nan if claim.published is None else claim.published,
                    "verdict": judged.verdict,
                    "reason": judged.reason,
                    "clock": data.cells["clock"].iloc[0],
                }
            )
    # A question may have no claim.
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def neighbourhood_table(data: Dataset) -> pd.DataFrame:
    """Judge each claim at the report's own set-up and at each condition around it.

    The conditions are those of `iolab.pathology.base.neighbours`, fixed before measuring. A row has
    ``kernel``, ``claim``, ``own`` and ``estimate`` (at the report's own set-up), ``reproduced`` and
    ``of`` (in how many conditions, of how many that were measured), and ``elsewhere`` (the others
    without the effect, by what they differ in, with their verdicts). Raises UserError if the
    pathology declares no neighbourhood.
    """
    pathology = pathology_of(data.cells)
    places = neighbours(pathology)
    if not places:
        raise UserError(f"{pathology.name} declares no neighbourhood: it has no profile {NEAR}")
    own = places[0]
    cells, rows = Selected(data), []
    for kernel in kernels_of(data.cells):
        for claim in pathology.claims:
            if claim.secondary or claim.condition[pathology.treatment] != own[pathology.treatment]:
                continue
            found = {}
            for place in places:
                there = replace(claim, condition=place, control={})
                different = {n: v for n, v in place.items() if v != own[n]}
                words = ", ".join(f"{name}={level}" for name, level in different.items())
                found[words] = judge_selected(cells, there, kernel, CONFIDENCE)
            measured = {words: one.verdict for words, one in found.items() if one.n}
            rows.append(
                {
                    "kernel": kernel,
                    "claim": claim.name,
                    "own": found[""].verdict,
                    "estimate": found[""].estimate,
                    "reproduced": sum(v == "reproduced" for v in measured.values()),
                    "of": len(measured),
                    "elsewhere": "; ".join(
                        f"{words}: {verdict}"
                        for words, verdict in measured.items()
                        if words and verdict != "reproduced"
                    ),
                }
            )
    return pd.DataFrame(rows)


def verdict_summary(table: pd.DataFrame, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Condense the rows of `verdict_table`, of any number of pathologies, to one per kernel.

    A row has ``pathology``, ``kernel``, ``mechanism`` and ``magnitude`` (the verdict on all primary
    claims of that kind, or how many of them were reproduced, with the names of the others),
    ``secondary claims`` (the same), ``confidence`` (the level and the fewest boots behind a claim)
    and ``page`` (the notebook).

    >>> summary = verdict_summary(verdict_table(data))
    >>> summary[["kernel", "confidence"]]
      kernel    confidence
    0    6.1  95%, 6 boots
    1   6.12  95%, 6 boots
    2    6.8          none
    >>> summary["magnitude"].str.partition(" (")[0].tolist()
    ['0 of 2 reproduced', '0 of 2 reproduced', 'cannot run here']
    """
    rows = []
    for (pathology, kernel), group in table.groupby(["pathology", "kernel"], sort=False):
        boots = group.loc[group["n"] > 0, "n"]
        rows.append(
            {
                "pathology": pathology,
                "kernel": kernel,
                **{
                    kind: _joint(group[(group["kind"] == kind) & ~group["secondary"]])
                    for kind in ("mechanism", "magnitude")
                },
                "secondary claims": _joint(group[group["secondary"]]),
                "confidence": boots_text(boots.min(), confidence) if len(boots) else "none",
                "page": get_pathology(str(pathology)).notebook,
            }
        )
    return pd.DataFrame(rows)


def rule_text(claim: Claim) -> str:
    """Say what must hold of a claim's interval: its value, contrast and limit in words.

    >>> rule_text(next(c for c in get_pathology("dio_kworker").claims if c.name == "IOPS lost"))
    'iops, treated / control: below 0.7609'
    """
    side = "below" if claim.above is None else "above"
    of = {"ratio": "treated / control", "difference": "treated - control", "treated": "treated"}
    mean = ", geometric mean" if claim.scale == "log" else ""
    return f"{claim.value}, {of[claim.contrast]}{mean}: {side} {claim.limit:.4g}"


def verdict_text(row: Mapping[Any, Any]) -> str:
    """Return the estimate of a row of `verdict_table` with its interval, or why there is none."""
    if not math.isfinite(row["estimate"]):
        return str(row["reason"])
    return f"{row['estimate']:.3g}{interval_text(row['low'], row['high'])}"


def _joint(claims: pd.DataFrame) -> str:
    verdicts = claims["verdict"]
    if verdicts.empty:
        return "no claim"
    if verdicts.nunique() == 1:
        return str(verdicts.iloc[0])
    others = [
        f"{verdict}: {', '.join(claims.loc[verdicts == verdict, 'claim'])}"
        for verdict in VERDICTS[1:]
        if (verdicts == verdict).any()
    ]
    count = f"{(verdicts == 'reproduced').sum()} of {len(verdicts)} reproduced"
    return f"{count} ({'; '.join(others)})"
