# SPDX-License-Identifier: MIT
"""Where the spread comes from: from boot to boot, or from run to run within a boot.

The components are estimated by the method of moments (one-way analysis of variance, boots as the
random factor). It has a closed form, is unbiased, and agrees with restricted maximum likelihood
where boots are of equal size and the boot's component is not negative. A mixed model fitted to
three to ten boots often ends on the boundary instead, with a warning and no interval.
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
    log_values,
    matched_pairs,
    pair_columns,
    refuse_mixture,
    valid_cells,
)
from iolab.stats.estimates import (
    CONFIDENCE,
    Floats,
    Statistic,
    check_confidence,
    format_boots,
    what_is_missing,
)

__all__ = ["Components", "components", "components_of", "variance_table"]


@dataclass(frozen=True, slots=True, repr=False)
class Components(Statistic):
    """The spread of logarithms: 0.01 is about 1 %.

    ``boot_sd`` is that between boots, ``within_sd`` that between the pairs (or runs) of one boot;
    ``share`` is the boot's share of the variance, with its interval. They are NaN where ``missing``
    says why. ``mean_sd`` is the standard deviation of the boots' means as measured, with
    ``per_boot`` values each (the harmonic mean, where boots differ): the spread that an interval
    rests on.
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

        Errors: UserError where the measured spread could not be split.
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
    """Split the variance of values (logarithms) into the boots' and what is within a boot.

    `boot` names the boot of each value. The interval of the share is that of the F ratio, exact for
    boots of equal size. A boot's component that comes out negative is 0. Errors: UserError without
    a value or with a level outside 0..1.
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
    """Split the spread of each condition: columns `by`, those of `Components`.

    With ``effect=True`` what spreads is ln(treated/control) of the pairs, else ln(value) of the
    cells. Errors: as `iolab.stats.tables.ratio_table` and `mean_table`.
    """
    rows, by = _rows(cells, value, by, effect=effect)
    grouped = rows.groupby(list(by), dropna=False, observed=True)
    table = grouped.size().reset_index()[list(by)]
    found = [
        asdict(components(group["y"], group["block"], confidence=confidence))
        for _, group in grouped
    ]
    return in_kernel_order(pd.concat([table, pd.DataFrame(found)], axis=1), by)


def components_of(
    cells: pd.DataFrame,
    condition: Mapping[str, object],
    value: str = "iops",
    *,
    effect: bool = True,
    confidence: float = CONFIDENCE,
) -> Components:
    """Split the spread of the one condition that `condition` picks by its columns.

    Errors: UserError if it picks none or several; else as `variance_table`.
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
