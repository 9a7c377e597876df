# SPDX-License-Identifier: MIT
"""An I/O scheduler that idles between two cgroups: dd and the journal thread that it waits for.

Source: the report to linux-block (seed ``003_e9e6d2f179e63973.txt``): dd with oflag=dsync and 512 B
writes on ext4. dd is in a blkio cgroup, the journal's thread (jbd2) in the root. CFQ on 4.19 idles
for 8 ms after each request of one; "the same problem" with BFQ on 5.1, without a number.

CFQ ended with 5.0, and BFQ has no group_idle: where there is no CFQ, the question is whether BFQ
does it. The control is the scheduler "none".

What was tuned, and why:

* **null_blk in memory, 200 us per request, declared rotational**: a disk whose own time is short
  beside the 8 ms, and of the kind that BFQ's idling is meant for. High-resolution timers make the
  200 us exact.
* **File system made and mounted under "none"**, with nothing left for a lazy kernel thread.
* ``writes`` **for each dd**, about 300 in all, every dd with a file of its own. 300 writes are the
  report's own command, shortened. Newer kernels' BFQ learns which queue wakes which, and stops
  idling after a few requests. Ten writes are a short-lived program, which pays this start-up again;
  the report has none, so claims about them are secondary.
* ``bfq`` **and** ``bfq-throughput`` (low_latency=0). In its default mode BFQ favours a queue that
  has just begun, and from 6.1 on a short dd then waits in the root cgroup too. Without it, only
  idling between groups is left.
* ``bfq-throughput-2ms`` (slice_idle=2) and ``bfq-no-idle`` (slice_idle=0) differ from
  ``bfq-throughput`` in nothing else: the gaps must change accordingly.
* ``mq-deadline`` is the control for the gaps: "none" inserts no requests, so it cannot have any;
  mq-deadline inserts them as BFQ does.
"""

from __future__ import annotations

import random
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
    around,
    first_levels,
    integer_level,
    named_level,
)
from iolab.results import CellResult
from iolab_agent.plan import Cell, Copies, Device, FileSystem, Group, Recording
from iolab_base.errors import IolabError

_WRITES = 300
_MOST_PROCESSES = 100
_BLOCK_SIZE = 512
# By level of io_scheduler: the scheduler and its tunables (slice_idle is in ms).
_SCHEDULERS: dict[str, tuple[str, dict[str, int]]] = {
    "bfq": ("bfq", {}),
    "bfq-throughput": ("bfq", {"low_latency": 0}),
    "bfq-throughput-2ms": ("bfq", {"low_latency": 0, "slice_idle": 2}),
    "bfq-no-idle": ("bfq", {"low_latency": 0, "slice_idle": 0}),
    "mq-deadline": ("mq-deadline", {}),
    "cfq": ("cfq", {}),
}
# Shorter ones are the time it takes to dispatch a request.
_GAP_NS = 1_000_000


