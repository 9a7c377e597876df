# SPDX-License-Identifier: MIT
"""From cells to estimates: the boot is the replicate, the pair its unit of comparison.

Cells that were traced are left out everywhere but in `recording_cost`: tracing costs time. A
treated cell is compared with the control measured next to it, the logarithms of these ratios are
averaged per boot, and all that is inferred rests on the boots' means: cells of one boot are not
independent. In simulations with correlated noise and boot effects, t intervals on boot means kept
their promised coverage from three boots on; bootstraps and pooled tests did not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW
from statsmodels.tsa.stattools import acf

from iolab.design import Pathology
from iolab.errors import UserError
from iolab.pathology import get_pathology

__all__ = [
    "LEVEL",
    "Estimate",
    "effect_of",
    "estimate",
    "factors_of",
    "kernel_order",
    "kernel_ratio",
    "mark_outliers",
    "mean_table",
    "order_effect",
    "order_table",
    "pair_ratios",
    "ratio_table",
    "recording_cost",
    "sign_flip",
    "state_of",
]

Floats = npt.NDArray[np.float64]

LEVEL: Final = 0.95
_CONTEXT = ("pathology", "target", "clock")
_IDENTITY = ("kernel_release", "scheduler")
# Sign flips are enumerated up to 2**16; more boots than that are sampled with a fixed seed.
_EXACT_BOOTS = 16
# A spread of logarithms below this is rounding, not spread.
_ROUNDING = 1e-12
_OUTLIER_MADS = 3.5
_WELCH = ["ratio", "low", "high", "n_base", "n_other", "p_value", "level"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A ratio treated/control with its interval.

    ``n`` boots were measured with ``pairs`` valid pairs each (median). ``low`` and ``high`` are NaN
    with fewer than two boots, and so is ``p_value`` (sign flip, two-sided).
    """

    ratio: float
    low: float
    high: float
    n: int
    pairs: float
    p_value: float
    level: float


def factors_of(cells: pd.DataFrame) -> list[str]:
    """Return the factors of the cells' pathology but its treatment: what a pair has in common.

    Errors: UserError without a cell.
    """
    found = _pathology(cells)
    return ["kernel", *(name for name in found.factors if name != found.treatment)]


def effect_of(cells: pd.DataFrame) -> list[str]:
    """Return what a pair's condition is made of: its treated cell's, and whether it is A/A."""
    return [*factors_of(cells), "aa", _pathology(cells).treatment]


def state_of(cells: pd.DataFrame) -> list[str]:
    """Return what a single cell's condition is made of."""
    return [*factors_of(cells), "placement", _pathology(cells).treatment]


def _pathology(cells: pd.DataFrame) -> Pathology:
    if cells.empty:
        raise UserError("there is no valid cell")
    return get_pathology(cells["pathology"].iloc[0])


def kernel_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts kernel 6.8 before 6.12."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)


def sign_flip(differences: npt.ArrayLike) -> float:
    """Return the two-sided p-value of a sign-flip test of mean zero; NaN below two values.

    All 2**n sign patterns are enumerated up to 16 values; above, 65,535 are drawn with a fixed
    seed. The smallest p-value n values can give is 2 / 2**n: five boots never reach 0.05.
    """
    y = np.asarray(differences, dtype=np.float64)
    if y.size < 2:
        return float("nan")
    result = stats.permutation_test(
        (y,),
        _rounded_mean,
        permutation_type="samples",
        n_resamples=2 ** min(y.size, _EXACT_BOOTS) - (y.size > _EXACT_BOOTS),
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)


def estimate(differences: npt.ArrayLike, *, pairs: float = 1.0, level: float = LEVEL) -> Estimate:
    """Estimate a ratio from one mean log ratio per boot.

    The estimate is exp(mean), the interval exp(t interval). Boots without any spread give an
    interval of zero width. Errors: UserError without a value or with a level outside 0..1.
    """
    y = np.asarray(differences, dtype=np.float64)
    mean, low, high = _t_interval(y, level)
    return Estimate(
        ratio=float(np.exp(mean)),
        low=float(np.exp(low)),
        high=float(np.exp(high)),
        n=int(y.size),
        pairs=float(pairs),
        p_value=sign_flip(y),
        level=level,
    )


