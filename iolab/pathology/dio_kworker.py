# SPDX-License-Identifier: MIT
"""The direct-I/O completion kworker starved by a task in a cgroup of high cpu.weight.

Source: a mail to linux-fsdevel of 2024, without subject and day (``000_90ff60e6afd2cb18.txt``).

What was tuned, and why (``docs/reports/dio_kworker.md`` describes the factors and the regime):

* **Data on a device that stores nothing** (the realtime section of an XFS file system): storing
  costs the submitter a copy of 4 KiB for each I/O, which a disk's DMA does not.
* **Completions in clumps** (``clumping=tick``): without high-resolution timers null_blk completes
  what is due at the 4 ms tick, all at once: an extreme of interrupt coalescing.
* **The depth is the device's speed**, iodepth / 4 ms, so it chooses the regime.
* **A ramp of 0.4 s**: a job that starts inside the cgroup takes that long to settle into the
  ping-pong, and CFS longer near the ``balance_weight``: ``threshold`` and ``long`` have 1 s.
* **No I/O scheduler**, as is usual on NVMe.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

import tracedat
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
from iolab.pathology.factors import (
    CategoricalFactor,
    Condition,
    Grid,
    IntegerFactor,
    first_levels,
    integer_level,
    named_level,
)
from iolab.results import CellResult, growth
from iolab_agent.plan import Cell, Device, FileSystem, Group, Job, Recording

# Large enough that a run does not use up its unwritten extents.
_UNWRITTEN_MIB = 1024
_BATCH = 128
_MOST_JOBS = 8
# The device's speed, as completions each tick: see the regime above.
_DEPTH = 272
_PUBLISHED_WEIGHT = 1000
# 100 for each of 96 CPUs, as a Kubernetes node sets it according to the report.
_LARGE_NODE = 9600
# Nodes of 1 to 96 CPUs, closer together where the effect begins on the kernels that have it.
_FINE = (100, 400, 600, 800, 900, 1000, 1200, 1600, 3200, _LARGE_NODE)
# I/Os in flight at which the published weight gives hardly a ping-pong, one that costs no IOPS, one
# that costs some, and one that costs as many as it ever does: the core is the limit outside, too.
_REGIMES = (64, 192, _DEPTH, 384)
# The report's workaround: workers get it when the job starts and once more in its ramp.
_NICE = {"default": 0, "reniced": -20}
_TUNINGS: dict[str, dict[str, int]] = {"default": {}, "8-cpus": {"scheduler_cpus": 8}}


def _cell(condition: Condition, profile: Profile, rng: random.Random) -> Cell:
    overwrite = condition["extents"] == "overwrite"
    outside = condition["weight"] is None
    return Cell(
        devices=[
            Device("meta", "null_blk", 512),
            Device(
                "data",
                "null_blk",
                2 * _MOST_JOBS * _UNWRITTEN_MIB,
                memory_backed=False,
                irqmode=2,
                completion_ns=10_000,
                queue_depth=4096,
            ),
        ],
        filesystem=FileSystem("xfs", "meta", realtime_device="data"),
        group=None if outside else Group({"cpu.weight": integer_level(condition, "weight")}),
        settings=_TUNINGS[named_level(condition, "tuning")],
        worker_nice=_NICE[named_level(condition, "workers")],
        job=Job(
            engine=named_level(condition, "engine"),
            rw="randwrite",
            block_size=4096,
            iodepth=integer_level(condition, "iodepth"),
            numjobs=integer_level(condition, "numjobs"),
            batch=_BATCH,
            batch_min=integer_level(condition, "batch_min"),
            size_mib=64 if overwrite else _UNWRITTEN_MIB,
            layout="written" if overwrite else "unwritten",
            ramp_ms=profile.ramp_ms,
            runtime_ms=profile.runtime_ms,
            seed=rng.randrange(1, 2**31),
            # Phase of the tick at which the run begins.
            start_delay_us=rng.randrange(4000),
        ),
    )


def _machine(boot: Condition) -> Machine:
    tick = boot["clumping"] == "tick"
    return Machine(cpus=1, memory_mib=1024, modules=NULL_BLK_MODULES, coalesced_timers=tick)


# A worker of a core's ordinary pool; those of high priority are named "kworker/0:1H".
_WORKER = re.compile(r"kworker/\d+:\d+(?![\dH])")


def _from_counters(result: CellResult) -> dict[str, float]:
    """Return the weight of balance, and the share of the workers' time at a nice value below 0."""
    # At this cpu.weight, fio's time over its weight equals the workers' time over theirs (100):
    # above it, a scheduler that is fair by weight owes fio the core whenever fio wakes.
    fio_ns = worker_ns = reniced_ns = 0
    for pid, task in result["last"]["tasks"].items():
        ran_ns = growth(result["first"], pid, task, "ran_ns")
        if task["job"]:
            fio_ns += ran_ns
        elif _WORKER.match(task["comm"]):
            worker_ns += ran_ns
            reniced_ns += ran_ns if task["nice"] < 0 else 0
    if not worker_ns:
        return {}
    return {"balance_weight": 100 * fio_ns / worker_ns, "reniced_share": reniced_ns / worker_ns}


