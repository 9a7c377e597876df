# SPDX-License-Identifier: MIT
"""Attribution: which changes of a kernel remove a pathology, bring it back, or do nothing.

Every intervention is tried twice. *Screening* measures all of them in a few boots and picks those
that move a claim's value by a good part of the way to its limit. *Confirmation* measures only
these, in boots with other seeds, and decides. As it uses no boot of the screening, picking
introduces no bias; the intervals are corrected for how many were picked (Bonferroni). Longer runs
distinguish what only delays an effect from what removes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from iolab.pathology.base import Claim
from iolab.pathology.factors import INTERVENTION, NO_INTERVENTION
from iolab.stats.claims import FEWEST, Judged, boot_values, cells_of, in_unit, judge
from iolab.stats.conditions import matches, pathology_of
from iolab.stats.estimates import (
    CONFIDENCE,
    Floats,
    interval_text,
    number_text,
    t_interval,
    what_is_missing,
)
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError

ATTRIBUTION_FORMAT: Final = "iolab-attribution/1"
# What turns a claim's verdict, and what changes its value or when it begins.
TURNS: Final = ("removes", "restores")
OTHERWISE: Final = ("delays", "hastens", "weakens", "strengthens")
# What moves the control, too: an answer to another question.
WORKLOAD: Final = "changes the workload"
EFFECTS: Final = (
    *(*TURNS, *OTHERWISE, WORKLOAD),
    *("changes little", "changes nothing", "inconclusive", "cannot run here"),
)
ATTRIBUTION_COLUMNS: Final = (
    *("claim", "intervention", "stage", "effect", "baseline", "baseline_verdict"),
    *("estimate", "low", "high", "verdict", "share", "n", "reason"),
)
# Shares of `_scale`: worth confirming, and no change at all.
_PICKED: Final = 0.25
_NOTHING: Final = 0.1
# A shorter way is lost in the spread of any baseline: a share of the limit, or of a logarithm.
_LEAST: Final = 0.01
# How far the control's IOPS may move: a factor, as a logarithm.
_KEPT: Final = math.log(1.05)
# Share of a change in short runs that is left in longer ones if it lasts.
_LASTING: Final = 0.5


def under(claim: Claim, level: str) -> Claim:
    """Return a claim with an intervention in its condition, and without its negative control."""
    return replace(claim, condition={**claim.condition, INTERVENTION: level}, control={})


def _scale(claim: Claim, baseline: float) -> float:
    """Return the change that counts as whole, in the unit of `boot_values`."""
    # The way from the baseline to the limit, or from no effect to it if that is longer: beside a
    # baseline near its limit, any spread would look like a cause. A limit of a treated value alone
    # says nothing of the value without an effect: 0 operations a second is none.
    limit = claim.in_logs(claim.limit)
    way = abs(limit - baseline)
    if claim.contrast == "treated" and claim.published is None and claim.without is None:
        return max(way, _LEAST * (abs(limit) if limit and not claim.logarithmic else 1))
    return max(way, abs(limit - claim.in_logs(claim.start)))


def _values(data: Dataset, claim: Claim, kernel: str) -> tuple[pd.Series, str]:
    """Return a claim's value in each boot, by block; or no values and the reason."""
    try:
        found = boot_values(data, claim, kernel)
    except UserError as error:
        return pd.Series(dtype=np.float64), str(error)
    if found.empty:
        cells = cells_of(data, claim, kernel, data.cells)
        gates = cells.loc[~cells["valid"], "gate"].unique()
        return found, str(gates[0]) if len(gates) else "it was not measured"
    return found, ""


class _Measured:
    """A claim's values on a kernel, without and with interventions, boot by boot."""

    def __init__(self, data: Dataset, claim: Claim, kernel: str) -> None:
        self.data, self.claim, self.kernel = data, claim, kernel
        self.boots = data.cells.drop_duplicates("block").set_index("block")["boot"]
        self.base, self.why = _values(data, under(claim, NO_INTERVENTION), kernel)
        self.baseline = float(self.base.mean()) if len(self.base) else math.nan

    def changes(self, level: str) -> tuple[Floats, str]:
        """Return what an intervention changes in each boot, in the unit of `boot_values`."""
        # A boot that also measured the baseline is compared with itself, else with the boot of the
        # same number, which has the same jobs and seeds.
        treated, reason = _values(self.data, under(self.claim, level), self.kernel)
        if self.base.empty or treated.empty:
            return np.empty(0), reason or self.why
        of_number = self.base.groupby(self.boots.reindex(self.base.index)).mean()
        by_number = self.boots.reindex(treated.index).map(of_number)
        found = (treated - self.base.reindex(treated.index).fillna(by_number)).dropna()
        return found.to_numpy(np.float64), "" if len(found) else "no boot has its baseline"

    def row(
        self, level: str, stage: str, confidence: float, changes: Floats, reason: str
    ) -> dict[str, Any]:
        """Return the row of an intervention, without its effect."""
        row: dict[str, Any] = {
            "claim": self.claim.name,
            "intervention": level,
            "stage": stage,
            "effect": "cannot run here",
            "baseline": in_unit(self.claim, self.baseline),
            "baseline_verdict": "",
            "verdict": "",
            "n": int(changes.size),
            "reason": reason,
            **dict.fromkeys(("estimate", "low", "high", "share"), math.nan),
        }
        if not changes.size:
            return row
        mean, low, high = t_interval(changes, confidence)
        for name, change in (("estimate", mean), ("low", low), ("high", high)):
            row[name] = in_unit(self.claim, self.baseline + change)
        towards = math.copysign(1, self.claim.in_logs(self.claim.limit) - self.baseline)
        row["share"] = towards * mean / _scale(self.claim, self.baseline)
        return row


