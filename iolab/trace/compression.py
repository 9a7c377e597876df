# SPDX-License-Identifier: MIT
"""Decompress chunks and sections of a trace.dat, which may be damaged.

trace-cmd compresses with zstd or zlib; see trace-cmd.dat.v7(5).
"""

from __future__ import annotations

import threading
import zlib
from pathlib import Path

import zstandard

from iolab.trace.cursor import TraceError

__all__ = ["decompress"]

Buffer = bytes | memoryview

# A zstd context is expensive to create and must not be shared between threads.
_local = threading.local()


def decompress(
    path: Path, algorithm: str, data: Buffer, size: int, *, offset: int, subject: str
) -> bytes:
    """Decompress `data` and check its size.

    Parameters
    ----------
    path : Path
        The file, for messages.
    algorithm : str
        ``"zstd"`` or ``"zlib"``.
    data : bytes or memoryview
        The compressed bytes.
    size : int
        The number of bytes that `data` must decompress to.
    offset : int
        The position of `data` in the file, for messages.
    subject : str
        The name of `data` in messages.

    Returns
    -------
    bytes
        Exactly `size` bytes.

    Raises
    ------
    TraceError
        If `data` is damaged or does not decompress to `size` bytes; it names the offset.
    """
    try:
        plain = _zstd(data, size) if algorithm == "zstd" else _zlib(data, size)
    except (zstandard.ZstdError, zlib.error, MemoryError) as error:
        raise TraceError(path, f"{subject} is damaged: {algorithm} says {error}", offset) from error
    if plain is None or len(plain) != size:
        raise TraceError(path, f"{subject} is damaged: it does not hold {size} bytes", offset)
    return plain


def _zstd(data: Buffer, size: int) -> bytes | None:
    # zstandard allocates the size that the frame declares: check it first. -1 means undeclared.
    if zstandard.frame_content_size(data) not in {-1, size}:
        return None
    context: zstandard.ZstdDecompressor | None = getattr(_local, "context", None)
    if context is None:
        context = _local.context = zstandard.ZstdDecompressor()
    return context.decompress(data, max_output_size=size, allow_extra_data=False)


def _zlib(data: Buffer, size: int) -> bytes | None:
    unpacker = zlib.decompressobj()
    plain = unpacker.decompress(data, size + 1)
    return plain if unpacker.eof else None
