"""io_uring was to complete direct overwrites in the submitting task. It did for one -rc."""

import iolab

report = iolab.question(
    name="uring_caller_completion",
    title="io_uring completes direct writes without a kworker",
    fio="bs=4096 rw=randwrite norandommap buffered=0 ioengine=libaio iodepth=16",
    size_mib=16,
    treatment={"ioengine": "io_uring"},
    # Published: 615K against 845K at depth 16.
    claims=["iops ratio > 1.17", "kworker_cpu ratio < 0.1"],
    published=iolab.Published(
        citation="Jens Axboe, iomap: support IOCB_DIO_CALLER_COMP",
        date="2023-07-11",
        links=("https://git.kernel.org/linus/8c052fb3002e",),
        numbers=("QD1 155K 162K + 4.5%", "QD4 533K 597K +12.0%", "QD16 615K 845K +37.4%"),
        subject="direct writes are completed by a kworker",
        happens="A kworker completes each direct write; io_uring could do it in the task.",
        cause=(
            "8c052fb3002e came in v6.6-rc1 and was turned off before v6.6: a task that waits for "
            "its own direct I/O would deadlock (48d0ea0b-af74-4a2e-9961-0286466050a9@kernel.dk)"
        ),
    ),
)
reads = iolab.question(
    name="uring_caller_completion_reads",
    title="reads need no kworker with either engine",
    fio="bs=4096 rw=randread norandommap buffered=0 ioengine=libaio iodepth=16",
    size_mib=16,
    treatment={"ioengine": "io_uring"},
    claims="kworker_cpu treated < 0.01",
)
