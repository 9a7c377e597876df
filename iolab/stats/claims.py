# SPDX-License-Identifier: MIT
"""Judging a claim: the cells it rests on, the value of each boot, the verdict, and when to look."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from iolab.pathology.claims import Claim
from iolab.stats.conditions import (
    CONTEXT,
    IDENTITY,
    apart_from,
    join_pairs,
    log_values,
    pathology_of,
    refuse_mixture,
    shared_columns,
)
from iolab.stats.estimates import (
    CONFIDENCE,
    Floats,
    crossover_interval,
    from_zero,
    interval_text,
    number_text,
    poisson_interval,
    ratio_of,
    welch_difference,
    what_is_missing,
    without_order,
)
from iolab.store.dataset import Dataset, with_measure
from iolab_base.errors import UserError

# Two boots show too little of their spread.
FEWEST: Final = 3
# Prefix of the gate of a cell whose kernel or machine lacks something.
LACKING: Final = "cannot run here: "


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim's estimate on one kernel, and the verdict.

    ``estimate`` is the claim's contrast: a ratio, or a difference or value in the unit of the
    claim's value (a geometric mean for a claim on the scale log); NaN without a boot. ``low`` and
    ``high`` are not below 0 for a treated value that is below it in no boot; both are the estimate
    where all boots agree to the last digit, unless they are counts, and NaN with fewer than two.
    ``verdict`` is one of `VERDICTS`. ``reason`` says why there is no estimate, why boots were too
    few, or what a negative control or an illness leaves open; "" if the interval decided.
    """

    estimate: float
    low: float
    high: float
    n: int
    verdict: str
    reason: str = ""


def judge(data: Dataset, claim: Claim, kernel: str, *, confidence: float = CONFIDENCE) -> Judged:
    """Judge one claim of a data set's pathology on one kernel.

    Three boots or more that differ are judged by the t interval over them, by the order of their
    pairs where that can be told apart (`crossover_interval`). Boots that agree to the last digit
    have no spread; they are judged by their common value, if they are so many that fewer than half
    of all boots can lie on the other side of the limit. The bound on that share is the exact one
    for none of n (six boots at a level of 0.95; C. J. Clopper and E. S. Pearson, *Biometrika* 26,
    1934); fewer boots are inconclusive. Three boots or more that count the same events have an
    exact Poisson interval. A cure is judged where its illness is reproduced. What is reproduced and
    has a negative control is judged there, too: reproduced there, its verdict is "other cause";
    inconclusive there, it is inconclusive.

    Where cells are not what a comparison takes (a valid cell without the value, or without a
    logarithm), the verdict is inconclusive and the reason names the cell. Raises UserError if there
    is no cell, or cells of different targets, clocks or kernel releases would be pooled.

    >>> claim = pathology_of(data.cells).claim("IOPS lost")
    >>> judged = judge(data, claim, "6.1")
    >>> judged.verdict, round(judged.estimate, 2), judged.n
    ('not reproduced', 0.92, 6)
    """
    return judge_selected(Selected(data), claim, kernel, confidence)


