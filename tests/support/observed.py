# SPDX-License-Identifier: MIT
"""A block without and with the observer: is it the same bytes, and what did observing it cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from guestprof.profile import CostProfile
from guestprof.profile_file import read_profile
from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.pathology import get_pathology
from iolab.store.profiles import ProfileStore
from iolab.store.raw import RawStore, block_key
from iolab.store.tables import canonical_lines, write_tables
from iolab.sweeps.block import Observed, observed_cells, write_block
from iolab.targets.vm import prepare
from iolab_base.errors import IolabError
from iolab_base.names import one_of
from tests.support.processes import child_environment


@dataclass(frozen=True)
class Cost:
    """What a measured block took: wall and CPU seconds, and the memory of its largest process."""

    wall_s: float
    cpu_s: float
    memory_mib: float


@dataclass(frozen=True)
class Comparison:
    """What two measurements of a block differ in.

    Parameters
    ----------
    block : Block
        The block.
    differing : list of str
        Cells whose lines of the canonical export, and traces, that are not the same.
    lines : int
        Number of lines of the canonical export.
    costs : tuple of (Cost, Cost), or None
        Without and with the observer; None if both were measured before.
    profiles : dict of str to Profile
        What the observer counted, by the ids of the cells.
    """

    block: Block
    differing: list[str]
    lines: int
    costs: tuple[Cost, Cost] | None
    profiles: dict[str, CostProfile]


def smoke_block(pathology: str, kernel: str, *, boot: int = 0, cpus: int | None = None) -> Block:
    """Return a block of a pathology's smoke profile, on another number of CPUs if one is named."""
    found = get_pathology(pathology)
    blocks = blocks_of(found, found.profiles["smoke"], kernel=kernel, clock="virtual")
    one_of("boot", str(boot), [str(n) for n in range(len(blocks))])
    block = blocks[boot]
    return block if cpus is None else replace(block, machine=replace(block.machine, cpus=cpus))


def _measure(block: Block, key: str, root: Path, observed: list[str], *, flat: bool) -> Cost | None:
    """Measure a block in a process of its own; None if the store has it."""
    store, profiles = RawStore(root), ProfileStore(root)
    cells = observed_cells(block, observed)

    def complete() -> bool:
        # What the kernel cannot run leaves no profile.
        ran = {c["cell"]["id"] for c in store.cells(key) if c["result"]["state"] == "done"}
        return all(profiles.has(key, cell, flat=flat) for cell in ran.intersection(cells))

    if store.has(key) and complete():
        return None
    plan = root / "plans" / f"{block.plan.block}.json"
    plan.parent.mkdir(parents=True, exist_ok=True)
    write_block(plan, block)
    argv = [sys.executable, "-m", "iolab.sweeps.block", str(plan), str(root)]
    argv.append(json.dumps(Observed(cells, flat=flat)))
    began = time.monotonic()
    child = subprocess.Popen(argv, env=child_environment(), stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    said = child.stdout.read()
    # Of the child and all that it waited for: QEMU is the largest of them.
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    took = time.monotonic() - began
    if child.returncode or not complete():
        raise IolabError(f"{block.pathology} on {block.kernel}: {said.strip() or status}")
    return Cost(took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def _export(root: Path, key: str) -> tuple[list[str], dict[str, bytes]]:
    """Return the canonical export of a block, and its traces."""
    store = RawStore(root)
    write_tables(store, [key], {}, root / "tables" / key)
    lines = list(canonical_lines(store, root / "tables" / key))
    traces = store.folder(key).rglob("*.dat")
    return lines, {path.name: path.read_bytes() for path in traces}


def compare(block: Block, folder: Path, *, flat: bool = False) -> Comparison:
    """Measure a block without the observer and with it, and compare what is exported.

    Parameters
    ----------
    block : Block
        The block.
    folder : Path
        Where the results go: ``plain`` and ``observed``, two stores. What is there is not measured
        again.
    flat : bool, optional
        Whether to observe without callers.

    Raises
    ------
    IolabError
        If the block cannot be measured, or not be observed.
    """
    roots = folder / "plain", folder / "observed"
    machine = block.machine
    target = prepare(block.kernel, block.clock, cpus=machine.cpus, memory_mib=machine.memory_mib)
    key = block_key(block, target.identity())
    first, second = (
        _measure(block, key, root, seen, flat=flat)
        for root, seen in zip(roots, ([], ["all"]), strict=True)
    )
    (plain, traces), (observed, seen_traces) = (_export(root, key) for root in roots)
    if len(plain) != len(observed) or traces.keys() != seen_traces.keys():
        raise IolabError(f"{roots[0]} and {roots[1]} do not hold the same cells")
    pairs = zip(plain, observed, strict=True)
    differing = [str(json.loads(one)["cell"]) for one, other in pairs if one != other]
    differing += [name for name, data in traces.items() if data != seen_traces[name]]
    paths = sorted((roots[1] / "profiles" / key).glob("c*[0-9].parquet"))
    profiles = {path.stem: read_profile(path) for path in paths}
    both = None if first is None or second is None else (first, second)
    return Comparison(block, differing, len(plain), both, profiles)
