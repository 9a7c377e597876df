# SPDX-License-Identifier: MIT
"""Keep the host's time of day from a QEMU that counts instructions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from iolab.vm.compiler import build_library

__all__ = ["HOST_TIME", "build_host_time"]

_SOURCES = Path(__file__).with_name("host_time")
HOST_TIME = _SOURCES / "host_time.c"


def build_host_time(progress: Callable[[str], None] = lambda _: None) -> Path:
    """Return a library to preload into QEMU, with a time of day that only QEMU's calls move.

    It is built if the cache lacks it; errors are those of `iolab.vm.compiler.build_library`.

    Parameters
    ----------
    progress : callable
        Gets a line before each slow step.
    """
    return build_library(_SOURCES, HOST_TIME.name, "QEMU's time of day", progress=progress)
