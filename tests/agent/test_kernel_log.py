# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from iolab_agent.kernel_log import KernelLog

# A program's line (facility 1), an error with a key, a notice, a warning.
_RECORDS = (
    b"12,1,5,-;a program warns\n",
    b"3,2,6,-;I/O error, dev nullb0\n SUBSYSTEM=block\n",
    b"5,3,7,-;a notice\n",
    b"4,4,8,-;workqueue: hogged\n",
)


def test_warnings_of_the_kernel_are_counted(tmp_path: Path) -> None:
    # A read of /dev/kmsg returns one record; so does one of a pipe of packets (pipe(2)).
    log = KernelLog(tmp_path / "none")
    assert log.warnings() == {}
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_DIRECT)
    log._handle = reader
    with closing(log):
        for record in _RECORDS:
            os.write(writer, record)
        assert log.warnings() == {"warnings": 2, "first": "I/O error, dev nullb0"}
        assert log.warnings() == {"warnings": 0}
    os.close(writer)
