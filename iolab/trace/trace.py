# SPDX-License-Identifier: MIT
"""A decoded trace: one frame an event type, what was lost, what the file says about itself."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from iolab.errors import UserError
from iolab.trace.cursor import TraceError
from iolab.trace.formats import EventFormat

__all__ = ["EventColumns", "Loss", "MissingEventError", "Trace", "TraceInfo"]


class Loss(NamedTuple):
    """Events that were lost; the fields are the columns of `Trace.losses`."""

    buffer: str
    cpu: int
    timestamp_ns: int | None
    number: int | None
    source: str


class MissingEventError(TraceError):
    """An analysis needs an event type that the trace was not recorded with, or not read with."""


@dataclass(frozen=True)
class EventColumns:
    """One event type's columns: integers, or codes of the categories that `tables` names."""

    format: EventFormat
    arrays: Mapping[str, NDArray[Any]]
    tables: Mapping[str, str]

    @property
    def rows(self) -> int:
        """How many events there are."""
        return int(self.arrays["timestamp_ns"].size)


@dataclass(frozen=True)
class TraceInfo:
    """What the file says about itself.

    ``counters`` are the kernel's own (entries, overrun, …) by buffer and CPU; ``options`` has the
    recording trace-cmd's version and the machine's uname.
    """

    version: int
    compression: str
    cpus: int
    clock: str
    buffers: tuple[str, ...]
    options: Mapping[str, str]
    counters: Mapping[tuple[str, int], Mapping[str, float]]


class Trace:
    """A trace.dat's events in memory, in order of time; made by `iolab.trace.read`.

    Attributes
    ----------
    path
        The file.
    info
        What the file says about itself.
    comms
        Task name by pid, as saved at the end of the recording: the last name of a reused pid.
    between
        The (start, end) that was read; None for everything.
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
        losses: Sequence[Loss],
        between: tuple[int, int] | None,
    ) -> None:
        self.path = path
        self.info = info
        self.comms = dict(comms)
        self.between = between
        self._columns = dict(columns)
        self._categories = dict(categories)
        self._dtypes: dict[str, pd.CategoricalDtype] = {}
        self._formats = dict(formats)
        self._losses = tuple(losses)
        self._frames: dict[str, pd.DataFrame] = {}

    @property
    def events(self) -> dict[str, int]:
        """Number of events by name, of all types that were read; some may be 0."""
        return {name: columns.rows for name, columns in self._columns.items()}

    @cached_property
    def losses(self) -> pd.DataFrame:
        """What was lost: a frame with one row a gap or counter; empty for a whole trace.

        ``buffer``, ``cpu``, ``timestamp_ns`` (the first event after the gap; NA for a sum of the
        whole recording), ``count`` (NA where the kernel did not say) and ``source``: ``page``, or
        the kernel counter that tells of it. Counters and pages tell of the same losses: never add
        them up.
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
        """All event types the file describes, read or not."""
        return dict(self._formats)

    @property
    def span(self) -> tuple[int, int]:
        """Time of the first and of the last event that was read, in ns.

        Errors: TraceError if there is none.
        """
        times = [c.arrays["timestamp_ns"] for c in self._columns.values() if c.rows]
        if not times:
            raise TraceError(self.path, "no event was read")
        return min(int(t[0]) for t in times), max(int(t[-1]) for t in times)

    def frame(self, event: str) -> pd.DataFrame:
        """Return one event type's frame; it shares its memory with the trace.

        The columns are ``timestamp_ns`` (int64), ``common_cpu``, the record's other ``common_*``
        fields (``common_pid``, ``common_flags``, …), then the event's own fields with the types
        of the kernel. Texts and byte strings are categoricals, short integer arrays one column an
        element (``args[0]``). Rows are in order of time. The columns are read-only.

        Errors: UserError for an event that is not in the file (with the nearest names) or was not
        read.
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
        """Return one integer column, or the codes of a categorical one, as it is in memory.

        Errors: UserError for an event or a column that is not there.
        """
        columns = self._columns[self._key(event)]
        if column not in columns.arrays:
            names = ", ".join(columns.arrays)
            raise UserError(f"{event} has no column {column!r}; it has {names}")
        return columns.arrays[column]

    def require(self, analysis: str, *events: str) -> None:
        """Check that the trace was recorded and read with the events an analysis needs.

        Errors: MissingEventError naming the analysis and what is missing; UserError if one of the
        events was recorded in several buffers, which would count it twice.
        """
        missing = [event for event in events if event not in self._columns]
        if missing:
            names = ", ".join(missing)
            unread = [event for event in missing if event in self._formats]
            why = "was not read" if len(unread) == len(missing) else "is not in this trace"
            what = f"{analysis} needs {', '.join(events)}; {names} {why}"
            raise MissingEventError(self.path, what)
        for event in events:
            buffers = self._columns[event].arrays.get("common_buffer")
            if buffers is not None and np.unique(buffers).size > 1:
                what = f"{analysis}: {event} is in several buffers; read(..., buffer=...) one"
                raise UserError(what)

    def _dtype(self, table: str) -> pd.CategoricalDtype:
        """Return the one dtype of all columns that share a table, so that they compare."""
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
            raise UserError(f"{event} was not read from {self.path}: name it in events=")
        near = difflib.get_close_matches(event, self._formats, n=5)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise UserError(f"{self.path} has no event {event!r}{hint}")
