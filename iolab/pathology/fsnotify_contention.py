# SPDX-License-Identifier: MIT
"""fsnotify reference counts on a parent directory that stop direct reads from scaling.

Source: the report on fsnotify contention with aio and io_uring (seed ``002_6198472e252e7bda.txt``):
Linux 6.3.9, 48 threads; from 15 jobs on, IOPS fall.

Two hooks make the calls (stacks of a kprobe on ``__fsnotify_parent``, 200 reads on 5.10, 6.1, 6.12
and 7.2). On 5.10 and 6.1 every read asks for permission first (FS_ACCESS_PERM, from ``aio_read`` or
``io_read``), and 6.8 makes as many calls; 6.12 and 7.2 ask only if a watch wants permission
events. io_uring also reports every read at its completion (FS_ACCESS, from
``io_req_rw_complete``), on all of them; libaio never does.

What was tuned, and why:

* **Which watch.** The report mentions none; its profile shows ``dget_parent`` below
  ``__fsnotify_parent``. A reference of the parent is taken only if a watch on the *directory*
  wants events that can happen to its children, such as ``close_write`` and ``attrib``. A watch on
  the node itself, or on the directory for ``delete`` alone, takes none: these are the negative
  controls, as is another node's watch.
* **null_blk that completes in the submitter's context**, one job: the count for each read does not
  depend on how fast the device is.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

from iolab.pathology.base import (
    EVERY_KERNEL,
    NEAR,
    NULL_BLK_MODULES,
    TWO_KERNELS,
    Claim,
    Machine,
    Pathology,
    Profile,
    Published,
    deviation,
)
from iolab.pathology.factors import CategoricalFactor, Condition, Grid, around, named_level
from iolab.results import CellResult
from iolab_agent.plan import Cell, Device, Job, Recording, Watch

_COUNTED = ["dget_parent", "__fsnotify_parent"]
_WATCHES = {
    "directory": Watch("directory", "close_write"),
    "directory-attrib": Watch("directory", "attrib"),
    "directory-delete": Watch("directory", "delete"),
    "node": Watch("node", "close_write"),
    "other-node": Watch("other", "close_write"),
}
_CORES = (
    "the fight is between many cores for one cache line: it takes real ones, at least 16; virtual "
    "time has no caches"
)


def _cell(condition: Condition, profile: Profile, rng: random.Random) -> Cell:
    watch = condition["watch"]
    return Cell(
        devices=[Device("data", "null_blk", 4096, memory_backed=False)],
        filesystem=None,
        watch=None if watch is None else _WATCHES[str(watch)],
        count=_COUNTED,
        job=Job(
            engine=named_level(condition, "engine"),
            rw="randread",
            block_size=4096,
            iodepth=32,
            numjobs=1,
            batch=1,
            size_mib=4096,
            layout="written",
            ramp_ms=profile.ramp_ms,
            runtime_ms=profile.runtime_ms,
            seed=rng.randrange(1, 2**31),
        ),
    )


def _from_counters(result: CellResult) -> dict[str, float]:
    """Return the calls of each counted function per completed read."""
    first, last = result["first"], result["last"]
    ios = last["ios"] - first["ios"] or math.nan
    calls, before = last["calls"], first["calls"]
    return {f"{name}_per_io": (calls[name] - before[name]) / ios for name in _COUNTED}


# The calls happen inside one task. A timeline shows who else runs.
_RECORDING = Recording(events=["sched:sched_switch", "sched:sched_waking"], window_ms=100)


def _claim(engine: str) -> Claim:
    return Claim(
        name=f"a parent reference per read, {engine}",
        kind="mechanism",
        statement="with a watch on the directory, every read takes a reference of the parent",
        condition={"watch": "directory", "engine": engine},
        value="dget_parent_per_io",
        contrast="difference",
        published=1.0,
        # A watch on the node itself asks for no reference of its parent.
        control={"watch": "node"},
    )


_ALL: Grid = {"watch": tuple(_WATCHES), "engine": ("libaio", "io_uring")}
_NARROW: Grid = {**_ALL, "watch": ("directory", "node")}

# Where every claim is decided.
_FULL = Profile(
    kernels=EVERY_KERNEL, boots=3, grids=(_ALL,), ramp_ms=300, runtime_ms=400, repeats_control=False
)

# The report's own reads, and one step from them in each direction.
_NEAR = around(
    {"watch": ("directory",), "engine": ("libaio",)},
    {"engine": ("io_uring",), "watch": ("directory-attrib", "directory-delete")},
)

FSNOTIFY_CONTENTION = Pathology(
    name="fsnotify_contention",
    title="fsnotify reference counts that stop read scaling",
    source="002_6198472e252e7bda.txt",
    notebook="fsnotify_contention.ipynb",
    treatment="watch",
    control="no watch",
    factors={
        "watch": CategoricalFactor(tuple(_WATCHES), "inotify watch"),
        "engine": CategoricalFactor(("libaio", "io_uring"), "I/O engine"),
    },
    profiles={
        "smoke": Profile(
            kernels=TWO_KERNELS, boots=2, grids=(_NARROW,), ramp_ms=300, runtime_ms=400
        ),
        "quick": replace(_FULL, kernels=TWO_KERNELS, grids=(_NARROW,)),
        "full": _FULL,
        "study": _FULL.with_pairs(),
        NEAR: replace(_FULL, grids=_NEAR),
    },
    translation=(
        deviation(
            "jobs",
            "48 on 24 cores",
            "1",
            "the calls are counted; contention for a cache line needs real cores",
        ),
        deviation(
            "watch",
            "none is mentioned",
            "an inotify watch on the device's directory",
            "without any watch no kernel takes the reference, so the report's machine had one",
        ),
        deviation("device", "NVMe", "null_blk", "the calls are the same"),
    ),
    claims=(
        _claim("libaio"),
        _claim("io_uring"),
        Claim(
            name="IOPS fall with jobs",
            kind="magnitude",
            statement="at 48 jobs, the IOPS without these calls are more than four times as many",
            condition={"watch": "directory", "engine": "libaio"},
            value="iops",
            contrast="ratio",
            published=1 / 4,
            requires=_CORES,
        ),
    ),
    cell=_cell,
    machine=lambda boot: Machine(cpus=1, memory_mib=1024, modules=NULL_BLK_MODULES),
    recording=_RECORDING,
    from_counters=_from_counters,
    published=Published(
        citation='Pierre, "FYI, fsnotify contention with aio and io_uring." (Linux 6.3.9)',
        subject="fsnotify takes a parent reference per read",
        happens=(
            "__fsnotify_parent() takes and drops a reference of the parent dentry for each read "
            "while somebody watches the directory; jobs on many CPUs then write one cache line."
        ),
        measures=("dget_parent_per_io", "__fsnotify_parent_per_io"),
        stack="lockref_get_not_zero < dget_parent < __fsnotify_parent < io_read",
        treated={"directory": "an inotify watch on /dev (close_write)"},
        date="2023",
        numbers=("76% of the cpu on the box is sucked up", "iops immediately went up more than 4X"),
        cause="ended for libaio by a5e57b4d370c (v6.10); io_uring keeps its second reference",
    ),
)
