# SPDX-License-Identifier: MIT
"""Files of cgroup v2 that a plan may write: their values, and systemd's names for them."""

from __future__ import annotations

import re
from typing import Any, Callable

CONTROLLERS = ("cpu", "cpuset", "io")

_LIST = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*")
_LAST_CORE = 4095
_PERIOD_US = 100_000


def cores_of(text: str) -> list[int] | None:
    """Return the numbers in a list such as ``0-2,5`` (cpuset(7)), or None if it is malformed."""
    if not _LIST.fullmatch(text):
        return None
    cores: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(last or first) < int(first) or int(last or first) > _LAST_CORE:
            return None
        cores |= set(range(int(first), int(last or first) + 1))
    return sorted(cores)


def _listed(value: Any) -> str | None:
    cores = cores_of(str(value)) if isinstance(value, (int, str)) else None
    if cores is None:
        return None
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][-1] + 1:
            parts[-1][1:] = [core]
        else:
            parts.append([core])
    return ",".join("-".join(map(str, part)) for part in parts)


def _number(low: int, high: int, form: str = "{}") -> Callable[[Any], str | None]:
    def text(value: Any) -> str | None:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            return None
        return form.format(value)

    return text


def _bandwidth(value: Any) -> str | None:
    # tg_set_cfs_bandwidth() of kernel/sched/core.c: both at least 1 ms, the period at most 1 s.
    found = re.fullmatch(r"(max|[0-9]{1,9})(?: ([0-9]{1,7}))?", str(value))
    if found is None or isinstance(value, bool):
        return None
    quota, period = found[1], int(found[2] or _PERIOD_US)
    if not 1000 <= period <= 1_000_000 or (quota != "max" and int(quota) < 1000):
        return None
    return f"{quota if quota == 'max' else int(quota)} {period}"


# By file: what may be written, and a function that returns what the kernel then reads.
FILES: dict[str, tuple[str, Callable[[Any], str | None]]] = {
    "cpu.weight": ("1-10000", _number(1, 10000)),
    "cpu.idle": ("0 or 1", _number(0, 1)),
    "cpu.max": ('"max" or "QUOTA PERIOD" in us, at least 1000', _bandwidth),
    "cpuset.cpus": ("a list of cores such as 0-2,5", _listed),
    "cpuset.mems": ("a list of memory nodes such as 0-1", _listed),
    "io.weight": ("1-10000", _number(1, 10000, "default {}")),
    "io.bfq.weight": ("1-1000", _number(1, 1000, "default {}")),
}


def fault_of(name: Any, value: Any) -> str | None:
    """Return why a plan cannot ask for a value of a cgroup's file, or None."""
    if not isinstance(name, str) or name not in FILES:
        return f"{str(name)[:40]!r} is no file of a cgroup that can be set: {', '.join(FILES)}"
    valid, text_of = FILES[name]
    return f"{name} must be {valid}, not {value!r:.80}" if text_of(value) is None else None


def kernel_text(name: str, value: Any) -> str:
    """Return a valid value as the kernel reads it back."""
    text = FILES[name][1](value)
    if text is None:
        raise ValueError(f"{name} cannot be {value!r}")
    return text


def properties_of(name: str, text: str) -> list[str]:
    """Return the properties by which systemd sets a cgroup's file to `kernel_text`'s text.

    Empty if systemd does not know the file, or would leave it as it is
    (systemd.resource-control(5)).
    """
    plain = {"cpu.weight": "CPUWeight", "io.weight": "IOWeight"}
    lists = {"cpuset.cpus": "AllowedCPUs", "cpuset.mems": "AllowedMemoryNodes"}
    if name in plain:
        return [f"{plain[name]}={text.rpartition(' ')[2]}"]
    if name in lists:
        return [f"{lists[name]}={text}"]
    if name == "cpu.idle" and text == "1":
        return ["CPUWeight=idle"]
    if name == "cpu.max" and not text.startswith("max"):
        quota, period = map(int, text.split())
        return [f"CPUQuotaPeriodSec={period}us", f"CPUQuota={100 * quota / period:.2f}%"]
    return []