class Selected:
    """The cells of a data set by kernel and condition: what several claims need is found once."""

    def __init__(self, data: Dataset) -> None:
        self.data = data
        self.pathology = pathology_of(data.cells)
        # Pairs are joined by these; the other columns would take most of the time.
        self._joined = ["cell", "block", "pair", "position", "role", "recorded"]
        self._joined += [*CONTEXT, *shared_columns(data.cells)]
        self._cells: dict[Hashable, pd.DataFrame] = {}
        self._unmixed: set[Hashable] = set()
        self._pairs: dict[Hashable, pd.DataFrame] = {}
        self._values: dict[str, pd.Series] = {}

    def _cells_of(self, claim: Claim, kernel: str) -> pd.DataFrame:
        """Select as `cells_of`, with the columns that judging takes, in the order measured."""
        key = _key(claim, kernel)
        if key not in self._cells:
            cells = self.data.cells
            columns = {"aa", "kernel", "valid", *IDENTITY, *self._joined, *claim.condition}
            columns.add(self.pathology.treatment)
            narrow = cells[[name for name in cells if name in columns]]
            chosen = cells_of(self.data, claim, kernel, narrow)
            self._cells[key] = chosen.sort_values(["block", "position"])
        return self._cells[key]

    def refuse_mixture(self, claim: Claim, kernel: str) -> None:
        """Reject cells that must not be pooled."""
        key = _key(claim, kernel)
        if key not in self._unmixed:
            chosen = self._cells_of(claim, kernel)
            if len(chosen):
                refuse_mixture(chosen, ["kernel"], shared_columns(chosen))
            self._unmixed.add(key)

    def values(self, name: str) -> pd.Series:
        """Return a measure by cell, as `with_measure` has it."""
        if name not in self._values:
            cells = self.data.cells
            narrow = replace(self.data, cells=cells[[n for n in ("cell", name) if n in cells]])
            known = with_measure(narrow, name).drop_duplicates("cell")
            self._values[name] = known.set_index("cell")[name]
        return self._values[name]

    def one_event(self, name: str) -> float:
        """Return the smallest rate in the data, which stands for one event; else two in a run."""
        # Cells of a sweep count over the same time, more than half of their run. If each has
        # several events, this is too large, and intervals are too wide, never too narrow.
        values = self.values(name)
        if values.any():
            return float(values[values > 0].min())
        longest_s = float(self.data.cells["runtime_s"].max())
        return 2 / longest_s if longest_s > 0 else math.nan

    def counted(self, claim: Claim, kernel: str) -> pd.DataFrame:
        """Return the valid cells that a claim rests on, with its value, in the order measured."""
        chosen = self._cells_of(claim, kernel)
        chosen = chosen.loc[chosen["valid"], self._joined]
        chosen = chosen.assign(**{claim.value: chosen["cell"].map(self.values(claim.value))})
        if claim.contrast == "treated":
            chosen = chosen[chosen["role"] == "treatment"]
        untraced = chosen[~chosen["recorded"]]
        return chosen[chosen["recorded"]] if not untraced[claim.value].notna().any() else untraced

    def pairs(self, claim: Claim, kernel: str, counted: pd.DataFrame) -> pd.DataFrame:
        """Join the counted cells of a claim that compares."""
        key = (*_key(claim, kernel), bool(counted["recorded"].any()))
        if key not in self._pairs:
            self._pairs[key] = join_pairs(counted[self._joined])
        return self._pairs[key]


def _key(claim: Claim, kernel: str) -> tuple[Hashable, ...]:
    return kernel, *sorted(claim.condition.items())


def judge_selected(cells: Selected, claim: Claim, kernel: str, confidence: float) -> Judged:
    """Judge as `judge`, with what other claims selected."""
    found = _judge(cells, claim, kernel, confidence)
    if found.verdict == "reproduced" and claim.negative:
        found = _controlled(found, claim, _judge(cells, claim.negative, kernel, confidence))
    if not claim.cures or not found.n:
        return found
    illness = cells.pathology.claim(claim.cures)
    verdict = judge_selected(cells, illness, kernel, confidence).verdict
    if verdict == "reproduced":
        return found
    if verdict == "not reproduced":
        reason = f"nothing to cure: {claim.cures!r} is not reproduced"
        return replace(found, verdict="not applicable", reason=reason)
    reason = f"it is open whether there is anything to cure: {claim.cures!r}, {verdict}"
    return replace(found, verdict="inconclusive", reason=reason)


def _controlled(found: Judged, claim: Claim, control: Judged) -> Judged:
    """Return the verdict of a reproduced claim, given its negative control's."""
    if control.verdict == "not reproduced":
        return found
    others = claim.control.items() - claim.condition.items()
    where = ", ".join(f"{name}={level}" for name, level in sorted(others))
    if control.n:
        where += f": {number_text(control.estimate)}{interval_text(control.low, control.high)}"
    reason = f"its negative control ({where}) is {control.verdict}"
    verdict = {"reproduced": "other cause", "inconclusive": "inconclusive"}
    # Without a control there is no reason to doubt: a verdict stands, and says what it lacks.
    return replace(found, verdict=verdict.get(control.verdict, found.verdict), reason=reason)


