# SPDX-License-Identifier: MIT
"""dd's command line, its processes one after the other, and what each of them says."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from iolab.agent.plan import Copies
from iolab.errors import IolabError
from iolab.process import kill_group, start

__all__ = ["CopyError", "copies_gates", "copy_files", "dd_argv", "parse_words", "run_copies"]

_START_S = 60.0
# Longer than a scheduler may idle for each write, many times over.
_WRITE_S = 0.1
_RECORDS = re.compile(r"^(\d+)\+0 records out$", re.MULTILINE)
_COPIED = re.compile(r"^(\d+) bytes .*copied, ([0-9.e+-]+) s,", re.MULTILINE)


class CopyError(IolabError):
    """dd failed, did not end, or did not write what it was asked for."""


def copy_files(copies: Copies, folder: Path) -> list[Path]:
    """Return the file of each process, in a folder: none of them is there yet."""
    return [folder / f"iolab.{number}" for number in range(copies.processes)]


def dd_argv(copies: Copies, path: Path) -> list[str]:
    """Return the command that makes the writes of one process, to `path`."""
    argv = ["dd", "if=/dev/zero", f"of={path}", f"bs={copies.block_size}", f"count={copies.writes}"]
    # A device has nothing to cut off, and the files are new.
    argv.append("conv=notrunc")
    return [*argv, "oflag=dsync"] if copies.dsync else argv


def parse_words(text: str, copies: Copies) -> float:
    """Return the seconds that dd says it took for its writes.

    Errors: CopyError with its words if they tell of anything but the writes that were asked for.
    """
    records, copied = _RECORDS.search(text), _COPIED.search(text)
    wanted = (copies.writes, copies.writes * copies.block_size)
    if records and copied and (int(records[1]), int(copied[1])) == wanted:
        return float(copied[2])
    raise CopyError("dd did not make its writes: " + (text.strip()[-300:] or "it said nothing"))


def run_copies(
    copies: Copies, files: Sequence[Path], *, cpu: int, group: Path | None
) -> list[dict[str, Any]]:
    """Run a dd for each of `files`, each when the one before has ended, on the core `cpu`.

    Returns for each: ``began_ns`` and ``ended_ns`` (CLOCK_MONOTONIC, around the whole process),
    ``writes``, ``bytes``, ``seconds`` (dd's own, for its writes alone), ``ran_ns`` (its CPU time)
    and its context switches. Each begins inside the cgroup `group`.

    Errors: CopyError with dd's words.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    with _on(cpu):
        return [
            _run(copies, dd_argv(copies, path), group=group, environment=environment)
            for path in files
        ]


def copies_gates(copies: Copies, *, completed: int) -> list[str]:
    """Return why copies are no valid measurement; `completed` are the device's I/Os of that time.

    A write that is waited for is an I/O of its own.
    """
    wanted = copies.writes * copies.processes
    if copies.dsync and completed < wanted:
        return [f"the device completed {completed} I/Os for {wanted} synchronous writes"]
    return []


@contextmanager
def _on(cpu: int) -> Iterator[None]:
    """Keep this process on a core, so that what it starts is there from its first instruction."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _run(
    copies: Copies, argv: Sequence[str], *, group: Path | None, environment: dict[str, str]
) -> dict[str, Any]:
    heard, said = os.pipe()
    with os.fdopen(heard, "rb", buffering=0) as stream:
        try:
            began_ns = time.monotonic_ns()
            process = start(argv, stderr=said, env=environment, cgroup=group)
        finally:
            os.close(said)
        try:
            words = _words(stream, time.monotonic() + _START_S + copies.writes * _WRITE_S)
            # Not Popen.wait: it does not tell what the process used.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            ended_ns = time.monotonic_ns()
        finally:
            if process.returncode is None:
                kill_group(process)
    if process.returncode != 0:
        raise CopyError(f"dd ended with {process.returncode}: {words.strip()[-300:]}")
    return {
        "began_ns": began_ns,
        "ended_ns": ended_ns,
        "writes": copies.writes,
        "bytes": copies.writes * copies.block_size,
        "seconds": parse_words(words, copies),
        "ran_ns": round((usage.ru_utime + usage.ru_stime) * 1e9),
        "voluntary_ctxt_switches": usage.ru_nvcsw,
        "nonvoluntary_ctxt_switches": usage.ru_nivcsw,
    }


def _words(stream: IO[bytes], until: float) -> str:
    """Return all that a process says until it ends, asleep meanwhile.

    Popen's own waiting with a time limit looks again and again, on the core that is measured.
    """
    said = b""
    while True:
        ready, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise CopyError("dd did not end in time")
        more = stream.read(4096)
        if not more:
            return said.decode(errors="replace")
        said += more
