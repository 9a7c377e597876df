# SPDX-License-Identifier: MIT
"""Verdicts: whether a report's claims hold, by rules that were fixed before measuring.

A claim is *reproduced* if the whole interval over boots lies on the claimed side of its limit, *not
reproduced* if the whole interval lies on the other side, and *inconclusive* otherwise. What is
reproduced where the report's mechanism cannot act, too, has an *other cause*
(``docs/statistics.md``).

What was declared before measuring is one family, whatever its claims are about: their p-values are
corrected together by Holm's method. A sweep that nobody declared is explored with the rate of false
discoveries instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from iolab.pathology import get_pathology
from iolab.pathology.base import NEAR, Pathology, neighbours
from iolab.pathology.claims import CONTRASTS, Claim
from iolab.pathology.factors import INTERVENTION, Condition
from iolab.stats.claims import Selected, judge_selected
from iolab.stats.conditions import kernels_of, matches, pathology_of, refuse_contexts
from iolab.stats.estimates import CONFIDENCE, Floats, boots_text, interval_text, number_text
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

_SUMMARY: Final = (
    *("pathology", "kernel", "mechanism", "magnitude"),
    *("secondary claims", "confidence", "page"),
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
                    **{name: getattr(claim, name) for name in ("kind", "secondary", "statement")},
                    **{f.name: getattr(judged, f.name) for f in fields(judged)},
                    "rule": rule_text(claim),
                    "published": math.nan if claim.published is None else claim.published,
                    "clock": data.cells["clock"].iloc[0],
                }
            )
    # A question may have no claim.
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def places_of(places: Sequence[Condition]) -> list[str]:
    """Return how each condition differs from the first: ``iodepth=192``."""
    return [", ".join(f"{n}={v}" for n, v in one.items() if v != places[0][n]) for one in places]


def neighbourhood_table(data: Dataset) -> pd.DataFrame:
    """Judge each claim at the report's own set-up and in each condition around it, a row each.

    ``place`` says how a condition differs from the report's own; there it is empty. An intervention
    that every cell has stands behind the name of the kernel. A negative control counts in the same
    condition, if it was measured there. Claims that no measured cell can decide are left out.
    """
    pathology = pathology_of(data.cells)
    places = neighbours(pathology)
    if not places:
        raise UserError(f"{pathology.name} declares no neighbourhood: it has no profile {NEAR}")
    own, treatment = places[0], pathology.treatment
    # A kernel may need an intervention to be measured at all: then every place has it.
    levels = data.cells[INTERVENTION].unique()
    everywhere = {INTERVENTION: levels[0]} if len(levels) == 1 else {}
    changed = [pathology.factors[INTERVENTION].in_words(each) for each in everywhere.values()]
    cells, rows = Selected(data), []
    for kernel in kernels_of(data.cells):
        shown = " ".join(filter(None, [kernel, *changed]))
        judged_by: dict[str, Claim] = {}
        # Of two claims of one rule, the one about the report's own set-up comes first.
        for claim in sorted(pathology.claims, key=lambda claim: claim.condition != own):
            if not claim.secondary and claim.condition[treatment] == own[treatment]:
                judged_by.setdefault(rule_text(claim), claim)
        for claim in judged_by.values():
            for place, words in zip(places, places_of(places), strict=True):
                there = replace(claim, condition={**place, **everywhere})
                one = judge_selected(cells, there, kernel, CONFIDENCE)
                judged = {n: getattr(one, n) for n in ("n", "verdict", "estimate", "low", "high")}
                named = {"kernel": shown, "claim": claim.name, "place": words}
                rows.append({**named, **judged})
    table = pd.DataFrame(rows)
    return table[table.groupby(["kernel", "claim"])["n"].transform("max") > 0]


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
    return pd.DataFrame(rows, columns=list(_SUMMARY))


def rule_text(claim: Claim) -> str:
    """Say what must hold of a claim's interval: its value, contrast and limit in words.

    >>> rule_text(get_pathology("dio_kworker").claim("IOPS lost"))
    'iops, treated / control: below 0.7609'
    """
    side = "below" if claim.above is None else "above"
    mean = ", geometric mean" if claim.scale == "log" else ""
    return f"{claim.value}, {CONTRASTS[claim.contrast]}{mean}: {side} {claim.limit:.4g}"


def verdict_text(row: Mapping[Any, Any]) -> str:
    """Return the estimate of a row of `verdict_table` with its interval, or why there is none."""
    if not math.isfinite(row["estimate"]):
        return str(row["reason"])
    return f"{number_text(row['estimate'])}{interval_text(row['low'], row['high'])}"


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


class Membership(NamedTuple):
    """Whether a claim on a kernel was declared before measuring, and its corrected p-value."""

    preregistered: bool
    # 0 for a claim outside the family, whose corrected p-value is NaN.
    family_size: int
    p_holm: float


def declared_claims(pathology: Pathology, kernels: Iterable[str]) -> list[tuple[str, str]]:
    """List the kernel and claim of each member of a pathology's family of tests.

    The family holds every primary claim in every condition that the pathology declares: on each of
    `kernels` if the condition names none, else on its own, measured or not. Claims of a treated
    value alone have no p-value, and claims that this kind of machine cannot decide are not tested
    whatever is measured: neither belongs to it.

    >>> declared_claims(pathology_of(cells), ["6.1", "6.12"])
    [('6.1', 'two switches per I/O'), ('6.1', 'core used up'), ('6.1', 'IOPS lost')]
    """
    named = [str(member["kernel"]) for member in pathology.preregistered if "kernel" in member]
    return [
        (kernel, claim.name)
        for kernel in dict.fromkeys([*kernels, *named])
        for claim in pathology.decided
        if claim.contrast != "treated"
        if any(
            member.items() <= {**claim.condition, "kernel": kernel}.items()
            for member in pathology.preregistered
        )
    ]


def holm_family(pathology: Pathology, rows: Iterable[Mapping[str, Any]]) -> list[Membership]:
    """Correct p-values over all primary claims that a pathology declares, as one family.

    A row, for each claim on each kernel, has the keys ``claim``, ``kernel`` and ``p_value`` (None
    or NaN without one). Declared claims without a p-value or a row count in the family's size.
    """
    claimed = [(row["kernel"], row["claim"], row["p_value"]) for row in rows]
    declared = declared_claims(pathology, [kernel for kernel, _, _ in claimed])
    p_values = {
        (kernel, claim): math.nan if p_value is None else float(p_value)
        for kernel, claim, p_value in claimed
        if (kernel, claim) in declared
    }
    corrected = holm(list(p_values.values()), unmeasured=len(declared) - len(p_values))
    p_holm = dict(zip(p_values, corrected.tolist(), strict=True))
    return [
        Membership(True, len(declared), p_holm[kernel, claim])
        if (kernel, claim) in p_holm
        else Membership(False, 0, math.nan)
        for kernel, claim, _ in claimed
    ]


def measured_family(pathology: Pathology, cells: pd.DataFrame) -> list[dict[str, Any]] | None:
    """Return the declared conditions that have a cell, for `ratio_table`; None without one."""
    measured = [
        dict(condition) for condition in pathology.preregistered if matches(cells, condition).any()
    ]
    return measured or None


def holm(p_values: npt.ArrayLike, *, unmeasured: int = 0) -> Floats:
    """Correct the p-values of a family of tests by Holm's method.

    `p_values` has NaN for a test that was declared and could not be made, which stays NaN;
    `unmeasured` counts the declared tests that are not in it. Both count in the family's size. (S.
    Holm, "A simple sequentially rejective multiple test procedure", *Scandinavian Journal of
    Statistics* 6, 1979.)

    >>> holm([0.01, 0.03]).tolist()
    [0.02, 0.03]
    >>> holm([0.01, np.nan], unmeasured=1).tolist()
    [0.03, nan]
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not p.size:
        return p
    padded = np.append(np.nan_to_num(p, nan=1.0), np.ones(unmeasured))
    # By hand, and tested against statsmodels, whose garbage collection takes half a second a call.
    order = np.argsort(padded, kind="stable")
    steps = padded[order] * np.arange(padded.size, 0, -1)
    corrected = np.empty_like(padded)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return np.where(np.isnan(p), np.nan, corrected[: p.size])


