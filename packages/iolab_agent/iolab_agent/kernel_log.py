# SPDX-License-Identifier: MIT
"""The kernel's own log while a cell is measured: how many warnings, and the first of them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

_KMSG = Path("/dev/kmsg")
# LOG_WARNING of include/linux/kern_levels.h; a lower number is worse.
_WARNING = 4
_RECORD_BYTES = 8192
_LONGEST = 300


class KernelLog:
    """What the kernel logs from now on; without /dev/kmsg nothing is known."""

    def __init__(self, path: Path = _KMSG) -> None:
        self._handle = -1
        with suppress(OSError):
            self._handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._handle, 0, os.SEEK_END)

    def warnings(self) -> dict[str, Any]:
        """Return ``warnings``, their number, and the ``first``; {} if the log cannot be read."""
        if self._handle < 0:
            return {}
        found: dict[str, Any] = {"warnings": 0}
        for record in self._records():
            # Documentation/ABI/testing/dev-kmsg: "PRIORITY,SEQUENCE,TIME,FLAGS;TEXT". A priority
            # above 7 has a facility: the line is a program's.
            head, _, text = record.partition(";")
            priority = head.partition(",")[0]
            if priority.isdigit() and int(priority) <= _WARNING:
                found["warnings"] += 1
                found.setdefault("first", text.partition("\n")[0][:_LONGEST])
        return found

    def _records(self) -> list[str]:
        records: list[str] = []
        while True:
            try:
                record = os.read(self._handle, _RECORD_BYTES)
            except BrokenPipeError:
                # The kernel has overwritten some; the next read begins with the oldest.
                continue
            except OSError:
                return records
            if not record:
                return records
            records.append(record.decode(errors="replace"))

    def close(self) -> None:
        """Close it."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
