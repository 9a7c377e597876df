# SPDX-License-Identifier: MIT
"""The finding that a mail is about: a claim, its estimates, the kernels on which it holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from iolab.pathology.base import Claim, Pathology
from iolab.stats.claims import cells_of
from iolab.stats.conditions import kernels_of, pathology_of
from iolab.stats.verdicts import verdict_table
from iolab.store.dataset import Dataset, with_measure
from iolab_base.errors import UserError
from iolab_base.names import one_of

_REPRODUCED = "reproduced"


@dataclass(frozen=True)
class FindingRow:
    """A claim on one kernel, over `n` boots; NaN for missing numbers.

    `estimate`, `low` and `high` are the claim's contrast with its interval; `verdict` and `reason`
    are as in `iolab.stats.verdicts.verdict_table`; `treated` and `control` are means of the claim's
    value over the valid cells.
    """

    kernel: str
    release: str
    scheduler: str
    estimate: float
    low: float
    high: float
    n: int
    verdict: str
    reason: str
    treated: float
    control: float

    @property
    def holds(self) -> bool:
        """Whether the claim was reproduced."""
        return self.verdict == _REPRODUCED


@dataclass(frozen=True)
class Finding:
    """A claim on the measured kernels, by version, and why others were not measured."""

    pathology: Pathology
    claim: Claim
    rows: tuple[FindingRow, ...]
    unmeasured: dict[str, str]

    @property
    def leading(self) -> tuple[FindingRow, ...]:
        """The kernels on which the claim holds; all kernels if there are none."""
        return tuple(row for row in self.rows if row.holds) or self.rows

    @property
    def clean(self) -> tuple[FindingRow, ...]:
        """The other kernels."""
        return tuple(row for row in self.rows if row not in self.leading)


def find(data: Dataset, kernels: Sequence[str], claim_name: str | None) -> Finding:
    """Choose what a mail is about; no `kernels` stands for all of them.

    By default the claim is the one that the published report names, else the first primary one of a
    magnitude that was reproduced, else of a mechanism, else the first measured. Raises UserError
    for an unknown name, or if there is no claim or nothing was measured.
    """
    pathology = pathology_of(data.cells)
    known = dict.fromkeys([*kernels_of(data.cells), *data.unavailable["kernel"]])
    for kernel in kernels:
        one_of("kernel", kernel, known)
    if claim_name is not None:
        pathology.claim(claim_name)
    if not pathology.claims:
        raise UserError(f"{pathology.name} has no claim to write about")
    table = verdict_table(data)
    if kernels:
        table = table[table["kernel"].isin(kernels)]
    measured = table[table["n"] > 0]
    if measured.empty:
        reasons = ", ".join(table["reason"].unique())
        raise UserError(f"nothing was measured on {', '.join(table['kernel'].unique())}: {reasons}")
    claim = _chosen(pathology, measured, claim_name)
    about = table[table["claim"] == claim.name]
    if not (about["n"] > 0).any():
        raise UserError(f"claim {claim.name!r} has no result: {about['reason'].iloc[0]}")
    rows = about[about["n"] > 0].to_dict("records")
    return Finding(
        pathology,
        claim,
        tuple(_row(data, claim, row) for row in rows),
        {row["kernel"]: row["reason"] for row in about[about["n"] == 0].to_dict("records")},
    )


def _chosen(pathology: Pathology, measured: pd.DataFrame, name: str | None) -> Claim:
    if name is not None:
        return pathology.claim(name)
    published = pathology.published
    if published is not None and published.claim in set(measured["claim"]):
        return pathology.claim(published.claim)
    primary = measured[~measured["secondary"]]
    reproduced = primary[primary["verdict"] == _REPRODUCED]
    for rows in (
        reproduced[reproduced["kind"] == "magnitude"],
        reproduced,
        primary,
        measured,
    ):
        if len(rows):
            order = [claim.name for claim in pathology.claims]
            return pathology.claim(min(rows["claim"], key=order.index))
    raise UserError("no claim has a result")


def _row(data: Dataset, claim: Claim, row: dict[Any, Any]) -> FindingRow:
    kernel = str(row["kernel"])
    here = data.cells[data.cells["kernel"] == kernel].iloc[0]
    sides = side_means(data, claim, kernel, claim.value)
    return FindingRow(
        kernel=kernel,
        release=str(here["kernel_release"]),
        scheduler=str(here["scheduler"]),
        **{name: float(row[name]) for name in ("estimate", "low", "high")},
        n=int(row["n"]),
        verdict=str(row["verdict"]),
        reason=str(row["reason"]),
        treated=sides["treatment"],
        control=sides["control"],
    )


def side_means(data: Dataset, claim: Claim, kernel: str, value: str) -> dict[str, float]:
    """Return the mean of a value in a claim's treated cells and in their controls.

    Untraced cells count, or traced ones if no untraced cell has the value.
    """
    try:
        known = with_measure(data, value).drop_duplicates("cell").set_index("cell")[value]
    except UserError:
        return {"treatment": math.nan, "control": math.nan}
    chosen = cells_of(data, claim, kernel, data.cells)
    chosen = chosen[chosen["valid"]]
    chosen = chosen.assign(shown=chosen["cell"].map(known)).dropna(subset=["shown"])
    untraced = chosen[~chosen["recorded"]]
    means = (untraced if len(untraced) else chosen).groupby("role")["shown"].mean()
    return {role: float(means.get(role, math.nan)) for role in ("treatment", "control")}
