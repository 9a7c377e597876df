# SPDX-License-Identifier: MIT
"""How often a sequential design decides wrongly, and how many boots it takes: a Markdown table.

    python -m tests.bench.bench_looks

The truth lies at the limit, where every decision is wrong, or beyond it by some spreads of a boot.
Boots are drawn, and the rule of `iolab.stats.claims` judges them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from statsmodels.stats.proportion import proportion_confint

from iolab.pathology.claims import Claim
from iolab.stats.claims import LOOKS, judge_boots
from tests.bench.bench_statistics import measured

RUNS: Final = 4000
NOISES: Final = ("normal", "heavy tails", "drift", "as measured")
DISTANCES: Final = (0.0, 2.0, 5.0, 20.0)
_CLAIM: Final = Claim(
    name="more than nothing",
    kind="magnitude",
    statement="it is more than nothing",
    condition={"weight": 1000},
    value="iops",
    contrast="difference",
    above=0.0,
)


@dataclass(frozen=True)
class Row:
    """Shares (0..1) of the runs of one noise and distance, and their boots."""

    noise: str
    distance: float
    wrong: tuple[float, float, float]
    first: float
    decided: float
    boots: float


def values(noise: str, distance: float, rng: np.random.Generator) -> pd.DataFrame:
    """Return made-up boots: their values, in spreads of a boot, and their orders."""
    most = LOOKS[-1].boots
    # Boots 0, 2, 4 draw their order, the next has the other one.
    order = np.repeat(rng.choice([-1.0, 1.0], (most + 1) // 2), 2)[:most]
    order[1::2] *= -1
    if noise == "as measured":
        found = measured().treated
        y = rng.choice(found, most) / found.std()
    elif noise == "heavy tails":
        y = rng.standard_t(3, most) / np.sqrt(3)
    else:
        y = rng.normal(size=most)
    # As much as two boots may differ, in the pair that comes second.
    return pd.DataFrame({"y": distance + y + 2 * order * (noise == "drift"), "order": order})


def decide(boots: pd.DataFrame) -> tuple[str, int]:
    """Return the verdict and the boots that it took."""
    for look in LOOKS:
        judged = judge_boots(_CLAIM, boots.iloc[: look.boots], look.confidence)
        if judged.verdict != "inconclusive":
            return judged.verdict, look.boots
    return "inconclusive", LOOKS[-1].boots


def simulate(noise: str, distance: float, count: int = RUNS) -> Row:
    """Simulate a noise and a distance from the limit; the same numbers every time."""
    rng = np.random.default_rng([int(distance), *noise.encode()])
    found = [decide(values(noise, distance, rng)) for _ in range(count)]
    right = {"inconclusive"} if distance == 0 else {"inconclusive", "reproduced"}
    wrong = sum(verdict not in right for verdict, _ in found)
    low, high = proportion_confint(wrong, count, method="beta")
    decided = [(verdict, boots) for verdict, boots in found if verdict != "inconclusive"]
    return Row(
        noise,
        distance,
        (wrong / count, low, high),
        sum(boots == LOOKS[0].boots for _, boots in decided) / count,
        len(decided) / count,
        float(np.mean([boots for _, boots in found])),
    )


def lines() -> Iterator[str]:
    """Yield the Markdown table."""
    yield (
        "| boots | truth beyond the limit | decides wrongly | decided after "
        f"{LOOKS[0].boots} boots | decided at all | boots taken |"
    )
    yield "|---|---|---|---|---|---|"
    for noise in NOISES:
        for distance in DISTANCES:
            yield line(simulate(noise, distance))


def line(row: Row) -> str:
    """Return a row of the table."""
    share, low, high = row.wrong
    where = f"by {row.distance:.0f} spreads" if row.distance else "at it"
    shares = f"{share:.1%} [{low:.1%}, {high:.1%}] | {row.first:.0%} | {row.decided:.0%}"
    return f"| {row.noise} | {where} | {shares} | {row.boots:.1f} |".replace("%", " %")


def main() -> None:
    """Print the table."""
    began = time.perf_counter()
    for text in lines():
        print(text, flush=True)
    print(f"\n{RUNS} runs a row, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
