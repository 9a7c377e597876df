# SPDX-License-Identifier: MIT
"""Hide the host from a QEMU that counts instructions: its time of day, and how fast it is."""

from __future__ import annotations

from pathlib import Path

from icountvm.compiler import build_library
from icountvm.qemu import QemuMachine

_SOURCES = Path(__file__).with_name("host_time")
HOST_TIME = _SOURCES / "host_time.c"
_TURNS = _SOURCES / "turns.c"


def build_preload(machine: QemuMachine) -> Path | None:
    """Return a library to preload into a machine's QEMU; None on the host's clock.

    The time of day advances only with QEMU's calls. The threads of a QEMU with several processors,
    which it cannot record, take turns.
    """
    if machine.accelerator != "icount":
        return None
    main = _TURNS if machine.cpus > 1 else HOST_TIME
    return build_library(_SOURCES, main.name, "a library for QEMU")
