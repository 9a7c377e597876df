# SPDX-License-Identifier: MIT
"""Stock Linux kernels in virtual machines on counted instructions: the same bytes on every host.

The names below are loaded when they are first used, so that ``import icountvm`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from icountvm.cpio import Entry as Entry
    from icountvm.guest import Guest as Guest
    from icountvm.guest import Work as Work
    from icountvm.guest import prepare as prepare
    from icountvm.kernels import Kernel as Kernel
    from icountvm.kernels import add_kernel as add_kernel
    from icountvm.kernels import get_kernel as get_kernel
    from icountvm.kernels import list_kernels as list_kernels
    from icountvm.qemu import GuestError as GuestError
    from icountvm.qemu import Machine as Machine

# Where each name is.
_PLACES = {
    **dict.fromkeys(("Guest", "Work", "prepare"), "guest"),
    **dict.fromkeys(("GuestError", "Machine"), "qemu"),
    **dict.fromkeys(("Kernel", "add_kernel", "get_kernel", "list_kernels"), "kernels"),
    "Entry": "cpio",
}

__all__ = [*sorted(_PLACES)]  # noqa: PLE0604 - the names are strings

# A type checker would take any name for one of this module's.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module 'icountvm' has no attribute {name!r}")
        return getattr(importlib.import_module(f"icountvm.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
