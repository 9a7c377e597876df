"""Each fsync of ext4 waits for jbd2 to write a transaction; a fast commit writes what changed."""

import iolab
from iolab_agent.plan import Device

# 8 / 1475.1 s for a file are 5.4 ms, three I/Os in turn; this core is a third as fast: 5 ms each.
DISK = Device("disk", "null_blk", 512, irqmode=2, completion_ns=5_000_000)
# fs_mark -t 8 -s 65536 -w 4096 writes a file in 4 KiB, and calls fsync; here a file grows so.
JOB = "numjobs=8 thread ioengine=psync rw=write bs=4k fallocate=none "
report = iolab.question(
    name="ext4_fast_commit",
    title="Threads that make small files wait for the journal of ext4",
    fio=JOB + "fsync=16",
    size_mib=16,
    layout="growing",
    device=DISK,
    filesystem="ext4",
    treatment={"mkfs": "-O fast_commit"},
    # Published: 4309.8 against 1475.1 files/s, that is 2.92.
    claims="iops ratio > 1.709",
    published=iolab.Published(
        citation="Harshad Shirwadkar, [PATCH v10 0/9] Add fast commits in Ext4 file system",
        date="2020-10-15",
        links=("https://lore.kernel.org/r/20201015203802.3597742-1-harshadshirwadkar@gmail.com",),
        numbers=("Fsmark Local, 8 threads 1475.1 files/s 4309.8 files/s +192.2 (No FC, FC)",),
        subject="each fsync waits for jbd2 to commit a transaction",
        happens="An fsync wakes jbd2, which writes whole blocks of metadata, and waits for it.",
        cause="jbd2's commits; aa75f4d3daae (v5.10): a file waits for 2 I/Os in turn here, not 4",
    ),
)
commit = iolab.question(
    name="ext4_commit_cost",
    title="a commit costs more than that: overwrites with fdatasync need none",
    fio=JOB + "fdatasync=16",
    size_mib=16,
    device=DISK,
    filesystem="ext4",
    treatment={"layout": "growing"},
    claims="iops ratio < 0.585",
)
