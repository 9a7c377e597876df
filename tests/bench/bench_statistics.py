# SPDX-License-Identifier: MIT
"""What the intervals and tests are worth: simulated sweeps of known truth, as a Markdown table.

    python -m tests.bench.bench_statistics

Nothing happens in any of these sweeps, so every claim of an effect is false. (Effects add to
logarithms: the coverage is the same for any true ratio.) What is counted, per interval or claim:

* how often the t interval on the boots' means covers the truth;
* how often a sign-flip p-value is at most 0.05, and how often any of a family's is after Holm;
* for contrast, the coverage of two methods that are not used: Welch's t over all runs as if they
  were independent, and the percentile bootstrap over rows (pairs).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import signal, stats
from statsmodels.stats.proportion import proportion_confint

from iolab.paths import REFERENCE
from iolab.stats.conditions import boot_means, cell_columns
from iolab.stats.tables import pair_ratios, ratio_table
from iolab.stats.verdicts import holm
from iolab.store.dataset import load
from tests.support.synthetic import block_cells, frame

Floats = npt.NDArray[np.float64]

SWEEPS: Final = 4000
CLAIMS: Final = 8
_RESAMPLES: Final = 1000
_MEMORY: Final = 0.6


@dataclass(frozen=True)
class Noise:
    """How values spread: standard deviations of logarithms, in units of each other.

    ``boot`` is that of a condition's effect from boot to boot, ``run`` that of a run; neighbouring
    runs are correlated by 0.6. ``drift`` is added from each position to the next. Tails are
    Student's t with ``freedom`` degrees. With ``measured``, the numbers are drawn from the
    reference data instead: boot effects from the treated pairs' residuals (all or none of them,
    ``boot`` 1 or 0), run noise from the A/A pairs.
    """

    boot: float
    run: float
    drift: float = 0.0
    freedom: float = np.inf
    measured: bool = False


@dataclass(frozen=True)
class Measured:
    """Residuals of ln(ratio) in the reference data, and the spread of levels between boots."""

    treated: Floats
    aa: Floats
    level_sd: float


NOISES: Final[Mapping[str, Noise]] = {
    "as measured": Noise(boot=1, run=1, measured=True),
    "as measured, A/A": Noise(boot=0, run=1, measured=True),
    "boots differ": Noise(boot=5, run=1),
    "boots and runs": Noise(boot=1, run=1),
    "drift": Noise(boot=1, run=1, drift=2),
    "heavy tails": Noise(boot=1, run=1, freedom=3),
}
DESIGNS: Final = tuple(itertools.product((3, 6, 10), (1, 2)))


@dataclass(frozen=True)
class Row:
    """Shares (0..1) that a noise and a design give."""

    noise: str
    boots: int
    pairs: int
    covered: float
    no_interval: float
    sign_flip: float
    holm: float
    pooled_runs: float
    bootstrap_rows: float


@cache
def measured() -> Measured:
    """Return what the reference data say about noise."""
    cells = load(REFERENCE / "dio_kworker").cells
    boots = pair_ratios(cells)
    by = [name for name in boots.columns if name not in {"block", "y", "pairs"}]
    grouped = boots.groupby(by, dropna=False, observed=True)["y"]
    sd = grouped.transform("std")
    scaled = ((boots["y"] - grouped.transform("mean")) / sd)[~boots["aa"] & (sd > 0)]
    typical = float(np.sqrt((sd[~boots["aa"]] ** 2).mean()))
    names = cell_columns(cells)
    means = boot_means(cells[cells["weight"].isna()], "iops", names, log=True)
    controls = means.groupby(names, dropna=False, observed=True)["y"].std()
    return Measured(
        treated=scaled.to_numpy(dtype=np.float64) * typical,
        aa=boots.loc[boots["aa"], "y"].to_numpy(dtype=np.float64),
        level_sd=float(np.sqrt((controls**2).mean())),
    )


def sweeps(
    noise: Noise, boots: int, pairs: int, count: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return ln(control) and ln(treated) of simulated sweeps: count x claims x boots x pairs."""
    shape = (count, CLAIMS, boots, pairs)
    if noise.measured:
        found = measured()
        level = found.level_sd * rng.standard_normal((count, 1, boots, 1))
        wobble = noise.boot * rng.choice(found.treated, shape[:3])[..., None]
        # Which side of an A/A pair is called treated is chance.
        run = noise.run * rng.choice(found.aa, shape) * rng.choice([-1.0, 1.0], shape)
        control = np.broadcast_to(level, shape)
        return control, control + wobble + run
    level = noise.boot * _tailed(rng, noise.freedom, (count, 1, boots, 1))
    wobble = noise.boot * _tailed(rng, noise.freedom, shape[:3])[..., None]
    # A block in the order measured: pairs of neighbours in random order, sides at random.
    positions = 2 * CLAIMS * pairs
    shocks = _tailed(rng, noise.freedom, (count, boots, positions))
    shocks[..., 1:] *= np.sqrt(1 - _MEMORY**2)
    series = noise.run * signal.lfilter([1], [1, -_MEMORY], shocks)
    series += noise.drift * np.arange(positions)
    sides = series.reshape(count, boots, CLAIMS * pairs, 2)
    sides = rng.permuted(sides, axis=-1)
    order = rng.permuted(np.broadcast_to(np.arange(CLAIMS * pairs), sides.shape[:3]), axis=-1)
    sides = np.take_along_axis(sides, order[..., None], axis=2)
    placed = sides.reshape(count, boots, CLAIMS, pairs, 2).transpose(4, 0, 2, 1, 3)
    control, treated = placed[0] + level, placed[1] + level + wobble
    return control, treated


