# SPDX-License-Identifier: MIT
"""Variance components: the spread between boots, and the spread within a boot.

The components are estimated by the method of moments (one-way analysis of variance, boots as the
random factor; S. R. Searle, G. Casella and C. E. McCulloch, *Variance Components*, Wiley 1992,
chapter 3). It has a closed form, is unbiased, and agrees with restricted maximum likelihood where
boots are of equal size and the boots' component is not negative. A mixed model fitted to three to
ten boots often ends on the boundary instead, with a warning and no interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from iolab.errors import UserError
from iolab.stats.conditions import (
    cell_columns,
    in_kernel_order,
    pair_columns,
    refuse_mixture,
    valid_cells,
)
from iolab.stats.estimates import CONFIDENCE, Statistic
from iolab.stats.intervals import Floats, check_confidence, format_boots, what_is_missing
from iolab.stats.pairs import log_values, matched_pairs

__all__ = ["Components", "components", "components_of", "variance_table"]


@dataclass(frozen=True, slots=True, repr=False)
class Components(Statistic):
    """The spread of logarithms between boots and within a boot.

    Standard deviations are of logarithms: 0.01 is about 1 %.

    Parameters
    ----------
    mean_sd : float
        Standard deviation of the boots' means as measured: the spread that an interval rests on.
    boot_sd : float
        Standard deviation between boots. NaN where `missing` says why, like the next four.
    within_sd : float
        Standard deviation between the pairs (or runs) of one boot.
    share : float
        The boots' share of the variance, 0..1.
    low, high : float
        Ends of the interval of `share`.
    n : int
        Number of boots.
    per_boot : float
        Values in a boot; the harmonic mean if boots differ.
    confidence : float
        Confidence level of the interval, 0..1.
    missing : str, optional
        Why the spread could not be split; empty if it was.
    """

    mean_sd: float
    boot_sd: float
    within_sd: float
    share: float
    low: float
    high: float
    n: int
    per_boot: float
    confidence: float
    missing: str = ""

    def __str__(self) -> str:
        if self.n < 2:
            return f"no spread known: {self.missing}"
        total = f"a boot's mean spreads by {self.mean_sd:.2%} ({format_boots(self.n)})"
        if self.missing:
            return f"{total}; not split: {self.missing}"
        return (
            f"{total}: {self.boot_sd:.2%} between boots, {self.within_sd:.2%} within; the boot has "
            f"{self.share:.0%} of the variance [{self.low:.0%}, {self.high:.0%}]"
        )

    def sd_with(self, per_boot: float) -> float:
        """Return the spread of a boot's mean over another number of values.

        Parameters
        ----------
        per_boot : float
            Values in a boot.

        Returns
        -------
        float
            Standard deviation of a logarithm.

        Raises
        ------
        UserError
            If the measured spread could not be split.
        """
        if per_boot == self.per_boot:
            return self.mean_sd
        if math.isnan(self.boot_sd):
            raise UserError(
                f"what {per_boot:g} a boot would give is not known from these data: {self.missing}"
            )
        return math.hypot(self.boot_sd, self.within_sd / math.sqrt(per_boot))


def components(
    values: npt.ArrayLike, boot: npt.ArrayLike, *, confidence: float = CONFIDENCE
) -> Components:
    """Split the variance of values into that between boots and that within a boot.

    Parameters
    ----------
    values : array_like, shape (n,)
        Logarithms, of ratios or of values.
    boot : array_like, shape (n,)
        Name of the boot of each value.
    confidence : float, optional
        Confidence level of the interval, 0..1.

    Returns
    -------
    Components
        The split. The interval of the share is that of the F ratio, exact for boots of equal size.
        A negative component between boots becomes 0.

    Raises
    ------
    UserError
        If there is no value, or the level lies outside 0..1.

    Examples
    --------
    >>> components([0.10, 0.12, 0.30, 0.32, 0.21, 0.19], [0, 0, 1, 1, 2, 2])
    a boot's mean spreads by 10.02% (3 boots): 9.97% between boots, 1.41% within;
    the boot has 98% of the variance [72%, 100%]
    """
    check_confidence(confidence)
    y = np.asarray(values, dtype=np.float64)
    grouped = pd.Series(y).groupby(np.asarray(boot))
    sizes: Floats = grouped.size().to_numpy().astype(np.float64)
    means = grouped.mean().to_numpy(dtype=np.float64)
    n, total = sizes.size, y.size
    if n == 0:
        raise UserError("there is no boot to take a spread from")
    per_boot = round(float(stats.hmean(sizes)), 9)
    mean_sd = float(np.std(means, ddof=1)) if n > 1 else math.nan
    missing = _not_split(y, sizes)
    if missing:
        nan = math.nan
        return Components(mean_sd, nan, nan, nan, nan, nan, n, per_boot, confidence, missing)
    within = float(((y - grouped.transform("mean").to_numpy()) ** 2).sum()) / (total - n)
    between = float((sizes * (means - y.mean()) ** 2).sum()) / (n - 1)
    size = (total - float((sizes**2).sum()) / total) / (n - 1)
    boot_variance = max(0.0, (between - within) / size)
    low, high = _share_interval(between, within, size, (n - 1, total - n), confidence)
    return Components(
        mean_sd=mean_sd,
        boot_sd=math.sqrt(boot_variance),
        within_sd=math.sqrt(within),
        share=boot_variance / (boot_variance + within),
        low=low,
        high=high,
        n=n,
        per_boot=per_boot,
        confidence=confidence,
    )


def variance_table(
    cells: pd.DataFrame,
    value: str = "iops",
    by: Sequence[str] | None = None,
    *,
    effect: bool = True,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Split the spread of each condition.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    value : str, optional
        Column of a positive quantity, in any unit.
    by : sequence of str, optional
        Columns of the condition; by default those of a pair's (with `effect`) or a cell's.
    effect : bool, optional
        Whether to split the spread of ln(treated/control) of the pairs, or else of ln(value) of the
        cells.
    confidence : float, optional
        Confidence level of the intervals, 0..1.

    Returns
    -------
    DataFrame
        A row for each condition: the columns `by` and the fields of `Components`.

    Raises
    ------
    UserError
        As in `iolab.stats.pairs.matched_pairs` (with `effect`) or `iolab.stats.pairs.boot_means`.

    Examples
    --------
    >>> table = variance_table(cells[cells["role"] == "control"], effect=False)
    >>> table[["kernel", "boot_sd", "within_sd", "n", "per_boot"]].round(3)
      kernel  boot_sd  within_sd  n  per_boot
    0    6.1    0.017      0.005  6       4.0
    1   6.12    0.014      0.004  6       4.0
    """
    rows, by = _rows(cells, value, by, effect=effect)
    grouped = rows.groupby(list(by), dropna=False, observed=True)
    table = grouped.size().reset_index()[list(by)]
    splits = [
        asdict(components(group["y"], group["block"], confidence=confidence))
        for _, group in grouped
    ]
    return in_kernel_order(pd.concat([table, pd.DataFrame(splits)], axis=1), by)


