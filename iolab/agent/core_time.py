# SPDX-License-Identifier: MIT
"""How long tasks ran on a core, from where this kernel counts it.

/proc/schedstat has it where the kernel was built with CONFIG_SCHEDSTATS. Else cgroup v1's cpuacct
has the sum of the very times that /proc/PID/schedstat has for each task. /proc/stat is no
substitute: it counts in steps of 10 ms, on some kernels by what a tick happens to meet, and a
core in an interrupt is not idle there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iolab.agent.cgroup_v1 import root_of
from iolab.errors import CannotRunError

__all__ = ["core_running", "core_time_file"]

_SCHEDSTAT = Path("/proc/schedstat")
_LACKS = "this kernel has no /proc/schedstat (CONFIG_SCHEDSTATS) and no cpuacct of cgroup v1"


def core_time_file() -> Path | None:
    """Return the file that tells how long tasks ran on a core, or None."""
    if _SCHEDSTAT.exists():
        return _SCHEDSTAT
    root = root_of("cpuacct")
    return None if root is None else root / "cpuacct.usage_percpu"


def core_running(cpu: int) -> dict[str, Any]:
    """Return how long tasks ran on a core (``running_ns``).

    From /proc/schedstat also how long they waited (``waiting_ns``) and how often one was switched
    in; from another file its name (``from``); from none, why nothing is known (``lacks``).

    Errors: CannotRunError if there is no such core.
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
