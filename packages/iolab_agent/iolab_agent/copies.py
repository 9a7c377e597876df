# SPDX-License-Identifier: MIT
"""Run dd processes one after another: command line, output and resource usage."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from iolab_agent.plan import Copies
from iolab_agent.proc import pinned_to
from iolab_base.errors import IolabError
from iolab_base.process import kill_group, start

_START_S = 60.0
# Time limit for each write: many times as long as an I/O scheduler may idle.
_WRITE_S = 0.1
_RECORDS = re.compile(r"^(\d+)\+0 records out$", re.MULTILINE)
_COPIED = re.compile(r"^(\d+) bytes .*copied, ([0-9.e+-]+) s,", re.MULTILINE)


class CopyError(IolabError):
    """dd failed, did not end, or did not make the requested writes."""


def copy_files(copies: Copies, folder: Path) -> list[Path]:
    """Return the files that the processes will make, one each."""
    return [folder / f"iolab.{number}" for number in range(copies.processes)]


def dd_argv(copies: Copies, path: Path) -> list[str]:
    """Return the command line of the process that writes `path`, a file or device."""
    argv = ["dd", "if=/dev/zero", f"of={path}", f"bs={copies.block_size}", f"count={copies.writes}"]
    # Nothing to truncate: the files are new.
    argv.append("conv=notrunc")
    return [*argv, "oflag=dsync"] if copies.dsync else argv


def parse_output(text: str, copies: Copies) -> float:
    """Return the seconds that dd reports (C locale); CopyError unless it made all its writes."""
    records, copied = _RECORDS.search(text), _COPIED.search(text)
    wanted = (copies.writes, copies.writes * copies.block_size)
    if records and copied and (int(records[1]), int(copied[1])) == wanted:
        return float(copied[2])
    raise CopyError("dd did not make its writes: " + (text.strip()[-300:] or "no output"))


def run_copies(
    copies: Copies, files: Sequence[Path], *, cpu: int, group: Path | None
) -> list[dict[str, Any]]:
    """Run a dd process for each file, one after another, each in the cgroup from its start.

    Each result has ``began_ns`` and ``ended_ns`` (CLOCK_MONOTONIC, around the whole process),
    ``writes``, ``bytes``, ``seconds`` (dd's own time for its writes), ``ran_ns`` (CPU time) and
    context switches. Raises CopyError if a process fails or does not end.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    with pinned_to([cpu]):
        return [
            _run(copies, dd_argv(copies, path), group=group, environment=environment)
            for path in files
        ]


def copies_gates(copies: Copies, *, completed: int) -> list[str]:
    """Return why copies are not a valid measurement; empty if they are.

    `completed` is the device's I/O count: each synchronous write takes at least one.
    """
    wanted = copies.writes * copies.processes
    if copies.dsync and completed < wanted:
        return [f"the device completed {completed} I/Os for {wanted} synchronous writes"]
    return []


def _run(
    copies: Copies, argv: Sequence[str], *, group: Path | None, environment: dict[str, str]
) -> dict[str, Any]:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as stream:
        try:
            began_ns = time.monotonic_ns()
            process = start(argv, stderr=writer, env=environment, cgroup=group)
        finally:
            os.close(writer)
        try:
            output = _read_to_end(stream, time.monotonic() + _START_S + copies.writes * _WRITE_S)
            # Not Popen.wait: it does not return the resource usage.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            ended_ns = time.monotonic_ns()
        finally:
            if process.returncode is None:
                kill_group(process)
    if process.returncode != 0:
        raise CopyError(f"dd ended with {process.returncode}: {output.strip()[-300:]}")
    return {
        "began_ns": began_ns,
        "ended_ns": ended_ns,
        "writes": copies.writes,
        "bytes": copies.writes * copies.block_size,
        "seconds": parse_output(output, copies),
        "ran_ns": round((usage.ru_utime + usage.ru_stime) * 1e9),
        "voluntary_ctxt_switches": usage.ru_nvcsw,
        "nonvoluntary_ctxt_switches": usage.ru_nivcsw,
    }


def _read_to_end(stream: IO[bytes], until: float) -> str:
    """Return all output of a process; sleep until it ends.

    Popen.wait() with a time limit polls, which takes time on the measured core.
    """
    output = b""
    while True:
        ready, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise CopyError("dd did not end in time")
        chunk = stream.read(4096)
        if not chunk:
            return output.decode(errors="replace")
        output += chunk
