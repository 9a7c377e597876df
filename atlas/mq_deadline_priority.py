"""mq-deadline lets a job starve beside one of higher priority until its requests have aged."""

from functools import partial

import iolab
from iolab_agent.plan import Device

# As scsi_debug with max_queue=16 and ndelay=1000000: 16 I/Os at a time, each of 1 ms.
DISK = partial(Device, "disk", "null_blk", 64, irqmode=2, completion_ns=1_000_000, queue_depth=16)
JOB = "fio --bs=4k --ioengine=libaio --norandommap --rw=read --thread --direct=1 --iodepth=32 "
JOB += "--iodepth_batch_submit=1 --iodepth_batch_complete=16 --name=low --name=high"
report = iolab.question(
    name="mq_deadline_priority",
    title="mq-deadline lets a job starve beside one of higher priority",
    fio=JOB,
    device=DISK(scheduler="mq-deadline"),
    filesystem=None,
    treatment={"high.prioclass": 1},
    # Published: 40 I/Os a second of 32 at a time take 0.8 s each, 6796 take 4.7 ms.
    claims="latency_max_ns treated > 61_000_000",
    published=iolab.Published(
        citation="Bart Van Assche, block/mq-deadline: Prioritize high-priority requests",
        date="2021-09-27",
        links=("https://lore.kernel.org/r/20210927220328.1410161-5-bvanassche@acm.org",),
        numbers=("40 IOPS for the low-priority job", "change into 6712 and 6796 IOPS"),
        subject="a job starves beside one of higher I/O priority",
        happens="A request of lower priority waits until no other does, or until it has aged.",
        cause="322cff70d46c (v5.16); the age is prio_aging_expire, by default 10 s",
    ),
)
unscheduled = iolab.question(
    name="mq_deadline_unscheduled",
    title="without an I/O scheduler the class changes nothing",
    fio=JOB,
    device=DISK(),
    filesystem=None,
    treatment={"high.prioclass": 1},
    claims="latency_max_ns treated < 61_000_000",
)
