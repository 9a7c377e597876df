# SPDX-License-Identifier: MIT
"""Published reports behind the pathologies, in the words for a mail about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    happens : str
        What happens, in the kernel's own nouns: the sentence that a mail begins with.
    links : tuple of str
        Addresses and commits that the report names; nothing else.
    measures : tuple of str
        Columns and measures that show the mechanism, in the order of a mail's table.
    stack : str
        Where it happens, as the report's own stack shows it.
    claim : str
        The default claim of a mail; "" chooses among the reproduced ones.
    treated : mapping of str to str
        Levels of the treatment in words for readers who do not know the pathology.
    """

    citation: str
    subject: str
    happens: str
    links: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    stack: str = ""
    claim: str = ""
    treated: Mapping[str, str] = field(default_factory=dict)


# The available copy of the mail has neither subject nor date.
FSDEVEL_DIO = Published(
    citation=(
        'Stephan, mail to fsdevel: "we are running into disk/iops perf issues because the dio '
        'kernel worker thread is being cpu starved" (Linux 6.1, XFS)'
    ),
    subject="fio and its direct I/O kworker ping-pong",
    happens=(
        "A task in a cgroup of high cpu.weight preempts the kworker that completes its direct "
        "writes, one completion after the other: each wakes the task, which finds too few "
        "completions to go on and sleeps again."
    ),
    links=("commit 71eb6b6b0ba9 (fs/aio: obey min_nr when doing wakeups)",),
    measures=(
        "switches_per_io",
        "wakeups_per_io",
        "preemptions_per_io",
        "slept_again",
        "stay_median_ns",
        "path_worker_wait_ns",
    ),
    stack="preempt_schedule_common < __cond_resched < process_one_work < worker_thread",
)
BLOCK_AIO = Published(
    citation='Ming Lei, "single aio thread is migrated crazily by scheduler", Thu Nov 14 2019',
    subject="a single AIO thread is migrated",
    happens=(
        "A single AIO thread is moved from CPU to CPU. Its direct writes complete in a kworker "
        "that is queued on the CPU that submits."
    ),
    measures=(
        "migrations_per_s",
        "by_wake_up_placement",
        "by_active_balance",
        "by_periodic_balance",
        "by_newly_idle_balance",
    ),
    treated={"free": "the thread free to move"},
)
FSNOTIFY = Published(
    citation='Pierre, "FYI, fsnotify contention with aio and io_uring." (Linux 6.3.9)',
    subject="fsnotify takes a parent reference per read",
    happens=(
        "__fsnotify_parent() takes and drops a reference of the parent dentry for each read while "
        "somebody watches the directory; jobs on many CPUs then write one cache line."
    ),
    measures=("dget_parent_per_io", "__fsnotify_parent_per_io"),
    stack="lockref_get_not_zero < dget_parent < __fsnotify_parent < io_read",
    treated={"directory": "an inotify watch on /dev (close_write)"},
)
BLOCK_CFQ = Published(
    citation=(
        'Srivatsa S. Bhat, "CFQ idling kills I/O performance on ext4 with blkio cgroup '
        'controller", Fri May 17 2019'
    ),
    subject="BFQ idles between the cgroups of dd and jbd2",
    happens=(
        "BFQ keeps the device idle for slice_idle after each request of dd or of jbd2 if these are "
        "in different cgroups, while the other's request waits: a synchronous write on ext4 needs "
        "both in turn."
    ),
    links=(
        "https://lkml.org/lkml/2015/11/19/359",
        "https://github.com/moby/moby/issues/21485",
    ),
    measures=(
        *("gaps_per_write", "gaps_per_100_ios", "gap_median_ms", "gap_share"),
        *("gaps_jbd2_waits", "gaps_dd_waits"),
    ),
    treated={"bfq-throughput": "bfq, low_latency=0", "bfq": "bfq"},
)
SOLIDIGM = Published(
    citation='Wayne Gao, "Linux* Kernel File System Buffer IO Will Bound On Kworker" (Solidigm)',
    subject="buffered writes cost the flush kworker more on ext4 than on XFS",
    happens=(
        "One kworker at a time writes back what all writers of a file system have made dirty, and "
        "a MiB costs it much more CPU time on ext4 than on XFS."
    ),
    measures=(
        "worker_us_per_mib",
        "worker_busy",
        "device_mib_per_s",
        "flush_workers_at_once",
        "pages_per_folio",
    ),
    claim="ext4's worker pays more for a MiB",
    treated={"ext4": "ext4"},
)
