"""A reactor that polls never lets the kworker run that completes its direct writes."""

import iolab

JOB = "rw=randwrite bs=4k iodepth=1 direct=1 ioengine=libaio iodepth_batch_complete_min="
report = iolab.question(
    name="polling_starves_kworker",
    title="A polling reactor starves the completion kworker",
    fio=JOB + "0",
    size_mib=16,
    layout="unwritten",
    treatment={"wakeup_granularity_ns": 15_000_000},
    claims="iops ratio < 0.095",
    published=iolab.Published(
        citation="scylladb/seastar issue 2696: Horrible write IO performance on older kernels",
        date="2025-03-25",
        links=(
            "https://github.com/scylladb/seastar/issues/2696",
            "https://github.com/scylladb/seastar/pull/2715",
        ),
        numbers=("it's 91 iodepth=1 IOPS on a disk that normally does > 10,000 no problem",),
        subject="a polling reactor starves the direct I/O completion kworker",
        happens=(
            "A task that polls for completions stays on its core until the kworker that completes "
            "its writes may preempt it, which takes wakeup_granularity of vruntime."
        ),
        cause=(
            "wakeup_granularity 15 ms, as tuned sets it on RHEL 8; EEVDF (v6.6) has no such tunable"
        ),
    ),
)
control = iolab.question(
    name="polling_starves_asleep",
    title="a reactor that sleeps until a completion loses nothing",
    fio=JOB + "1",
    size_mib=16,
    layout="unwritten",
    treatment={"wakeup_granularity_ns": 15_000_000},
    claims="iops ratio > 0.9",
)