_RECORDING = Recording(
    events=[
        *("sched:sched_switch", "sched:sched_waking"),
        *("workqueue:workqueue_queue_work", "workqueue:workqueue_execute_start"),
        *("workqueue:workqueue_execute_end", "block:block_rq_issue", "block:block_rq_complete"),
    ],
    # Where a request begins, by kernel.
    also=["block:block_io_start", "block:block_getrq"],
    window_ms=300,
    # What such a window holds, twice over; a kernel does not always have 32 MiB in a small machine.
    buffer_kib=24576,
)


def _from_trace(trace: tracedat.Trace) -> dict[str, float]:
    from iolab.measure.pingpong import costs_of_completion

    return costs_of_completion(trace, "fio")


_BASE: Grid = {
    "iodepth": (_DEPTH,),
    "numjobs": (1,),
    "extents": ("overwrite",),
    "clumping": ("tick",),
    "engine": ("libaio",),
    "workers": ("default",),
    "tuning": ("default",),
    "batch_min": (1,),
}


def _at(weight: int, **different: int | str) -> Condition:
    return {**first_levels(_BASE), "weight": weight, **different}


_PUBLISHED: Grid = {**_BASE, "weight": (_PUBLISHED_WEIGHT,)}
# An ordinary node, the published weight, and the largest node.
_NODES: Grid = {"weight": (400, _PUBLISHED_WEIGHT, _LARGE_NODE)}
_LARGE: Grid = {**_BASE, "weight": (_LARGE_NODE,)}
_BOTH: Grid = {**_BASE, "weight": (_PUBLISHED_WEIGHT, _LARGE_NODE)}