def _cell(condition: Condition, profile: Profile, rng: random.Random) -> Cell:
    setting, kind = condition["io_scheduler"], named_level(condition, "filesystem")
    scheduler, tunables = ("none", {}) if setting is None else _SCHEDULERS[str(setting)]
    writes = integer_level(condition, "writes")
    return Cell(
        devices=[
            Device(
                "data",
                "null_blk",
                512,
                irqmode=2,
                completion_ns=200_000,
                queue_depth=64,
                rotational=True,
                scheduler=scheduler,
                tunables=tunables,
            )
        ],
        filesystem=None if kind == "raw" else FileSystem(kind, "data"),
        group=Group(controllers=["io"]) if condition["cgroup"] == "own" else None,
        copies=Copies(
            block_size=_BLOCK_SIZE,
            writes=writes,
            processes=max(1, min(_MOST_PROCESSES, _WRITES // writes)),
            dsync=True,
            # Phase of the kernel's and scheduler's ticks at which the first dd begins.
            start_delay_us=rng.randrange(20_000),
        ),
    )


_RECORDING = Recording(
    events=[
        *("block:block_rq_insert", "block:block_rq_issue", "block:block_rq_complete"),
        *("sched:sched_switch", "sched:sched_waking"),
    ],
    # A tenth of it is used.
    buffer_kib=16384,
)


def _from_counters(result: CellResult) -> dict[str, float]:
    """Return dd's throughput, and what one write becomes in the file system."""
    written = sum(process["bytes"] for process in result["copies"])
    seconds = sum(process["seconds"] for process in result["copies"])
    writes = sum(process["writes"] for process in result["copies"])
    return {
        "kb_per_s": written / seconds / 1e3,
        "device_ios_per_write": (result["last"]["ios"] - result["first"]["ios"]) / writes,
    }


def _from_trace(trace: tracedat.Trace) -> dict[str, float]:
    """Count the gaps of 1 ms or more in which the device idled although a request waited."""
    # ``gap_share`` relates to the time in which the device had a request, in flight or waiting; the
    # start of the next dd does not count. In ``gaps_jbd2_waits`` dd's request was served last.
    # "none" shows no write of dd.
    from iolab import measure

    gaps = measure.idle_gaps(trace, shortest_ns=_GAP_NS)
    lost_ns, busy_ns = int(gaps["length_ns"].sum()), int(measure.busy_time(trace).sum())
    ios = trace.events["block_rq_complete"]
    if not ios:
        raise IolabError("no request was completed in it")
    writes = int((trace.frame("block_rq_insert")["comm"] == "dd").sum())
    journal, before = gaps["owner"].str.startswith("jbd2/"), gaps["previous"]
    return {
        **({"gaps_per_write": len(gaps) / writes} if writes else {}),
        "ios_traced": float(ios),
        "ios_inserted": float(trace.events["block_rq_insert"]),
        "gaps": float(len(gaps)),
        "gaps_per_100_ios": 100 * len(gaps) / ios,
        "gap_share": lost_ns / (lost_ns + busy_ns),
        "gap_median_ms": float(gaps["length_ns"].median()) / 1e6,
        "gaps_jbd2_waits": float((journal & (before == "dd")).sum()),
        "gaps_dd_waits": float(((gaps["owner"] == "dd") & before.str.startswith("jbd2/")).sum()),
    }


_BASE: Grid = {
    "io_scheduler": ("bfq-throughput",),
    "cgroup": ("own",),
    "filesystem": ("ext4",),
    "writes": (10,),
}
_SHORT: Condition = first_levels(_BASE)
_BOTH: Grid = {**_BASE, "io_scheduler": ("bfq", "bfq-throughput")}
# The report's command.
_LONG: Grid = {**_BOTH, "writes": (300,)}
_QUICK = ("bfq", "bfq-throughput", "bfq-no-idle", "mq-deadline")
# A negative control: there dd and jbd2 are in one cgroup.
_ONE_CGROUP: Condition = {"cgroup": "root"}


def _collapse(name: str, statement: str, scheduler: str, writes: int) -> Claim:
    return Claim(
        name=name,
        kind="magnitude",
        statement=statement,
        condition={**_SHORT, "io_scheduler": scheduler, "writes": writes},
        value="iops",
        contrast="ratio",
        # The report: a drop to between a tenth and a thirtieth.
        published=0.1,
        control=_ONE_CGROUP,
        secondary=writes != _WRITES,
    )


def _gaps_per_write(name: str, statement: str, scheduler: str) -> Claim:
    return Claim(
        name=name,
        kind="mechanism",
        statement=statement,
        condition={**_SHORT, "io_scheduler": scheduler, "writes": _WRITES},
        value="gaps_per_write",
        contrast="treated",
        # 60 KB/s are 117 writes of 512 B in a second, 8.5 ms each: one slice_idle.
        published=1.0,
        control=_ONE_CGROUP,
    )


def _unharmed(name: str, statement: str, *, cures: str = "", **different: str) -> Claim:
    return Claim(
        name=name,
        kind="mechanism",
        statement=statement,
        condition={**_SHORT, **different},
        value="iops",
        contrast="ratio",
        above=0.9,
        why="no number is published: a tenth is what BFQ's own work may cost so fast a disk",
        cures=cures,
        secondary=True,
    )


def _no_gaps(name: str, statement: str, scheduler: str) -> Claim:
    return Claim(
        name=name,
        kind="mechanism",
        statement=statement,
        condition={**_SHORT, "io_scheduler": scheduler},
        value="gap_share",
        contrast="treated",
        below=0.01,
        why="no number is published: a hundredth of the time is what we call none",
        cures="idle while a request waits",
        secondary=True,
    )


# Where every claim is decided.
_FULL = Profile(
    kernels=EVERY_KERNEL,
    boots=6,
    grids=(
        {**_BASE, "io_scheduler": _QUICK},
        {**_BOTH, "cgroup": ("root",)},
        {**_BASE, "filesystem": ("xfs", "raw")},
        _LONG,
    ),
    recorded={**_BASE, "io_scheduler": _QUICK, "writes": (10, 300)},
    recorded_boots=6,
    repeats_control=False,
)

# The report's command, and one step from it in each direction.
_NEAR = around(
    {**_LONG, "io_scheduler": ("bfq",)},
    {"io_scheduler": ("bfq-throughput", "bfq-throughput-2ms"), "writes": (10, 100)},
)

BFQ_IDLING = Pathology(
    name="bfq_idling",
    title="Idling between the cgroups of dd and of ext4's journal",
    source="003_e9e6d2f179e63973.txt",
    notebook="bfq_idling.ipynb",
    treatment="io_scheduler",
    control="scheduler none",
    factors={
        "io_scheduler": CategoricalFactor(tuple(_SCHEDULERS), "I/O scheduler"),
        "cgroup": CategoricalFactor(("own", "root"), "cgroup of dd", "{} cgroup"),
        "filesystem": CategoricalFactor(
            ("ext4", "xfs", "raw"), "file system", words={"xfs": "XFS", "raw": "raw device"}
        ),
        "writes": IntegerFactor(
            1, 10_000, "writes of each dd", "{} writes per dd", {1: "1 write per dd"}
        ),
    },
    profiles={
        "smoke": Profile(
            kernels=TWO_KERNELS, boots=2, grids=(_BOTH,), recorded=_BASE, recorded_boots=1
        ),
        "quick": Profile(
            kernels=TWO_KERNELS,
            # Gaps are few whole numbers: boots agree to the digit, and six such boots decide.
            boots=6,
            grids=(_LONG,),
            # A throughput varies, and three boots decide.
            control_boots=3,
            recorded=_LONG,
            recorded_boots=6,
            recorded_control_boots=1,
            repeats_control=False,
        ),
        "full": _FULL,
        "study": _FULL.with_pairs(),
        NEAR: replace(
            _FULL,
            grids=_NEAR,
            control_boots=3,
            recorded={"cgroup": ("own",)},
            recorded_control_boots=1,
        ),
    },
    translation=(
        deviation(
            "writes",
            "10,000 by one dd",
            "300 by one dd, or 30 times 10",
            "each instruction is emulated; BFQ learns within the first writes",
        ),
        deviation(
            "device",
            "a rotating disk",
            "null_blk, 200 us, declared rotational",
            "a disk whose own time is short beside the 8 ms of idling",
        ),
        deviation(
            "scheduler",
            "CFQ on 4.19; BFQ on 5.1",
            "BFQ; CFQ where the kernel has it",
            "CFQ ended with 5.0",
        ),
    ),
    claims=(
        _collapse(
            "throughput collapses",
            "the report's command (300 of its 10,000 writes), BFQ as it is: a tenth is left",
            "bfq",
            _WRITES,
        ),
        _gaps_per_write(
            "a gap for each write",
            "the report's command, BFQ as it is: every write waits once for the idle device",
            "bfq",
        ),
        _collapse(
            "throughput collapses, low_latency=0",
            "the report's command, BFQ with low_latency=0: a tenth is left",
            "bfq-throughput",
            _WRITES,
        ),
        _gaps_per_write(
            "a gap for each write, low_latency=0",
            "the report's command, BFQ with low_latency=0: every write waits once",
            "bfq-throughput",
        ),
        Claim(
            name="idle while a request waits",
            kind="mechanism",
            statement="for most of the time of many short dd the device is idle although a request "
            "waits for it",
            condition=_SHORT,
            value="gap_share",
            contrast="treated",
            # 60 KB/s of at least 1.5 MB/s: the rest of the time.
            published=1 - 60 / 1500,
            secondary=True,
        ),
        Claim(
            name="gaps of slice_idle",
            kind="mechanism",
            statement="these gaps last as long as the scheduler's slice_idle, which is 8 ms",
            condition=_SHORT,
            value="gap_median_ms",
            contrast="treated",
            published=8.0,
            # The shortest gap that counts.
            without=_GAP_NS / 1e6,
            scale="log",
            secondary=True,
        ),
        _no_gaps("no gaps with slice_idle=0", "with slice_idle=0 there are none", "bfq-no-idle"),
        _no_gaps(
            "no gaps with mq-deadline",
            "another scheduler that holds requests back leaves none",
            "mq-deadline",
        ),
        _collapse(
            "throughput collapses, short dd",
            "BFQ with low_latency=0: a tenth is left to many short dd",
            "bfq-throughput",
            10,
        ),
        _collapse(
            "throughput collapses, short dd, defaults",
            "BFQ as it is: a tenth is left to many short dd",
            "bfq",
            10,
        ),
        _unharmed("root cgroup", "dd beside jbd2 in the root cgroup is not slowed", cgroup="root"),
        _unharmed("XFS", "on XFS dd is not slowed", filesystem="xfs"),
        _unharmed("no file system", "on the device itself dd is not slowed", filesystem="raw"),
        _unharmed(
            "slice_idle=0",
            "with slice_idle=0 dd is not slowed",
            cures="throughput collapses, short dd",
            io_scheduler="bfq-no-idle",
        ),
        _unharmed(
            "mq-deadline",
            "mq-deadline does not slow dd",
            cures="throughput collapses, short dd",
            io_scheduler="mq-deadline",
        ),
    ),
    cell=_cell,
    machine=lambda boot: Machine(cpus=1, memory_mib=1024, modules=NULL_BLK_MODULES),
    recording=_RECORDING,
    from_trace=_from_trace,
    from_counters=_from_counters,
    published=Published(
        citation=(
            'Srivatsa S. Bhat, "CFQ idling kills I/O performance on ext4 with blkio cgroup '
            'controller", Fri May 17 2019'
        ),
        subject="BFQ idles between the cgroups of dd and jbd2",
        happens=(
            "BFQ keeps the device idle for slice_idle after each request of dd or of jbd2 if these "
            "are in different cgroups, while the other's request waits: a synchronous write on "
            "ext4 needs both in turn."
        ),
        links=("https://lkml.org/lkml/2015/11/19/359", "https://github.com/moby/moby/issues/21485"),
        measures=(
            *("gaps_per_write", "gaps_per_100_ios", "gap_median_ms", "gap_share"),
            *("gaps_jbd2_waits", "gaps_dd_waits"),
        ),
        treated={"bfq-throughput": "bfq, low_latency=0", "bfq": "bfq"},
        date="2019-05-17",
        numbers=("Throughput with CFQ: 60 KB/s ... with noop or deadline: 1.5 MB/s - 2 MB/s",),
        cause=(
            'ended by "block, bfq: tune service injection basing on request service times" (v5.2); '
            "with low_latency=0, kernels up to 5.10 lose most without a second cgroup, too"
        ),
    ),
)
