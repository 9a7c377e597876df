"""A core whose task waits for io_uring counts as waiting for I/O."""

import iolab
from iolab_agent.plan import Device

# A slow disk: the core waits nearly all the time.
DISK = Device("disk", "null_blk", 64, irqmode=2, completion_ns=1_000_000)
JOB = "rw=randread bs=4k iodepth=1 direct=1 ioengine=libaio"
report = iolab.question(
    name="uring_iowait",
    title="Waits of io_uring count as iowait",
    fio=JOB,
    size_mib=16,
    device=DISK,
    filesystem=None,
    treatment={"ioengine": "io_uring"},
    # Published: 85 % against 0.
    claims="iowait difference > 0.425",
    published=iolab.Published(
        citation='openbmc/linux issue 224: "iowait" high after 6.1.51 kernel',
        date="2024-04-17",
        links=("https://github.com/openbmc/linux/issues/224",),
        numbers=("0% idle  85% io", 'After reverting the commit "iowait" drops to zero again.'),
        subject="waits of io_uring count as iowait",
        happens="A task that waits in io_uring_enter sleeps in io_schedule: that counts as iowait.",
        cause="8a796565cec3 (v6.5, and in 6.1.39), io_uring: Use io_schedule* in cqring wait",
    ),
)
rate = iolab.question(
    name="uring_iowait_rate",
    title="it is accounting: the latency is the same",
    fio=JOB,
    size_mib=16,
    device=DISK,
    filesystem=None,
    treatment={"ioengine": "io_uring"},
    claims="latency_mean_ns ratio < 1.1",
)
