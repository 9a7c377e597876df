"""Buffered appends through io_uring go to a worker; the system call copies at once."""

import iolab

JOB = "rw=write bs=70k iodepth=1 fallocate=none ioengine=pvsync"
report = iolab.question(
    name="uring_append_writev",
    title="Buffered appends through io_uring are slower than writev",
    fio=JOB,
    size_mib=16,
    filesystem="ext4",
    layout="growing",
    treatment={"ioengine": "io_uring"},
    # Published: "over x2 slower" for 71 KB.
    claims=["iops ratio < 0.707", "io_wq_cpu treated > 0.2"],
    published=iolab.Published(
        citation="axboe/liburing issue 1261: (very) slow writes compared to syscall writes",
        date="2024-10-09",
        links=("https://github.com/axboe/liburing/issues/1261",),
        numbers=("For 71k, its over x2 slower. For 140x it's almost x4 slower.",),
        subject="buffered appends through io_uring go to a worker",
        happens="ext4 may block in an append, so io_uring hands each write to an io-wq worker.",
        cause="no nowait buffered writes in ext4; the factor of 2 is the caches of two cores",
    ),
)
direct = iolab.question(
    name="uring_append_overwrites",
    title="direct overwrites go to no worker",
    fio="rw=write bs=64k iodepth=1 ioengine=pvsync direct=1",
    size_mib=16,
    filesystem="ext4",
    treatment={"ioengine": "io_uring"},
    claims="iops ratio > 0.707",
)
