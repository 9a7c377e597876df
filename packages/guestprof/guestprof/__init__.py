# SPDX-License-Identifier: MIT
"""Every instruction and call of a virtual machine, counted from outside.

The names below are loaded when they are first used, so that ``import guestprof`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from guestprof.calls import write_calls as write_calls
    from guestprof.flames import differential_flame as differential_flame
    from guestprof.flames import flame as flame
    from guestprof.observation import Observation as Observation
    from guestprof.observation import ready_observer as ready_observer
    from guestprof.profile import Profile as Profile
    from guestprof.profile_export import write_collapsed as write_collapsed
    from guestprof.profile_export import write_pprof as write_pprof
    from guestprof.profile_file import read_profile as read_profile
    from guestprof.schedule import switches as switches

# Where each name is.
_PLACES = {
    **dict.fromkeys(("Observation", "ready_observer"), "observation"),
    **dict.fromkeys(("differential_flame", "flame"), "flames"),
    **dict.fromkeys(("write_collapsed", "write_pprof"), "profile_export"),
    "Profile": "profile",
    "read_profile": "profile_file",
    "switches": "schedule",
    "write_calls": "calls",
}

__all__ = [*sorted(_PLACES)]  # noqa: PLE0604 - the names are strings

# A type checker would take any name for one of this module's.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module 'guestprof' has no attribute {name!r}")
        return getattr(importlib.import_module(f"guestprof.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
