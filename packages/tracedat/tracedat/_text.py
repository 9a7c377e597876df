# SPDX-License-Identifier: MIT
"""Read a trace that somebody printed: the text of ``trace-cmd report``, or of tracefs's ``trace``.

A line is ``TASK-PID [CPU] FLAGS SECONDS: EVENT: FIELDS``. The fields are as the kernel prints them
(``print fmt`` of the event's format), as trace-cmd's plugins do (``plugin_sched_switch.c`` of
libtraceevent), or raw (``trace-cmd report -R``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tracedat._container import MAGIC
from tracedat._errors import RequestError, TraceError, nearest
from tracedat._file import TraceFile
from tracedat._formats import INTEGER, TEXT, Column, EventFormat
from tracedat._memory import MemoryRoom
from tracedat._trace import EventColumns, Loss, Symbols, Trace, TraceInfo

# Of the start of a file: a binary one has a zero there.
_HEAD: Final = 4096
_LONGEST: Final = 1024
# What a byte of text takes as values of Python: 18 in a report, 32 if all is short names.
_TIMES: Final = 40
_MOST_CPUS: Final = 1 << 15
_MOST_NS: Final = 1 << 62
_TABLE: Final = "text"

_PLACE: Final = re.compile(
    r"\[(?P<cpu>\d{1,5})\]\s{1,8}(?:(?P<flags>\S{4,8})\s{1,8})?(?P<s>\d{1,10})\.(?P<part>\d{3,9}):\s"
)
# After a buffer's name the task has a column of 16; `tmux: server` is a task.
_BUFFER: Final = re.compile(r"\s*(?P<buffer>[^\s:]{1,256}):\s(?=.{16,}-\d+$)")
# What `trace-cmd report` adds with --ts-diff and -w.
_DIFFERENCE: Final = re.compile(r"\(\+\d{1,20}\)\s+", re.ASCII)
_LATENCY: Final = re.compile(r" Latency: [\d.]{1,24} usecs$", re.ASCII)
_THREAD_GROUP: Final = re.compile(r"\s\(\s*[-\d]{1,10}\)$")
_EVENT: Final = re.compile(r"[A-Za-z_]\w{0,99}")
_LOST: Final = re.compile(
    r"CPU:\s?(\d{1,5}) \[(?:LOST )?(?:(\d{1,18}) )?EVENTS(?: DROPPED)?\]", re.ASCII
)
_CPUS: Final = re.compile(r"cpus=(\d{1,5})")
_ABOUT: Final = re.compile(r"version = \d{1,3}|CPU \d{1,5} is empty")
# A pointer may be printed as a hash, without 0x.
_NUMBER: Final = re.compile(r"-?\d{1,20}|0x[0-9a-f]{1,16}", re.ASCII)
_HASHED: Final = re.compile(r"[0-9a-f]{8,16}")
_DEVICE: Final = re.compile(r"(\d{1,4}),(\d{1,7})", re.ASCII)
# A task's name, up to its pid, may hold anything.
_PAIR: Final = re.compile(
    r"(?:^|(?<=[\s{]))([A-Za-z_]\w{0,99})=(?:(?<=comm=).*?(?=\s\w{0,6}pid=\d))?"
)

_ISSUED: Final = (
    r"(?P<dev>\d+,\d+) (?P<rwbs>\w+) (?P<bytes>\d+) \((?P<cmd>[^)]*)\) "
    r"(?P<sector>\d+) \+ (?P<nr_sector>\d+) (?:[\w-]+,\d+,\d+ )?\[(?P<comm>.*)\]"
)
_COMPLETED: Final = (
    r"(?P<dev>\d+,\d+) (?P<rwbs>\w+) \((?P<cmd>[^)]*)\) "
    r"(?P<sector>\d+) \+ (?P<nr_sector>\d+) (?:[\w-]+,\d+,\d+ )?\[(?P<error>-?\d+)\]"
)
_BIO: Final = (
    r"(?P<dev>\d+,\d+) (?P<rwbs>\w+) (?P<sector>\d+) \+ (?P<nr_sector>\d+) \[(?P<comm>.*)\]"
)
_WOKEN: Final = (
    r"(?P<comm>.*):(?P<pid>\d+) \[(?P<prio>-?\d+)\](?: success=\d)? CPU:(?P<target_cpu>\d+)"
)
_WORK: Final = r"work struct (?P<work>\w+)(?:: function (?P<function>\S+))?"
# The fields of events that are not printed as NAME=VALUE alone. The kernel's are those of
# include/trace/events/{block,workqueue}.h.
_SENTENCES: Final = {
    **dict.fromkeys(("block_rq_issue", "block_rq_insert", "block_rq_merge"), _ISSUED),
    **dict.fromkeys(("block_io_start", "block_io_done"), _ISSUED),
    **dict.fromkeys(("block_rq_complete", "block_rq_requeue", "block_rq_error"), _COMPLETED),
    **dict.fromkeys(("block_bio_queue", "block_getrq", "block_bio_backmerge"), _BIO),
    **dict.fromkeys(("sched_wakeup", "sched_wakeup_new", "sched_waking"), _WOKEN),
    "sched_switch": (
        r"(?P<prev_comm>.*):(?P<prev_pid>\d+) \[(?P<prev_prio>-?\d+)\] (?P<prev_state>\S+) ==> "
        r"(?P<next_comm>.*):(?P<next_pid>\d+) \[(?P<next_prio>-?\d+)\]"
    ),
    **dict.fromkeys(("workqueue_execute_start", "workqueue_execute_end"), _WORK),
    "workqueue_activate_work": _WORK,
    "workqueue_queue_work": (
        r"work struct=(?P<work>\w+) function=(?P<function>\S+) workqueue=(?P<workqueue>\S*) "
        r"req_cpu=(?P<req_cpu>\d+) cpu=(?P<cpu>-?\d+)"
    ),
}
_KNOWN: Final = {name: re.compile(f"{text}\\s*") for name, text in _SENTENCES.items()}
# States of a task as the kernel prints them, and as trace-cmd's plugin does: without preemption.
_STATES: Final = {"R": 0, "S": 1, "D": 2, "T": 4, "t": 8, "X": 16, "Z": 32, "P": 64, "I": 128}
# trace-cmd's newer plugins print P and I.
_PLUGIN_STATES: Final = {"R": 0, "S": 1, "D": 2, "T": 4, "t": 8, "Z": 16, "X": 32}
_PLUGIN_STATES.update({"x": 64, "P": 64, "W": 128, "I": 128})
_PREEMPTED: Final = 256
_STATE_FORMAT: Final = (
    ", ".join(f'{{ {bit:#x}, "{letter}" }}' for letter, bit in _STATES.items() if bit)
    + f' : "R", REC->prev_state & ({_PREEMPTED}) ? "+" : ""'
)
# The third flag that tracefs's `trace` prints (trace_print_lat_fmt of kernel/trace/trace_output.c),
# as ``common_flags`` (TRACE_FLAG_HARDIRQ, SOFTIRQ and NMI of include/linux/trace_events.h).
_CONTEXTS: Final = {"h": 0x08, "s": 0x10, "H": 0x18, "z": 0x40, "Z": 0x48}
# Numbers that are printed without 0x, in hexadecimal; and those that may be names of functions.
_HEXADECIMAL: Final = {"work"}
_FUNCTIONS: Final = {"function"}


def is_text(file: TraceFile) -> bool:
    """Return whether a file may be a printed trace: text without a zero at its start."""
    head = file.read(0, min(_HEAD, file.size))
    return bool(head.strip()) and b"\0" not in head and not head.startswith(MAGIC)


class _Lines:
    """The lines of a printed trace, sorted by event."""

    def __init__(self, file: TraceFile, buffer: str | None, room: MemoryRoom) -> None:
        room.take(_TIMES * file.size)
        self.path = file.path
        self.buffers: dict[str, None] = {}
        self._buffer = buffer
        # By event: the place, CPU, pid, flags and fields of each line.
        self.events: dict[str, list[tuple[int, int, int, int, Mapping[str, str]]]] = {}
        self.comms: dict[int, str] = {}
        self.losses: list[Loss] = []
        self.times: list[int] = []
        self.cpus = self.unread = 0
        self.unit_ns = 1
        for line in file.read(0, file.size).decode("utf-8-sig", "backslashreplace").split("\n"):
            if not line.strip() or line.startswith("#"):
                continue
            self.unread += not (len(line) <= _LONGEST and (self._take(line) or self._note(line)))
        if buffer is not None and self.buffers and buffer not in self.buffers:
            problem = f"has no buffer {buffer!r}; it has {list(self.buffers)}"
            raise RequestError(self.path, problem)
        if not self.times:
            problem = (
                "is neither a trace.dat nor the text of trace-cmd report, whose lines are as "
                "'fio-800 [000] 69.558499: sched_switch: ...': print it without -l and --raw-ts"
            )
            raise TraceError(self.path, problem)
        if len(self.buffers) > 1 and buffer is None:
            problem = f"is a text of several buffers: read one of {list(self.buffers)} with buffer="
            raise RequestError(self.path, problem)

    def _take(self, line: str) -> bool:
        """Take an event, and return whether the line was one."""
        place = _PLACE.search(line)
        if place is None:
            return False
        front = _THREAD_GROUP.sub("", line[: place.start()].strip("> \t")).rstrip()
        of_buffer = _BUFFER.match(front)
        buffer = of_buffer["buffer"] if of_buffer else ""
        comm, dash, pid = front[of_buffer.end() if of_buffer else 0 :].rpartition("-")
        event = _LATENCY.sub("", _DIFFERENCE.sub("", line[place.end() :].strip(), 1))
        name, _, rest = event.partition(":")
        cpu = int(place["cpu"])
        time = int(place["s"]) * 10**9 + int(place["part"].ljust(9, "0"))
        if not (
            dash and pid.isdecimal() and len(pid) < 10 and cpu < _MOST_CPUS and time < _MOST_NS
        ):
            return False
        fields = _fields(name, rest.strip()) if _EVENT.fullmatch(name) else None
        if fields is None:
            return False
        self.buffers[buffer] = None
        if self._buffer not in (None, buffer):
            return True
        taken = self.events.setdefault(name, [])
        if taken and taken[0][4].keys() != fields.keys():
            return False
        # A patched kernel for real time prints seven: one more before the context.
        printed = place["flags"] or ""
        flags = _CONTEXTS.get(printed[3 if len(printed) == 7 else 2 :][:1], 0)
        taken.append((len(self.times), cpu, int(pid), flags, fields))
        self.times.append(time)
        self.unit_ns = max(self.unit_ns, 10 ** (9 - len(place["part"])))
        self.comms[int(pid)] = comm.strip()
        self.cpus = max(self.cpus, cpu + 1)
        return True

    def _note(self, line: str) -> bool:
        """Take what a line says of the recording, and return whether it says anything."""
        if lost := _LOST.search(line):
            number = None if lost[2] is None else int(lost[2])
            self.losses.append(Loss("", int(lost[1]), None, number, "page"))
        elif cpus := _CPUS.fullmatch(line.strip()):
            self.cpus = max(self.cpus, min(int(cpus[1]), _MOST_CPUS))
        else:
            return _ABOUT.fullmatch(line.strip()) is not None
        return True

    def timestamps(self) -> NDArray[np.int64]:
        """Return the time of each line; within a tick of a coarse time, a ns apart in their order.

        Else it would be open which of two events in a microsecond came first.
        """
        times = np.array(self.times, np.int64)
        begins = np.flatnonzero(np.diff(times, prepend=times[0] - 1))
        place = np.arange(times.size) - np.repeat(begins, np.diff(begins, append=times.size))
        return times + np.minimum(place, self.unit_ns - 1)


def _fields(event: str, text: str) -> Mapping[str, str] | None:
    """Return an event's fields as they are printed; None if they cannot be determined."""
    known = _KNOWN.get(event)
    found = known.fullmatch(text) if known else None
    if found is not None:
        fields = {name: value for name, value in found.groupdict().items() if value is not None}
        return _with_state(event, fields, _PLUGIN_STATES)
    pairs = list(_PAIR.finditer(text))
    if known is not None and not pairs:
        return None
    ends = [*(pair.start() for pair in pairs), len(text)][1:]
    printed = [text[pair.end(1) + 1 : end].strip() for pair, end in zip(pairs, ends, strict=True)]
    fields = {
        pair[1]: value.removesuffix("==>").removesuffix("[ns]").strip()
        for pair, value in zip(pairs, printed, strict=True)
    }
    return _with_state(event, fields, _STATES)


