# SPDX-License-Identifier: MIT
"""Tables of estimates by condition: ratios, means, cost of tracing, regions, kernels compared.

The boot is the replicate, and the pair is what is compared in it: a treated cell is compared with
the control measured next to it, and the logarithms of these ratios are averaged per boot.
``docs/statistics.md`` simulates what the intervals and tests are worth. Traced cells count in
`recording_cost` only, since tracing costs time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final, Literal

import numpy as np
import pandas as pd

from iolab.stats.conditions import (
    apart_from,
    boot_means,
    cell_columns,
    comparable_cells,
    first_gate,
    in_kernel_order,
    main_value,
    matched_pairs,
    pair_columns,
    pathology_of,
)
from iolab.stats.estimates import (
    CONFIDENCE,
    Difference,
    Estimate,
    Floats,
    estimate,
    from_zero,
    ratio_of,
    t_interval,
    welch_difference,
    what_is_missing,
)
from iolab.stats.verdicts import family_members, holm
from iolab_base.errors import UserError

# The ratio of IOPS below which something is lost: where two boots nearly agree, a thousandth would
# otherwise be an effect.
IOPS_LOST: Final = 0.99


def pair_ratios(
    cells: pd.DataFrame, value: str = "iops", by: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return the mean of ln(treated/control) of each condition (`pair_columns`) and boot.

    A row has the columns `by`, ``block``, ``y`` (the mean), ``order`` (mean order of the pairs: 1
    treated first, -1 control first) and ``pairs`` (how many pairs of two valid cells were
    averaged). Raises UserError as `matched_pairs`.

    >>> boots = pair_ratios(cells)
    >>> boots.loc[boots["weight"] == 10000, ["kernel", "block", "y", "pairs"]].head(2).round(2)
       kernel  block     y  pairs
    12    6.1  6.1-0 -0.24      1
    13    6.1  6.1-1 -0.21      1
    """
    by = pair_columns(cells) if by is None else by
    grouped = matched_pairs(cells, value, by).groupby([*by, "block"], dropna=False, observed=True)
    boots = grouped.agg(y=("y", "mean"), order=("order", "mean"), pairs=("y", "size"))
    return in_kernel_order(boots.reset_index(), by)


