# SPDX-License-Identifier: MIT
"""What would fail when a job starts, and what would not."""

from __future__ import annotations

import pytest

from fiojobs.starting import fault_at_start


@pytest.mark.parametrize(
    ("options", "device", "fault"),
    [
        ({"bs": "1g"}, "", "1048576 KiB (bs), and 65536 KiB"),
        ({"bs": "1m,1g"}, "", ""),
        ({"bs": "8m", "size": "4m"}, "null_blk", "8192 KiB"),
        (
            {"bs": "64k", "filesize": "24576", "nrfiles": "9"},
            "",
            "24 KiB to read or write of a file",
        ),
        ({"bs": "64k", "nrfiles": "2000"}, "", "32 KiB to read or write of a file"),
        ({"bs": "64k", "filesize": "64k-1m", "nrfiles": "9"}, "", ""),
        ({"rw": "randtrim"}, "", "no files"),
        ({"rw": "trimwrite:8"}, "", "no files"),
        ({"rw": "trim"}, "null_blk", "this null_blk"),
        ({"rw": "trim"}, "scsi_debug", "this scsi_debug"),
        ({"rw": "trim"}, "zram", ""),
        ({"rw": "randtrim", "ioengine": "falloc"}, "", ""),
        ({"rw": "randtrim", "ioengine": "null"}, "null_blk", ""),
        ({"rw": "write"}, "null_blk", ""),
    ],
)
def test_what_fails_at_once_is_the_end_of_a_sentence(
    options: dict[str, str], device: str, fault: str
) -> None:
    found = fault_at_start(options, 64 << 20, device)
    assert fault in found
    assert bool(found) is bool(fault)
