# SPDX-License-Identifier: MIT
"""A single AIO submission thread that the scheduler migrates thousands of times.

Source: the report to linux-block (seed ``001_7f8ae1e5fb9ad6b3.txt``): Linux 5.4-rc7 in a KVM guest,
XFS on scsi_debug (ndelay=41000), fio with libaio at iodepth 128 in batches of 1, with 512 B at the
default scheduler settings and with 4 KiB at longer granularities.

What was tuned, and why:

* ``integrity`` (dix and dif) is a factor: with it, the checksum is the limit (``translation``).
* **512 B** is smaller than XFS's block: XFS queues it otherwise, and kernels differ in its cost.
* **autogroup off** on all kernels, which have different defaults for it.
* **No I/O scheduler**: the report does not name one, and the kernels' defaults differ.

The control is the same job pinned to one core: it is never migrated, by construction. The natural
control is ``rw=randread``: a read on XFS completes without a worker, in the interrupt, so nothing
has to run on the submitter's core (fs/iomap/direct-io.c, iomap_dio_bio_end_io).
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import tracedat
from iolab.pathology.base import (
    EVERY_KERNEL,
    NEAR,
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
from iolab.results import CellResult, growth
from iolab_agent.plan import Cell, Device, FileSystem, Job, Recording

_CPUS = 2
_NDELAY = 41_000
# 5000 migrations in 30 s.
_PUBLISHED_PER_S = 5000 / 30
# The report's values. EEVDF kernels have one of the two, under another name.
_TUNINGS: dict[str, dict[str, int]] = {
    "default": {},
    "published": {"min_granularity_ns": 10_000_000, "wakeup_granularity_ns": 15_000_000},
    "slice": {"min_granularity_ns": 10_000_000},
}


def _cell(condition: Condition, profile: Profile, rng: random.Random) -> Cell:
    return Cell(
        devices=[
            Device(
                "data",
                "scsi_debug",
                320,
                completion_ns=_NDELAY,
                integrity=condition["integrity"] == "dif",
            )
        ],
        filesystem=FileSystem("xfs", "data"),
        settings={"autogroup": 0, **_TUNINGS[named_level(condition, "tuning")]},
        job=Job(
            engine="libaio",
            rw=named_level(condition, "rw"),
            block_size=integer_level(condition, "size"),
            iodepth=128,
            numjobs=1,
            batch=1,
            size_mib=64,
            layout="written",
            ramp_ms=profile.ramp_ms,
            runtime_ms=profile.runtime_ms,
            seed=rng.randrange(1, 2**31),
            start_delay_us=rng.randrange(4000),
            cpus=[0] if condition["affinity"] is None else list(range(_CPUS)),
        ),
    )


def _from_counters(result: CellResult) -> dict[str, float]:
    """Return the migrations of the job's thread, per second and per 1000 I/Os."""
    first, last = result["first"], result["last"]
    elapsed_s = (last["at_ns"] - first["at_ns"]) / 1e9
    jobs = [(pid, task) for pid, task in last["tasks"].items() if task["job"]]
    moved = sum(growth(first, pid, task, "migrations") for pid, task in jobs)
    return {
        "migrations_per_s": moved / elapsed_s,
        "migrations_per_1000_ios": 1e3 * moved / (last["ios"] - first["ios"] or math.nan),
    }


_RECORDING = Recording(
    events=[
        *("sched:sched_migrate_task", "sched:sched_switch"),
        *("sched:sched_waking", "sched:sched_wakeup"),
    ],
    window_ms=600,
)


def _from_trace(trace: tracedat.Trace) -> dict[str, float]:
    """Count the migrations by their path in the scheduler; ``every_…_ns``: time between them."""
    from iolab import measure

    moved = measure.migration_causes(trace)
    moved = moved[moved["comm"] == "fio"]
    intervals_ns = moved["interval_ns"].dropna().astype("float64")
    first, last = trace.span
    found = {"migrations_traced": float(len(moved)), "window_ms": (last - first) / 1e6}
    for cause in measure.CAUSES:
        name = "by_" + cause.replace(" ", "_").replace("-", "_")
        found[name] = float((moved["cause"] == cause).sum())
    for name, share in (("every_p10_ns", 0.1), ("every_median_ns", 0.5), ("every_p90_ns", 0.9)):
        found[name] = float(intervals_ns.quantile(share))
    return found


_BASE: Grid = {
    "affinity": ("free",),
    "size": (4096,),
    "tuning": ("default",),
    "integrity": ("none",),
    "rw": ("randwrite",),
}


# With the control.
_RECORDED: Grid = {
    "size": (4096,),
    "tuning": ("published", "slice"),
    "integrity": ("none",),
    "rw": ("randwrite",),
}
_READS: Grid = {**_BASE, "rw": ("randread",)}