def t_covers(means: Floats, level: float = 0.95) -> tuple[npt.NDArray[np.bool_], Floats]:
    """Return which t intervals on the boots (last axis) cover 0, and the spread of the boots."""
    n = means.shape[-1]
    half = stats.t.ppf((1 + level) / 2, n - 1) * stats.sem(means, axis=-1)
    return np.abs(means.mean(axis=-1)) <= half, np.ptp(means, axis=-1)


def sign_flip_p(means: Floats) -> Floats:
    """Return the exact two-sided sign-flip p-values of the boots' means (last axis)."""
    n = means.shape[-1]
    signs = np.array(list(itertools.product([1.0, -1.0], repeat=n)))
    flat = means.reshape(-1, n)
    p = np.empty(len(flat))
    for part in np.array_split(np.arange(len(flat)), max(1, len(flat) // 4000)):
        null = np.abs(flat[part] @ signs.T) / n
        rounding = 1e-12 * np.abs(flat[part]).max(axis=1, keepdims=True)
        p[part] = (null >= null[:, :1] - rounding).mean(axis=1)
    return p.reshape(means.shape[:-1])


def holm_rejects(p: Floats, alpha: float = 0.05) -> npt.NDArray[np.bool_]:
    """Return which families (rows) have any claim left after Holm: its first step decides."""
    return np.asarray(p.min(axis=-1) * p.shape[-1] <= alpha)


def bootstrap_covers(rows: Floats, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Return which 95 % percentile bootstraps over rows (last axis) cover 0."""
    n = rows.shape[-1]
    # The same resamples serve every data set: what differs between these is all that matters.
    weights = rng.multinomial(n, np.full(n, 1 / n), _RESAMPLES) / n
    low, high = np.quantile(rows @ weights.T, [0.025, 0.975], axis=-1)
    return np.asarray((low <= 0) & (high >= 0), dtype=np.bool_)


def simulate(name: str, boots: int, pairs: int, count: int = SWEEPS) -> Row:
    """Simulate one noise and design; the same numbers every time."""
    rng = np.random.default_rng([boots, pairs, *name.encode()])
    control, treated = sweeps(NOISES[name], boots, pairs, count, rng)
    differences = treated - control
    means = differences.mean(axis=-1)
    covers, spread = t_covers(means)
    there = spread > 1e-12
    p = sign_flip_p(means)
    first = (count, boots * pairs)
    runs = stats.ttest_ind(
        treated[:, 0].reshape(first), control[:, 0].reshape(first), axis=1, equal_var=False
    )
    return Row(
        noise=name,
        boots=boots,
        pairs=pairs,
        covered=float(covers[there].mean()),
        no_interval=float(1 - there.mean()),
        sign_flip=float((p <= 0.05).mean()),
        holm=float(holm_rejects(p).mean()),
        pooled_runs=float((runs.pvalue > 0.05).mean()),
        bootstrap_rows=float(bootstrap_covers(differences[:, 0].reshape(first), rng).mean()),
    )


def aa_check(boots: int, pairs: int, count: int = 200) -> pd.DataFrame:
    """Send cells of sweeps in which nothing happens through `ratio_table`.

    Returns its rows: eight claims and an A/A pair for each sweep, whose number stands in ``kernel``
    and within which ``p_holm`` is corrected.
    """
    rng = np.random.default_rng([boots, pairs])
    effects = dict.fromkeys(range(1, CLAIMS + 1), 1.0)
    rows = [
        row
        for sweep in range(count)
        for boot in range(boots)
        for row in block_cells(
            kernel=f"{sweep}",
            block=f"{sweep}-{boot}",
            boot=boot,
            conditions=[(128, None), *((128, weight) for weight in effects)],
            effects=effects,
            boot_sd=0.02,
            boot_effect_sd=0.015,
            noise_sd=0.005,
            drift=0.001,
            pairs=pairs,
            rng=rng,
        )
    ]
    table = ratio_table(frame(rows))
    claims = table[~table["aa"]].groupby("kernel")["p_value"]
    return table.assign(p_holm=claims.transform(holm))


def lines(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the Markdown table of simulated rows."""
    yield (
        "| noise | boots x pairs | **t interval covers** | no interval | sign flip p <= 0.05 "
        "| Holm, 8 claims: any | pooled runs cover | bootstrap of rows covers |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        yield line(row)


def line(row: Row) -> str:
    """Return a row of the table."""
    shares = [row.covered, row.no_interval, row.sign_flip, row.holm]
    shares += [row.pooled_runs, row.bootstrap_rows]
    first, *others = (f"{share:.1%}".replace("%", " %") for share in shares)
    return f"| {row.noise} | {row.boots} x {row.pairs} | **{first}** | {' | '.join(others)} |"


def aa_lines() -> Iterator[str]:
    """Yield the Markdown table of the whole pipeline's A/A check."""
    yield (
        "| boots x pairs | comparisons | interval leaves 1 out | sign flip p <= 0.05 "
        "| sweeps | any claim after Holm |"
    )
    yield "|---|---|---|---|---|---|"
    for boots, pairs in ((6, 1), (6, 2), (10, 1)):
        table = aa_check(boots, pairs)
        outside = (table["low"] > 1) | (table["high"] < 1)
        claimed = (table["p_holm"] <= 0.05).groupby(table["kernel"]).any()
        yield (
            f"| {boots} x {pairs} | {len(table)} | {_share(outside)} "
            f"| {_share(table['p_value'] <= 0.05)} | {len(claimed)} | {_share(claimed)} |"
        )


def _share(hits: pd.Series[bool]) -> str:
    low, high = proportion_confint(int(hits.sum()), len(hits), method="beta")
    return f"{hits.mean():.1%} [{low:.1%}, {high:.1%}]".replace("%", " %")


def _tailed(rng: np.random.Generator, freedom: float, shape: tuple[int, ...]) -> Floats:
    if np.isinf(freedom):
        return rng.standard_normal(shape)
    scale: float = np.sqrt(freedom / (freedom - 2))
    return np.asarray(rng.standard_t(freedom, shape) / scale, dtype=np.float64)


def main() -> None:
    """Print both tables."""
    began = time.perf_counter()
    for text in lines(simulate(name, *design) for name in NOISES for design in DESIGNS):
        print(text, flush=True)
    print()
    for text in aa_lines():
        print(text, flush=True)
    print(f"\n{SWEEPS} sweeps a row, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
