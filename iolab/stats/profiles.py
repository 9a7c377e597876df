# SPDX-License-Identifier: MIT
"""What an I/O costs by subsystem and function, and how much more under a treatment.

A boot is one value, as everywhere (`iolab.stats.estimates`): the intervals are t intervals over
boots, of the differences between a treated cell and its control.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from guestprof.profile import KINDS, CostProfile, per_io
from iolab.stats.conditions import pathology_of, shared_columns
from iolab.stats.estimates import CONFIDENCE, t_interval
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError
from iolab_base.names import one_of

_BY = ("function", "inclusive", "subsystem")


def costs(profile: CostProfile, by: str = "subsystem") -> pd.Series:
    """Return what an I/O costs in instructions, without the agent and the idle task.

    `by` is as for `difference`. Raises UserError if no I/O was done, or `by` is unknown.
    """
    one_of("kind of cost", by, _BY)
    ios, working = profile.ios, profile.working()
    if by == "subsystem":
        frame = working.subsystems()
    else:
        frame = working.inclusive() if by == "inclusive" else working.functions()
    found: pd.Series = per_io(frame, ios).groupby(_name(by), observed=True)["instructions"].sum()
    return found


def difference(treated: CostProfile, control: CostProfile, *, by: str = "function") -> pd.DataFrame:
    """Return what an I/O costs in two profiles, and the difference, largest first.

    The profiles may be of different kernels: functions are matched by their names. A row has
    ``function`` (or ``subsystem``), ``treated``, ``control`` and ``difference`` in instructions per
    I/O, without the agent and the idle task. `by` is "function" (a function's own instructions),
    "inclusive" (those with all that it called) or "subsystem". Raises UserError if no I/O was done,
    or `by` is unknown.
    """
    both = pd.concat([costs(treated, by), costs(control, by)], axis=1, keys=["treated", "control"])
    both = both.fillna(0.0)
    both["difference"] = both["treated"] - both["control"]
    return _by_size(both.rename_axis(_name(by)).reset_index())


def _name(by: str) -> str:
    return "subsystem" if by == "subsystem" else "function"


def _by_size(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of differences, largest first."""
    order = table["difference"].abs().sort_values(ascending=False).index
    return table.loc[order].reset_index(drop=True)


def boot_differences(
    pairs: Sequence[tuple[CostProfile, CostProfile]],
    *,
    by: str = "function",
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Return what an I/O costs in the first profile of each pair more than in the second.

    There is a pair of each boot: two conditions, or a condition on two kernels. The columns are
    those of `profile_differences` without the condition. Raises UserError without a pair, or as
    `difference`.
    """
    if not pairs:
        raise UserError("no pair of observed cells was given")
    boots = [difference(*pair, by=by).assign(block=n) for n, pair in enumerate(pairs)]
    rows = _over_boots(pd.concat(boots, ignore_index=True), _name(by), confidence)
    return _by_size(pd.DataFrame(rows))


def subsystem_table(data: Dataset, profiles: Mapping[str, CostProfile]) -> pd.DataFrame:
    """Return what an I/O costs by subsystem in each observed cell.

    A row has ``cell``, ``kernel``, ``boot``, ``role``, the treatment, ``ios``, and the instructions
    per I/O by subsystem, without the agent and the idle task. `profiles` are by the names of cells.
    Raises UserError if no cell was observed.
    """
    if not profiles:
        raise UserError("no cell was observed: measure with observe=True")
    treatment = pathology_of(data.cells).treatment
    rows: list[dict[Any, Any]] = []
    for row in data.cells[data.cells["cell"].isin(list(profiles))].to_dict("records"):
        profile = profiles[row["cell"]]
        known = {name: row[name] for name in ("cell", "kernel", "boot", "role", treatment)}
        found: dict[Any, Any] = costs(profile).reindex(KINDS, fill_value=0).to_dict()
        rows.append(known | {"ios": profile.totals["ios"]} | found)
    return pd.DataFrame(rows)


def profile_differences(
    data: Dataset,
    profiles: Mapping[str, CostProfile],
    *,
    by: str = "function",
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Return what each function costs more for an I/O in a treated cell than in its control.

    A row has the kernel and condition, ``function`` (or ``subsystem``), ``treated``, ``control``
    and ``difference`` (means over boots, in instructions per I/O), ``low`` and ``high`` of the
    difference (NaN with one boot, or where boots agree to the last digit) and ``n``; the largest
    difference comes first. `profiles` are by the names of cells, `by` is as for `difference`.
    Raises UserError if no pair was observed.
    """
    keys = _condition(data.cells)
    cells = data.cells[data.cells["cell"].isin(list(profiles)) & ~data.cells["aa"]]
    pairs = []
    for (block, _), pair in cells.groupby(["block", "pair"], sort=False):
        roles = {row["role"]: row for row in pair.to_dict("records")}
        if {"treatment", "control"} - set(roles):
            continue
        treated, control = roles["treatment"], roles["control"]
        found = difference(profiles[treated["cell"]], profiles[control["cell"]], by=by)
        pairs.append(found.assign(block=str(block), **{name: treated[name] for name in keys}))
    if not pairs:
        raise UserError("no treated cell was observed with its control")
    rows = []
    for key, condition in pd.concat(pairs, ignore_index=True).groupby(keys, sort=False):
        known = dict(zip(keys, key, strict=True))
        rows += [{**known, **row} for row in _over_boots(condition, _name(by), confidence)]
    return _by_size(pd.DataFrame(rows))


def _over_boots(condition: pd.DataFrame, name: str, confidence: float) -> list[dict[str, Any]]:
    """Return the mean costs of each function, and the interval of their difference."""
    values = ["treated", "control", "difference"]
    # A function that a boot did not call cost nothing there.
    boots = condition.pivot_table(index=name, columns="block", values=values, fill_value=0.0)
    rows = []
    for function in boots.index:
        found = boots.loc[function]
        mean, low, high = t_interval(found["difference"].to_numpy(dtype=float), confidence)
        means = {value: float(found[value].mean()) for value in ("treated", "control")}
        counted = {"difference": mean, "low": low, "high": high, "n": len(found["difference"])}
        rows.append({name: function, **means, **counted})
    return rows


def _condition(cells: pd.DataFrame) -> list[str]:
    """Return the columns that distinguish conditions: the kernel, the treatment, what varies."""
    kernel, *factors = shared_columns(cells)
    varying = [name for name in factors if cells[name].nunique(dropna=False) > 1]
    return [kernel, pathology_of(cells).treatment, *varying]
