"""dm-verity checks each read in a workqueue, though its hashes are in memory."""

import iolab
from iolab_agent.plan import Device

TABLE = "0 131072 verity 1 {disk} {hash} 4096 4096 16384 0 sha256 {root} -"
DISK = Device("disk", "null_blk", 64, irqmode=2, completion_ns=10_000)
HASH = Device("hash", "null_blk", 64, irqmode=2, completion_ns=10_000)
report = iolab.question(
    name="dm_verity_workqueue",
    title="dm-verity is faster where the read completes",
    fio="rw=randread bs=4k iodepth=1 ioengine=psync direct=1",
    size_mib=16,
    device=[DISK, HASH, Device("verity", "dm", 64, table=TABLE)],
    filesystem=None,
    treatment={"table": f"{TABLE} 1 try_verify_in_tasklet"},
    # Published: 23.6 against 181 MiB/s.
    claims=["iops ratio > 2.77", "switches_per_io difference < -1"],
    published=iolab.Published(
        citation='Nathan Huckleberry, dm verity: Add optional "try_verify_in_tasklet" feature',
        date="2022-07-22",
        links=("https://git.kernel.org/linus/5721d4e5a9cd",),
        numbers=("READ: bw=181MiB/s (tasklet)", "READ: bw=23.6MiB/s (work-queue)"),
        subject="dm-verity waits for a kworker at each read",
        happens="dm-verity queues each read to a kworker, and the reader waits until that has run.",
        cause="5721d4e5a9cd (v6.0) verifies in a tasklet if the hashes are cached",
    ),
)