def _with_state(
    event: str, fields: dict[str, str], letters: Mapping[str, int]
) -> Mapping[str, str] | None:
    """Return fields with the task's state as in the kernel's record; None if it is unknown."""
    text = fields.get("prev_state", "")
    if event != "sched_switch" or not text or _integer(text) is not None:
        return fields
    states = [letters.get(letter) for letter in text.removesuffix("+").split("|")]
    known = [state for state in states if state is not None]
    if len(known) < len(states):
        return None
    return {**fields, "prev_state": str(sum(known) | _PREEMPTED * text.endswith("+"))}


def _integer(text: str) -> int | None:
    """Return a printed number; None if it is none."""
    known = _NUMBER.fullmatch(text)
    return int(text, 16 if text.startswith("0x") else 10) if known else None


class _Values:
    """Texts and functions of all columns, as codes and as addresses."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.addresses: dict[str, int] = {}

    def column(self, name: str, texts: Sequence[str]) -> tuple[NDArray[Any], bool]:
        """Return a column, and whether it is of codes: where not all are numbers of 64 bits."""
        numbers = [self._number(name, text) for text in texts]
        known = [number for number in numbers if number is not None]
        for kind in (np.int64, np.uint64):
            of_kind = np.iinfo(kind)
            if len(known) == len(texts) and of_kind.min <= min(known) <= max(known) <= of_kind.max:
                return np.array(known, kind), False
        codes = [self.codes.setdefault(text, len(self.codes)) for text in texts]
        return np.array(codes, np.int32), True

    def _number(self, name: str, text: str) -> int | None:
        """Return a value as a number; None if it is none. A task may have a number for a name."""
        if name.endswith("comm"):
            return None
        if device := _DEVICE.fullmatch(text) if name == "dev" else None:
            # MKDEV of include/linux/kdev_t.h.
            return int(device[1]) << 20 | int(device[2])
        if name in _HEXADECIMAL and _HASHED.fullmatch(text):
            return int(text, 16)
        number = _integer(text)
        if number is None and name in _FUNCTIONS:
            function = text.partition("+")[0]
            return self.addresses.setdefault(function, (len(self.addresses) + 1) << 12)
        return number

    def kallsyms(self) -> bytes:
        """Return the functions as /proc/kallsyms would list them."""
        rows = (f"{address:016x} t {name}\n" for name, address in self.addresses.items())
        return "".join(rows).encode()


def read_text(
    file: TraceFile,
    events: Sequence[str] | None,
    between: tuple[int, int] | None,
    *,
    buffer: str | None,
    most: int | None,
) -> Trace:
    """Read a printed trace into columns, as `tracedat.read` does."""
    lines = _Lines(file, buffer, MemoryRoom(file.path, most))
    for name in events or ():
        if name.rpartition(":")[2] not in lines.events:
            problem = f"has no event {name!r}{nearest(name, lines.events)}"
            raise RequestError(file.path, problem)
    wanted = {name.rpartition(":")[2] for name in events or lines.events}
    times, values = lines.timestamps(), _Values()
    columns = dict(_columns(lines, wanted, times, values, between))
    info = TraceInfo(
        version=0,
        compression="text",
        cpus=lines.cpus,
        clock="unknown",
        buffers=tuple(lines.buffers),
        options={"unread": str(lines.unread)} if lines.unread else {},
        counters={},
    )
    formats = {
        name: columns[name].format if name in columns else _format(name, taken[0][4], {})
        for name, taken in lines.events.items()
    }
    return Trace(
        file.path,
        info=info,
        columns=columns,
        categories={_TABLE: list(values.codes)},
        formats=formats,
        comms=lines.comms,
        symbols=Symbols(values.kallsyms),
        losses=lines.losses,
        between=between,
    )


def _columns(
    lines: _Lines,
    wanted: set[str],
    times: NDArray[np.int64],
    values: _Values,
    between: tuple[int, int] | None,
) -> Iterator[tuple[str, EventColumns]]:
    """Yield the columns of each wanted event."""
    for name, taken in lines.events.items():
        if name not in wanted:
            continue
        at, cpus, pids, flags, fields = zip(*taken, strict=True)
        arrays: dict[str, NDArray[Any]] = {
            "timestamp_ns": times[list(at)],
            "common_cpu": np.array(cpus, np.int16),
            "common_flags": np.array(flags, np.uint8),
            "common_pid": np.array(pids, np.int32),
        }
        tables = {}
        for key in fields[0]:
            arrays[key], coded = values.column(key, [each[key] for each in fields])
            if coded:
                tables[key] = _TABLE
        order = np.argsort(arrays["timestamp_ns"], kind="stable")
        if between is not None:
            sorted_times = arrays["timestamp_ns"][order]
            order = order[(sorted_times >= between[0]) & (sorted_times < between[1])]
        arrays = {key: array[order] for key, array in arrays.items()}
        yield name, EventColumns(_format(name, fields[0], tables), arrays, tables)


def _format(name: str, fields: Mapping[str, str], tables: Mapping[str, str]) -> EventFormat:
    """Return what a printed event says of its format."""
    described = tuple(
        Column(key, TEXT if key in tables else INTEGER, 0, 8, signed=True)
        for key in ("common_flags", "common_pid", *fields)
    )
    print_format = _STATE_FORMAT if name == "sched_switch" else ""
    return EventFormat("", name, 0, described, 0, print_format)
