"""Copy this file to NAME.py, and answer each line from the report: docs/how-to/report.md."""

import iolab

template = iolab.question(
    name="template",
    title="In one line: what is slow, and against what",
    # The job as it was posted, and the one thing that differs.
    fio="rw=randwrite bs=4k iodepth=16 ioengine=libaio direct=1",
    treatment={"cpu.weight": 1000},
    # Fixed before measuring: half-way to the published number (a ratio: its square root).
    claims="iops ratio < 0.76",
    published=iolab.Published(
        citation="Author, subject, list or tracker",
        date="2026-01-31",
        links=("https://example.org/the/report",),
        numbers=("the sentence with the number, word for word",),
        subject="what happens, as the subject of a mail",
        happens="What happens, in one sentence with the kernel's own nouns.",
        cause="the commit or feature, and its version; empty if nobody knows",
    ),
)
# A control shows that this machine would see the effect, or where it ends.
control = iolab.question(
    name="template_control",
    title="In one line: what the control changes",
    fio="rw=randwrite bs=4k iodepth=16 ioengine=libaio",
    treatment={"cpu.weight": 1000},
    claims="iops ratio > 0.9",
)
