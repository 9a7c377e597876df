# SPDX-License-Identifier: MIT
"""Published reports behind the pathologies, in the words that a mail about them needs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BLOCK_AIO", "BLOCK_CFQ", "FSDEVEL_DIO", "FSNOTIFY", "SOLIDIGM", "Published"]


@dataclass(frozen=True)
class Published:
    """A published report.

    Parameters
    ----------
    citation : str
        Author, subject and date, as far as the report itself gives them.
    subject : str
        What happens, as a phrase of a mail's subject: "direct I/O completion kworker ping-pong".
    mechanism : str
        What the kernel does, in its own nouns: one or two sentences.
    links : tuple of str
        Addresses and commits that the report names; nothing else.
    """

    citation: str
    subject: str
    mechanism: str
    links: tuple[str, ...] = ()


# The mail has neither subject nor date in the copy that is at hand.
FSDEVEL_DIO = Published(
    citation=(
        'Stephan, mail to fsdevel: "we are running into disk/iops perf issues because the dio '
        'kernel worker thread is being cpu starved" (Linux 6.1, XFS)'
    ),
    subject="fio and its direct I/O kworker ping-pong",
    mechanism=(
        "Each completed direct write is queued to a kworker on the submitter's CPU. The kworker is "
        "not in the cgroup. It completes one write and wakes fio, whose weight makes it preempt "
        "the kworker; fio has too few completions to go on and sleeps again."
    ),
    links=("commit 71eb6b6b0ba9 (fs/aio: obey min_nr when doing wakeups)",),
)
BLOCK_AIO = Published(
    citation='Ming Lei, "single aio thread is migrated crazily by scheduler", Thu Nov 14 2019',
    subject="a single AIO thread is migrated",
    mechanism=(
        "iomap_dio_bio_end_io() queues the completion work on the CPU that submits. The kworker "
        "and the submitter then want the same CPU, and the scheduler moves the submitter."
    ),
)
FSNOTIFY = Published(
    citation='Pierre, "FYI, fsnotify contention with aio and io_uring." (Linux 6.3.9)',
    subject="fsnotify takes a parent reference per read",
    mechanism=(
        "__fsnotify_parent() takes and drops a reference of the parent dentry for each I/O while "
        "somebody watches the directory. Jobs on many CPUs then write one cache line."
    ),
)
BLOCK_CFQ = Published(
    citation=(
        'Srivatsa S. Bhat, "CFQ idling kills I/O performance on ext4 with blkio cgroup '
        'controller", Fri May 17 2019'
    ),
    subject="BFQ idles between the cgroups of dd and jbd2",
    mechanism=(
        "A synchronous write on ext4 needs dd and jbd2 in turn. They are in different cgroups, and "
        "after a request of one the I/O scheduler keeps the device idle for slice_idle (8 ms), "
        "waiting for another one of it, while the other's request waits."
    ),
    links=(
        "https://lkml.org/lkml/2015/11/19/359",
        "https://github.com/moby/moby/issues/21485",
    ),
)
SOLIDIGM = Published(
    citation='Wayne Gao, "Linux* Kernel File System Buffer IO Will Bound On Kworker" (Solidigm)',
    subject="buffered writes cost the flush kworker more on ext4 than on XFS",
    mechanism=(
        "One kworker at a time writes back what all writers of a file system have made dirty, so "
        "the CPU time that a MiB costs it limits the bandwidth."
    ),
)
