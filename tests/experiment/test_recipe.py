# SPDX-License-Identifier: MIT
"""What the cells of a question have in common: what is counted, and what their machine holds."""

from __future__ import annotations

from typing import Any

import pytest

import iolab
from iolab_agent.plan import Device, FileSystem
from iolab_base.errors import IolabError, UserError
from tests.experiment.test_question import HOG, JOB, cells


def test_functions_and_tracepoints_are_counted() -> None:
    names = ["dget_parent", "block:block_rq_issue"]
    claim = "block_block_rq_issue_per_io ratio < 0.9"
    asked = iolab.question(fio=JOB, treatment={"cpu.weight": 1000}, count=names, claims=claim)
    assert cells(asked).count == names
    ends: Any = [
        {"at_ns": n * 10**9, "ios": n * 100, "calls": dict.fromkeys(names, n * 300)} for n in (1, 2)
    ]
    result: Any = {"first": ends[0], "last": ends[1]}
    assert asked.from_counters(result) == {
        "dget_parent_per_io": 3,
        "block_block_rq_issue_per_io": 3,
    }
    of_program = iolab.question(program=HOG, treatment={"cpu.weight": 1000}, count=names[:1])
    assert of_program.from_counters(result) == {"dget_parent_per_s": 300}
    for wrong in ("dget_parent", ["a b"], ["sched:"], ["/etc:passwd"]):
        with pytest.raises(UserError, match="count"):
            iolab.question(fio=JOB, treatment={"cpu.weight": 1000}, count=wrong)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"fio": JOB, "treatment": {"iodepth": 2}, "settings": {"foo": 1}}, "setting 'foo'"),
        *(
            ({"fio": JOB, "treatment": {"iodepth": 2}, "device": Device("d", *ignored)}, noun)
            for noun, ignored in (
                ("queue_depth", ("scsi_debug", 512, True, 0, 0, 16)),
                ("irqmode=2", ("null_blk", 512, True, 0, 150_000)),
            )
        ),
        ({"fio": JOB, "treatment": {"iodepth": 2}, "device": Device("d", "brd", 64)}, "300 MiB"),
        ({"fio": JOB, "treatment": {"cpuset.cpus": "0-1"}}, "give cpus=2"),
        ({"fio": JOB, "treatment": {"numjobs": 64}}, "smaller size_mib"),
        (
            {"fio": JOB, "treatment": {"numjobs": 64}, "device": Device("d", "null_blk", 8192)},
            "memory_mib",
        ),
        (
            {"fio": JOB, "treatment": {"iodepth": 2}, "filesystem": FileSystem("xfs", "other")},
            "other",
        ),
        ({"fio": JOB, "treatment": {"iodepth": 2}, "cpus": 0}, "cpus must be 1-64"),
        ({"fio": JOB, "treatment": {"cpus": 999}}, "cpus must be 1-64"),
        ({"fio": JOB, "treatment": {"size": "4g"}}, "ends at 4096 MiB"),
        ({"fio": JOB, "treatment": {"offset": "1g"}}, "ends at 1"),
        (
            {"fio": "rw=write blocksize=2m size=1m", "treatment": {"iodepth": 2}},
            "blocks of 2048 KiB",
        ),
        ({"fio": "rw=write bs=4k", "size_mib": 1, "treatment": {"bs": "2m"}}, "and 1024 KiB"),
        ({"fio": "rw=trim", "treatment": {"iodepth": 2}}, "fio trims no files"),
        ({"fio": "rw=trim filename=/dev/sda", "treatment": {"iodepth": 2}}, "zram"),
        (
            {
                "fio": "rw=write bs=2m size=1m",
                "filesystem": "tmpfs",
                "treatment": {"cpu.weight": 1000},
            },
            "blocks of 2048 KiB",
        ),
    ],
)
def test_what_the_machine_cannot_have_is_one_sentence(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(IolabError, match=says) as caught:
        iolab.question(**asked)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("job", "fits"),
    [
        ("rw=read bs=1m iodepth=64 numjobs=4 size=1g", True),
        ("rw=read bs=1m iodepth=64 numjobs=8 size=1g", False),
        # Nothing is laid out on a device itself, whose processes share it.
        ("rw=read bs=4k numjobs=64 size=1g filename=/dev/sda", True),
        # A scsi_debug disk takes its memory at once.
        ("rw=read bs=1m iodepth=160 filename=/dev/sda direct=1", True),
        ("rw=read bssplit=512/50:1m/50 iodepth=160 filename=/dev/sda direct=1", False),
        ("rw=read size=8m lockmem=64m numjobs=2", True),
        ("rw=read size=8m lockmem=512m numjobs=2", False),
    ],
)
def test_a_job_whose_io_the_machine_cannot_hold_is_refused(job: str, fits: bool) -> None:
    def ask(**more: Any) -> None:
        iolab.question(fio=job, treatment={"cpu.weight": 1000}, **more)

    if fits:
        ask()
        return
    with pytest.raises(UserError, match=r"memory_mib=1024"):
        ask()
    ask(memory_mib=4096)