def ratio_table(
    cells: pd.DataFrame,
    value: str = "iops",
    by: Sequence[str] | None = None,
    *,
    family: Sequence[Mapping[str, object]] | None = None,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Estimate the ratio treated/control of each measured condition, by default of `pair_columns`.

    `family` has the conditions declared before measuring, each as the columns that pick its row; by
    default it is every condition except the A/A pairs. A declared condition that was not measured
    or cannot be tested still counts in its size.

    A row has the columns `by`, the fields of `Estimate`, and ``p_holm``, Holm's correction of
    ``p_value`` over the family (NaN outside it). A condition without a valid pair has n = 0 and the
    reason in ``missing``. Where treated cells and controls are on machines of their own, nothing is
    paired: the interval and the p-value are Welch's (`unpaired_ratios`). Raises UserError as
    `pair_ratios`, or if a member of the family picks several rows.

    >>> table = ratio_table(cells[~cells["aa"]])
    >>> table[["kernel", "weight", "ratio", "low", "high", "n", "p_holm"]].round(2)
      kernel  weight  ratio   low  high  n  p_holm
    0    6.1     100   1.00  0.98  1.02  6    0.75
    1    6.1    1000   0.92  0.91  0.93  6    0.19
    2    6.1   10000   0.80  0.78  0.81  6    0.19
    3   6.12     100   1.01  0.99  1.02  6    0.44
    4   6.12    1000   0.94  0.93  0.96  6    0.19
    5   6.12   10000   0.85  0.82  0.87  6    0.19
    """
    by = pair_columns(cells) if by is None else by
    apart = pathology_of(cells).apart
    paired = cells[cells["aa"]] if apart else cells
    parts = [] if apart and paired.empty else [_paired(paired, value, by, confidence)]
    parts += [unpaired_ratios(cells[~cells["aa"]], value, by, confidence)] if apart else []
    table = pd.concat(parts, ignore_index=True)
    table = pd.concat([table, _without_pairs(cells, table, by, confidence)], ignore_index=True)
    members, unmeasured = family_members(table, family)
    p_values = table.loc[members, "p_value"]
    table["p_holm"] = np.nan
    table.loc[members, "p_holm"] = holm(p_values, unmeasured=unmeasured)
    return in_kernel_order(table, by)


def _paired(cells: pd.DataFrame, value: str, by: Sequence[str], confidence: float) -> pd.DataFrame:
    """Estimate the ratio of each condition's pairs: a row with `by` and the estimate's fields."""
    grouped = pair_ratios(cells, value, by).groupby(list(by), dropna=False, observed=True)
    table = grouped.size().reset_index()[list(by)]
    estimates = [
        asdict(
            estimate(
                group["y"],
                order=group["order"],
                pairs=float(group["pairs"].median()),
                confidence=confidence,
            )
        )
        for _, group in grouped
    ]
    return pd.concat([table, pd.DataFrame(estimates)], axis=1)


def mean_table(
    cells: pd.DataFrame,
    value: str = "iops",
    by: Sequence[str] | None = None,
    *,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Average a value of the valid untraced cells in each condition, by default of `cell_columns`.

    A row has the columns `by`, ``mean`` (of the boots' means), ``low`` and ``high`` (all in the
    unit of the value; not below 0 where no boot is), ``n``, ``cells``, ``confidence``, and
    ``missing``: why there is no interval (one boot, or no spread) or no mean (all cells gated,
    the machine does not count the value, or this condition has none, such as the CPU time of an
    antagonist that does not run). These are NaN then. Raises UserError if `by` would pool
    different conditions, or one valid cell lacks the value and others have it.

    >>> table = mean_table(cells[cells["role"] == "control"], "switches_per_io")
    >>> table[["kernel", "mean", "n", "cells"]]
      kernel   mean  n  cells
    0    6.1  0.011  6     24
    1   6.12  0.011  6     24
    """
    by = cell_columns(cells) if by is None else by
    columns = [*by, "mean", "low", "high", "n", "cells", "confidence", "missing"]
    if (uncounted := cells.loc[cells["valid"], value].isna()).all() and len(uncounted):
        table = mean_table(cells.assign(**{value: 0.0}), value, by, confidence=confidence)
        counted = table.assign(mean=np.nan, low=np.nan, high=np.nan)
        reason = f"the measured machine does not count {value}"
        return counted.assign(missing=counted["missing"].where(counted["n"] == 0, reason))
    untraced = (cells["valid"] & ~cells["recorded"]).to_numpy(dtype=bool)
    grouped = cells[untraced].groupby(list(by), dropna=False, observed=True)
    has_value = np.ones(len(cells), dtype=bool)
    has_value[untraced] = (grouped[value].transform("count") > 0).to_numpy()
    boots = boot_means(cells[has_value], value, by, log=False)
    grouped = boots.groupby(list(by), dropna=False, observed=True)
    table = grouped.agg(n=("y", "size"), cells=("cells", "sum")).reset_index()
    values = [group["y"].to_numpy(dtype=np.float64) for _, group in grouped]
    intervals = [(y, *t_interval(y, confidence)) for y in values]
    table[["mean", "low", "high"]] = np.array(
        [(mean, *from_zero(y, low, high)) for y, mean, low, high in intervals]
    )
    table = table.assign(confidence=confidence, missing=[what_is_missing(y) for y in values])
    lost = [
        group[list(by)]
        .iloc[[0]]
        .assign(
            n=0,
            cells=0,
            confidence=confidence,
            missing=(
                f"no {value} here" if group["valid"].any() else f"no valid cell{first_gate(group)}"
            ),
        )
        for group in _lost(cells[~cells["recorded"]], table, by)
    ]
    return in_kernel_order(pd.concat([table, *lost], ignore_index=True)[columns], by)


def recording_cost(cells: pd.DataFrame, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Compare each traced cell with its untraced twin, which its column ``twin`` names.

    A row, for each traced condition, has the columns of `cell_columns`, ``ratio`` (I/Os per second
    of the steady part, of a program `main_value`, traced over untraced), ``low``, ``high``, ``n``,
    and ``switches_traced`` and ``switches_untraced`` (context switches per I/O, of a program per
    second, which tracing should not change). Only pairs of valid cells count.

    >>> traced = cells.assign(
    ...     twin=cells["cell"],
    ...     cell=cells["cell"] + "-traced",
    ...     recorded=True,
    ...     steady_iops=0.98 * cells["steady_iops"],
    ... )
    >>> recording_cost(pd.concat([cells, traced]))["ratio"].round(3).unique().tolist()
    [0.98]
    """
    did = main_value(cells)
    value, switches = (
        ("steady_iops", "switches_per_io") if did == "iops" else (did, "switches_per_s")
    )
    recorded = cells[cells["valid"] & cells["recorded"]]
    twins = cells[cells["valid"]][["cell", value, switches]]
    both = recorded.merge(twins, left_on="twin", right_on="cell", suffixes=("", "_twin"))
    both["y"] = np.log(both[value]) - np.log(both[f"{value}_twin"])
    rows = []
    state = cell_columns(cells)
    for key, group in both.groupby(state, dropna=False, observed=True):
        cost = estimate(group.groupby("block")["y"].mean(), confidence=confidence)
        rows.append(
            dict(zip(state, key, strict=True))
            | {name: getattr(cost, name) for name in ("ratio", "low", "high", "n")}
            | {"switches_traced": group[switches].mean()}
            | {"switches_untraced": group[f"{switches}_twin"].mean()}
        )
    columns = [*state, "ratio", "low", "high", "n", "switches_traced", "switches_untraced"]
    treatment = state[-1]
    table = pd.DataFrame(rows, columns=columns).astype({treatment: cells[treatment].dtype})
    return in_kernel_order(table, state)


def crossed_cells(cells: pd.DataFrame, factor: str, *, by: str) -> pd.DataFrame:
    """Return the cells in which the treatment is crossed with a factor, without side experiments.

    These are the untraced pairs of each level of the treatment that was measured at two levels of
    `factor` or more, and of each level of `factor` that has two such. Each level of the factor `by`
    has a plane of its own.

    >>> crossed = crossed_cells(cells, "iodepth", by="numjobs")
    >>> len(crossed) == (0 if cells["iodepth"].nunique() == 1 else len(cells))
    True
    """
    if cells.empty:
        return cells
    treatment = pathology_of(cells).treatment
    kept = cells[~cells["recorded"]]
    # Dropping a level may leave another one with a single partner.
    while True:
        treated = kept[kept[treatment].notna()]
        partners = treated.groupby([by, treatment])[factor].transform("nunique")
        levels = treated.groupby([by, factor])[treatment].transform("nunique")
        lone = treated[(partners < 2) | (levels < 2)]
        # An A/A pair has no level of the treatment: it stays where a plane has its other factor.
        planes = treated.drop(lone.index)[[by, factor]].drop_duplicates()
        placed = kept.merge(planes, on=[by, factor], how="left", indicator="in_plane")["in_plane"]
        dropped = kept.merge(lone[["block", "pair"]], how="left", indicator="lone")["lone"]
        fewer = kept[((placed == "both") & (dropped == "left_only")).to_numpy()]
        if len(fewer) == len(kept):
            return fewer
        kept = fewer


def region_table(
    cells: pd.DataFrame, value: str, contrast: Literal["mean", "ratio"], *, limit: float = 1.0
) -> pd.DataFrame:
    """Return a value in each kernel and condition, and whether the effect is there.

    The contrast is the mean, or the ratio treated/control of the pairs; `limit` is in its unit. A
    ratio shows the effect where its whole interval lies below the limit, a mean where it lies
    above. Without an interval a ratio shows nothing.

    A row has kernel, the factors, ``y`` (NaN where no valid cell has the value), ``low``, ``high``,
    ``n`` and ``effect`` (NA where a ratio has no interval, or there is no value). The control has
    no level of the treatment; of ratios, its row is the A/A pair's. Raises UserError as
    `ratio_table` and `mean_table`.

    >>> table = region_table(cells, "iops", "ratio")
    >>> table.loc[table["kernel"] == "6.1", ["weight", "y", "effect"]].round(2)
       weight     y  effect
    0    <NA>  1.00   False
    1     100  1.00   False
    2    1000  0.92    True
    3   10000  0.80    True
    """
    kept = cells[~cells["recorded"]]
    comparable_cells(kept)
    if contrast == "ratio":
        table = ratio_table(kept, value).rename(columns={"ratio": "y"})
        # Without an interval, boots that agree on no effect at all show none.
        unknown = table["high"].isna() & ~((table["n"] > 1) & (table["y"] >= limit))
        effect = (table["high"] < limit).astype("boolean").mask(unknown)
    else:
        table = mean_table(kept, value).rename(columns={"mean": "y"})
        effect = (table["y"] > limit).astype("boolean").mask(table["y"].isna())
    pathology = pathology_of(kept)
    columns = ["kernel", *pathology.factors, "y", "low", "high", "n"]
    table = table[columns].assign(effect=effect.mask(~table[pathology.treatment].notna(), False))
    return in_kernel_order(table, cell_columns(kept))


def _without_pairs(
    cells: pd.DataFrame, table: pd.DataFrame, by: Sequence[str], confidence: float
) -> pd.DataFrame:
    """Return a row for each measured condition without a valid pair."""
    measured = cells[~cells["recorded"]]
    treated = measured[measured["role"] == "treatment"]
    rows = []
    for group in _lost(treated, table, by):
        pairs = measured.merge(group[["block", "pair"]], on=["block", "pair"])
        missing = f"no pair with two valid cells{first_gate(pairs)}"
        nothing = Estimate(np.nan, np.nan, np.nan, 0, 0.0, np.nan, confidence, missing)
        rows.append(group[list(by)].iloc[[0]].assign(**asdict(nothing)))
    return pd.concat(rows) if rows else table[:0]


def _lost(cells: pd.DataFrame, table: pd.DataFrame, by: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield the cells of each condition that is not in the table."""
    known = cells.merge(table[list(by)], on=list(by), how="left", indicator="in_table")
    lost = cells[(known["in_table"] == "left_only").to_numpy()]
    for _, group in lost.groupby(list(by), dropna=False, observed=True):
        yield group


_COLUMNS = ("ratio", "low", "high", "n_base", "n_other", "p_value", "confidence", "missing")


def kernel_ratio(
    cells: pd.DataFrame,
    value: str = "iops",
    *,
    base: str,
    other: str,
    effect: bool = False,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Compare two kernels in each condition they share, by Welch's method on boot means of ln.

    With `effect`, the ratio treated/control is compared (a ratio of ratios) instead of the value.
    Kernels vary between boots, so nothing is paired. Two kernels differ in far more than their
    schedulers: the result says that they differ, not why.

    A row has the condition, ``base``, ``other``, ``ratio`` (other/base), ``low``, ``high``,
    ``n_base``, ``n_other``, ``p_value``, ``confidence``, and ``missing``: why there is no interval,
    or no ratio; then a kernel has 0 boots, for all of its cells in this condition were gated.
    Raises UserError if a kernel is not in the data; else as `ratio_table` (with `effect`) or
    `mean_table`.

    >>> table = kernel_ratio(cells, base="6.1", other="6.12", effect=True)
    >>> table[["weight", "ratio", "n_base", "n_other"]].round(2)
       weight  ratio  n_base  n_other
    0     100   1.01       6        6
    1    1000   1.02       6        6
    2   10000   1.06       6        6
    3    <NA>   1.00       6        6
    """
    for kernel in (base, other):
        if not (cells["kernel"] == kernel).any():
            raise UserError(f"kernel {kernel} is not in these data")
    chosen = cells[cells["kernel"].isin([base, other])]
    by = pair_columns(cells) if effect else cell_columns(cells)
    boots = pair_ratios(chosen, value, by) if effect else boot_means(chosen, value, by, log=True)
    condition = [name for name in by if name != "kernel"]
    measured = chosen[~chosen["recorded"]]
    if effect:
        measured = measured[measured["role"] == "treatment"]
    keys: list[pd.DataFrame] = []
    rows: list[dict[str, float | str]] = []
    for _, group in measured.groupby(condition, dropna=False, observed=True):
        if group["kernel"].nunique() < 2:
            continue
        key = group[condition].iloc[[0]]
        here = boots.merge(key, on=condition)
        a, b = (
            here.loc[here["kernel"] == kernel, "y"].to_numpy(dtype=np.float64)
            for kernel in (base, other)
        )
        keys.append(key)
        rows.append(
            _row(a, b, confidence, missing=_gated(chosen if effect else measured, group, here))
        )
    table = pd.concat(keys, ignore_index=True) if keys else boots[condition][:0]
    results = pd.DataFrame(rows, columns=list(_COLUMNS))
    return pd.concat([table.assign(base=base, other=other), results], axis=1)


def _gated(cells: pd.DataFrame, measured: pd.DataFrame, boots: pd.DataFrame) -> str:
    """Return which measured kernel has no boot left, and the gate that rejected its cells."""
    for kernel in measured["kernel"].unique():
        if kernel not in set(boots["kernel"]):
            pairs = measured.loc[measured["kernel"] == kernel, ["block", "pair"]]
            pairs = cells.merge(pairs.drop_duplicates(), on=["block", "pair"])
            gate = first_gate(pairs[~pairs["recorded"]])
            return f"kernel {kernel} has no valid boot{gate}"
    return ""


def _row(a: Floats, b: Floats, confidence: float, *, missing: str) -> dict[str, float | str]:
    nan = float("nan")
    difference = (
        Difference(nan, nan, nan, nan, missing) if missing else welch_difference(a, b, confidence)
    )
    mean, low, high, p_value, why = difference
    ratios = {"ratio": ratio_of(mean), "low": ratio_of(low), "high": ratio_of(high)}
    sizes = {"n_base": a.size, "n_other": b.size}
    return {**ratios, **sizes, "p_value": p_value, "confidence": confidence, "missing": why}


def unpaired_ratios(
    cells: pd.DataFrame, value: str, by: Sequence[str], confidence: float
) -> pd.DataFrame:
    """Estimate treated/control where both are on machines of their own, by Welch's method."""
    # `cells` are without A/A pairs, `by` has the treatment in it; ``n`` is the smaller number of
    # boots.
    means = boot_means(cells, value, [*by, "role"], log=True).assign(aa=False)
    treatment = pathology_of(cells).treatment
    # The columns that `pathology_of` and `apart_from` look at.
    means["pathology"] = cells["pathology"].iloc[0]
    rows = []
    for _, group in means[means[treatment].notna()].groupby(list(by), dropna=False, observed=True):
        base = means.loc[apart_from(means, group.iloc[0][list(by)]), "y"].to_numpy(dtype=np.float64)
        y = group["y"].to_numpy(dtype=np.float64)
        if not base.size:
            continue
        found = welch_difference(base, y, confidence)
        estimate = Estimate(
            ratio=ratio_of(found.mean),
            low=ratio_of(found.low),
            high=ratio_of(found.high),
            n=min(base.size, y.size),
            pairs=float(group["cells"].median()),
            p_value=found.p_value,
            confidence=confidence,
            missing=found.missing,
        )
        rows.append(group.iloc[[0]][list(by)].assign(**asdict(estimate)))
    return pd.concat(rows, ignore_index=True) if rows else means[list(by)][:0]