def discoveries(table: pd.DataFrame, *, rate: float = 0.05) -> pd.DataFrame:
    """Select the rows of a `ratio_table` that stand out, for looking around in an exploratory grid.

    What was declared before measuring is judged by ``p_holm``. A/A pairs and rows without a p-value
    are no part of the grid. `rate` is the expected share of false discoveries among the selected
    rows, 0..1. They get the column ``q_value`` (at most `rate`) and are in its order. Raises
    UserError if the rate lies outside 0..1. (Y. Benjamini and Y. Hochberg, "Controlling the false
    discovery rate", *Journal of the Royal Statistical Society B* 57, 1995.)

    >>> from iolab.stats.tables import ratio_table
    >>> discoveries(ratio_table(cells))["weight"].tolist()
    [1000, 10000, 1000, 10000]
    """
    if not 0 < rate < 1:
        raise UserError(f"a rate of false discoveries lies between 0 and 1, not at {rate}")
    grid = table[~table["aa"].astype(bool) & table["p_value"].notna()]
    from scipy.stats import false_discovery_control  # noqa: PLC0415 - as in estimates.py

    q_values = false_discovery_control(grid["p_value"]) if len(grid) else grid["p_value"]
    ranked = grid.assign(q_value=q_values)
    selected = ranked[ranked["q_value"] <= rate]
    return selected.sort_values("q_value", kind="stable", ignore_index=True)


def family_members(
    table: pd.DataFrame, family: Sequence[Mapping[str, object]] | None
) -> tuple[pd.Series[bool], int]:
    """Tell which rows belong to a declared family, and how many of its conditions have none."""
    # Without a family it is every condition except the A/A pairs.
    if family is None:
        if "aa" not in table.columns:
            return pd.Series(True, index=table.index), 0
        return ~table["aa"].astype(bool), 0
    members = pd.Series(False, index=table.index)
    unmeasured = 0
    for member in family:
        unknown = [name for name in member if name not in table.columns]
        if unknown:
            raise UserError(f"the family names {unknown[0]}, which the table does not have")
        picked = matches(table, member)
        if picked.sum() > 1:
            raise UserError(f"the family's member {dict(member)} picks {picked.sum()} conditions")
        unmeasured += not picked.any()
        members |= picked
    return members, unmeasured