def screening(
    data: Dataset, claims: Sequence[Claim], kernel: str, levels: Sequence[str]
) -> pd.DataFrame:
    """Compare each intervention with none, boot by boot: rows with `ATTRIBUTION_COLUMNS`."""
    # ``low`` and ``high`` are the t interval of the change, added to the baseline. ``share`` is the
    # change as a share of `_scale`, negative if it moves away. ``effect`` is provisional.
    rows = []
    for claim in claims:
        measured = _Measured(data, claim, kernel)
        if measured.base.empty:
            continue
        for level in levels:
            row = measured.row(level, "screened", CONFIDENCE, *measured.changes(level))
            if row["n"]:
                row["effect"] = _word(claim, measured.baseline, row)
            rows.append(row)
    return pd.DataFrame(rows, columns=list(ATTRIBUTION_COLUMNS))


def _word(claim: Claim, baseline: float, row: dict[str, Any]) -> str:
    """Return the effect of a screened intervention, ignoring its spread."""
    share = abs(row["share"])
    if share < _PICKED and not _crossed(claim, row["baseline"], row["estimate"]):
        return "changes nothing" if share < _NOTHING else "changes little"
    return _direction(claim, baseline, row["share"])


def _crossed(claim: Claim, before: float, after: float) -> bool:
    """Return whether the limit lies between two values in the claim's unit."""
    return claim.holds(claim.in_logs(before)) != claim.holds(claim.in_logs(after))


def _direction(claim: Claim, baseline: float, share: float) -> str:
    # Moving towards the limit weakens an effect that is there, and strengthens one that is not.
    return "weakens" if (share > 0) == claim.holds(baseline) else "strengthens"


def _by_name(claims: Sequence[Claim]) -> dict[str, Claim]:
    return {claim.name: claim for claim in claims}


def crosses(screened: pd.DataFrame, claims: Sequence[Claim]) -> pd.Series:
    """Return for each row of a screening whether its claim moves past the limit."""
    named = _by_name(claims)
    return pd.Series(
        [
            bool(row["n"]) and _crossed(named[row["claim"]], row["baseline"], row["estimate"])
            for row in screened.to_dict("records")
        ],
        index=screened.index,
        dtype=bool,
    )


def candidates(screened: pd.DataFrame, claims: Sequence[Claim], most: int) -> list[str]:
    """Return up to `most` interventions worth confirming, largest effect first."""
    # Past the limit counts as the whole way to it.
    share = screened["share"].abs()
    moved = screened.assign(moved=share.mask(crosses(screened, claims), share.clip(lower=1)))
    furthest = moved.groupby("intervention", sort=False)["moved"].max()
    picked = furthest[furthest >= _PICKED].sort_values(ascending=False, kind="stable")
    return [str(name) for name in picked.index[:most]]


def attribution(
    data: Dataset, claims: Sequence[Claim], kernel: str, levels: Sequence[str]
) -> pd.DataFrame:
    """Decide what each picked intervention does, from boots that did not serve to pick it."""
    # All intervals hold at once at CONFIDENCE. An intervention *removes* the pathology where the
    # claim holds without it and is not reproduced with it, or the whole interval with it lies
    # beyond the limit; it *restores* it the other way round. Otherwise it *weakens* or
    # *strengthens* it. Both verdicts and the change, each of one claim and intervention.
    corrected = 1 - (1 - CONFIDENCE) / max(1, len(claims) * len(levels))
    rows = []
    for claim in claims:
        measured = _Measured(data, claim, kernel)
        before = judge(data, under(claim, NO_INTERVENTION), kernel, confidence=corrected)
        for level in levels:
            changes, reason = measured.changes(level)
            row = measured.row(level, "confirmed", corrected, changes, reason)
            if row["n"]:
                after = judge(data, under(claim, level), kernel, confidence=corrected)
                effect, reason = _effect(claim, before, after, row, changes)
                row |= {
                    "baseline_verdict": before.verdict,
                    "verdict": after.verdict,
                    "effect": effect,
                    "reason": reason,
                }
            rows.append(row)
    return pd.DataFrame(rows, columns=list(ATTRIBUTION_COLUMNS))


