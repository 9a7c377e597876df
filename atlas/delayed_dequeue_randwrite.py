"""Delayed dequeue and the random writes of eight jobs, on a thin pool and on the bare disk."""

import iolab
from iolab_agent.plan import Device

JOB = "rw=randwrite bs=4k iodepth=32 direct=1 ioengine=libaio numjobs=8"
SECTORS = 512 * 2048
DISK = Device("disk", "null_blk", 512, irqmode=2, completion_ns=10_000)
META = Device("meta", "null_blk", 64, irqmode=2, completion_ns=10_000)
POOL = Device("pool", "dm", 512, table=f"0 {SECTORS} thin-pool {{meta}} {{disk}} 128 0")
THIN = Device("thin", "dm", 512, table=f"0 {SECTORS} thin {{pool}} 0")
report = iolab.question(
    name="delayed_dequeue_randwrite",
    title="Delayed dequeue slows the random writes of eight jobs on a thin pool",
    fio=JOB,
    device=[META, DISK, POOL, THIN],
    size_mib=8,
    runtime_ms=320,
    treatment={"intervention": "NO_DELAY_DEQUEUE"},
    # Published: 510 against 590 MB/s.
    claims="iops ratio > 1.076",
    published=iolab.Published(
        citation="Phil Auld, Re: [PATCH 17/24] sched/fair: Implement delayed dequeue",
        date="2024-11-01",
        links=("https://lore.kernel.org/lkml/20241101124715.GA689589@pauld.westford.csb/",),
        numbers=("510 against 590 MB/s on a thin pool, nothing on bare NVMe",),
        subject="delayed dequeue slows random writes",
        happens="A task that sleeps stays on the runqueue, and is in the way of the next one.",
        cause="152e11f6df29 (v6.12), Implement delayed dequeue; off by NO_DELAY_DEQUEUE",
    ),
)
bare = iolab.question(
    name="delayed_dequeue_bare",
    title="nothing on the bare disk",
    fio=JOB,
    size_mib=8,
    runtime_ms=320,
    treatment={"intervention": "NO_DELAY_DEQUEUE"},
    claims="iops ratio < 1.076",
)
