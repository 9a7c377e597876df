# SPDX-License-Identifier: MIT
"""Hold an inotify watch, as a daemon may hold one on a device node or on its directory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iolab.agent.plan import Watch
from iolab_base.errors import CannotRunError

__all__ = ["watching"]

# include/uapi/linux/inotify.h
_EVENTS = {"attrib": 0x4, "close_write": 0x8, "delete": 0x200}
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def watching(watch: Watch | None, node: Path | None) -> Iterator[None]:
    """Hold a watch, if there is one, for the duration of a ``with`` block; a watch needs a `node`.

    Raises CannotRunError if this kernel has no inotify or refuses the watch.
    """
    if watch is None or node is None:
        yield
        return
    path = {"node": node, "directory": node.parent, "other": node.parent / "zero"}[watch.on]
    handle = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if handle < 0:
        raise CannotRunError(f"no inotify here: {os.strerror(ctypes.get_errno())}")
    try:
        if _libc.inotify_add_watch(handle, os.fsencode(path), _EVENTS[watch.event]) < 0:
            raise CannotRunError(f"cannot watch {path}: {os.strerror(ctypes.get_errno())}")
        yield
    finally:
        os.close(handle)
