# SPDX-License-Identifier: MIT
"""Observed cells below ``data/reference/observed``, and how a sweep gets there.

A folder there has the tables of a sweep, the profile of each observed cell, and, where calls were
recorded, who woke and who preempted whom in each cell (``chain.parquet``).

``python -m paper.make.cells RESULTS FOLDER`` copies a finished sweep's folder of results, such as
``data/runs/dio_kworker/smoke``, to a new folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from guestprof.profile import CostProfile, per_io
from guestprof.profile_file import write_profile
from guestprof.schedule import SWITCH_CALLS, switch_chain, switches
from iolab.stats.estimates import CONFIDENCE, t_interval
from iolab.stats.profiles import costs
from iolab.store.dataset import load
from iolab.store.hashes import HASHES, TABLES, read_hashes
from iolab.store.profiles import ProfileStore
from iolab_base.errors import UserError
from iolab_base.files import atomic_write
from iolab_base.parquet import FILE_BYTES, as_frame, read_table
from iolab_base.reading import read_regular
from paper.make import run

CHAIN: Final = "chain.parquet"
# Of a call of try_to_wake_up, whether or not the task was asleep.
CALLS: Final = "calls for"
INTERRUPT: Final = "[interrupt]"
_NO_CHAIN: Final = pd.DataFrame(columns=["cell", "task", "does", "other", "count", "wait_ns"])
_MIB: Final = 1 << 20


class Mean(NamedTuple):
    """A mean over boots, and half of its interval: NaN where the boots have none."""

    value: float
    half: float

    def text(self, digits: int = 0) -> str:
        """Return both with so many digits after the point, the half only if it is not zero."""
        half = f"{self.half:,.{digits}f}"
        spread = f" ± {half}" if self.half >= 0.5 * 10**-digits else ""
        return f"{self.value:,.{digits}f}{spread}"


def mean(values: Iterable[float]) -> Mean:
    """Return the mean of one value for each boot."""
    value, low, high = t_interval(np.array(list(values), dtype=np.float64), CONFIDENCE)
    return Mean(value, (high - low) / 2)


@dataclass(frozen=True)
class Cell:
    """An observed cell.

    Parameters
    ----------
    row : mapping
        Its row of the table of cells.
    profile : Profile
        What the observer counted.
    chain : DataFrame
        As `guestprof.schedule.switch_chain`, and each call of ``try_to_wake_up`` as "calls for";
        empty if none was recorded.
    """

    row: Mapping[Any, Any]
    profile: CostProfile
    chain: pd.DataFrame

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return str(self.row["kernel"])

    @property
    def ios(self) -> int:
        """I/Os that the device completed."""
        return self.profile.ios

    @property
    def mib(self) -> float:
        """MiB that the device wrote."""
        return self.profile.totals["written_bytes"] / _MIB

    @property
    def window_ns(self) -> int:
        """The time of the guest's clock between its two samples."""
        return self.profile.totals["closed_ns"] - self.profile.totals["opened_ns"]

    @property
    def idle_ns(self) -> int:
        """The time in which the processor was halted or ran the idle task."""
        idle = self.profile.of_tasks("swapper/.*").totals["instructions"]
        return self.profile.totals["idle_ns"] + idle

    @property
    def working(self) -> CostProfile:
        """The profile without the agent and the idle task."""
        return self.profile.working()

    @property
    def switches(self) -> int:
        """Context switches that the kernel counted (``ctxt`` of ``/proc/stat``)."""
        return round(float(self.row["switches_per_io"]) * self.ios)

    @cached_property
    def subsystems(self) -> pd.Series:
        """Instructions per I/O by subsystem, without the agent and the idle task."""
        return costs(self.profile)

    @cached_property
    def functions(self) -> pd.Series:
        """Instructions per I/O by function, likewise."""
        return costs(self.profile, "function")

    @cached_property
    def inclusive(self) -> pd.Series:
        """Instructions per I/O by function with all that it called, likewise."""
        return costs(self.profile, "inclusive")

    @cached_property
    def calls(self) -> pd.Series:
        """Calls per I/O by function, likewise."""
        found = per_io(self.working.functions(), self.ios)
        return found.groupby("function", observed=True)["calls"].sum()

    def of_task(self, pattern: str) -> Cell:
        """Return the part of the tasks whose names match a regular expression."""
        return replace(self, profile=self.profile.of_tasks(pattern))

    def linked(self, task: str, does: str, other: str) -> pd.DataFrame:
        """Return the rows of the chain between tasks whose names match regular expressions."""
        chain = self.chain
        there = chain["task"].str.fullmatch(task) & chain["other"].str.fullmatch(other)
        return chain[there & (chain["does"] == does)]


