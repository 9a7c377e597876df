# SPDX-License-Identifier: MIT
"""trace.dat files of trace-cmd as typed columns.

The names below are loaded when they are first used, so that ``import tracedat`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from tracedat._decode import check_size as check_size
    from tracedat._decode import read as read
    from tracedat._decode import windows as windows
    from tracedat._errors import MissingEventError as MissingEventError
    from tracedat._errors import RequestError as RequestError
    from tracedat._errors import TooLargeError as TooLargeError
    from tracedat._errors import TraceError as TraceError
    from tracedat._export import perfetto_bytes as perfetto_bytes
    from tracedat._export import write_parquet as write_parquet
    from tracedat._export import write_perfetto as write_perfetto
    from tracedat._memory import free_bytes as free_bytes
    from tracedat._trace import Trace as Trace

# Where each name is.
_PLACES = {
    **dict.fromkeys(("check_size", "read", "windows"), "_decode"),
    **dict.fromkeys(("perfetto_bytes", "write_parquet", "write_perfetto"), "_export"),
    **dict.fromkeys(
        ("MissingEventError", "RequestError", "TooLargeError", "TraceError"), "_errors"
    ),
    "Trace": "_trace",
    "free_bytes": "_memory",
}

__all__ = [*sorted(_PLACES)]  # noqa: PLE0604 - the names are strings

# A type checker would take any name for one of this module's.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module 'tracedat' has no attribute {name!r}")
        return getattr(importlib.import_module(f"tracedat.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
