# SPDX-License-Identifier: MIT
"""Hide the host's time of day from a QEMU that counts instructions."""

from __future__ import annotations

from pathlib import Path

from icountvm.compiler import build_library

_SOURCES = Path(__file__).with_name("host_time")
HOST_TIME = _SOURCES / "host_time.c"


def build_host_time() -> Path:
    """Return a library to preload into QEMU, whose time of day advances only with QEMU's calls."""
    return build_library(_SOURCES, HOST_TIME.name, "QEMU's time of day")
