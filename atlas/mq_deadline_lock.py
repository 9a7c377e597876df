"""One lock of mq-deadline, wanted by 32 threads: what virtual time cannot show."""

import iolab

JOB = (
    "bs=4k ioengine=io_uring norandommap rw=randread thread fixedbufs=1 numjobs=4 iodepth=4 "
    "iodepth_batch_submit=4 iodepth_batch_complete=4 direct=1"
)
report = iolab.question(
    name="mq_deadline_lock",
    title="mq-deadline loses most of its time to one lock",
    fio=JOB,
    size_mib=16,
    runtime_ms=400,
    filesystem=None,
    cpus=4,
    treatment={"scheduler": "mq-deadline"},
    # Published: 879K against 2867K with the lock out of the way.
    claims="iops ratio < 0.554",
    published=iolab.Published(
        citation="Jens Axboe, block/mq-deadline: use separate insertion lists",
        date="2024-01-19",
        links=("https://git.kernel.dk/?p=linux-2.6-block.git&a=commit&h=5509e9957621",),
        numbers=("null_blk 879K 89% 93.6% (IOPS, sys, contention)", "null_blk 2867K 11.1% ~6.0%"),
        subject="mq-deadline loses its time to one lock",
        happens="32 threads insert and dispatch under one lock of the queue, and spin for it.",
        cause="contention of many real cores; what costs 0.575 here is not known",
    ),
)
work = iolab.question(
    name="mq_deadline_work",
    title="its own work is seen: a merge list and a tree for each request",
    fio=JOB.replace("numjobs=4", "numjobs=1"),
    size_mib=16,
    runtime_ms=400,
    filesystem=None,
    treatment={"scheduler": "mq-deadline"},
    claims="iops ratio < 0.97",
)
