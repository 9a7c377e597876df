# SPDX-License-Identifier: MIT
"""Runs with a fault: kills of agent and sweeps, full disks, machines that lie, foreign stores.

``nox -s faults [-- RUNS [SEED [KIND...]]]`` does as many as wanted, and prints a line for each
kind: how many ended in a result, how many in one sentence, how many were killed, what was wrong.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.support.agent_kills import kill_agents
from tests.support.fault_runs import Hear, Run
from tests.support.foreign_stores import open_stores
from tests.support.full_disks import fill_disks
from tests.support.lies import tell_lies
from tests.support.sweep_kills import kill_sweeps

Kind = Callable[[Path, int, random.Random, Hear], None]
# Of all runs, how many parts are of each kind. What takes longest comes first.
KINDS: Final[dict[str, tuple[int, Kind]]] = {
    "orchestrator": (3, kill_sweeps),
    "agent": (2, kill_agents),
    "lying target": (3, tell_lies),
    "full disk": (2, fill_disks),
    "foreign store": (5, open_stores),
}
_AT_ONCE: Final = 2


class _Tally:
    """What came of the runs of each kind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.runs: dict[str, list[Run]] = {name: [] for name in KINDS}

    def hear(self, kind: str, run: Run, of: int) -> None:
        """Count a run, and print how it ended."""
        with self._lock:
            self.runs[kind].append(run)
            wrongs = "".join(f"\n  WRONG: {words}" for words in run.wrongs)
            place = f"{kind} {len(self.runs[kind])}/{of}"
            words = f": {run.words[:200]}" if run.ending == "sentence" else ""
            print(f"{place}: {run.what}: {run.ending}{words}{wrongs}", flush=True)

    def line(self, kind: str) -> str:
        """Return what a kind of fault came to."""
        runs = self.runs[kind]
        ends = Counter(run.ending for run in runs)
        return (
            f"{kind:13} {len(runs):4} runs: {ends['result']} ended in a result, "
            f"{ends['sentence']} in a sentence, {ends['killed']} were killed, "
            f"{self.wrongs(kind)} wrongs"
        )

    def wrongs(self, kind: str) -> int:
        """Return how much was wrong with the runs of a kind."""
        return sum(len(run.wrongs) for run in self.runs[kind])


def main(kinds: Sequence[str] = (), runs: int = 300, seed: int = 1) -> int:
    """Do the runs, say what came of them, and return 1 if anything was wrong."""
    chosen = {name: KINDS[name] for name in kinds or KINDS}
    parts = sum(part for part, _ in chosen.values())
    tally = _Tally()

    def do(name: str, folder: Path) -> None:
        part, kind = chosen[name]
        share = max(1, round(runs * part / parts))
        place = folder / str(list(KINDS).index(name))
        place.mkdir()
        draw = random.Random(f"{name} {seed}")
        kind(place, share, draw, lambda run: tally.hear(name, run, share))

    for number in (signal.SIGINT, signal.SIGHUP):
        # Where nohup or a shell's background ignores it, sweeps would inherit that.
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    failed = 0
    # Short: a socket's path has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="f-") as made, ThreadPoolExecutor(_AT_ONCE) as pool:
        for name, done in {name: pool.submit(do, name, Path(made)) for name in chosen}.items():
            if error := done.exception():
                failed += 1
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    for name in chosen:
        print(tally.line(name))
    return 1 if failed or any(map(tally.wrongs, chosen)) else 0


if __name__ == "__main__":
    runs_and_seed = dict(zip(("runs", "seed"), map(int, sys.argv[1:3]), strict=False))
    sys.exit(main(sys.argv[3:], **runs_and_seed))
