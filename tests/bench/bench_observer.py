# SPDX-License-Identifier: MIT
"""What the observer costs, and whether it changes a byte.

    python -m tests.bench.bench_observer [PATHOLOGY:KERNEL[:CPUS]...] [OPTION...]

Of each pathology and kernel one block of the smoke profile is measured without and with the
observer, one after the other, and the canonical exports and traces are compared. With
``--keep FOLDER`` both stores stay, are not measured again, and hold the profiles; ``--flat``
observes without callers, ``--boot N`` takes another boot of the profile. On a machine with other
load the ratio of the CPU times says more than that of the wall times.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from iolab_base.errors import IolabError
from tests.support.observed import Comparison, compare, smoke_block


def report(found: Comparison) -> None:
    """Print what a comparison found."""
    block, totals = found.block, [profile.totals for profile in found.profiles.values()]
    print(f"{block.pathology}, kernel {block.kernel}, {block.machine.cpus} CPUs")
    same = f"the same bytes in {found.lines} cells"
    print(f"  {'DIFFERENT: ' + ', '.join(found.differing) if found.differing else same}")
    for name in ("wall_s", "cpu_s", "memory_mib") if found.costs is not None else ():
        plain, observed = (getattr(cost, name) for cost in found.costs or ())
        print(f"  {name:12} {plain:8.1f} {observed:8.1f}   x {observed / plain:.2f}")
    counted = sum(one["closed_ns"] - one["opened_ns"] - one["idle_ns"] for one in totals)
    gap = abs(sum(one["instructions"] for one in totals) - counted)
    print(f"  {counted} instructions by the guest's clock; the functions' sum differs by {gap}")
    if not any(profile.flat for profile in found.profiles.values()):
        least = min(profile.complete for profile in found.profiles.values())
        print(f"  least share of known stacks: {least:.6f}")
    lost = sum(one[name] for one in totals for name in ("lost_nodes", "lost_frames"))
    print(f"  lost: {lost}", flush=True)


def main(argv: list[str]) -> int:
    """Compare the blocks that the arguments name; return 1 if a byte differs or one fails."""
    parser = argparse.ArgumentParser(prog="bench_observer")
    parser.add_argument("blocks", nargs="*", default=["dio_kworker:6.1"])
    parser.add_argument("--boot", type=int, default=0)
    parser.add_argument("--flat", action="store_true")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args(argv)
    code = 0
    with tempfile.TemporaryDirectory() as scratch:
        for words in given.blocks:
            pathology, kernel, *cpus = words.split(":")
            size = int(cpus[0]) if cpus else None
            block = smoke_block(pathology, kernel, boot=given.boot, cpus=size)
            try:
                found = compare(block, given.keep or Path(scratch), flat=given.flat)
            except IolabError as error:
                print(f"{words}: {error}", flush=True)
                code = 1
                continue
            report(found)
            code = code or int(bool(found.differing))
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except IolabError as error:
        sys.exit(f"bench: {error}")
