# SPDX-License-Identifier: MIT
"""Plans from a pilot: pairs in a boot, and boots for each condition."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from iolab.errors import UserError
from iolab.stats.boots import TooManyBootsError, boots_needed, minimum_detectable, why_no_plan
from iolab.stats.estimates import CONFIDENCE
from iolab.stats.power import POWER
from iolab.stats.variance import Components, variance_table

__all__ = ["pairs_per_boot", "plan_table"]


def pairs_per_boot(spread: Components, *, boot_s: float, pair_s: float) -> int:
    """Compute the pairs per boot that make an interval narrowest for the time spent.

    Where the boots' share of the variance is large, more boots help and more pairs do not.

    Parameters
    ----------
    spread : Components
        A pilot's components.
    boot_s : float
        Cost of a boot before its first pair, in seconds.
    pair_s : float
        Cost of a pair, in seconds.

    Returns
    -------
    int
        Pairs per boot, at least 1.

    Raises
    ------
    UserError
        If the pilot's spread could not be split, boots did not differ, or a cost is not above 0.

    References
    ----------
    W. G. Cochran, *Sampling Techniques*, 3rd ed., Wiley 1977, section 10.6.

    Examples
    --------
    >>> from iolab.stats.variance import components
    >>> pilot = components([0.10, 0.14, 0.20, 0.15, 0.05, 0.09], [0, 0, 1, 1, 2, 2])
    >>> pairs_per_boot(pilot, boot_s=60, pair_s=5)
    2
    """
    if not (boot_s > 0 and pair_s > 0):
        raise UserError("what a boot and a pair cost is above 0 seconds")
    if spread.missing:
        raise UserError(f"whether more pairs help is not known from these data: {spread.missing}")
    if spread.boot_sd == 0:
        raise UserError("no spread between boots was seen: put as many pairs into a boot as fit")

    def cost(pairs: int) -> float:
        # Seconds for one boot, times the boots that a given precision takes.
        return (boot_s + pairs * pair_s) * spread.sd_with(pairs) ** 2

    best = spread.within_sd / spread.boot_sd * math.sqrt(boot_s / pair_s)
    return min(max(1, math.floor(best)), math.floor(best) + 1, key=cost)


def plan_table(
    cells: pd.DataFrame,
    ratio: float,
    value: str = "iops",
    by: Sequence[str] | None = None,
    *,
    limit: float = 1.0,
    power: float = POWER,
    confidence: float = CONFIDENCE,
    claims: int = 1,
) -> pd.DataFrame:
    """Plan a run from a pilot, condition by condition.

    Parameters
    ----------
    cells : DataFrame
        The pilot's cells, of one pathology.
    ratio : float
        Expected ratio treated/control, above 0, without unit.
    value : str, optional
        Column of a positive quantity, in any unit.
    by : sequence of str, optional
        Columns of the condition; by default `iolab.stats.conditions.pair_columns`.
    limit : float, optional
        Ratio to tell it from, above 0: the limit of a claim, or 1 for any effect at all.
    power : float, optional
        Probability that the ratio is told from the limit, 0..1.
    confidence : float, optional
        Confidence level, 0..1.
    claims : int, optional
        Number of claims that share the level (Holm's worst case).

    Returns
    -------
    DataFrame
        A row for each condition: the columns `by`, ``sd`` (of a boot's mean of ln(ratio)), ``n``
        (the pilot's boots), ``below`` and ``above`` (ratios that so many boots distinguish from 1),
        ``boots`` and ``cautious`` (boots for `ratio`) and ``missing``, why there is no plan.

    Raises
    ------
    UserError
        As in `boots_needed` and `iolab.stats.tables.ratio_table`.

    Examples
    --------
    >>> plan = plan_table(cells[cells["kernel"] == "6.1"], 0.97)
    >>> plan[["weight", "sd", "n", "below", "above", "boots", "cautious"]].round(3)
       weight     sd  n  below  above  boots  cautious
    0     100  0.015  6  0.978  1.022      6         7
    1    1000  0.011  6  0.985  1.015      6         6
    2   10000  0.020  6  0.971  1.030      7        10
    3    <NA>  0.005  6  0.994  1.007      6         6
    """
    pilot = variance_table(cells, value, by, confidence=confidence)
    fields = list(Components.__dataclass_fields__)
    condition = [name for name in pilot.columns if name not in fields]
    rows = []
    for row in pilot.to_dict("records"):
        spread = Components(**{name: row[name] for name in fields})
        missing = why_no_plan(spread)
        plan: dict[str, object] = {"sd": spread.mean_sd, "n": spread.n, "missing": missing}
        if not missing:
            detectable = minimum_detectable(
                spread, spread.n, power=power, confidence=confidence, claims=claims
            )
            plan |= {"below": detectable.below, "above": detectable.above}
            try:
                needed = boots_needed(
                    spread,
                    ratio,
                    limit=limit,
                    power=power,
                    confidence=confidence,
                    claims=claims,
                )
            except TooManyBootsError as error:
                plan["missing"] = str(error)
            else:
                plan |= {"boots": needed.boots, "cautious": needed.cautious}
        rows.append(plan)
    columns = ["sd", "n", "below", "above", "boots", "cautious", "missing"]
    plans = pd.DataFrame(rows, columns=columns).astype({"boots": "Int64", "cautious": "Int64"})
    return pd.concat([pilot[condition], plans], axis=1)