def _judge(cells: Selected, claim: Claim, kernel: str, confidence: float) -> Judged:
    """Judge a claim by its own cells."""
    if claim.requires:
        return without_boots("cannot run here", claim.requires)
    if unmeasured := _why_unmeasured(cells, claim, kernel):
        return unmeasured
    try:
        if cells.pathology.apart and claim.contrast != "treated":
            return _judge_apart(cells, claim, kernel, confidence)
        boots = _boots(cells, claim, kernel)
    except UserError as error:
        return without_boots("inconclusive", str(error))
    if boots.empty:
        return _why_no_boot(cells.data, claim, kernel)
    counts = _judge_counts(cells, claim, kernel, boots["y"], confidence) if claim.counts else None
    return counts or judge_boots(claim, boots, confidence)


def _judge_apart(cells: Selected, claim: Claim, kernel: str, confidence: float) -> Judged:
    """Judge treated boots against control boots on machines of their own, by Welch's interval."""
    frame = cells.data.cells
    untraced = frame[frame["valid"] & ~frame["recorded"]]
    condition = pd.Series({"kernel": kernel, **claim.condition})
    chosen = (untraced[list(condition.index)] == condition).fillna(value=False).all(axis="columns")
    sides: list[Floats] = []
    for selected in (apart_from(untraced, condition), chosen):
        side = untraced.loc[selected, ["cell", "block"]]
        known = side["cell"].map(cells.values(claim.value)).astype(np.float64)
        side = side.assign(**{claim.value: known})
        missing = side.loc[~np.isfinite(side[claim.value]), "cell"]
        if not missing.empty:
            raise UserError(f"the valid cell {missing.iloc[0]} has no finite {claim.value}")
        y = log_values(side, claim.value) if claim.logarithmic else side[claim.value]
        sides.append(np.asarray(y.groupby(side["block"]).mean(), dtype=np.float64))
    n = min(y.size for y in sides)
    if not n:
        return _why_no_boot(cells.data, claim, kernel)
    control, treated = sides
    found = welch_difference(control, treated, confidence)
    ends = found.mean, found.low, found.high
    return _judge_interval(claim, ends, n, confidence, agree=bool(found.missing))


def _judge_counts(
    cells: Selected, claim: Claim, kernel: str, rates: pd.Series, confidence: float
) -> Judged | None:
    """Judge boots that count the same; None if they differ: a t interval has all their spread."""
    one = cells.one_event(claim.value)
    if rates.size < FEWEST or not one > 0 or (rates / one).round(1).nunique() > 1:
        return None
    runs = len(cells.counted(claim, kernel))
    rate = float(rates.mean())
    low, high = poisson_interval(round(rate * runs / one), confidence)
    low, high = low * one / runs, high * one / runs
    return Judged(rate, low, high, rates.size, _ruled(claim, low, high))


def without_boots(verdict: str, reason: str) -> Judged:
    """Return the verdict on a claim that no boot has a value for."""
    return Judged(math.nan, math.nan, math.nan, 0, verdict, reason)


def judge_boots(claim: Claim, boots: pd.DataFrame, confidence: float) -> Judged:
    """Judge a claim by each boot's ``y`` as in `boot_values`, and mean ``order`` of its pairs."""
    y, order = (boots[name].to_numpy(dtype=np.float64) for name in ("y", "order"))
    mean, low, high = crossover_interval(y, order, confidence)
    if claim.contrast == "treated" and claim.scale == "linear":
        low, high = from_zero(y, low, high)
    agree = bool(what_is_missing(without_order(y, order)))
    return _judge_interval(claim, (mean, low, high), y.size, confidence, agree=agree)