def _crossed(numjobs: int, in_flight: tuple[int, ...] = _REGIMES) -> Grid:
    """Cross the weights of nodes with numbers of I/Os in flight, divided among the jobs."""
    depths = tuple(total // numjobs for total in in_flight)
    return {**_BASE, **_NODES, "numjobs": (numjobs,), "iodepth": depths}


_SWITCHES = Claim(
    name="two switches per I/O",
    kind="mechanism",
    statement="an I/O costs 2.10 context switches inside and 0.51 outside: 1.59 more",
    condition=_at(_PUBLISHED_WEIGHT),
    value="switches_per_io",
    contrast="difference",
    # perf's counts of context switches a second over the IOPS, inside and outside: 2.10 and 0.51.
    published=243_755 / 116_073.72 - 103_001 / 200_570.37,
)
_LOSS = Claim(
    name="IOPS lost",
    kind="magnitude",
    statement="inside, at cpu.weight 1000, 0.58 of the IOPS are left",
    condition=_at(_PUBLISHED_WEIGHT),
    value="iops",
    contrast="ratio",
    published=0.579,
)


def _on_a_large_node(claim: Claim, statement: str) -> Claim:
    """Return the claim at the largest weight, with the limit of the published one."""
    return replace(
        claim,
        name=f"{claim.name} on a large node",
        statement=statement,
        condition=_at(_LARGE_NODE),
        published=None,
        why="no number is published for this weight: the limit is that of weight 1000",
    )


# Where every claim is decided.
_FULL = Profile(
    kernels=EVERY_KERNEL,
    boots=6,
    grids=(
        {**_BASE, **_NODES},
        {**_LARGE, "workers": ("reniced",)},
        {**_LARGE, "engine": ("io_uring",)},
        {**_LARGE, "batch_min": (_BATCH,)},
    ),
    ramp_ms=400,
    runtime_ms=500,
    recorded=_PUBLISHED,
    repeats_control=False,
)
# The preregistered condition has the boots with which its three claims can pass Holm's correction.
_SEVEN = replace(
    _FULL, boots=7, grids=(*_FULL.grids, _PUBLISHED), grid_boots=(*[6] * len(_FULL.grids), 7)
)
# The published weight, for what begins late: see `iolab.sweeps.why`.
_LONG = Profile(
    kernels=TWO_KERNELS,
    boots=6,
    grids=(_PUBLISHED,),
    ramp_ms=1000,
    # fio ignores a ramp that is longer than the run (axboe/fio#2041).
    runtime_ms=1100,
)

# The report's own set-up, as far as a recipe can have it, and one step from it in each direction.
# Its scheduler's times are those of 12 processors, which are those of 8.
_OWN: Grid = {**_PUBLISHED, "iodepth": (128,), "tuning": ("8-cpus",)}
_NEAR: tuple[Grid, ...] = (
    _OWN,
    {**_OWN, "iodepth": (192, _DEPTH, 384)},
    {**_OWN, "numjobs": (4,), "iodepth": (128 // 4, _DEPTH // 4)},
    {**_OWN, "engine": ("io_uring",)},
    {**_OWN, "tuning": ("default",)},
    {**_OWN, "batch_min": (_BATCH,)},
)

DIO_KWORKER = Pathology(
    name="dio_kworker",
    title="Direct-I/O completion kworker starved by a cgroup's cpu.weight",
    source="000_90ff60e6afd2cb18.txt",
    notebook="dio_kworker.ipynb",
    treatment="weight",
    control="outside",
    factors={
        "weight": IntegerFactor(1, 10000, "cpu.weight"),
        "iodepth": IntegerFactor(1, 1024, "iodepth"),
        "numjobs": IntegerFactor(1, _MOST_JOBS, "jobs", "{} jobs", {1: "1 job"}),
        "extents": CategoricalFactor(("overwrite", "unwritten"), "extents", "{} extents"),
        "clumping": CategoricalFactor(
            ("tick", "even"),
            "completions",
            words={"tick": "completions at each tick", "even": "completions evenly spaced"},
        ),
        "engine": CategoricalFactor(("libaio", "io_uring"), "I/O engine"),
        "workers": CategoricalFactor(tuple(_NICE), "kworkers", "{} kworkers"),
        "tuning": CategoricalFactor(
            tuple(_TUNINGS), "scheduler tuning", "tuned as {}", {"default": "default tuning"}
        ),
        "batch_min": IntegerFactor(
            1, _BATCH, "completions waited for", "waits for {} completions", {1: "waits for 1"}
        ),
    },
    profiles={
        "smoke": replace(
            _FULL.with_pairs(),
            boots=2,
            grids=(_BOTH,),
            runtime_ms=450,
            recorded={"weight": (_PUBLISHED_WEIGHT,)},
            recorded_boots=1,
        ),
        "quick": replace(_FULL, kernels=TWO_KERNELS, boots=3, grids=(_BOTH,), recorded_boots=1),
        "full": _SEVEN,
        # With a map.
        "study": replace(
            _SEVEN.with_pairs(),
            grids=(*_SEVEN.grids, _crossed(1), _crossed(4)),
            grid_boots=(*_SEVEN.grid_boots, 2, 2),
        ),
        "long": _LONG,
        # In how much of the report's neighbourhood the effect is: cells longer than its delay.
        NEAR: replace(_LONG, boots=3, grids=_NEAR, repeats_control=False),
        # Where in cpu.weight the effect begins, and nothing else.
        "threshold": replace(
            _LONG,
            boots=3,
            grids=({**_BASE, "weight": _FINE},),
            recorded={**_BASE, "weight": (800,)},
            recorded_boots=1,
        ),
        # The map of weight, iodepth and jobs, and nothing else.
        "region": replace(
            _FULL,
            kernels=(("5.10",), *TWO_KERNELS, ("7.2",)),
            boots=3,
            grids=tuple({**_crossed(n), "weight": (100, *_NODES["weight"])} for n in (1, 2, 4)),
            recorded_boots=1,
            repeats_control=True,
        ),
    },
    boot_factors=("clumping",),
    translation=(
        deviation(
            "iodepth",
            "128",
            "272; 16 to 384 in study",
            "the queue's depth is the device's speed; at 272 the core is two thirds busy outside",
        ),
        deviation(
            "batch",
            "submits and reaps up to 128; the mail says that fio waits for all",
            "the same, and waits for one; batch_min=128 waits for all",
            "the report's fio line sets no minimum, and fio's own is one",
        ),
        deviation("processors", "12", "1", "the report pins fio to one core; the others are idle"),
        deviation(
            "scheduler's times",
            "those of 12 processors",
            "those of 1; tuning=8-cpus has those of 8 and more",
            "the kernel multiplies them by 4 from 8 processors on (get_update_sysctl_factor)",
        ),
        deviation(
            "device",
            "NVMe",
            "null_blk without high-resolution timers: one batch a tick of 4 ms",
            "an NVMe completes in batches, too; QEMU's does so in the host's time",
        ),
        deviation(
            "file",
            "10 GiB on XFS",
            "64 MiB on the realtime section of XFS",
            "metadata are written elsewhere, so that the device does only what fio asks",
        ),
        deviation(
            "run",
            "60 s",
            "0.5 s after a ramp of 0.4 s; 1.1 s after 1 s in long and near",
            "each instruction is emulated",
        ),
        deviation(
            "Linux",
            "6.1 of Amazon Linux; 6.8 of Ubuntu",
            "6.1 of Debian; 6.8 built from Ubuntu's source",
            "what the archives have",
        ),
    ),
    claims=(
        _SWITCHES,
        Claim(
            name="core used up",
            kind="mechanism",
            statement="outside, the core is idle half of the time; inside, it never is",
            condition=_at(_PUBLISHED_WEIGHT),
            value="idle",
            contrast="difference",
            published=-0.5,
        ),
        _on_a_large_node(_SWITCHES, "the same at 100 times the CPUs of a node of 96"),
        _LOSS,
        _on_a_large_node(_LOSS, "at 100 times the CPUs of a node of 96, as many IOPS are lost"),
        Claim(
            name="reniced workers",
            kind="mechanism",
            statement="with the kernel's workers at nice -20, hardly any IOPS is lost",
            condition=_at(_LARGE_NODE, workers="reniced"),
            value="iops",
            contrast="ratio",
            above=0.97,
            why="no number is published: at most 3 % is what we call hardly any",
            cures="IOPS lost on a large node",
            secondary=True,
        ),
        Claim(
            name="woken too early",
            kind="mechanism",
            statement="who waits for 128 completions is woken for nearly every one of them",
            condition=_at(_LARGE_NODE, batch_min=_BATCH),
            value="fio_voluntary_per_io",
            contrast="treated",
            above=0.5,
            why="no number is published: half-way from a wake-up for each completion to hardly any",
            secondary=True,
        ),
    ),
    preregistered=({"kernel": "6.1", **_at(_PUBLISHED_WEIGHT)},),
    cell=_cell,
    machine=_machine,
    recording=_RECORDING,
    from_trace=_from_trace,
    from_counters=_from_counters,
    published=Published(
        citation=(
            'Stephan, mail to fsdevel: "we are running into disk/iops perf issues because the dio '
            'kernel worker thread is being cpu starved" (Linux 6.1, XFS)'
        ),
        subject="fio and its direct I/O kworker ping-pong",
        happens=(
            "A task in a cgroup of high cpu.weight preempts the kworker that completes its direct "
            "writes, one completion after the other: each wakes the task, which finds too few "
            "completions to go on and sleeps again."
        ),
        links=("commit 71eb6b6b0ba9 (fs/aio: obey min_nr when doing wakeups)",),
        measures=(
            *("switches_per_io", "wakeups_per_io", "preemptions_per_io"),
            *("slept_again", "stay_median_ns", "path_worker_wait_ns"),
        ),
        stack="preempt_schedule_common < __cond_resched < process_one_work < worker_thread",
        date="2024",
        numbers=("iops avg=200570.37 outside, avg=116073.72 inside; 2.5x more context switches",),
        cause="ended by 86bfbb7ce4f6 (v6.6), begun again by 152e11f6df29 (v6.12)",
    ),
)
