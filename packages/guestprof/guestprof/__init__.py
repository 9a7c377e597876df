# SPDX-License-Identifier: MIT
"""Every instruction and call of a virtual machine, counted from outside.

The names below are loaded when they are first used, so that ``import guestprof`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from guestprof.calls import write_calls
    from guestprof.flames import differential_flame, flame
    from guestprof.observation import Observation, ready_observer
    from guestprof.profile import CostProfile
    from guestprof.profile_export import write_collapsed, write_pprof
    from guestprof.profile_file import read_profile
    from guestprof.schedule import switches

__all__ = [
    "CostProfile",
    "Observation",
    "differential_flame",
    "flame",
    "read_profile",
    "ready_observer",
    "switches",
    "write_calls",
    "write_collapsed",
    "write_pprof",
]

_PLACES = {
    "Observation": "observation",
    "CostProfile": "profile",
    "ready_observer": "observation",
    "read_profile": "profile_file",
    "flame": "flames",
    "differential_flame": "flames",
    "write_collapsed": "profile_export",
    "write_pprof": "profile_export",
    "write_calls": "calls",
    "switches": "schedule",
}

# A type checker would take any name for one of this module's.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module 'guestprof' has no attribute {name!r}")
        return getattr(importlib.import_module(f"guestprof.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
