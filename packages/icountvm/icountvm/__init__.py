# SPDX-License-Identifier: MIT
"""Stock Linux kernels in virtual machines on counted instructions: the same bytes on every host.

The names below are loaded when they are first used, so that ``import icountvm`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from icountvm.cpio import CpioEntry
    from icountvm.guest import Guest, GuestWork, prepare
    from icountvm.kernels import Kernel, add_kernel, get_kernel, list_kernels
    from icountvm.qemu import GuestError, QemuMachine

__all__ = [
    "CpioEntry",
    "Guest",
    "GuestError",
    "GuestWork",
    "Kernel",
    "QemuMachine",
    "add_kernel",
    "get_kernel",
    "list_kernels",
    "prepare",
]

_PLACES = {
    "CpioEntry": "cpio",
    "Guest": "guest",
    "GuestError": "qemu",
    "Kernel": "kernels",
    "QemuMachine": "qemu",
    "GuestWork": "guest",
    "add_kernel": "kernels",
    "get_kernel": "kernels",
    "list_kernels": "kernels",
    "prepare": "guest",
}

# A type checker would take any name for one of this module's.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module 'icountvm' has no attribute {name!r}")
        return getattr(importlib.import_module(f"icountvm.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
