"""A neighbour that is throttled while it holds the journal stops everybody."""

import iolab

JOB = "rw=write bs=4k fsync=1 ioengine=psync"
NEIGHBOUR = iolab.antagonist(
    fio="rw=write bs=4k fsync=8 ioengine=psync",
    group={"cpu.max": "max 100000"},
    start_ms=0,
    size_mib=16,
)
report = iolab.question(
    name="throttled_lock_holder",
    title="A throttled neighbour holds a lock of the file system",
    fio=JOB,
    size_mib=16,
    filesystem="ext4",
    cpus=2,
    antagonist=NEIGHBOUR,
    treatment={"antagonist.cpu.max": "20000 100000"},
    ramp_ms=1500,
    runtime_ms=2500,
    # A throttled task waits for up to 80 ms here; no number is published.
    claims=["latency_max_ns treated > 20_000_000", "antagonist_throttled_s treated > 0.2"],
    published=iolab.Published(
        citation="Valentin Schneider, sched/fair: Defer CFS throttle to user entry",
        date="2024-07-11",
        links=("https://lore.kernel.org/lkml/20240711130004.2157737-1-vschneid@redhat.com/",),
        numbers=(
            "CFS tasks can end up throttled while holding locks that other, non-throttled tasks "
            "are blocking on",
        ),
        subject="a throttled task holds a lock",
        happens="A task that has used up its quota in the kernel waits there, locks included.",
        cause="CFS bandwidth control until the task based throttle model (v6.18)",
    ),
)