def lasting(
    decided: pd.DataFrame, data: Dataset, claims: Sequence[Claim], kernel: str
) -> pd.DataFrame:
    """Tell, by longer runs, interventions that turn a verdict for good from those that delay it."""
    # If a claim's value then lies on the same side of its limit with and without the intervention,
    # its verdict does not turn for good; ``reason`` has both values.
    named = _by_name(claims)
    table = decided.copy()
    for index, row in table[table["effect"].isin(TURNS)].iterrows():
        claim = named[str(row["claim"])]
        sides = [
            _values(data, under(claim, level), kernel)
            for level in (NO_INTERVENTION, str(row["intervention"]))
        ]
        if missing := next((why for values, why in sides if values.empty), ""):
            table.loc[index, "reason"] = f"not measured in longer runs: {missing}"
            continue
        before, after = (float(values.mean()) for values, _ in sides)
        if (there := claim.holds(before)) is claim.holds(after):
            words = [f"{in_unit(claim, value):.3g}" for value in (before, after)]
            table.loc[index, "reason"] = f"in longer runs {words[0]} without it and {words[1]} with"
            base = claim.in_logs(row["baseline"])
            whole = claim.in_logs(row["estimate"]) - base
            if there and abs(after - before) < _LASTING * abs(whole):
                effect = "delays" if row["effect"] == "removes" else "hastens"
            else:
                effect = _direction(claim, base, row["share"])
            table.loc[index, "effect"] = effect
    return table


def keep_question(
    table: pd.DataFrame, data: Dataset, claims: Sequence[Claim], kernel: str
) -> pd.DataFrame:
    """Name the interventions that move the IOPS of the control, too: they are no cause."""
    # Claims of a treated value alone are measured without controls, and keep their effects.
    named = _by_name(claims)
    kept = table.copy()
    for index, row in table[table["effect"].isin((*TURNS, *OTHERWISE))].iterrows():
        with_it, without = (
            _control_logs(data, named[str(row["claim"])], kernel, level)
            for level in (str(row["intervention"]), NO_INTERVENTION)
        )
        moved = float((with_it - without).mean())
        if abs(moved) > _KEPT:
            kept.loc[index, "effect"] = WORKLOAD
            kept.loc[index, "reason"] = f"IOPS of the control: {math.expm1(moved):+.0%}"
    return kept


def _control_logs(data: Dataset, claim: Claim, kernel: str, level: str) -> pd.Series:
    """Return the mean ln(IOPS) of a claim's controls under an intervention, by boot number."""
    cells = data.cells
    condition = {**under(claim, level).condition, "kernel": kernel, "role": "control"}
    del condition[pathology_of(cells).treatment]
    same = cells["valid"] & ~cells["aa"] & ~cells["recorded"] & (cells["iops"] > 0)
    kept = cells.loc[same & matches(cells, condition), ["boot", "iops"]]
    logs = pd.Series(np.log(kept["iops"].to_numpy(np.float64)), index=kept["boot"])
    return logs.groupby(level=0).mean()


def change_of(claim: Claim, row: Mapping[Any, Any]) -> dict[str, float]:
    """Return what an intervention changes, with its interval: a factor, or a difference."""
    before, ends = row["baseline"], ("estimate", "low", "high")
    if claim.logarithmic:
        return {name: row[name] / before for name in ends}
    return {name: row[name] - before for name in ends}


def change_text(claim: Claim, row: Mapping[Any, Any]) -> str:
    """Return `change_of` in words: ``x 1.38 [1.36, 1.4]``, or ``-1.99 [-2, -1.98]``."""
    change = change_of(claim, row)
    estimate = change["estimate"]
    text = f"x {number_text(estimate)}" if claim.logarithmic else number_text(estimate, "+")
    return text + interval_text(change["low"], change["high"])


def _effect(
    claim: Claim, before: Judged, after: Judged, row: dict[str, Any], changes: Floats
) -> tuple[str, str]:
    """Return an intervention's effect, and the reason if it is inconclusive."""
    # Boots may agree on the change to the last digit, but be too few to rely on.
    agree = bool(what_is_missing(changes))
    fault = next((judged.reason for judged in (before, after) if judged.reason), "")
    small = abs(row["share"]) < _NOTHING and not _crossed(claim, row["baseline"], row["estimate"])
    if changes.size < 2 or (agree and fault and not small):
        return "inconclusive", fault or "one boot"
    if small or (not agree and row["low"] <= row["baseline"] <= row["high"]):
        return "changes nothing", ""
    there = claim.holds(claim.in_logs(before.estimate))
    # Few boots that agree to the last digit have no verdict; what changes in them has an interval.
    past = all(_crossed(claim, row["baseline"], row[end]) for end in ("low", "high"))
    turned = past and changes.size >= FEWEST and after.verdict == "inconclusive"
    if there and (after.verdict == "not reproduced" or turned):
        return "removes", ""
    if not there and (after.verdict == "reproduced" or turned):
        return "restores", ""
    return _direction(claim, claim.in_logs(before.estimate), row["share"]), ""
