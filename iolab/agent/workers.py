# SPDX-License-Identifier: MIT
"""The nice value of a core's kernel workers: the workaround that the report names."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from iolab.agent.journal import Journal

__all__ = ["renice_workers"]

_PROC = Path("/proc")
# Bound to a core and of ordinary priority: the others, "kworker/0:1H", have a pool of their own.
_BOUND = re.compile(r"kworker/(\d+):\d+(?![\dH])")


def _stat(pid: str) -> tuple[str, list[str]]:
    # The comm may hold parentheses: the fields start after the last one.
    head, _, tail = (_PROC / pid / "stat").read_text(errors="replace").rpartition(")")
    return head.partition("(")[2], tail.split()


def renice_workers(journal: Journal, *, cpu: int, nice: int) -> int:
    """Give the kernel workers of core `cpu` that exist now a nice value; return how many changed.

    A worker that the kernel makes later begins with its pool's nice value, 0: ask again. Errors:
    PermissionError without the right to it.
    """
    changed = 0
    for pid in [p.name for p in _PROC.iterdir() if p.name.isdigit()]:
        with suppress(FileNotFoundError, ProcessLookupError):
            comm, fields = _stat(pid)
            match = _BOUND.match(comm)
            old, began = int(fields[16]), fields[19]
            if match is None or int(match.group(1)) != cpu or old == nice:
                continue
            journal.note("nice", f"/proc/{pid}", f"{old} {began}")
            os.setpriority(os.PRIO_PROCESS, int(pid), nice)
            changed += 1
    return changed
