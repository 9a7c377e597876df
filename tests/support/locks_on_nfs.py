# SPDX-License-Identifier: MIT
"""Runs on a server: what a folder that two machines share over NFS does with locks.

``python3 locks_on_nfs.py ARCHIVE ONE TWO`` prints a JSON object. ONE and TWO are mounts of the same
export; each has a process of its own. Their caches are apart, as those of two machines are.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from multiprocessing.synchronize import Event
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from iolab_base.files import atomic_write, locked, remove_abandoned, scratch_dir

_PATIENCE_S = 60.0


def _hold(folder: Path, held: Event, free: Event) -> None:
    """Hold a lock and a scratch folder until told to let go."""
    with locked(folder / "lock"), scratch_dir(folder) as work:
        (work / "file").write_text("mine")
        held.set()
        free.wait(_PATIENCE_S)
        atomic_write(folder / "result", "whole")


def main(one: Path, two: Path) -> dict[str, object]:
    """Return what the second machine saw while the first worked."""
    held, free = multiprocessing.Event(), multiprocessing.Event()
    first = multiprocessing.Process(target=_hold, args=(one, held, free))
    first.start()
    held.wait(_PATIENCE_S)
    remove_abandoned(two)
    found: dict[str, object] = {"left": [p.read_text() for p in two.glob(".work.*/file")]}
    waited: list[float] = []

    def on_wait() -> None:
        waited.append(time.monotonic())
        free.set()

    with locked(two / "lock", on_wait):
        found["waited"] = len(waited)
        found["result"] = (two / "result").read_text()
    first.join(_PATIENCE_S)
    return {**found, "ended": first.exitcode}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[2]), Path(sys.argv[3]))))
