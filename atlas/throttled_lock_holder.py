"""A neighbour that is throttled while it has a handle of the journal stops everybody."""

from functools import partial

import iolab

neighbour = partial(iolab.antagonist, group={"cpu.max": "max 100000"}, start_ms=0, size_mib=16)
question = partial(
    iolab.question,
    fio="rw=write bs=4k sync=1 ioengine=psync",
    size_mib=16,
    filesystem="ext4",
    cpus=2,
    treatment={"antagonist.cpu.max": "20000 100000"},
    ramp_ms=1000,
    runtime_ms=1200,
)
report = question(
    name="throttled_lock_holder",
    title="A throttled neighbour holds a lock of the file system",
    antagonist=neighbour(fio="rw=randwrite bs=16k ioengine=falloc"),
    # No number is published. A free neighbour's turn takes less, the wait for a quota 80 ms.
    claims=["latency_max_ns treated > 63_000_000", "antagonist_throttled_s treated > 0.2"],
    published=iolab.Published(
        citation="Valentin Schneider, sched/fair: Defer CFS throttle to user entry",
        date="2024-07-11",
        links=("https://lore.kernel.org/lkml/20240711130004.2157737-1-vschneid@redhat.com/",),
        numbers=("throttled while holding locks that other, non-throttled tasks are blocking on",),
        subject="a throttled task holds a lock",
        happens="A task that has used up its quota in the kernel waits there, locks included.",
        cause="CFS bandwidth control until the task based throttle model (v6.18)",
    ),
)
reader = question(
    name="throttled_reader",
    title="throttled as much, a neighbour that only reads stops nobody",
    antagonist=neighbour(fio="rw=randread bs=16k ioengine=psync"),
    claims=["latency_max_ns treated < 63_000_000", "antagonist_throttled_s treated > 0.2"],
)
