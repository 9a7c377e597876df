# SPDX-License-Identifier: MIT
"""How much faster more virtual machines measure, and what a cluster's scheduler takes of it.

    python -m tests.bench.bench_cores [BLOCKS]

The same blocks (dio_kworker, 6.1, the smoke profile with one weight) are measured by one machine at
a time, by two and by four, and by four workers of a cluster on this machine; the bytes are
compared. The ratios say something on an idle machine alone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from iolab.pathology import get_pathology
from iolab.store.raw import RawStore
from iolab.sweeps.measure import measure_blocks
from iolab.sweeps.request import Request, plan_blocks, requested_profile
from iolab_base.errors import IolabError
from tests.support.cluster import cluster
from tests.support.processes import wait_until

_WORKERS = 4


def _measured(request: Request) -> tuple[float, dict[str, dict[str, str]]]:
    """Measure a request's blocks; return the seconds, and the digests of each block's files."""
    pathology = get_pathology("dio_kworker")
    profile = requested_profile(request, pathology)
    (plan,) = plan_blocks([(pathology, profile)], request)
    began = time.monotonic()
    failed = measure_blocks(plan.blocks, request, lambda progress: None).failed
    if failed:
        raise IolabError(f"{len(failed)} blocks failed: {next(iter(failed.values()))}")
    took = time.monotonic() - began
    store = RawStore(request.root)
    return took, {key: store.digests(key) for key in plan.blocks}


def main(words: list[str]) -> int:
    """Measure as many blocks as the argument says in each way; return 1 if a byte differs."""
    boots = int(words[0]) if words else 12
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked = Request(
            "smoke", ["dio_kworker"], ["6.1"], ["weight=1000"], boots=boots, root=folder
        )
        single = replace(asked, boots=1)
        # The machine's snapshot is made before, and below the one that workers get.
        _measured(replace(single, root=folder / "first"))
        ways = {
            f"{jobs} at a time": _measured(replace(asked, jobs=jobs, root=folder / f"jobs{jobs}"))
            for jobs in (1, 2, _WORKERS)
        }
        with cluster(folder / "dask") as dask:
            for number in range(_WORKERS):
                dask.worker(f"w{number}")
            logs = [dask.folder / f"w{number}.log" for number in range(_WORKERS)]
            wait_until(lambda: all("Registered to" in log.read_text() for log in logs))
            _measured(replace(single, cluster=dask.address, root=folder / "first-there"))
            there = replace(asked, cluster=dask.address, root=folder / "there")
            ways[f"{_WORKERS} workers"] = _measured(there)
    seconds = {way: took for way, (took, _) in ways.items()}
    for way, took in seconds.items():
        print(f"{way:12} {took:6.1f} s for {boots} blocks")
    one, two, four, workers = seconds.values()
    print(f"two at a time: {one / two:.2f} times one at a time")
    print(f"{_WORKERS} workers: {workers / four:.2f} times the wall time of {_WORKERS} at a time")
    first, *others = (digests for _, digests in ways.values())
    same = all(digests == first for digests in others)
    print("the same bytes" if same else "DIFFERENT BYTES")
    return int(not same)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except IolabError as error:
        sys.exit(f"bench: {error}")
