# SPDX-License-Identifier: MIT
"""Decompress chunks and sections of a trace.dat, which may be damaged.

trace-cmd compresses with zstd or zlib; see trace-cmd.dat.v7(5).
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from tracedat._file import TraceError

__all__ = ["Plain", "decompress", "decompress_frames"]

# Decompressed bytes.
Plain = bytes | memoryview

# A zstd context is expensive to create and must not be shared between threads.
_local = threading.local()


def decompress(
    path: Path, algorithm: str, data: bytes, size: int, *, offset: int, subject: str
) -> bytes:
    """Decompress `data` and check its size.

    Parameters
    ----------
    path : Path
        The file, for messages.
    algorithm : str
        ``"zstd"`` or ``"zlib"``.
    data : bytes
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


def decompress_frames(
    data: bytes, places: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> Sequence[Plain] | None:
    """Decompress zstd frames in one call, so that threads do not wait for the GIL at each frame.

    Parameters
    ----------
    data : bytes
        Holds the frames.
    places : sequence of (int, int)
        Offset in `data` and bytes of each frame.
    sizes : sequence of int
        Bytes of each frame's contents.

    Returns
    -------
    sequence of memoryview or None
        The contents; None if a frame is damaged: `decompress` says how. Bytes between a frame's
        end and that of its place are ignored.
    """
    try:
        frames = zstandard.BufferWithSegments(data, np.array(places, np.uint64).tobytes())
        found: Any = _context().multi_decompress_to_buffer(
            frames, decompressed_sizes=np.array(sizes, np.uint64).tobytes(), threads=1
        )
    except (zstandard.ZstdError, ValueError, MemoryError):
        return None
    return [memoryview(contents) for contents in found]


def _zstd(data: bytes, size: int) -> bytes | None:
    # zstandard allocates the size that the frame declares: check it first. -1 means undeclared.
    if zstandard.frame_content_size(data) not in {-1, size}:
        return None
    return _context().decompress(data, max_output_size=size, allow_extra_data=False)


def _context() -> zstandard.ZstdDecompressor:
    """Return this thread's context."""
    context: zstandard.ZstdDecompressor | None = getattr(_local, "context", None)
    if context is None:
        context = _local.context = zstandard.ZstdDecompressor()
    return context


def _zlib(data: bytes, size: int) -> bytes | None:
    unpacker = zlib.decompressobj()
    plain = unpacker.decompress(data, size + 1)
    return plain if unpacker.eof else None
