# SPDX-License-Identifier: MIT
"""Reserve memory that is written once from end to end, in huge pages where the kernel has them."""

from __future__ import annotations

import mmap
from contextlib import suppress

__all__ = ["reserve"]


def reserve(size: int) -> mmap.mmap:
    """Return private memory of `size` bytes, all zero; a page is resident when it is written.

    Faults of small pages cost as much as the copying into them.

    Raises
    ------
    OSError, OverflowError
        If the address space has no room.
    """
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # A kernel without transparent huge pages refuses (madvise_behavior_valid in mm/madvise.c).
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
