# SPDX-License-Identifier: MIT
"""A decoded trace: a frame for each event type, the losses, and the file's description."""

from __future__ import annotations

import bisect
import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracedat._errors import MissingEventError, RequestError, TraceError, nearest, printable
from tracedat._formats import EventFormat

# Absolute symbols (type A, see nm(1)) are not addresses: on x86-64 they are per-CPU offsets.
_SYMBOL = re.compile(rb"^([0-9a-f]{1,16}) [^aA] (\S+)", re.MULTILINE)
WAKES = ("sched_waking", "sched_wakeup", "sched_wakeup_new")
_REQUEST = ("dev", "sector", "nr_sector", "rwbs")
# The fields that analyses read; every kernel has them. A task's name and `rwbs` are texts.
FIELDS = {
    "sched_switch": (
        *("prev_comm", "prev_pid", "prev_prio", "prev_state"),
        *("next_comm", "next_pid", "next_prio"),
    ),
    **dict.fromkeys(WAKES, ("comm", "pid", "prio", "target_cpu")),
    "sched_migrate_task": ("comm", "pid", "orig_cpu", "dest_cpu"),
    **dict.fromkeys(("block_rq_insert", "block_rq_issue"), (*_REQUEST, "comm")),
    "block_rq_complete": _REQUEST,
    **dict.fromkeys(("workqueue_queue_work", "workqueue_execute_start"), ("work", "function")),
    "workqueue_execute_end": ("work",),
}
# The most characters of a name, and of a line, in a summary.
_NAME, _LINE = 64, 1000


class Symbols:
    """The kernel's functions by address."""

    def __init__(self, kallsyms: Callable[[], bytes]) -> None:
        self._kallsyms = kallsyms

    def name(self, address: int) -> str | None:
        """Return the function that holds an address; None for one outside of all symbols."""
        # The size of the last symbol is unknown. Of several symbols at one address, the first in
        # /proc/kallsyms names it, as in ``get_symbol_pos`` of kernel/kallsyms.c.
        addresses, names = self._symbols
        row = bisect.bisect_right(addresses, address) - 1
        if row < 0 or (row == len(addresses) - 1 and address != addresses[row]):
            return None
        return names[addresses[row]].decode(errors="backslashreplace")

    @cached_property
    def _symbols(self) -> tuple[list[int], dict[int, bytes]]:
        """All addresses in order, and the name of each."""
        names: dict[int, bytes] = {}
        for address, name in _SYMBOL.findall(self._kallsyms()):
            names.setdefault(int(address, 16), name)
        # A kernel that hides its addresses prints zeros (kptr_restrict in
        # Documentation/admin-guide/sysctl/kernel.rst).
        names.pop(0, None)
        return sorted(names), names


class Loss(NamedTuple):
    """Lost events; the fields are the columns of `Trace.losses`."""

    buffer: str
    cpu: int
    timestamp_ns: int | None
    number: int | None
    source: str


@dataclass(frozen=True)
class EventColumns:
    """The columns of one event type."""

    format: EventFormat
    # mapping of str to array[rows]: integers, or codes of categories, by column
    arrays: Mapping[str, NDArray[Any]]
    # The set of categories of each column that holds codes
    tables: Mapping[str, str]

    @property
    def rows(self) -> int:
        """Number of events."""
        return int(self.arrays["timestamp_ns"].size)


@dataclass(frozen=True)
class TraceInfo:
    """The file's description of the recording.

    Parameters
    ----------
    version : int
        The format's version, 6 or 7; 0 for a text.
    compression : str
        ``none``, ``zlib`` or ``zstd``; ``text`` for a text.
    cpus : int
        CPUs of the recorded machine.
    clock : str
        The trace clock, such as ``mono``.
    buffers : tuple of str
        The ring buffers; the top one is ``""``.
    options : mapping
        ``trace-cmd`` (its version) and ``uname`` of the recorded machine; of a text ``unread``,
        the number of lines that are not events.
    counters : mapping
        The kernel's counters (``entries``, ``overrun``, …) by buffer and CPU.
    """

    version: int
    compression: str
    cpus: int
    clock: str
    buffers: tuple[str, ...]
    options: Mapping[str, str]
    counters: Mapping[tuple[str, int], Mapping[str, float]]


