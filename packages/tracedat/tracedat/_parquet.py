# SPDX-License-Identifier: MIT
"""Export a trace to a folder of Parquet files, one for each event type."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from iolab import foreign
from iolab.errors import IolabError, UserError
from iolab.files import scratch_dir
from tracedat._trace import Trace

__all__ = ["write_parquet"]

_EVENT = re.compile(r"[\w:.-]*\w", re.ASCII)


def write_parquet(trace: Trace, folder: Path) -> list[Path]:
    """Write ``<event>.parquet`` for every event type with rows, and ``losses.parquet``.

    The columns are those of `Trace.frame` and `Trace.losses`: strings are dictionaries, integers
    keep the kernel's types. Each file's schema metadata describes the trace under ``iolab``
    (JSON): file name, clock, buffers, versions of trace-cmd and of the kernel.

    Parameters
    ----------
    trace : Trace
        The trace.
    folder : Path
        A new or empty folder; it appears when all files are complete.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    UserError
        If it is no new or empty folder.
    IolabError
        If it cannot be written, or an event's name is no file name.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is no new or empty folder")
    about = json.dumps(
        {
            "source": trace.path.name,
            "clock": trace.info.clock,
            "buffers": list(trace.info.buffers),
            **trace.info.options,
        }
    )
    tables = {name: trace.frame(name) for name, count in trace.events.items() if count}
    # An event's name is what its format in the file says; it becomes the name of a file here.
    for name in tables:
        if not _EVENT.fullmatch(name):
            raise IolabError(f"no file can be named after the event {foreign.line(name, 80)!r}")
    files = {name: f"{name.replace(':', '.')}.parquet" for name in (*tables, "losses")}
    try:
        with scratch_dir(folder.parent) as work:
            whole = work / "whole"
            whole.mkdir()
            for name, file in files.items():
                frame = trace.losses if name == "losses" else tables[name]
                table = pa.Table.from_pandas(frame, preserve_index=False)
                described = {**(table.schema.metadata or {}), "iolab": about}
                table = table.replace_schema_metadata(described)
                pq.write_table(table, whole / file, compression="zstd")
            whole.replace(folder)
    except OSError as error:
        # pyarrow's own errors have a number, and words for programmers.
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise IolabError(f"cannot write {folder}: {reason}") from error
    return [folder / file for file in files.values()]
