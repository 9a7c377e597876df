"""Buffered writes of io_uring went to a worker until btrfs could refuse to block."""

import iolab

JOB = "ioengine=psync iodepth=1 rw=write bs=4k direct=0"
report = iolab.question(
    name="btrfs_async_buffered",
    title="Buffered writes of io_uring on btrfs go to a worker",
    fio=JOB,
    size_mib=16,
    filesystem="btrfs",
    treatment={"ioengine": "io_uring"},
    # Half-way, in logarithms, to the published ratio of io_uring to psync or to io_uring mended.
    claims="iops ratio < 0.610",
    published=iolab.Published(
        citation="Stefan Roesch, btrfs: enable nowait async buffered writes",
        date="2022-09-12",
        links=("https://git.kernel.org/linus/926078b21db9",),
        numbers=("iops: 55k 134k 117K 148K (without patch, with patch, libaio, psync)",),
        subject="buffered writes of io_uring go to a worker",
        happens=(
            "A file system that may block in a buffered write cannot be asked not to, so io_uring "
            "hands each write to an io-wq worker: two switches and a wake-up for 4 KiB."
        ),
        cause="ended by 926078b21db9 (v6.1)",
    ),
)
reads = iolab.question(
    name="btrfs_async_reads",
    title="reads that the page cache has go to no worker",
    fio=JOB.replace("rw=write", "rw=read"),
    size_mib=16,
    filesystem="btrfs",
    treatment={"ioengine": "io_uring"},
    claims="iops ratio > 0.610",
)