class Pair(NamedTuple):
    """A treated cell and its control."""

    treated: Cell
    control: Cell


def read_pairs(folder: Path) -> list[Pair]:
    """Return the observed pairs of a folder, in the order of kernels, boots and pairs."""
    data, profiles = load(folder), ProfileStore(folder)
    chains = folder / CHAIN
    chain = as_frame(read_table(chains, below=folder), chains) if chains.exists() else _NO_CHAIN
    observed = data.cells[data.cells["cell"].isin(list(profiles.names()))]
    roles = ["treatment", "control"]
    pairs = []
    for _, rows in observed.groupby(["kernel", "boot", "pair"], sort=True):
        pair = rows.set_index("role", drop=False).loc[roles].to_dict("records")
        names = [row["cell"] for row in pair]
        pairs.append(
            Pair(
                *(
                    Cell(row, profiles.profile(name), chain[chain["cell"] == name])
                    for name, row in zip(names, pair, strict=True)
                )
            )
        )
    return pairs


def chosen(pairs: Iterable[Pair], **levels: Any) -> list[Pair]:
    """Return the pairs whose treated cells have these levels, one for each boot."""
    return [
        pair for pair in pairs if all(pair.treated.row[n] == level for n, level in levels.items())
    ]


def chain_of(calls: pd.DataFrame) -> pd.DataFrame:
    """Return who wakes and who preempts whom, from the recorded calls of a cell."""
    wakes = calls[calls["function"] == "try_to_wake_up"]
    wakes = wakes.assign(task=wakes["task"].mask(wakes["interrupt"], INTERRUPT))
    called = wakes.groupby(["task", "other"], as_index=False).agg(count=("at_ns", "size"))
    return pd.concat([switch_chain(switches(calls)), called.assign(does=CALLS)], ignore_index=True)


def copy(results: Path, folder: Path) -> None:
    """Copy a sweep's tables, hashes and profiles to a new folder, with the chains of its cells.

    The profiles of traced cells stay behind.

    Raises
    ------
    UserError
        If `results` is no folder of results with observed cells, or `folder` exists.
    """
    if folder.exists():
        raise UserError(f"{folder} exists already")
    data = load(results)
    kept = set(data.cells.loc[~data.cells["recorded"], "cell"])
    source, target = ProfileStore(results.parents[1]), ProfileStore(folder)
    chains, observed = [], False
    for block in read_hashes(results, data):
        for cell in block.cells:
            name = f"{block.name}-{cell}"
            if name not in kept or not source.has(block.key, cell):
                continue
            observed = True
            write_profile(target.path(block.name, cell), source.profile(name))
            if source.has(block.key, cell, SWITCH_CALLS):
                chains.append(chain_of(source.events(name)).assign(cell=name))
    if not observed:
        raise UserError(f"no cell of {results} was observed")
    if chains:
        atomic_write(folder / CHAIN, pd.concat(chains, ignore_index=True).to_parquet(index=False))
    for name in (*TABLES, HASHES):
        atomic_write(folder / name, read_regular(results / name, FILE_BYTES))


def main(argv: Sequence[str]) -> None:
    """Copy the folder of results that is named first to the one that is named second."""
    if len(argv) != 2:
        raise UserError("name a folder of results and the new folder")
    copy(*map(Path, argv))


if __name__ == "__main__":
    run(main)
