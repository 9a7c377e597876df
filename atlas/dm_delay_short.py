"""dm-delay's timer wakes up to a tick late, which doubles the shortest delay."""

from functools import partial

import iolab
from iolab_agent.plan import Device

# The report's 1 ms is one tick of HZ=1000. Debian's kernels have HZ=250: one tick is 4 ms.
TABLE = "0 131072 delay {disk} 0 "
DISK = Device("disk", "null_blk", 64, memory_backed=False)
DEVICES = [DISK, Device("delay", "dm", 64, table=TABLE + "0")]
ASKED = partial(iolab.question, fio="rw=randwrite direct=1 bs=4k", size_mib=16, device=DEVICES)
report = ASKED(
    name="dm_delay_short",
    title="dm-delay takes twice the delay that it was asked for",
    filesystem=None,
    runtime_ms=400,
    treatment={"table": TABLE + "4"},
    # Published: 498 of 1000, so here 124.5 of 250.
    claims="iops treated < 176",
    published=iolab.Published(
        citation="Christian Loehle, dm: delay: use kthread instead of timers and wq",
        date="2023-10-20",
        links=("https://git.kernel.org/linus/70bbeb29fab0",),
        numbers=("Theoretical maximum: 1000 IOPS Previous: 498 IOPS Kthread: 1000 IOPS",),
        subject="dm-delay takes a tick longer than it was asked to",
        happens="A timer fires after the tick in which the delay ends, and then wakes a kworker.",
        cause="ended below 50 ms by 70bbeb29fab0 (v6.7); the delay is a tick, here 4 ms: 250 IOPS",
    ),
)
long = ASKED(
    name="dm_delay_long",
    title="a delay of 60 ms keeps the timer, and takes 64 ms",
    filesystem=None,
    treatment={"table": TABLE + "60"},
    claims="latency_mean_ns treated > 62_000_000",
)
