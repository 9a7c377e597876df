# SPDX-License-Identifier: MIT
"""Made-up data of known truth: what the tests of the analysis are measured against.

Nothing here is a measurement, and it is never stored as a measurement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from iolab.store.counters import (
    LATENCY_COLUMNS,
    MECHANISM_COLUMNS,
    UNAVAILABLE_COLUMNS,
    column_types,
)
from iolab.store.dataset import Dataset

# The true ratio treated/control by kernel and weight.
EFFECTS: dict[str, dict[int, float]] = {
    "5.10": {100: 1.0, 1000: 1.0, 3000: 0.79, 10000: 0.78},
    "6.1": {100: 1.0, 1000: 0.92, 3000: 0.80, 10000: 0.79},
    "6.12": {100: 1.0, 1000: 0.93, 3000: 0.87, 10000: 0.85},
}
_SCHEDULERS = {"5.10": "CFS", "6.1": "CFS", "6.8": "EEVDF", "6.12": "EEVDF", "7.2": "EEVDF"}
_CONSTANT = {
    "pathology": "dio_kworker",
    "target": "vm",
    "clock": "virtual",
    "numjobs": 1,
    "intervention": "none",
    "extents": "overwrite",
    "clumping": "tick",
    "engine": "libaio",
    "workers": "default",
    "tuning": "default",
    "batch_min": 1,
    "runtime_s": 1.0,
    "recorded": False,
    "twin": "",
    "valid": True,
    "gate": "",
}


def block_cells(
    *,
    kernel: str = "6.1",
    block: str = "b0",
    boot: int = 0,
    conditions: Sequence[tuple[int, int | None]] = ((128, None), (128, 1000)),
    effects: Mapping[int, float] | None = None,
    boot_sd: float = 0.0,
    boot_effect_sd: float = 0.0,
    noise_sd: float = 0.0,
    drift: float = 0.0,
    pairs: int = 1,
    rng: np.random.Generator | None = None,
) -> list[dict[str, Any]]:
    """Return one block's cells: `pairs` pairs of each condition (iodepth, weight; None: A/A)."""
    rng = np.random.default_rng(0) if rng is None else rng
    truth = EFFECTS.get(kernel, {}) if effects is None else effects
    order = [condition for condition in conditions for _ in range(pairs)]
    level = boot_sd * rng.standard_normal()
    # A boot changes not only the level but each condition's effect too.
    wobble = {condition: boot_effect_sd * rng.standard_normal() for condition in conditions}
    noise = _autoregressive(rng, 2 * len(order), noise_sd)
    rows: list[dict[str, Any]] = []
    for pair, index in enumerate(rng.permutation(len(order))):
        iodepth, weight = order[index]
        roles = ["control", "treatment"]
        rng.shuffle(roles)
        for role in roles:
            position = len(rows)
            treated = role == "treatment" and weight is not None
            ratio = truth[weight] if treated and weight is not None else 1.0
            log_iops = np.log(_base(iodepth) * ratio) + level + noise[position] + drift * position
            log_iops += wobble[order[index]] if treated else 0.0
            rows.append(
                {"cell": f"{block}/{position}", "block": block, "kernel": kernel, "boot": boot}
                | {"kernel_release": f"{kernel}.0-made-up"}
                | {"scheduler": _SCHEDULERS.get(kernel, "CFS")}
                | {"position": position, "pair": pair, "role": role, "iodepth": iodepth}
                | {"aa": weight is None}
                | {"weight": weight if treated else pd.NA}
                | _CONSTANT
                | _measures(float(np.exp(log_iops)), ratio)
            )
    return rows


def noisy_cells(
    *, repetitions: int, boots: int, pairs: int, ratio: float, seed: int
) -> pd.DataFrame:
    """Return many experiments in one frame, each under a kernel's name of its own."""
    rng = np.random.default_rng(seed)
    rows = [
        row
        for repetition in range(repetitions)
        for boot in range(boots)
        for row in block_cells(
            kernel=f"r{repetition}",
            block=f"r{repetition}-{boot}",
            boot=boot,
            conditions=[(128, None), (128, 1000)],
            effects={1000: ratio},
            boot_sd=0.04,
            boot_effect_sd=0.04,
            noise_sd=0.01,
            pairs=pairs,
            rng=rng,
        )
    ]
    return frame(rows)


