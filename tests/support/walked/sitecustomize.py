# SPDX-License-Identifier: MIT
"""Note the modules that are handed a request, or what became of it: WALK names a folder.

A Python imports this at its start if the folder of this file is on PYTHONPATH. At its end it writes
the modules in the order in which it came to them.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from types import FrameType

# What a user asks for, in the forms in which it is handed on.
_CARRIED = frozenset(("Request", "PathologyPlan", "Block", "Plan", "Measured", "Outcome", "Page"))
# Names of modules; a dictionary keeps the order.
_rooms: dict[str, None] = {}


def _is_carried(value: object) -> bool:
    if isinstance(value, Mapping | list | tuple):
        values = value.values() if isinstance(value, Mapping) else value
        return any(map(_is_carried, islice(values, 1)))
    kind = type(value)
    return kind.__name__ in _CARRIED and kind.__module__.startswith("iolab")


def _note(frame: FrameType, event: str, _: object) -> None:
    spec = frame.f_globals.get("__spec__")
    module = "" if spec is None else spec.name
    if event == "call" and module.startswith("iolab") and module not in _rooms:
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        # A generator that goes on, and a dataclass that is made, are no calls of somebody.
        if not code.co_filename.startswith("<") and any(
            _is_carried(frame.f_locals.get(name)) for name in names
        ):
            _rooms[module] = None


def _write() -> None:
    sys.setprofile(None)
    if _rooms:
        Path(os.environ["WALK"], f"{os.getpid()}.json").write_text(json.dumps(list(_rooms)))


if "WALK" in os.environ:
    atexit.register(_write)
    sys.setprofile(_note)