def _judge_interval(
    claim: Claim, ends: tuple[float, float, float], n: int, confidence: float, *, agree: bool
) -> Judged:
    """Judge by the mean of boots and its interval, if these do not agree to the last digit."""
    value, low, high = (in_unit(claim, end) for end in ends)
    if n < 2:
        return Judged(value, low, high, n, "inconclusive", "one boot")
    if agree:
        return _judge_identical(claim, value, n, confidence)
    if n < FEWEST:
        return Judged(value, low, high, n, "inconclusive", f"{n} boots: a verdict needs {FEWEST}")
    return Judged(value, low, high, n, _ruled(claim, low, high))


def _judge_identical(claim: Claim, value: float, n: int, confidence: float) -> Judged:
    """Judge boots that agree to the last digit, by an exact bound on the share that do not."""
    # Clopper and Pearson's on none of n: `scipy.stats.binomtest` would find it by search.
    beyond = 1 - ((1 - confidence) / 2) ** (1 / n)
    if beyond < 0.5:
        return Judged(value, value, value, n, _ruled(claim, value, value))
    enough = math.floor(math.log2(2 / (1 - confidence))) + 1
    who = "both boots" if n == 2 else f"all {n} boots"
    reason = f"{who} agree to the last digit: a verdict needs {enough} such boots"
    return Judged(value, value, value, n, "inconclusive", reason)


def in_unit(claim: Claim, value: float) -> float:
    """Return an average of boots in the unit of a claim's contrast."""
    return ratio_of(value) if claim.logarithmic else value


def _ruled(claim: Claim, low: float, high: float) -> str:
    if claim.above is not None:
        good, bad = low > claim.limit, high <= claim.limit
    else:
        good, bad = high < claim.limit, low >= claim.limit
    return "reproduced" if good else "not reproduced" if bad else "inconclusive"


def cells_of(data: Dataset, claim: Claim, kernel: str, cells: pd.DataFrame) -> pd.DataFrame:
    """Return a claim's treated cells with the controls of their pairs, out of `cells`.

    `cells` are those of `data`, or of `iolab.store.dataset.with_measure`. Invalid and traced cells
    are among the selected, A/A pairs are not.
    """
    treatment = pathology_of(data.cells).treatment
    # One selection: each takes as long as all comparisons.
    wanted = (cells["kernel"] == kernel) & ~cells["aa"]
    for name, level in claim.condition.items():
        if name != treatment:
            wanted &= cells[name] == level
    chosen = wanted.fillna(value=False).to_numpy(dtype=bool, copy=True)
    here = cells.loc[chosen, ["block", "pair", treatment]]
    pairs = pd.MultiIndex.from_frame(here[["block", "pair"]])
    treated = (here[treatment] == claim.condition[treatment]).fillna(value=False)
    chosen[chosen] = pairs.isin(pairs[treated.to_numpy(dtype=bool)])
    return cells[chosen]


def boot_values(data: Dataset, claim: Claim, kernel: str) -> pd.Series:
    """Return the value of each boot that a claim is judged by, indexed by block.

    The mean of ln(treated/control) over the boot's pairs for a claim of a ratio, of treated -
    control for one of a difference, of the treated cells else (both in the unit of the claim's
    value, or logarithms of it on the scale log). Untraced cells count; where they lack the value
    and traced cells have it, these count. Empty if no valid cell has the value.

    Raises UserError if no cell has the measure, a valid cell lacks the value while others have it,
    a value has no logarithm for a ratio, or a pair is not one treated cell and its control.

    >>> claim = pathology_of(data.cells).claim("IOPS lost")
    >>> boot_values(data, claim, "6.1").round(2).tolist()
    [-0.09, -0.09, -0.09, -0.07, -0.09, -0.07]
    """
    return _boots(Selected(data), claim, kernel)["y"].rename()


