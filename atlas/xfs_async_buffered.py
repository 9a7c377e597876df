"""Buffered writes of io_uring went to a worker until XFS could refuse to block."""

import iolab

JOB = "ioengine=psync iodepth=1 rw=write bs=4k direct=0"
report = iolab.question(
    name="xfs_async_buffered",
    title="Buffered writes of io_uring on XFS go to a worker",
    fio=JOB,
    size_mib=16,
    filesystem="xfs",
    treatment={"ioengine": "io_uring"},
    # Half-way, in logarithms, to the published ratio of io_uring to psync or to io_uring mended.
    claims="iops ratio < 0.607",
    published=iolab.Published(
        citation="Stefan Roesch, io-uring/xfs: support async buffered writes, in Phoronix",
        date="2022-06-22",
        links=("https://www.phoronix.com/news/Linux-520-XFS-uring-Async-Buff",),
        numbers=("going from 77k to 209k IOPS", "and 9600ns to 120ns latency"),
        subject="buffered writes of io_uring go to a worker",
        happens=(
            "A file system that may block in a buffered write cannot be asked not to, so io_uring "
            "hands each write to an io-wq worker: two switches and a wake-up for 4 KiB."
        ),
        cause="ended by nowait buffered writes of XFS (v6.0)",
    ),
)
reads = iolab.question(
    name="xfs_async_reads",
    title="reads that the page cache has go to no worker",
    fio=JOB.replace("rw=write", "rw=read"),
    size_mib=16,
    filesystem="xfs",
    treatment={"ioengine": "io_uring"},
    claims="iops ratio > 0.607",
)
