# SPDX-License-Identifier: MIT
"""Words of a mail: a cell's work, a value with its unit, an effect."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from iolab.pathology.base import Claim
from iolab_agent.plan import Cell, Device, Job

# Names of values in a mail; others have their column's name.
_VALUES: Final = {
    "iops": "IOPS",
    "switches_per_io": "context switches per I/O",
    "fio_voluntary_per_io": "voluntary context switches of fio per I/O",
    "idle": "of the core idle",
    "migrations_per_s": "migrations per second",
    "dget_parent_per_io": "calls of dget_parent() per read",
    "gaps_per_write": "idle gaps per write of dd",
    "gap_share": "of the device's busy time in idle gaps",
    "gap_median_ms": "ms of a gap (median)",
    "worker_busy": "CPUs used by the flush worker",
    "worker_us_per_mib": "us of the flush worker per MiB",
    "flush_workers_at_once": "flush workers at once",
    "pages_per_folio": "pages per folio",
    "device_mib_per_s": "MiB/s to the device",
}
# The same for the table of the mechanism, where times are in us.
_MEASURES: Final = {
    "wakeups_per_io": "kworker wakes fio, per I/O",
    "preemptions_per_io": "fio preempts kworker, per I/O",
    "slept_again": "fio sleeps again (share)",
    "stay_median_ns": "fio's stay, median us",
    "path_worker_wait_ns": "I/O waits for kworker, us",
    "gaps_per_write": "idle gaps per write",
    "gap_share": "idle gaps (share of time)",
    "gap_median_ms": "gap, median ms",
    "gaps_jbd2_waits": "gaps in which jbd2 waits",
    "gaps_dd_waits": "gaps in which dd waits",
    "dget_parent_per_io": "dget_parent() per read",
    "__fsnotify_parent_per_io": "__fsnotify_parent() per read",
    "worker_us_per_mib": "flush worker, us per MiB",
    "worker_busy": "flush worker, CPUs",
}
_CONTRASTS: Final = {
    "ratio": "ratio",
    "difference": "difference",
    "treated": "value",
}
_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
_US_NS: Final = 1000
# From a factor of two on, "3.3 times the IOPS" is usual.
_TIMES: Final = 2.0
_SAME: Final = 0.005
# Digits after the decimal point, from this size on.
_DIGITS: Final = ((100, 0), (10, 1), (1, 2), (0.1, 3), (0.01, 4))


def value_words(value: str, cell: Cell) -> str:
    """Return a mail's name for a value."""
    if value == "iops" and cell.copies is not None:
        return "writes/s"
    return _VALUES.get(value, value.replace("_", " "))


def measure_words(name: str) -> str:
    """Return the name of a column or measure in the table of the mechanism."""
    words = name.removesuffix("_ns").replace("_", " ").strip()
    return _MEASURES.get(name, words.replace("per io", "per I/O").replace(" ios", " I/Os"))


def contrast_words(claim: Claim) -> str:
    """Return the head of the column of a claim's estimate."""
    return _CONTRASTS[claim.contrast]


def number_words(value: float) -> str:
    """Return an estimate with three or four digits, such as "0.719", "94.3" or "0.0043"."""
    size = abs(value)
    if size < _SAME / 10:
        return "0.000"
    digits = next((d for limit, d in _DIGITS if size >= limit), 4)
    return f"{value:.{digits}f}"


def effects_words(claim: Claim, estimates: Mapping[str, float], words: str) -> str:
    """Return estimates by kernel for a subject line."""
    said: list[str] = []
    for kernel, estimate in estimates.items():
        amount = _amount(claim, estimate)
        unit = f" the {words}" if amount.endswith("times") else f" {words}"
        said.append(f"{amount}{unit if not said else ''} on {kernel}")
    return ", ".join(said)


def _amount(claim: Claim, estimate: float) -> str:
    if claim.contrast == "treated":
        return number_words(estimate)
    if claim.contrast == "difference":
        if abs(estimate) < _SAME:
            return "no more"
        return f"{number_words(abs(estimate))} {'more' if estimate > 0 else 'fewer'}"
    if abs(estimate - 1) < _SAME:
        return "no fewer"
    if estimate >= _TIMES:
        return f"{number_words(estimate)} times"
    percent = round(100 * abs(1 - estimate))
    return f"{percent}% {'fewer' if estimate < 1 else 'more'}"


def work_words(cell: Cell, cpus: int) -> str:
    """Return a cell's work and place: "fio (libaio randwrite 4 KiB ...) on XFS, ..."."""
    where = ""
    if cell.filesystem is not None:
        where = f" on {'XFS' if cell.filesystem.kind == 'xfs' else cell.filesystem.kind}"
    if cell.devices:
        where += f" on {_device(cell.devices[-1])}"
    machine = "1 CPU" if cpus == 1 else f"{cpus} CPUs"
    return f"{_work(cell)}{where}, {machine}"


def _work(cell: Cell) -> str:
    if isinstance(cell.job, Job):
        job = cell.job
        jobs = "" if job.numjobs == 1 else f", numjobs {job.numjobs}"
        how = "direct" if job.direct else "buffered"
        size = _size(job.block_size)
        return f"fio ({job.engine} {job.rw}, {how}, bs {size}, iodepth {job.iodepth}{jobs})"
    if cell.copies is not None:
        copies = cell.copies
        dsync = ", oflag=dsync" if copies.dsync else ""
        many = "dd" if copies.processes == 1 else f"{copies.processes} dd one after another"
        return f"{many} ({copies.writes} writes of {_size(copies.block_size)} each{dsync})"
    return "fio" if cell.job is not None else "a program"


def _size(size: int) -> str:
    if size >= _MIB and size % _MIB == 0:
        return f"{size // _MIB} MiB"
    return f"{size // _KIB} KiB" if size >= _KIB and size % _KIB == 0 else f"{size} B"


def _device(device: Device) -> str:
    if device.kind == "scsi_debug":
        return f"scsi_debug (ndelay={device.completion_ns})"
    if device.kind != "null_blk":
        return "a block device"
    stores = "" if device.memory_backed else "stores nothing, "
    stores += "rotational, " if device.rotational else ""
    if device.irqmode == 0:
        return f"null_blk ({stores}completes inline)"
    delay_us = device.completion_ns / _US_NS
    shown = f"{delay_us:.0f}" if math.isclose(delay_us, round(delay_us)) else f"{delay_us:.1f}"
    return f"null_blk ({stores}completes by timer, {shown} us)"