def pair_ratios(
    cells: pd.DataFrame, value: str = "iops", by: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return the mean log ratio treated/control of each boot: columns `by`, block, y, pairs.

    A pair counts if both of its cells are valid; ``pairs`` says how many a boot has. Errors:
    UserError if `by` would pool different conditions, if a pair is not one control and one
    treatment measured next to each other under otherwise equal conditions, or if a value of a valid
    cell has no logarithm.
    """
    pairs = _pairs(cells, value)
    by = effect_of(cells) if by is None else by
    _refuse_mixture(pairs, by, (*effect_of(cells), *_IDENTITY))
    grouped = pairs.groupby([*by, "block"], dropna=False, observed=True)["y"]
    boots = grouped.agg(y="mean", pairs="size").reset_index()
    return _in_kernel_order(boots, by)


def ratio_table(
    cells: pd.DataFrame,
    value: str = "iops",
    by: Sequence[str] | None = None,
    *,
    family: Sequence[Mapping[str, object]] | None = None,
    level: float = LEVEL,
) -> pd.DataFrame:
    """Estimate each condition's ratio treated/control: columns `by`, Estimate's, p_holm.

    ``p_holm`` is Holm's correction over the family of conditions declared before measuring: each
    entry of `family` names the columns that pick its row; None means every condition but the A/A
    pairs. A declared condition that was not measured or cannot be tested still counts in the
    family's size. Errors: as `pair_ratios`; UserError if a member of the family picks several rows.
    """
    by = effect_of(cells) if by is None else by
    boots = pair_ratios(cells, value, by)
    grouped = boots.groupby(list(by), dropna=False, observed=True)
    table = grouped.size().reset_index()[list(by)]
    estimates = [
        asdict(estimate(group["y"], pairs=float(group["pairs"].median()), level=level))
        for _, group in grouped
    ]
    table = pd.concat([table, pd.DataFrame(estimates)], axis=1)
    members, unmeasured = _family(table, family)
    p_values = table.loc[members, "p_value"].to_numpy(dtype=np.float64)
    table["p_holm"] = np.nan
    if p_values.size:
        # What was declared and could not be tested claims nothing, and keeps the family's size.
        padded = np.append(np.nan_to_num(p_values, nan=1.0), np.ones(unmeasured))
        corrected = multipletests(padded, method="holm")[1][: p_values.size]
        table.loc[members, "p_holm"] = np.where(np.isnan(p_values), np.nan, corrected)
    return _in_kernel_order(table, by)


def kernel_ratio(
    cells: pd.DataFrame,
    value: str = "iops",
    *,
    base: str,
    other: str,
    effect: bool = False,
    level: float = LEVEL,
) -> pd.DataFrame:
    """Compare two kernels in each condition they share: other/base, Welch on boot means of ln.

    With ``effect=True`` what is compared is the ratio treated/control (a ratio of ratios), else the
    value itself. Kernels vary between boots, so nothing is paired. Two kernels differ in far more
    than their schedulers: the result says that they differ, not why. Columns: the condition, base,
    other, ratio, low, high, n_base, n_other, p_value (NaN without two boots of each kernel, or
    without any spread), level; no row where they share no condition. Errors: UserError for a kernel
    that is not there; else as `ratio_table` or `mean_table`.
    """
    for kernel in (base, other):
        if not (cells["kernel"] == kernel).any():
            raise UserError(f"kernel {kernel} is not in these data")
    chosen = cells[cells["kernel"].isin([base, other])]
    by = effect_of(cells) if effect else state_of(cells)
    boots = pair_ratios(chosen, value, by) if effect else _boot_means(chosen, value, by, log=True)
    condition = [name for name in by if name != "kernel"]
    keys: list[pd.DataFrame] = []
    rows: list[dict[str, float]] = []
    for _, group in boots.groupby(condition, dropna=False, observed=True):
        a = group.loc[group["kernel"] == base, "y"].to_numpy(dtype=np.float64)
        b = group.loc[group["kernel"] == other, "y"].to_numpy(dtype=np.float64)
        if a.size and b.size:
            keys.append(group[condition].iloc[[0]])
            rows.append(_welch(a, b, level))
    table = pd.concat(keys, ignore_index=True) if keys else boots[condition][:0]
    results = pd.DataFrame(rows, columns=_WELCH)
    return pd.concat([table.assign(base=base, other=other), results], axis=1)


def mean_table(
    cells: pd.DataFrame,
    value: str = "iops",
    by: Sequence[str] | None = None,
    *,
    level: float = LEVEL,
) -> pd.DataFrame:
    """Average a value in each condition: columns `by`, mean, low, high, n (boots), cells, level.

    The mean of the boots' means with its t interval (NaN with one boot), in the value's own unit;
    valid cells only. Errors: UserError if `by` would pool different conditions, or if a valid cell
    lacks the value.
    """
    by = state_of(cells) if by is None else by
    boots = _boot_means(cells, value, by, log=False)
    grouped = boots.groupby(list(by), dropna=False, observed=True)
    table = grouped.agg(n=("y", "size"), cells=("cells", "sum")).reset_index()
    intervals = [_t_interval(group["y"].to_numpy(dtype=np.float64), level) for _, group in grouped]
    table[["mean", "low", "high"]] = np.array(intervals)
    table["level"] = level
    return _in_kernel_order(table[[*by, "mean", "low", "high", "n", "cells", "level"]], by)


def recording_cost(cells: pd.DataFrame, *, level: float = LEVEL) -> pd.DataFrame:
    """Say what tracing costs in each condition: each recorded cell against its untraced twin.

    Columns `state_of`, ratio (I/Os per second of the steady part, traced over untraced), low, high,
    n (boots), switches_traced and switches_untraced (per I/O: what tracing should not change).
    Valid pairs only; empty where nothing was recorded.
    """
    recorded = cells[cells["valid"] & cells["recorded"]]
    twins = cells[cells["valid"]][["cell", "steady_iops", "switches_per_io"]]
    both = recorded.merge(twins, left_on="twin", right_on="cell", suffixes=("", "_twin"))
    both["y"] = np.log(both["steady_iops"]) - np.log(both["steady_iops_twin"])
    rows = []
    state = state_of(cells)
    for key, group in both.groupby(state, dropna=False, observed=True):
        found = estimate(group.groupby("block")["y"].mean(), level=level)
        rows.append(
            dict(zip(state, key, strict=True))
            | {name: getattr(found, name) for name in ("ratio", "low", "high", "n")}
            | {"switches_traced": group["switches_per_io"].mean()}
            | {"switches_untraced": group["switches_per_io_twin"].mean()}
        )
    columns = [*state, "ratio", "low", "high", "n", "switches_traced", "switches_untraced"]
    treatment = _pathology(cells).treatment
    table = pd.DataFrame(rows, columns=columns).astype({treatment: cells[treatment].dtype})
    return _in_kernel_order(table, state)


def order_effect(cells: pd.DataFrame, value: str = "iops") -> pd.DataFrame:
    """Ask each block whether later cells fare differently.

    Columns kernel, block, slope, low, high, lag1, n. ``slope`` is the Theil-Sen slope of ln(value)
    against the position in the block (per position, with its 95 % interval), ``lag1`` the
    autocorrelation of neighbours, both after removing each condition's own mean of value and
    position within the block. Conditions measured once in a block say nothing and are left out;
    ``n`` cells remain. NaN with fewer than three, or no spread. The autocorrelation of a short
    series without any is about -1/n, not 0.
    """
    kept = _valid(cells, value)
    _positive(kept, value)
    kept = kept.sort_values(["block", "position"])
    kept = kept.assign(y=np.log(kept[value]), x=kept["position"].astype(np.float64))
    grouped = kept.groupby(["block", *state_of(kept)], dropna=False, observed=True)
    centred = kept[["x", "y"]] - grouped[["x", "y"]].transform("mean")
    repeated = grouped["y"].transform("size") > 1
    kept = kept.assign(x=centred["x"], y=centred["y"], repeated=repeated)
    rows = []
    for (kernel, block), group in kept.groupby(["kernel", "block"]):
        informative = group[group["repeated"]]
        x, y = (informative[name].to_numpy(dtype=np.float64) for name in "xy")
        rows.append({"kernel": kernel, "block": block, **_trend(x, y)})
    return _in_kernel_order(pd.DataFrame(rows), ["kernel", "block"])


def order_table(cells: pd.DataFrame, value: str = "iops", *, level: float = LEVEL) -> pd.DataFrame:
    """Summarise `order_effect` for each kernel: slope, low, high (t on the boots), lag1, n (boots).

    ``slope`` is in ln(value) per position: 0.01 is 1 % more from each cell to the next; ``lag1`` is
    the boots' median.
    """
    blocks = order_effect(cells, value).dropna(subset=["slope"])
    rows = []
    for kernel, group in blocks.groupby("kernel"):
        mean, low, high = _t_interval(group["slope"].to_numpy(dtype=np.float64), level)
        lag1 = float(group["lag1"].median())
        rows.append(
            {"kernel": kernel, "slope": mean, "low": low, "high": high, "lag1": lag1}
            | {"n": len(group), "level": level}
        )
    columns = ["kernel", "slope", "low", "high", "lag1", "n", "level"]
    return _in_kernel_order(pd.DataFrame(rows, columns=columns), ["kernel"])


def mark_outliers(cells: pd.DataFrame, value: str = "iops") -> pd.Series[bool]:
    """Mark the cells far from their condition's median, by more than 3.5 scaled MADs of ln(value).

    Marks are for the eye: nothing here drops a marked cell. Invalid cells are never marked. The
    result has the index of `cells`.
    """
    kept = _valid(cells, value)
    _positive(kept, value)
    kept = kept.assign(y=np.log(kept[value]))
    grouped = kept.groupby(state_of(kept), dropna=False, observed=True)["y"]
    distance = (kept["y"] - grouped.transform("median")).abs()
    mad = grouped.transform(lambda y: stats.median_abs_deviation(y, scale="normal"))
    far = (distance > _OUTLIER_MADS * mad) & (distance > _ROUNDING)
    return far.reindex(cells.index, fill_value=False).astype(bool)


def _t_interval(y: Floats, level: float) -> tuple[float, float, float]:
    if not 0 < level < 1:
        raise UserError(f"a confidence level lies between 0 and 1, not at {level}")
    if y.size == 0:
        raise UserError("there is no boot to estimate from")
    mean = float(np.mean(y))
    if y.size < 2:
        return mean, float("nan"), float("nan")
    half = float(stats.t.ppf((1 + level) / 2, y.size - 1) * stats.sem(y))
    return mean, mean - half, mean + half


def _rounded_mean(y: Floats, axis: int) -> Floats:
    # Sums that are equal on paper round differently, and a tie that is missed shifts the p-value.
    return np.asarray(np.mean(y, axis=axis)).round(12)


def _welch(a: Floats, b: Floats, level: float) -> dict[str, float]:
    difference = float(np.mean(b) - np.mean(a))
    low = high = p_value = float("nan")
    if min(a.size, b.size) >= 2:
        if max(np.ptp(a), np.ptp(b)) < _ROUNDING:
            low = high = difference
        else:
            compared = CompareMeans(DescrStatsW(b), DescrStatsW(a))
            low, high = compared.tconfint_diff(alpha=1 - level, usevar="unequal")
            p_value = compared.ttest_ind(usevar="unequal")[1]
    return {
        "ratio": float(np.exp(difference)),
        "low": float(np.exp(low)),
        "high": float(np.exp(high)),
        "n_base": a.size,
        "n_other": b.size,
        "p_value": float(p_value),
        "level": level,
    }


def _trend(x: Floats, y: Floats) -> dict[str, float]:
    slope = low = high = lag1 = float("nan")
    if x.size >= 3 and np.ptp(x) > 0:
        slope, _, low, high = stats.theilslopes(y, x)
        if np.ptp(y) > _ROUNDING:
            lag1 = acf(y, nlags=1, fft=False)[1]
    return {
        "slope": float(slope),
        "low": float(low),
        "high": float(high),
        "lag1": float(lag1),
        "n": x.size,
    }


def _valid(cells: pd.DataFrame, value: str) -> pd.DataFrame:
    if value not in cells.columns:
        raise UserError(f"cells have no column {value}")
    kept = cells[cells["valid"] & ~cells["recorded"]]
    if kept.empty:
        raise UserError("there is no valid cell")
    missing = kept.loc[kept[value].isna(), "cell"]
    if not missing.empty:
        raise UserError(f"the valid cell {missing.iloc[0]} has no {value}")
    return kept


def _positive(kept: pd.DataFrame, value: str) -> None:
    bad = kept.loc[kept[value] <= 0, "cell"]
    if not bad.empty:
        raise UserError(f"{value} of cell {bad.iloc[0]} is not above 0, so it has no ratio")


def _boot_means(cells: pd.DataFrame, value: str, by: Sequence[str], *, log: bool) -> pd.DataFrame:
    kept = _valid(cells, value)
    if log:
        _positive(kept, value)
    _refuse_mixture(kept, by, (*state_of(kept), *_IDENTITY))
    # In the order measured, so that the sums round alike however the rows came.
    kept = kept.sort_values(["block", "position"])
    kept = kept.assign(y=np.log(kept[value]) if log else kept[value])
    grouped = kept.groupby([*by, "block"], dropna=False, observed=True)["y"]
    return grouped.agg(y="mean", cells="size").reset_index()


def _pairs(cells: pd.DataFrame, value: str) -> pd.DataFrame:
    kept = _valid(cells, value)
    if kept.duplicated(["block", "pair", "role"]).any():
        raise UserError("a pair has more than one control or more than one treatment")
    _positive(kept, value)
    controls = kept[kept["role"] == "control"]
    pairs = kept[kept["role"] == "treatment"].merge(
        controls, on=["block", "pair"], suffixes=("", "_control"), validate="one_to_one"
    )
    if pairs.empty:
        raise UserError("there is no pair with two valid cells")
    for name in (*factors_of(kept), *_CONTEXT):
        unequal = pairs[name] != pairs[f"{name}_control"]
        if unequal.any():
            where = pairs[unequal].iloc[0]
            raise UserError(f"pair {where['pair']} of block {where['block']} differs in {name}")
    apart = (pairs["position"] - pairs["position_control"]).abs() != 1
    if apart.any():
        where = pairs[apart].iloc[0]
        raise UserError(f"pair {where['pair']} of block {where['block']} was not measured together")
    pairs = pairs.sort_values(["block", "pair"], ignore_index=True)
    return pairs.assign(y=np.log(pairs[value]) - np.log(pairs[f"{value}_control"]))


def _refuse_mixture(rows: pd.DataFrame, by: Sequence[str], columns: Sequence[str]) -> None:
    unknown = [name for name in by if name not in rows.columns]
    if unknown or not by:
        raise UserError(f"cannot group by {', '.join(unknown) or 'nothing'}")
    for name in _CONTEXT:
        if name not in by and rows[name].nunique() > 1:
            raise UserError(f"these cells have more than one {name}: choose one")
    grouped = rows.groupby(list(by), dropna=False, observed=True)
    for name in columns:
        if name not in by and (grouped[name].nunique(dropna=False) > 1).any():
            raise UserError(f"one condition would pool several values of {name}: choose one")


def _family(
    table: pd.DataFrame, family: Sequence[Mapping[str, object]] | None
) -> tuple[pd.Series[bool], int]:
    if family is None:
        if "aa" not in table.columns:
            return pd.Series(True, index=table.index), 0
        return ~table["aa"].astype(bool), 0
    members = pd.Series(False, index=table.index)
    unmeasured = 0
    for member in family:
        picked = pd.Series(True, index=table.index)
        for name, wanted in member.items():
            if name not in table.columns:
                raise UserError(f"the family names {name}, which the table does not have")
            picked &= (table[name] == wanted).fillna(False).astype(bool)
        if picked.sum() > 1:
            raise UserError(f"the family's member {dict(member)} picks {picked.sum()} conditions")
        unmeasured += not picked.any()
        members |= picked
    return members, unmeasured


def _in_kernel_order(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    if table.empty:
        return table
    ranks = {
        name: rank for rank, name in enumerate(sorted(table.get("kernel", []), key=kernel_order))
    }
    return table.sort_values(
        list(by),
        key=lambda column: column.map(ranks) if column.name == "kernel" else column,
        kind="stable",
        na_position="first",
        ignore_index=True,
    )