def components_of(
    cells: pd.DataFrame,
    condition: Mapping[str, object],
    value: str = "iops",
    *,
    effect: bool = True,
    confidence: float = CONFIDENCE,
) -> Components:
    """Split the spread of one condition.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    condition : mapping of str to object
        Columns that pick the condition, with their levels.
    value : str, optional
        Column of a positive quantity, in any unit.
    effect : bool, optional
        As in `variance_table`.
    confidence : float, optional
        Confidence level of the interval, 0..1.

    Returns
    -------
    Components
        The split.

    Raises
    ------
    UserError
        If `condition` picks no condition or several, or names an unknown column; else as in
        `variance_table`.

    Examples
    --------
    >>> components_of(cells, {"kernel": "6.1", "weight": 1000}).missing
    'each boot measured it once'
    """
    rows, by = _rows(cells, value, None, effect=effect)
    unknown = [name for name in condition if name not in by]
    if unknown:
        raise UserError(f"a condition has no {unknown[0]} (it has {', '.join(by)})")
    for name, wanted in condition.items():
        rows = rows[(rows[name] == wanted).fillna(False).astype(bool)]
    several = len(rows[list(by)].drop_duplicates())
    if several != 1:
        raise UserError(f"{dict(condition)} picks {several or 'no'} conditions: choose one")
    return components(rows["y"], rows["block"], confidence=confidence)


def _rows(
    cells: pd.DataFrame, value: str, by: Sequence[str] | None, *, effect: bool
) -> tuple[pd.DataFrame, Sequence[str]]:
    if effect:
        by = pair_columns(cells) if by is None else by
        return matched_pairs(cells, value, by), by
    by = cell_columns(cells) if by is None else by
    kept = valid_cells(cells, value)
    refuse_mixture(kept, by, cell_columns(kept))
    kept = kept.assign(y=log_values(kept, value))
    return kept.sort_values(["block", "position"], ignore_index=True), by


def _not_split(y: Floats, sizes: Floats) -> str:
    if sizes.size < 2:
        return "one boot"
    if sizes.max() == 1:
        return "each boot measured it once"
    return "" if what_is_missing(y) == "" else "no two values differ"


def _share_interval(
    between: float, within: float, size: float, freedom: tuple[int, int], confidence: float
) -> tuple[float, float]:
    if within == 0:
        return 1.0, 1.0
    limits = np.asarray(stats.f.ppf([(1 + confidence) / 2, (1 - confidence) / 2], *freedom))
    ends = between / within / limits
    low, high = ((ends - 1) / (ends - 1 + size)).clip(0, 1)
    return float(low), float(high)
