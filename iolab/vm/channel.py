# SPDX-License-Identifier: MIT
"""The host's end of the shared memory through which a guest gets its plan and hands over results.

The guest sees a file of the host as the memory of a PCI device (ivshmem; docs/specs of QEMU). It
reads the plan there before its first cell and writes there after its last one: see
`iolab.vm.guest_init`.
"""

from __future__ import annotations

import io
import os
import struct
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from iolab.errors import IolabError

__all__ = ["CHANNEL_BYTES", "ChannelError", "make_channel", "put_plan", "unpack_channel"]

# A power of two, as a PCI bar must be; the file is sparse.
CHANNEL_BYTES = 256 << 20
_MAGIC = b"IOLABRES"
_PLAN_MAGIC = b"IOLABJOB"
_HEADER = struct.Struct("<8sQI")


class ChannelError(IolabError):
    """The guest left no results, or damaged ones."""


def make_channel(path: Path) -> None:
    """Create the file behind the shared memory and reserve its room on the disk.

    If the disk were full later, a write of the guest would end its QEMU (SIGBUS).

    Raises
    ------
    ChannelError
        If the disk lacks the room.
    """
    try:
        with path.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, CHANNEL_BYTES)
    except OSError as error:
        raise ChannelError(f"no room for a guest's results: {path}: {error.strerror}") from error


def put_plan(path: Path, plan: bytes) -> None:
    """Put a plan where the guest reads it.

    Parameters
    ----------
    path : Path
        The file behind the shared memory.
    plan : bytes
        The plan, as the agent reads it.
    """
    with path.open("r+b") as stream:
        header = _HEADER.pack(_PLAN_MAGIC, len(plan), zlib.crc32(plan))
        stream.write(header + plan)


def unpack_channel(path: Path, into: Path) -> None:
    """Unpack the guest's results.

    Parameters
    ----------
    path : Path
        The file behind the shared memory.
    into : Path
        The folder for the results.

    Raises
    ------
    ChannelError
        If the guest left no results, or damaged ones; links, devices and members that would land
        outside the folder are refused.
    """
    with path.open("rb") as stream:
        # A truncated file is padded with zeros: it lacks the magic bytes.
        magic, length, checksum = _HEADER.unpack(
            stream.read(_HEADER.size).ljust(_HEADER.size, b"\0")
        )
        if magic != _MAGIC:
            raise ChannelError("the guest left no results")
        if length > CHANNEL_BYTES - _HEADER.size:
            raise ChannelError("the guest's results are damaged: impossible length")
        payload = stream.read(length)
    if zlib.crc32(payload) != checksum:
        raise ChannelError("the guest's results are damaged: wrong checksum")
    try:
        with tarfile.open(fileobj=io.BytesIO(payload), mode="r:") as archive:
            for member in archive:
                _extract(archive, member, into)
    except (tarfile.TarError, EOFError) as error:
        raise ChannelError(f"the guest's results are damaged: {error}") from error
    except OSError as error:
        raise ChannelError(f"cannot unpack a guest's results: {error.strerror}") from error


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, into: Path) -> None:
    # Not tarfile's extraction filters: Python 3.11 has them since 3.11.4 only.
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or not (member.isfile() or member.isdir()):
        raise ChannelError(f"the guest's results hold {member.name!r}, which is refused")
    if member.isdir():
        (into / name).mkdir(parents=True, exist_ok=True)
        return
    stream = archive.extractfile(member)
    if stream is not None:
        # The store flushes what it takes in.
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_bytes(stream.read())
