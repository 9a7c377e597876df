"""A core whose task waits for io_uring counts as waiting for I/O."""

import iolab

JOB = "rw=randread bs=4k iodepth=1 direct=1 ioengine=libaio rate_iops=300"
report = iolab.question(
    name="uring_iowait",
    title="Waits of io_uring count as iowait",
    fio=JOB,
    size_mib=16,
    treatment={"ioengine": "io_uring"},
    # Published: 0 against 85 %. With one I/O in flight now and then, a part of the time.
    claims="iowait difference > 0.001",
    published=iolab.Published(
        citation='openbmc/linux issue 224: "iowait" high after 6.1.51 kernel',
        date="2024-04-17",
        links=(
            "https://github.com/openbmc/linux/issues/224",
            "https://github.com/axboe/liburing/issues/943",
        ),
        numbers=(
            "CPU:   0% usr  14% sys   0% nic   0% idle  85% io   0% irq   0% sirq",
            'After reverting the commit "iowait" drops to zero again.',
        ),
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
    treatment={"ioengine": "io_uring"},
    claims="latency_mean_ns ratio < 1.1",
)
