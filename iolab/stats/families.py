# SPDX-License-Identifier: MIT
"""Families of tests: corrections for testing several claims or conditions at once.

What was declared before measuring is one family, whatever its claims are about: their p-values are
corrected together by Holm's method. A sweep that nobody declared is explored with the rate of false
discoveries instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from iolab.pathology.base import Pathology
from iolab.stats.estimates import Floats
from iolab_base.errors import UserError


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
        dict(condition) for condition in pathology.preregistered if _matches(cells, condition).any()
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
    from scipy.stats import false_discovery_control  # noqa: PLC0415 - as in kernels.py

    q_values = false_discovery_control(grid["p_value"]) if len(grid) else grid["p_value"]
    ranked = grid.assign(q_value=q_values)
    selected = ranked[ranked["q_value"] <= rate]
    return selected.sort_values("q_value", kind="stable", ignore_index=True)


def family_members(
    table: pd.DataFrame, family: Sequence[Mapping[str, object]] | None
) -> tuple[pd.Series[bool], int]:
    """Tell which rows of a table belong to a family declared before measuring.

    `family` has the declared conditions, each as the columns that pick its row; None means every
    condition except the A/A pairs. Also returns the number of declared conditions without a row.
    Raises UserError if a member names an unknown column, or picks several rows.
    """
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
        picked = _matches(table, member)
        if picked.sum() > 1:
            raise UserError(f"the family's member {dict(member)} picks {picked.sum()} conditions")
        unmeasured += not picked.any()
        members |= picked
    return members, unmeasured


def _matches(table: pd.DataFrame, condition: Mapping[str, object]) -> pd.Series[bool]:
    """Return which rows are of a condition; NA matches no level."""
    matches = pd.Series(True, index=table.index)
    for name, level in condition.items():
        matches &= (table[name] == level).fillna(False).astype(bool)
    return matches
