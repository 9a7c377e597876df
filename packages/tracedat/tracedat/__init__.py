# SPDX-License-Identifier: MIT
"""trace.dat files of trace-cmd as typed columns.

The names below are loaded when they are first used, so that ``import tracedat`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tracedat._errors import MissingEventError, RequestError, TooLargeError, TraceError

if TYPE_CHECKING:
    from typing import Any

    from tracedat._decode import check_size, read, windows
    from tracedat._export import perfetto_bytes, write_parquet, write_perfetto
    from tracedat._memory import free_bytes
    from tracedat._trace import Trace

__all__ = [
    "MissingEventError",
    "RequestError",
    "TooLargeError",
    "Trace",
    "TraceError",
    "check_size",
    "free_bytes",
    "perfetto_bytes",
    "read",
    "windows",
    "write_parquet",
    "write_perfetto",
]

# Where each name is that takes a second to import.
_PLACES = {
    "Trace": "_trace",
    "check_size": "_decode",
    "free_bytes": "_memory",
    "perfetto_bytes": "_export",
    "read": "_decode",
    "windows": "_decode",
    "write_parquet": "_export",
    "write_perfetto": "_export",
}

# A type checker would take any name for one of this module's.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module 'tracedat' has no attribute {name!r}")
        return getattr(importlib.import_module(f"tracedat.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
