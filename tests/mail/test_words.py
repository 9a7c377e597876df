# SPDX-License-Identifier: MIT
"""Words of a mail: numbers, values, work and devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iolab.pathology import get_pathology
from iolab.pathology.base import Claim
from iolab_agent.plan import Cell, Copies, Device, FileSystem, Job
from iolab_mail.words import (
    contrast_words,
    effects_words,
    measure_words,
    number_words,
    value_words,
    work_words,
)
from tests.mail.conftest import JOB


def _claim(name: str, pathology: str = "dio_kworker") -> Claim:
    return get_pathology(pathology).claim(name)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((1234.5678, "1235"), (-1234.5678, "-1235"), (99.96, "100.0"), (94.32, "94.3")),
        *((9.876, "9.88"), (0.71852, "0.719"), (0.04321, "0.0432"), (0.00432, "0.0043")),
        *((0.0005, "0.0005"), (0.00049, "0.000"), (-0.0001, "0.000"), (0.0, "0.000")),
    ],
)
def test_a_number_has_three_or_four_digits(value: float, words: str) -> None:
    assert number_words(value) == words


def test_values_have_units_and_measures_columns() -> None:
    job, copies = Cell([], None, job=JOB), Cell([], None, copies=Copies(512, 300, 1))
    assert (value_words("iops", job), value_words("iops", copies)) == ("IOPS", "writes/s")
    assert value_words("device_mib_per_s", job) == "MiB/s to the device"
    assert value_words("some_new_value", job) == "some new value"
    assert measure_words("stay_median_ns") != measure_words("stay_other_ns") == "stay other"
    assert measure_words("queued_per_io") == "queued per I/O"
    assert measure_words("path_ios_seen") == "path I/Os seen"
    assert contrast_words(_claim("IOPS lost")) == "ratio"
    assert contrast_words(_claim("two switches per I/O")) == "difference"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (JOB, "fio (libaio randwrite, direct, bs 4 KiB, iodepth 16)"),
        (replace(JOB, direct=False), "fio (libaio randwrite, buffered, bs 4 KiB, iodepth 16)"),
        (
            replace(JOB, block_size=1 << 20, numjobs=4),
            "fio (libaio randwrite, direct, bs 1 MiB, iodepth 16, numjobs 4)",
        ),
        (replace(JOB, block_size=1536), "fio (libaio randwrite, direct, bs 1536 B, iodepth 16)"),
    ],
)
def test_a_job_is_its_options(job: Job, words: str) -> None:
    assert work_words(Cell([], None, job=job), 1) == f"{words}, 1 CPU"


def test_copies_are_said_by_their_writes() -> None:
    one = Cell([], None, copies=Copies(512, 300, 1, dsync=True))
    assert work_words(one, 2) == "dd (300 writes of 512 B each, oflag=dsync), 2 CPUs"
    three = Copies(8192, 10, 3)
    said = work_words(Cell([], None, copies=three), 1)
    assert said == "3 dd one after another (10 writes of 8 KiB each), 1 CPU"


def test_the_last_device_is_where_the_work_is() -> None:
    timer = Device("a", "null_blk", 64, irqmode=2, completion_ns=10_500, rotational=True)
    inline = Device("b", "null_blk", 64, memory_backed=False)
    scsi = Device("c", "scsi_debug", 64, completion_ns=41_000)
    program = "a program"

    def said(*devices: Device, kind: str = "") -> str:
        filesystem = FileSystem(kind, devices[-1].name) if kind else None
        return work_words(Cell(list(devices), filesystem), 1)

    assert said(inline, timer) == (
        f"{program} on null_blk (rotational, completes by timer, 10.5 us), 1 CPU"
    )
    assert said(timer, inline, kind="xfs") == (
        f"{program} on XFS on null_blk (stores nothing, completes inline), 1 CPU"
    )
    assert said(scsi, kind="ext4") == f"{program} on ext4 on scsi_debug (ndelay=41000), 1 CPU"
    named = replace(scsi, kind="named", path="/dev/sdb")
    assert said(named) == f"{program} on a block device, 1 CPU"
    assert work_words(Cell([], FileSystem("tmpfs")), 1) == f"{program} on tmpfs, 1 CPU"


def test_effects_in_words() -> None:
    ratio, switches = _claim("IOPS lost"), _claim("two switches per I/O")
    assert effects_words(ratio, {"6.1": 0.719, "6.12": 0.819}, "IOPS") == (
        "28% fewer IOPS on 6.1, 18% fewer on 6.12"
    )
    assert effects_words(ratio, {"6.1": 16.9}, "us") == "16.9 times the us on 6.1"
    assert effects_words(ratio, {"6.1": 1.2}, "IOPS") == "20% more IOPS on 6.1"
    assert effects_words(ratio, {"6.1": 1.001}, "IOPS") == "no fewer IOPS on 6.1"
    assert effects_words(switches, {"6.1": 1.9927}, "switches") == "1.99 more switches on 6.1"
    assert effects_words(switches, {"6.1": -0.5}, "switches") == "0.500 fewer switches on 6.1"
    assert effects_words(switches, {"6.1": 0.0}, "switches") == "no more switches on 6.1"
