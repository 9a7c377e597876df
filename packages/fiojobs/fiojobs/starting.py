# SPDX-License-Identifier: MIT
"""What fio or the kernel refuses when a job starts, but not when fio parses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fiojobs.options import direction, engine_of, files_of
from iolab_agent.fio_values import bytes_of

_TRIMS: Final = ("trim", "randtrim", "trimwrite", "randtrimwrite")
# Engines that trim files, or nothing.
_ANYWHERE: Final = ("falloc", "null", "exec", "cpuio")
# As the agent makes them.
_KEEPERS: Final = ("null_blk", "scsi_debug")


def fault_at_start(options: Mapping[str, str], file_bytes: int, device: str) -> str:
    """Return why a section would fail at once, as the end of a sentence; "" if it would not.

    `device` is the kind of the device that it uses itself, "" for files.
    """
    texts = options.get("bs", "").split(",")
    least = min((bytes_of(text) for text in texts if text), default=0)
    of_file = bytes_of(options.get("filesize", "").partition("-")[0])
    size = of_file or (bytes_of(options.get("size", "")) or file_bytes) // files_of(options)
    if least > size:
        return (
            f"has blocks of {least >> 10} KiB (bs), and {size >> 10} KiB to read or write of a "
            "file (size): give smaller blocks, fewer files, or a larger size where there is room"
        )
    order = direction(options)
    if order in _TRIMS and engine_of(options) not in _ANYWHERE:
        if not device:
            return f"has rw={order}, and fio trims no files: give filename=/dev/NAME"
        if device in _KEEPERS:
            return f"has rw={order}, which this {device} cannot do: set the device to zram or loop"
    return ""