def dataset(
    *,
    kernels: Sequence[str] = ("6.1", "6.12"),
    iodepths: Sequence[int] = (64, 192),
    weights: Sequence[int] = (100, 1000, 3000, 10000),
    boots: int = 6,
    invalid: bool = True,
) -> Dataset:
    """Return a whole data set as a sweep would leave it, one cell of it invalid."""
    rng = np.random.default_rng(0)
    conditions = [(depth, weight) for depth in iodepths for weight in (None, *weights)]
    rows = [
        row
        for kernel in kernels
        for boot in range(boots)
        for row in block_cells(
            kernel=kernel,
            block=f"{kernel}-{boot}",
            boot=boot,
            conditions=conditions,
            boot_sd=0.02,
            boot_effect_sd=0.015,
            noise_sd=0.005,
            rng=rng,
        )
    ]
    cells = frame(rows)
    if invalid:
        cells.loc[3, "valid"] = False
        cells.loc[3, "gate"] = "the ramp was not honoured"
    latency = pd.concat([_histogram(row, rng) for row in rows], ignore_index=True)
    unavailable = pd.DataFrame(
        [{"kernel": "6.8", "reason": "its archive cannot be reached"}],
        columns=list(UNAVAILABLE_COLUMNS),
    )
    mechanism = pd.DataFrame(columns=list(MECHANISM_COLUMNS)).astype(MECHANISM_COLUMNS)
    return Dataset(
        cells,
        latency.astype(LATENCY_COLUMNS),
        unavailable.astype(UNAVAILABLE_COLUMNS),
        mechanism,
        traces={},
    )


def gated(cells: pd.DataFrame, which: pd.Series, gate: str) -> pd.DataFrame:
    """Return cells of which some are invalid for a reason."""
    hit = which.fillna(False).astype(bool)
    return cells.assign(valid=cells["valid"] & ~hit, gate=cells["gate"].mask(hit, gate))


def frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return rows as a tidy frame of cells."""
    columns = column_types("dio_kworker")
    return pd.DataFrame(rows, columns=list(columns)).astype(columns)


def write(data: Dataset, folder: Path) -> Path:
    """Store a data set as `iolab.store.dataset.load` reads it; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data.cells.to_parquet(folder / "cells.parquet")
    data.latency.to_parquet(folder / "latency.parquet")
    data.mechanism.to_parquet(folder / "mechanism.parquet")
    (folder / "unavailable.json").write_text(json.dumps(data.unavailable.to_dict(orient="records")))
    return folder


def _base(iodepth: int) -> float:
    return 44_000.0 * min(1.0, iodepth / 192)


def _autoregressive(rng: np.random.Generator, count: int, sd: float) -> npt.NDArray[np.float64]:
    memory = 0.6
    shocks = rng.standard_normal(count) * sd
    values = np.empty(count)
    last = shocks[0]
    for index, shock in enumerate(shocks):
        last = memory * last + np.sqrt(1 - memory**2) * shock if index else shock
        values[index] = last
    return values


def _measures(iops: float, ratio: float) -> dict[str, Any]:
    pingpong = min(1.0, 8 * (1 - ratio))
    latency_ns = 4e6 / ratio
    fio_cpu = 0.55 + 0.15 * pingpong
    kworker_cpu = 0.15 + 0.06 * pingpong
    return {
        "iops": iops,
        "steady_iops": iops,
        "seconds_per_io": 1 / iops,
        "latency_mean_ns": latency_ns,
        "latency_p50_ns": latency_ns,
        "latency_p95_ns": 1.3 * latency_ns,
        "latency_p99_ns": 1.6 * latency_ns,
        "latency_p999_ns": 2.2 * latency_ns,
        "fio_cpu": fio_cpu,
        "kworker_cpu": kworker_cpu,
        "idle": max(0.0, 0.94 - fio_cpu - kworker_cpu),
        "switches_per_io": 0.011 + 2.1 * pingpong,
        "fio_voluntary_per_io": 0.006 + 1.05 * pingpong,
        "fio_involuntary_per_io": 0.001,
        "ios": round(iops),
    }


def _histogram(row: dict[str, Any], rng: np.random.Generator) -> pd.DataFrame:
    centres = np.geomspace(1e5, 1e8, 60)
    draws = rng.lognormal(np.log(row["latency_p50_ns"]), 0.25, 2000)
    edges = np.append(centres * 0.94, centres[-1] * 1.06)
    counts, _ = np.histogram(draws, edges)
    kept = counts > 0
    return pd.DataFrame({"cell": row["cell"], "bin_ns": centres[kept], "count": counts[kept]})


def shuffled(data: pd.DataFrame, seeds: Sequence[int] = (1, 2)) -> Iterator[pd.DataFrame]:
    """Yield the same rows in other orders."""
    for seed in seeds:
        yield data.sample(frac=1.0, random_state=seed)


def plain(boots: int = 6, *, seed: int = 0, pairs: int = 2, kernel: str = "6.1") -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return frame(
        [
            row
            for boot in range(boots)
            for row in block_cells(
                kernel=kernel,
                block=f"{kernel}-{boot}",
                boot=boot,
                boot_sd=0.04,
                boot_effect_sd=0.03,
                noise_sd=0.01,
                pairs=pairs,
                rng=rng,
            )
        ]
    )
