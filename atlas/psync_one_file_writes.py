"""Threads that write one file synchronously wait for each other's I/O, asynchronous ones do not."""

import iolab
from iolab_agent.plan import Device

# Slower than the core, so that taking turns costs time.
DISK = Device("disk", "null_blk", 512, irqmode=2, completion_ns=100_000)
JOB = "bs=16k iodepth=1 numjobs=8 thread norandommap direct=1 ioengine=libaio filename=data"
report = iolab.question(
    name="psync_one_file_writes",
    title="Synchronous direct writes of one file take turns",
    fio=JOB + " rw=randwrite",
    size_mib=16,
    device=DISK,
    filesystem="ext4",
    layout="unwritten",
    treatment={"ioengine": "psync"},
    # Published: 643 against 2300 MB/s.
    claims="iops ratio < 0.529",
    published=iolab.Published(
        citation="axboe/fio issue 812: Understanding write performance, with psync vs libaio",
        date="2019-08-19",
        links=("https://github.com/axboe/fio/issues/812",),
        numbers=("throughput(psync) = 643MB/s", "throughput(libaio) = 2300MB/s"),
        subject="synchronous direct writes of one file take turns",
        happens="A synchronous direct write holds the inode's rwsem until the device is done.",
        cause="ext4 takes the lock alone for what is not an overwrite of written blocks",
    ),
)
reads = iolab.question(
    name="psync_one_file_reads",
    title="reads share the lock (published: 2400 and 2400 MB/s)",
    fio=JOB + " rw=randread",
    size_mib=16,
    device=DISK,
    filesystem="ext4",
    treatment={"ioengine": "psync"},
    claims="iops ratio > 0.529",
)
