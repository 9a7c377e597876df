"""With SQPOLL each write that grows a file waits until the polling thread goes idle."""

import iolab

JOB = "ioengine=io_uring blocksize=4k direct=1 iodepth=1 disable_clat=1 rw="
report = iolab.question(
    name="sqthread_idle_stall",
    title="SQPOLL waits for sq_thread_idle at each write",
    fio=JOB + "write",
    size_mib=16,
    layout="growing",
    filesystem="ext4",
    cpus=2,
    treatment={"sqthread_poll": 1},
    # Published: one write a second. Two virtual CPUs that spin take turns of 1 ms: 1000 a second.
    claims="iops treated < 31",
    published=iolab.Published(
        citation="axboe/fio issue 850: sqthread_poll gets stuck for <sq_thread_idle> interval",
        date="2019-10-27",
        links=("https://github.com/axboe/fio/issues/850",),
        numbers=("It appears that there is a 1s delay between each `getevents`",),
        subject="SQPOLL waits for sq_thread_idle",
        happens=(
            "A write that cannot be submitted without blocking is handed on, and its completion is "
            "seen only when the SQPOLL thread stops polling."
        ),
        cause="io_uring of v5.3; 561fb04a6a22 (v5.5) put io-wq in the place of its workqueue",
    ),
)
overwrites = iolab.question(
    name="sqthread_idle_overwrites",
    title="overwrites can be submitted at once, and wait for nothing",
    fio=JOB + "write",
    size_mib=16,
    filesystem="ext4",
    cpus=2,
    treatment={"sqthread_poll": 1},
    claims="iops treated > 31",
)
