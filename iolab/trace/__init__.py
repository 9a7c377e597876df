# SPDX-License-Identifier: MIT
"""trace.dat files of trace-cmd as typed columns.

Export is in `iolab.trace.export.parquet` and `iolab.trace.export.perfetto`.
"""

from iolab.trace.cursor import TooLargeError, TraceError
from iolab.trace.decode import check_size, read
from iolab.trace.trace import MissingEventError, Trace, TraceInfo
from iolab.trace.windows import windows

__all__ = [
    "MissingEventError",
    "TooLargeError",
    "Trace",
    "TraceError",
    "TraceInfo",
    "check_size",
    "read",
    "windows",
]
