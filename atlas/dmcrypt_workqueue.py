"""dm-crypt hands each request to a workqueue, which costs more than the cipher."""

import iolab
from iolab_agent.plan import Device

KEY = "5a" * 32
TABLE = f"0 1048576 crypt aes-xts-plain64 {KEY} 0 {{disk}} 0"
DISK = Device("disk", "null_blk", 512, irqmode=2, completion_ns=10_000)
report = iolab.question(
    name="dmcrypt_workqueue",
    title="dm-crypt is faster without its workqueues",
    fio="rw=read bs=4k iodepth=1 ioengine=psync direct=1",
    device=[DISK, Device("crypt", "dm", 512, table=TABLE)],
    filesystem=None,
    treatment={"table": f"{TABLE} 2 no_read_workqueue no_write_workqueue"},
    # Published: "at least two times faster".
    claims=["iops ratio > 1.414", "switches_per_io difference < -1"],
    published=iolab.Published(
        citation="Ignat Korchagin, dm crypt: add flags to optionally bypass kcryptd workqueues",
        date="2020-06-26",
        links=(
            "https://git.kernel.org/linus/39d42fa96ba1",
            "https://blog.cloudflare.com/speeding-up-linux-disk-encryption/",
        ),
        numbers=("we made it at least two times faster",),
        subject="dm-crypt is slow because of its workqueues",
        happens="dm-crypt queues each request to kcryptd, so each I/O waits for a kworker to run.",
        cause="kcryptd; 39d42fa96ba1 (v5.9) added no_read_workqueue and no_write_workqueue",
    ),
)
depth = iolab.question(
    name="dmcrypt_deep_writes",
    title="writes at depth 32: one core encrypts either way",
    fio="rw=write bs=4k iodepth=32 ioengine=libaio direct=1",
    device=[DISK, Device("crypt", "dm", 512, table=TABLE)],
    filesystem=None,
    treatment={"table": f"{TABLE} 2 no_read_workqueue no_write_workqueue"},
    claims="iops ratio < 1.414",
)
