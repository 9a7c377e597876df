# SPDX-License-Identifier: MIT
"""What the observer costs, and that it changes nothing.

    python -m tests.bench.bench_observer [PATHOLOGY] [KERNEL]

One block of the smoke profile without and with the observer. The ratio of QEMU's CPU times says
more than that of the wall times on a machine with other load.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from iolab.design import blocks_of
from iolab.errors import IolabError
from iolab.measure.profile_file import read_profile
from iolab.observer.observation import ready_observer
from iolab.pathology import get_pathology
from iolab.targets.vm import prepare


def _cells(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "cells").iterdir()}


def main(name: str, kernel: str) -> None:
    """Run a block twice and print what the second run took more."""
    pathology = get_pathology(name)
    block = blocks_of(pathology, pathology.profiles["smoke"], kernel=kernel, clock="virtual")[0]
    machine = block.machine
    target = prepare(kernel, "virtual", cpus=machine.cpus, memory_mib=machine.memory_mib)
    shape = (target.kernel, target.image, target.toolbox, target.machine)
    observer = ready_observer(*shape, cells=range(len(block.cells)))
    took = []
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / "plain", Path(folder) / "observed"]
        for into, observation in zip(folders, (None, observer), strict=True):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            target.run(block.plan, into, observation=observation)
            after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            # The largest child so far: the observed run comes second and takes more.
            took.append((ended - began, cpu, after.ru_maxrss >> 10))
        same = _cells(folders[0]) == _cells(folders[1])
        profiles = [read_profile(path) for path in sorted(folders[1].glob("profiles/*.parquet"))]
    print(f"{name}, kernel {kernel}, {machine.cpus} CPUs, {len(profiles)} observed cells")
    for words, plain, observed in zip(
        ("wall seconds", "CPU seconds", "memory, MiB"), *took, strict=True
    ):
        print(f"  {words:12} {plain:8.1f} {observed:8.1f}   x {observed / plain:.2f}")
    print(f"  results are the same bytes: {'yes' if same else 'NO'}")
    off = sum(profile.totals["off_by"] for profile in profiles)
    print(f"  instructions that the guest's clock does not confirm: {off}")
    print(f"  least share of known stacks: {min(profile.complete for profile in profiles):.5f}")


if __name__ == "__main__":
    try:
        main(*[*sys.argv[1:], *("dio_kworker", "6.1")[len(sys.argv) - 1 :]])
    except IolabError as error:
        sys.exit(f"bench: {error}")
