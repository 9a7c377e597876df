"""A neighbour that is throttled while it holds the journal stops everybody."""

import iolab


def beside(quota: str) -> dict[str, object]:
    """Return the arguments of a question with a neighbour under a quota."""
    neighbour = iolab.antagonist(
        fio="rw=write bs=4k fsync=8 ioengine=psync",
        group={"cpu.max": quota},
        start_ms=0,
        size_mib=16,
    )
    times = {"ramp_ms": 300, "runtime_ms": 900}
    job = "rw=write bs=4k fsync=1 ioengine=psync"
    place = {"filesystem": "ext4", "cpus": 2, "treatment": {"antagonist": True}}
    return {"fio": job, "antagonist": neighbour, **place, **times}


report = iolab.question(
    name="throttled_lock_holder",
    title="A throttled neighbour holds a lock of the file system",
    claims="latency_max_ns treated > 20_000_000",
    published=iolab.Published(
        citation="Valentin Schneider, sched/fair: Defer CFS throttle to user entry",
        date="2024-07-11",
        links=("https://lore.kernel.org/lkml/20240711130004.2157737-1-vschneid@redhat.com/",),
        numbers=("CFS tasks can end up throttled while holding locks that other tasks block on",),
        subject="a throttled task holds a lock",
        happens="A task that has used up its quota in the kernel waits there, locks included.",
        cause="CFS bandwidth control until the task based throttle model (v6.18)",
    ),
    **beside("5000 50000"),
)
free = iolab.question(
    name="throttled_lock_holder_free",
    title="a neighbour without a limit delays nobody that long",
    claims="latency_max_ns treated < 20_000_000",
    **beside("max 50000"),
)
