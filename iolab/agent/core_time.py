# SPDX-License-Identifier: MIT
"""Read how long tasks ran on a core.

/proc/schedstat shows it if the kernel was built with CONFIG_SCHEDSTATS. Otherwise the cpuacct
controller of cgroup v1 sums the same times that /proc/PID/schedstat shows for each task
(cpuacct_charge() of kernel/sched/cpuacct.c). /proc/stat is no substitute: it counts in steps of 10
ms; a kernel with CONFIG_TICK_CPU_ACCOUNTING charges a whole tick to the task that the tick
interrupts; and a core in an interrupt is not idle there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iolab.agent.cgroup_v1 import root_of
from iolab_base.errors import CannotRunError

__all__ = ["core_running", "core_time_file"]

_SCHEDSTAT = Path("/proc/schedstat")
_LACKS = "this kernel has no /proc/schedstat (CONFIG_SCHEDSTATS) and no cpuacct of cgroup v1"


def core_time_file() -> Path | None:
    """Return the file that shows how long tasks ran on each core; None if this kernel has none."""
    if _SCHEDSTAT.exists():
        return _SCHEDSTAT
    root = root_of("cpuacct")
    return None if root is None else root / "cpuacct.usage_percpu"


def core_running(cpu: int) -> dict[str, Any]:
    """Return how long tasks ran on a core since boot; CannotRunError if there is no such core.

    ``running_ns``, from /proc/schedstat with ``waiting_ns`` (time on the run queue) and
    ``switched_in`` (a count), otherwise with the file's path (``from``). Only ``lacks``, the
    reason, if no file has it.
    """
    path = core_time_file()
    if path is None:
        return {"lacks": _LACKS}
    text = path.read_text()
    if path != _SCHEDSTAT:
        cores = text.split()
        if cpu >= len(cores):
            raise CannotRunError(f"{path} has nothing of cpu{cpu}")
        return {"running_ns": int(cores[cpu]), "from": str(path)}
    for line in text.splitlines():
        if line.startswith(f"cpu{cpu} "):
            running, waiting, switched_in = line.split()[-3:]
            return {
                "running_ns": int(running),
                "waiting_ns": int(waiting),
                "switched_in": int(switched_in),
            }
    raise CannotRunError(f"/proc/schedstat has no line for cpu{cpu}")
