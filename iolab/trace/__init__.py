# SPDX-License-Identifier: MIT
"""trace.dat files of trace-cmd as typed columns.

Export is in `iolab.trace.export.parquet` and `iolab.trace.export.perfetto`.
"""

from iolab.trace.cursor import TraceError
from iolab.trace.decode import read
from iolab.trace.trace import MissingEventError, Trace, TraceInfo
from iolab.trace.windows import windows

__all__ = ["MissingEventError", "Trace", "TraceError", "TraceInfo", "read", "windows"]