def _claim(name: str, size: int, tuning: str, *, secondary: bool = False) -> Claim:
    return Claim(
        name=name,
        kind="mechanism",
        statement="one thread that could stay where it is is migrated 5000 to 10,000 times in 30 s",
        condition={**first_levels(_BASE), "size": size, "tuning": tuning},
        value="migrations_per_s",
        # A pinned thread hardly migrates: the rate itself, never negative, is judged.
        contrast="treated",
        published=_PUBLISHED_PER_S,
        # A read has no work to queue where the thread is.
        control=first_levels(_READS),
        counts=True,
        secondary=secondary,
    )


# Where every claim is decided.
_FULL = Profile(
    kernels=EVERY_KERNEL,
    boots=3,
    grids=(
        {**_BASE, "tuning": ("default", "published", "slice")},
        {**_BASE, "size": (512,)},
        _READS,
    ),
    ramp_ms=400,
    runtime_ms=1500,
    recorded=_RECORDED,
    repeats_control=False,
)

# The report's second set-up, and one step from it in each direction.
_NEAR = around(
    {**_BASE, "tuning": ("published",)},
    {"size": (512, 16_384), "tuning": ("default", "slice"), "integrity": ("dif",)},
)

AIO_MIGRATION = Pathology(
    name="aio_migration",
    title="A single AIO submission thread migrated madly",
    source="001_7f8ae1e5fb9ad6b3.txt",
    notebook="aio_migration.ipynb",
    treatment="affinity",
    control="pinned to one core",
    factors={
        "affinity": CategoricalFactor(("free",), "affinity"),
        "size": IntegerFactor(512, 1 << 20, "block size (B)", "{} B"),
        "tuning": CategoricalFactor(
            tuple(_TUNINGS), "scheduler tuning", "{} tuning", {"slice": "slice tuned"}
        ),
        "integrity": CategoricalFactor(
            ("none", "dif"), "integrity", words={"none": "no integrity data", "dif": "dix and dif"}
        ),
        "rw": CategoricalFactor(
            ("randwrite", "randread"),
            "rw",
            words={"randwrite": "random writes", "randread": "random reads"},
            before="randwrite",
        ),
    },
    profiles={
        "smoke": Profile(
            kernels=TWO_KERNELS,
            boots=2,
            grids=({**_BASE, "tuning": ("published", "slice")},),
            ramp_ms=400,
            runtime_ms=800,
            recorded=_RECORDED,
            recorded_boots=1,
        ),
        "quick": replace(
            _FULL,
            kernels=TWO_KERNELS,
            grids=({**_BASE, "tuning": ("published",)}, {**_BASE, "size": (512,)}),
            # No claim refers to the pinned thread: it shows what does not happen.
            control_boots=1,
            recorded={**_RECORDED, "tuning": ("published",)},
            recorded_boots=1,
        ),
        "full": _FULL,
        "study": _FULL.with_pairs(),
        NEAR: replace(_FULL, grids=_NEAR, control_boots=1, recorded={}),
    },
    translation=(
        deviation("fio's verify", "sha3-512", "none", "it costs the thread more than all the rest"),
        deviation(
            "dix, dif",
            "1, 2",
            "none; integrity=dif has them",
            "the checksum becomes the limit on a flat processor",
        ),
        deviation(
            "file, run",
            "5 GiB, 30 s",
            "64 MiB, 1.5 s after a ramp of 0.4 s",
            "each instruction is emulated",
        ),
        deviation(
            "a request's time",
            "41 us",
            "the same; on 5.4 only with intervention=boot.hpet=disable",
            "without it 5.4 rejects the timer of two processors, and completes at the tick",
        ),
        deviation("processors", "a KVM guest of several", "2", "they share one counted clock"),
    ),
    claims=(
        _claim("(a) 512 B at default settings", 512, "default"),
        _claim("(b) 4 KiB at the report's settings", 4096, "published"),
        _claim("4 KiB, the one setting EEVDF kernels have too", 4096, "slice", secondary=True),
        Claim(
            name="random reads stay",
            kind="mechanism",
            statement="a thread whose reads complete in the interrupt is migrated less",
            condition=first_levels(_READS),
            value="migrations_per_s",
            contrast="treated",
            below=_PUBLISHED_PER_S / 2,
            counts=True,
            why="no number is published: the limit of the writes",
            secondary=True,
        ),
    ),
    cell=_cell,
    machine=lambda boot: Machine(_CPUS, memory_mib=1280, modules=("sd_mod", "crc32c", "xfs")),
    recording=_RECORDING,
    from_trace=_from_trace,
    from_counters=_from_counters,
    published=Published(
        citation='Ming Lei, "single aio thread is migrated crazily by scheduler", Thu Nov 14 2019',
        subject="a single AIO thread is migrated",
        happens=(
            "A single AIO thread is moved from CPU to CPU. Its direct writes complete in a kworker "
            "that is queued on the CPU that submits."
        ),
        measures=(
            *("migrations_per_s", "by_wake_up_placement", "by_active_balance"),
            *("by_periodic_balance", "by_newly_idle_balance"),
        ),
        treated={"free": "the thread free to move"},
        date="2019-11-14",
        numbers=("for 30 seconds ... the migration times can reach 5k ~ 10K",),
        cause="(a) ended by 52262ee567ad (v5.6), which leaves a quarter of the moves of (b)",
    ),
)