class Trace:
    """The events of a trace.dat in memory, in order of time; made by `tracedat.read`.

    Attributes
    ----------
    path : Path
        The file.
    info : TraceInfo
        The file's description of the recording.
    comms : dict of int to str
        Task name by pid, saved when the recording ended: a reused pid has its last name.
    between : (int, int) or None
        The span that was read, in nanoseconds; None for the whole file.

    Examples
    --------
    >>> from tracedat import read
    >>> trace = read("small_v7_mono.dat")
    >>> switch = trace.frame("sched_switch")
    >>> switch["next_comm"].value_counts().head(3)
    next_comm
    fio            4211
    kworker/1:2    3062
    ksoftirqd/1    2952
    Name: count, dtype: int64
    """

    def __init__(
        self,
        path: Path,
        *,
        info: TraceInfo,
        columns: Mapping[str, EventColumns],
        categories: Mapping[str, Sequence[str] | Sequence[bytes]],
        formats: Mapping[str, EventFormat],
        comms: Mapping[int, str],
        symbols: Symbols,
        losses: Sequence[Loss],
        between: tuple[int, int] | None,
    ) -> None:
        self.path = path
        self.info = info
        self.comms = dict(comms)
        self.between = between
        self._symbols = symbols
        self._columns = dict(columns)
        self._categories = dict(categories)
        self._dtypes: dict[str, pd.CategoricalDtype] = {}
        self._formats = dict(formats)
        self._losses = tuple(losses)
        self._frames: dict[str, pd.DataFrame] = {}

    @property
    def events(self) -> dict[str, int]:
        """Number of events of each type that was read, by name; it may be 0."""
        return {name: columns.rows for name, columns in self._columns.items()}

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Lost events: one row for each gap and for each counter; empty for a complete trace.

        - ``buffer`` (str): ring buffer
        - ``cpu`` (int64): CPU
        - ``timestamp_ns`` (Int64, ns): first event after a gap; NA for a counter
        - ``count`` (Int64): lost events; NA if the kernel does not say
        - ``source`` (str): ``page`` for a gap, else the name of the kernel's counter

        Gaps and counters count the same losses: never add them up. Gaps are the missed-events
        flags of pages and undercount; counters are those of ``per_cpu/cpuN/stats`` in tracefs
        (Documentation/trace/ftrace.rst) over the whole recording.
        """
        frame = pd.DataFrame(
            self._losses, columns=["buffer", "cpu", "timestamp_ns", "count", "source"]
        )
        return frame.astype(
            {
                "buffer": "str",
                "cpu": "int64",
                "timestamp_ns": "Int64",
                "count": "Int64",
                "source": "str",
            }
        )

    @property
    def formats(self) -> dict[str, EventFormat]:
        """All event types of the file, read or not, by name."""
        return dict(self._formats)

    @property
    def span(self) -> tuple[int, int]:
        """Time of the first and of the last event that was read, in nanoseconds.

        Raises TraceError if no event was read.
        """
        times = [c.arrays["timestamp_ns"] for c in self._columns.values() if c.rows]
        if not times:
            raise TraceError(self.path, "no event was read")
        return min(int(t[0]) for t in times), max(int(t[-1]) for t in times)

    def __repr__(self) -> str:
        return f"<Trace {self.path.name}: {', '.join(self._about().values())}>"

    def _repr_html_(self) -> str:
        rows = {"file": printable(self.path.name, _LINE), **self._about()}
        most = sorted(self.events.items(), key=lambda pair: -pair[1])
        rows["most frequent"] = ", ".join(
            f"{printable(name, _NAME)} ({count:,})" for name, count in most[:5] if count
        )
        body = "".join(
            f'<tr><th style="text-align: left">{name}</th>'
            f'<td style="text-align: left">{html.escape(value)}</td></tr>'
            for name, value in rows.items()
        )
        return f'<table class="tex2jax_ignore mathjax_ignore">{body}</table>'

    def _about(self) -> dict[str, str]:
        """Return what a person asks first of a trace, as printable words."""
        counts = [count for count in self.events.values() if count]
        words = {"events": f"{sum(counts):,} events of {len(counts)} types"}
        if counts:
            first, last = self.span
            words["span"] = f"{(last - first) / 1e6:,.3f} ms"
        words["CPUs"] = f"{self.info.cpus} CPU{'s' * (self.info.cpus != 1)}"
        # As uname -a: the system, the host, the kernel's release, and so on.
        uname = self.info.options.get("uname", "").split()
        if len(uname) > 2:
            words["kernel"] = printable(f"{uname[0]} {uname[2]}", _LINE)
        if self._losses:
            words["losses"] = "events were lost"
        return words

    def frame(self, event: str) -> pd.DataFrame:
        """Return the events of one type, ``sched_switch`` or ``sched:sched_switch``.

        One row for each event, in order of time; read-only, it shares the trace's memory.

        - ``timestamp_ns`` (int64, ns): time
        - ``common_cpu`` (int16): CPU that recorded the event
        - ``common_buffer`` (category): ring buffer; only if several were read
        - ``common_pid``, ``common_flags``, …: the record's other common fields
        - the event's own fields with the kernel's types; a string is a category, a short
          integer array has a column for each element (``args[0]``)

        Raises RequestError if the file lacks the event (with the nearest name) or it was not read.
        """
        name = self._key(event)
        if name not in self._frames:
            columns = self._columns[name]
            data = {
                key: pd.Categorical.from_codes(
                    array,
                    dtype=self._dtype(columns.tables[key]),
                    validate=False,
                )
                if key in columns.tables
                else array
                for key, array in columns.arrays.items()
            }
            self._frames[name] = pd.DataFrame(data, copy=False)
        return self._frames[name]

    def array(self, event: str, column: str) -> NDArray[Any]:
        """Return one column of `frame` without a copy: integers, or the codes of categories.

        Raises RequestError if the event was not read or lacks the column.
        """
        columns = self._columns[self._key(event)]
        if column not in columns.arrays:
            names = ", ".join(columns.arrays)
            raise RequestError(self.path, f"{event} has no column {column!r}; it has {names}")
        return columns.arrays[column]

    def symbol(self, address: int) -> str:
        """Return the kernel function that holds an address, as ``trace-cmd report`` prints it.

        The address is one of code, such as the ``function`` of workqueue_execute_start; without a
        name it is returned in hexadecimal. Raises TraceError if the file's copy of /proc/kallsyms
        is damaged: `tracedat.read` does not look at it.
        """
        return self._symbols.name(address) or f"{address:#x}"

    def require(self, analysis: str, *events: str) -> None:
        """Check that the trace was recorded and read with the events that an analysis needs.

        `analysis` is its name in messages. Raises MissingEventError if an event is missing, and
        RequestError if an event lacks a field, as in lines that a mail has cut, or if several
        buffers hold the same event, which would count it twice.
        """
        missing = [event for event in events if event not in self._columns]
        if missing:
            names = ", ".join(missing)
            unread = [event for event in missing if event in self._formats]
            why = "was not read" if len(unread) == len(missing) else "is not in this trace"
            problem = f"{analysis} needs {', '.join(events)}; {names} {why}"
            raise MissingEventError(self.path, problem)
        for event in events:
            columns = self._columns[event]
            for name in FIELDS.get(event, ()):
                text = name.endswith("comm") or name == "rwbs"
                if name not in columns.arrays or (name in columns.tables) is not text:
                    kind = "text" if text else "number"
                    problem = f"{analysis} needs the {kind} {name} of each {event}, and finds none"
                    raise RequestError(self.path, problem)
            buffers = columns.arrays.get("common_buffer")
            if buffers is not None and np.unique(buffers).size > 1:
                problem = f"{analysis}: {event} is in several buffers; read one with buffer="
                raise RequestError(self.path, problem)

    def _dtype(self, table: str) -> pd.CategoricalDtype:
        """Return the dtype that all columns of a table share, so that they compare."""
        if table not in self._dtypes:
            values = self._categories[table]
            kind = "str" if all(isinstance(value, str) for value in values) else "object"
            self._dtypes[table] = pd.CategoricalDtype(pd.Index(list(values), dtype=kind))
        return self._dtypes[table]

    def _key(self, event: str) -> str:
        if event in self._columns:
            return event
        for key, columns in self._columns.items():
            if event == f"{columns.format.system}:{columns.format.name}":
                return key
        if event in self._formats:
            raise RequestError(self.path, f"{event} was not read: name it in events=")
        raise RequestError(self.path, f"has no event {event!r}{nearest(event, self._formats)}")
