# SPDX-License-Identifier: MIT
"""Renice a core's kernel workers: the workaround that the bug report names."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from iolab.agent.journal import Journal
from iolab.agent.proc import is_kernel_thread, processes, stat_of

__all__ = ["renice_workers"]

# Workers that are bound to a core and have ordinary priority. High-priority workers, such as
# "kworker/0:1H", have a pool of their own (Documentation/core-api/workqueue.rst).
_BOUND = re.compile(r"kworker/(\d+):\d+(?![\dH])")


def renice_workers(journal: Journal, *, cpu: int, nice: int) -> int:
    """Set the nice value of a core's kernel workers; return how many were changed.

    The kernel gives a worker that it makes later its pool's nice value, 0 (create_worker() of
    kernel/workqueue.c): call this again. Raises PermissionError if the agent may not set it.
    """
    changed = 0
    for pid in processes():
        with suppress(FileNotFoundError, ProcessLookupError):
            comm, fields = stat_of(pid)
            match = _BOUND.match(comm)
            # Any process may have this name.
            if match is None or int(match.group(1)) != cpu or not is_kernel_thread(fields):
                continue
            old, start_time = int(fields[16]), fields[19]
            if old == nice:
                continue
            journal.note("nice", f"/proc/{pid}", f"{old} {start_time}")
            # It may have ended meanwhile.
            if stat_of(pid)[1][19] == start_time:
                os.setpriority(os.PRIO_PROCESS, pid, nice)
                changed += 1
    return changed
