# SPDX-License-Identifier: MIT
"""The host's end of the shared memory that carries a guest's plan and its results.

The guest sees a file of the host as the memory of a PCI device (ivshmem; docs/specs of QEMU). It
reads the plan there before its first cell and writes the results there after its last one: see
`icountvm.guest_init`.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from iolab_base.errors import IolabError
from iolab_base.reading import part
from iolab_base.tars import TarError, unpack

# A power of two, as a PCI bar must be; the file is sparse.
CHANNEL_BYTES = 256 << 20
_MAGIC = b"IOLABRES"
_PLAN_MAGIC = b"IOLABJOB"
_HEADER = struct.Struct("<8sQI")


class ChannelError(IolabError):
    """The guest left no results, or damaged ones."""


class _Payload:
    """The next bytes of a file, and nothing behind them."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._left = stream, size

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, self._left) if size >= 0 else self._left)
        self._left -= len(data)
        return data


def make_channel(path: Path) -> None:
    """Create the file behind the shared memory and reserve its space on the disk.

    On a full disk a later write of the guest would kill its QEMU (SIGBUS).
    """
    try:
        with path.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, CHANNEL_BYTES)
    except OSError as error:
        raise ChannelError(f"no room for a guest's results: {path}: {error.strerror}") from error


def put_plan(path: Path, plan: bytes) -> None:
    """Write a plan where the guest reads it."""
    with path.open("r+b") as stream:
        header = _HEADER.pack(_PLAN_MAGIC, len(plan), zlib.crc32(plan))
        stream.write(header + plan)


def unpack_channel(path: Path, most: Mapping[str, int], into: Path) -> None:
    """Unpack the guest's results; `most` maps each allowed file to its most bytes."""
    with path.open("rb") as stream:
        # A truncated file is padded with zeros: it lacks the magic bytes.
        magic, length, checksum = _HEADER.unpack(
            stream.read(_HEADER.size).ljust(_HEADER.size, b"\0")
        )
        if magic != _MAGIC:
            raise ChannelError("the guest left no results")
        if length > CHANNEL_BYTES - _HEADER.size:
            raise ChannelError("the guest's results are damaged: impossible length")
        found = 0
        for data in part(stream, length):
            found = zlib.crc32(data, found)
        if found != checksum:
            raise ChannelError("the guest's results are damaged: wrong checksum")
        stream.seek(_HEADER.size)
        try:
            # No flush: the store flushes the files that it copies.
            unpack(_Payload(stream, length), most, into)
        except TarError as error:
            raise ChannelError(f"the guest's results are damaged: {error}") from error
        except OSError as error:
            raise ChannelError(f"cannot unpack a guest's results: {error.strerror}") from error
