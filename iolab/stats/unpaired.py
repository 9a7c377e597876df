# SPDX-License-Identifier: MIT
"""Samples that are not paired: two kernels, or two machines, whose boots may spread differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
import pandas as pd

from iolab.pathology.base import TREATED_KERNEL
from iolab.stats.conditions import boot_means, pathology_of
from iolab.stats.estimates import Estimate, Floats, ratio_of, what_is_missing
from iolab_base.errors import UserError


class Difference(NamedTuple):
    """A difference of two means with Welch's interval and p-value.

    Parameters
    ----------
    mean : float
        Mean of the second sample minus mean of the first, in the unit of the values.
    low, high : float
        Ends of the interval, in the same unit; NaN where `missing` says why.
    p_value : float
        Two-sided p-value, 0..1; NaN where `missing` says why.
    missing : str
        Why there is no interval; empty if there is one.
    """

    mean: float
    low: float
    high: float
    p_value: float
    missing: str


def welch_difference(a: Floats, b: Floats, confidence: float) -> Difference:
    """Compare two unpaired samples that may spread differently.

    Parameters
    ----------
    a, b : ndarray of float, shapes (n,) and (m,)
        One value per boot, in the same unit.
    confidence : float
        Confidence level of the interval, 0..1.

    Returns
    -------
    Difference
        Mean of `b` minus mean of `a`. It has no interval if a sample has a single boot or if
        neither sample's boots differ.

    References
    ----------
    B. L. Welch, "The generalization of 'Student's' problem when several different population
    variances are involved", *Biometrika* 34, 1947.

    Examples
    --------
    >>> import numpy as np
    >>> compared = welch_difference(np.array([1.0, 1.5, 2.5]), np.array([4.0, 4.1]), 0.95)
    >>> print(f"{compared.mean:.2f} [{compared.low:.2f}, {compared.high:.2f}]")
    2.38 [0.52, 4.25]
    """
    mean = float(np.mean(b) - np.mean(a))
    nan = float("nan")
    if min(a.size, b.size) < 2:
        return Difference(mean, nan, nan, nan, "one boot")
    if what_is_missing(a) and what_is_missing(b):
        return Difference(mean, nan, nan, nan, "the boots of a kernel do not differ")
    # The import takes a second, which verdicts do not need.
    from statsmodels.stats.weightstats import CompareMeans, DescrStatsW  # noqa: PLC0415

    compared = CompareMeans(DescrStatsW(b), DescrStatsW(a))
    low, high = compared.tconfint_diff(alpha=1 - confidence, usevar="unequal")
    p_value = compared.ttest_ind(usevar="unequal")[1]
    return Difference(mean, float(low), float(high), float(p_value), "")


def apart_from(cells: pd.DataFrame, treated: pd.Series) -> pd.Series:
    """Return which cells are controls of a treated condition that has machines of its own."""
    # They agree in all factors but the treatment, and in the kernel unless it is the treatment.
    treatment = pathology_of(cells).treatment
    same = cells["role"].eq("control") & cells[treatment].isna() & ~cells["aa"]
    for name in treated.index:
        if name not in {treatment, "aa", "kernel" if treatment == TREATED_KERNEL else treatment}:
            same &= cells[name].eq(treated[name])
    if cells.loc[same, "kernel"].nunique() > 1:
        raise UserError("these controls have more than one kernel: choose one")
    return same


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
