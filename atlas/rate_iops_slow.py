"""A job held to 300 IOPS has a longer latency than one held to 6000, on a real disk."""

import iolab

JOB = "rw=randwrite bs=4k iodepth=1 ioengine=libaio direct=1 rate_iops=6000"
report = iolab.question(
    name="rate_iops_slow",
    title="Fewer I/Os a second, and each takes longer",
    fio=JOB,
    size_mib=16,
    filesystem=None,
    runtime_ms=2000,
    treatment={"rate_iops": 300},
    # The mean of some hundred I/Os turns with one of 2 ms: the median.
    claims="latency_p50_ns ratio > 1.1",
    published=iolab.Published(
        citation="axboe/fio issue 1394: fio latency report not correct if using iops_rate",
        date="2022-05-02",
        links=("https://github.com/axboe/fio/issues/1394",),
        numbers=("the avg latency of 300 is worse than avg latency of 6000", "avg=63.55 (at 300)"),
        subject="the latency rises as the rate falls",
        happens="Between two I/Os the core goes to sleep, and each I/O pays for waking it.",
        cause="idle states and cold caches, not the scheduler: real cores alone show it",
    ),
)
sensitive = iolab.question(
    name="rate_iops_sensitive",
    title="a device that is 10 us slower would be seen",
    fio=JOB,
    size_mib=16,
    filesystem=None,
    runtime_ms=2000,
    treatment={"completion_ns": 20_000},
    claims="latency_p50_ns ratio > 1.1",
)
