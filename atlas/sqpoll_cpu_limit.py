"""The polling thread of io_uring eats the CPU limit of the container that it serves."""

import iolab

JOB = "rw=randwrite bs=24k ioengine=io_uring iodepth=1 direct=1 disable_clat=1"
report = iolab.question(
    name="sqpoll_cpu_limit",
    title="SQPOLL under a CPU limit",
    fio=JOB,
    size_mib=16,
    filesystem="ext4",
    treatment={"sqthread_poll": 1},
    vary={"cpu.max": ["50000 100000", "100000 100000"]},
    claims="iops ratio < 0.5",
    published=iolab.Published(
        citation="libuv/libuv issue 4089: Bind named using 100% cpu with libuv 1.46.0",
        date="2024-02-20",
        links=("https://github.com/libuv/libuv/issues/4089",),
        numbers=("with 0.5 and 1 cpus the results are bad with io_uring enabled",),
        # The numbers are in a picture: half of the rate is what we call bad.
        subject="SQPOLL starves its own cgroup",
        happens="The SQPOLL thread never sleeps, and its time is charged to the cgroup's limit.",
        cause="SQPOLL itself; libuv 1.49 turned it off by default",
    ),
)
without = iolab.question(
    name="sqpoll_not_used",
    title="without SQPOLL half a CPU is enough",
    fio=JOB,
    size_mib=16,
    filesystem="ext4",
    treatment={"cpu.max": "50000 100000"},
    claims="iops ratio > 0.5",
)