def _boots(cells: Selected, claim: Claim, kernel: str) -> pd.DataFrame:
    """Return each boot's value ``y`` as in `boot_values`, and its pairs' mean ``order``."""
    nothing = pd.DataFrame({"y": [], "order": []}, dtype=np.float64)
    value, chosen = claim.value, cells.counted(claim, kernel)
    if chosen[value].isna().all():
        return nothing
    for role, own in chosen.groupby("role"):
        if own[value].isna().all():
            who = "control" if role == "control" else "treated cells"
            raise UserError(f"the {who} had no {value} to compare")
    missing = chosen.loc[~np.isfinite(chosen[value]), "cell"]
    if not missing.empty:
        raise UserError(f"the valid cell {missing.iloc[0]} has no finite {value}")
    if claim.contrast == "treated":
        y = log_values(chosen, value) if claim.scale == "log" else chosen[value]
        return y.groupby(chosen["block"]).mean().to_frame("y").assign(order=0.0)
    pairs = cells.pairs(claim, kernel, chosen)
    if pairs.empty:
        return nothing
    if claim.contrast == "ratio":
        paired = chosen[chosen["cell"].isin([*pairs["cell"], *pairs["cell_control"]])]
        known = log_values(paired, value).set_axis(paired["cell"])
    else:
        known = cells.values(value)
    y = pairs["cell"].map(known) - pairs["cell_control"].map(known)
    return pairs[["block", "order"]].assign(y=y).groupby("block")[["y", "order"]].mean()


def _why_unmeasured(cells: Selected, claim: Claim, kernel: str) -> Judged | None:
    """Judge a missing kernel or measure as such; reject data that must not be pooled."""
    if not (cells.data.cells["kernel"] == kernel).any():
        if absence := _absence(cells.data, kernel):
            return without_boots("cannot run here", absence)
        return without_boots("not measured", f"kernel {kernel} was not measured")
    cells.refuse_mixture(claim, kernel)
    try:
        cells.values(claim.value)
    except UserError as error:
        return without_boots("not measured", str(error))
    return None


def _why_no_boot(data: Dataset, claim: Claim, kernel: str) -> Judged:
    """Explain why no boot yields a value: the gates that rejected its cells, or why it has none."""
    chosen = cells_of(data, claim, kernel, data.cells)
    gates = [str(gate) for gate in chosen.loc[~chosen["valid"], "gate"].unique()]
    # A kernel that lacks something lacks it in every cell; other gates concern one run.
    if others := [gate for gate in gates if not gate.startswith(LACKING)]:
        return without_boots("not measured", others[0])
    if gates:
        return without_boots("cannot run here", gates[0].removeprefix(LACKING))
    if claim.value in chosen and chosen[claim.value].isna().any():
        reason = f"the measured machine does not count {claim.value}"
        return without_boots("cannot run here", reason)
    if len(chosen) and claim.contrast != "treated" and not (chosen["role"] == "control").any():
        return without_boots("not measured", "no valid control beside its treated cells")
    if absence := _absence(data, kernel):
        return without_boots("cannot run here", absence)
    return without_boots("not measured", "its condition was not measured")


def _absence(data: Dataset, kernel: str) -> str:
    """Return why a kernel, or a part of its blocks, cannot run here, or ""."""
    reasons = data.unavailable.loc[data.unavailable["kernel"] == kernel, "reason"]
    return str(reasons.iloc[0]) if len(reasons) else ""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the boots so far: their number, and the level (0..1) of intervals and bounds."""

    boots: int
    confidence: float


# A claim that is judged twice has two chances of a wrong decision. The levels are fixed in advance
# so that both together err in at most 5 %, if each interval has its nominal coverage (Bonferroni's
# inequality); ``docs/statistics.md`` has the error rate by simulation. Nearly all of the error is
# left for the last look: if virtual time decides at all, it decides after three boots even so.
LOOKS: Final = (Look(3, 0.99), Look(6, 0.96))


def look_at(data: Dataset, claim: Claim, kernel: str, look: Look) -> tuple[Judged, bool]:
    """Judge a claim that no earlier look decided; also return whether more boots could decide."""
    judged = judge(data, claim, kernel, confidence=look.confidence)
    return judged, judged.verdict == "inconclusive" and look is not LOOKS[-1]
