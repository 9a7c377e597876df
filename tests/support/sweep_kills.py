# SPDX-License-Identifier: MIT
"""Sweeps that get a signal at a random moment, and go on when they are run again.

Most measure a server that answers at once; one in five boots virtual machines. A sweep is run
again, and killed again, until it is left alone once: then its tables have the same bytes as those
of a sweep that nothing disturbed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from iolab.targets.vm import prepare
from iolab_base.errors import CannotRunError, IolabError
from tests.support.fault_runs import (
    Bench,
    Hear,
    Run,
    half_written,
    left_over,
    said_wrong,
    store_wrongs,
    tables_of,
)

_END_S: Final = 1200
# What the kernel kills with its parent, and a notebook's kernel, which looks once a second.
_ORPHANS_S: Final = 20
_IN_MACHINES: Final = 0.2
_SIGNALS: Final = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class _Chain:
    """Sweeps into one folder: killed, run again, and compared at the end."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.kept: dict[str, Any] = {}
        began = time.monotonic()
        said = bench.begin().end(_END_S)
        self.takes_s = time.monotonic() - began
        self.tables = tables_of(bench.root)
        if said.code or not self.tables:
            raise IolabError(f"a sweep that nothing disturbs fails:\n{said.words}")
        self.killed = 0
        self._forget()

    def _forget(self) -> None:
        shutil.rmtree(self.bench.root)
        self.kept.clear()
        self.killed = 0

    def run(self, draw: random.Random) -> Run:
        """Run the sweep, and kill it unless it was killed often enough."""
        if self.killed and draw.random() < self.killed / 8:
            return self._whole()
        self.killed += 1
        delay_s = draw.uniform(0, self.takes_s * draw.choice((0.2, 0.6, 1.0)))
        # What a killed sweep left, one that is ended in its first moment may leave, too.
        before, store = self._left(), self._store()
        sweep = self.bench.begin()
        with suppress(subprocess.TimeoutExpired):
            sweep.process.wait(delay_s)
        number = draw.choice(_SIGNALS)
        others = [pid for pid in self.bench.processes() if pid != sweep.process.pid]
        victim = sweep.process.pid
        if others and draw.random() < 0.25:
            victim, number = draw.choice(others), draw.choice((signal.SIGKILL, signal.SIGTERM))
        own = victim == sweep.process.pid
        ended = sweep.process.poll() is not None
        if not ended:
            with suppress(ProcessLookupError):
                os.kill(victim, number)
        what = f"{number.name} to {'the sweep' if own else 'a part of it'} after {delay_s:.1f} s"
        try:
            said = sweep.end(_END_S)
        except subprocess.TimeoutExpired:
            return Run(what, "killed", (f"it does not end in {_END_S} s",))
        hard = number == signal.SIGKILL or not own or ended
        wrongs = self._after(hard=hard, before=before)
        if said.code in (-signal.SIGKILL, -number):
            ending = "killed"
        else:
            ending = "sentence" if said.code else "result"
        # Python itself starts for a moment before iolab can say or do anything.
        silent = own and not ended and said.code == -number and self._store() == store
        if ending != "killed" or not (silent or number == signal.SIGKILL):
            wrongs += said_wrong(said)
        return Run(what, ending, tuple(wrongs), said.last)  # type: ignore[arg-type]

    def _store(self) -> dict[str, int]:
        """Return when each file of the store was last changed."""
        return {str(path): path.lstat().st_mtime_ns for path in self.bench.root.rglob("*")}

    def _left(self) -> list[str]:
        return left_over(self.bench.root, self.bench.tmp)

    def _after(self, *, hard: bool, before: Sequence[str] = ()) -> list[str]:
        until = time.monotonic() + (_ORPHANS_S if hard else 0)
        while (left := self.bench.processes()) and time.monotonic() < until:
            time.sleep(0.1)
        names = [Path(f"/proc/{pid}/cmdline").read_bytes()[:200] for pid in left if _there(pid)]
        wrongs = [f"left running: {names}"] if names else []
        if self.bench.root.exists():
            wrongs += half_written(self.bench.root) + store_wrongs(self.bench.root, self.kept)
        if not hard:
            wrongs += [words for words in self._left() if words not in before]
        return wrongs

    def _whole(self) -> Run:
        what = f"left alone after {self.killed} kills"
        try:
            said = self.bench.begin().end(_END_S)
        except subprocess.TimeoutExpired:
            return Run(what, "killed", (f"it does not end in {_END_S} s",))
        wrongs = said_wrong(said) + self._after(hard=False)
        if said.code:
            wrongs.append(f"it failed: {said.words[-500:]}")
        tables = tables_of(self.bench.root)
        differ = sorted(n for n in {*tables, *self.tables} if tables.get(n) != self.tables.get(n))
        wrongs += [f"{name} is not what an undisturbed sweep makes" for name in differ]
        self._forget()
        return Run(what, "sentence" if said.code else "result", tuple(wrongs), said.last)


def _there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _can_boot() -> bool:
    try:
        prepare("6.1", "virtual", cpus=1, memory_mib=1024)
    except CannotRunError:
        return False
    return True


def kill_sweeps(folder: Path, runs: int, draw: random.Random, hear: Hear) -> None:
    """Disturb as many sweeps; `hear` hears of each."""
    benches = [Bench(folder / "server", 1, boots=2)]
    if runs > 4 and _can_boot():
        benches.append(Bench(folder / "machine", 2, boots=2, machine=True))
    try:
        chains = [_Chain(bench) for bench in benches]
        for _ in range(runs):
            chain = chains[-1] if draw.random() < _IN_MACHINES else chains[0]
            hear(chain.run(draw))
    finally:
        for bench in benches:
            bench.down()
