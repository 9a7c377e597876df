# SPDX-License-Identifier: MIT
"""Read a trace.dat's sections and options, and locate each CPU's pages.

The format is that of trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5); the numbers of options are in
trace-cmd's lib/trace-cmd/include/private/trace-cmd-private.h. The pages themselves are read by
`tracedat._pages`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from tracedat._errors import TooLargeError, TraceError
from tracedat._file import Cursor, TraceFile, decompress

MAGIC = b"\x17\x08\x44tracing"
_COMPRESSIONS = ("none", "zlib", "zstd")
_COMPRESSED = 1
_MAX_CPUS = 1 << 15

# TRACECMD_OPTION_*; in version 7 they number the sections too.
_DONE, _DATE, _CPUSTAT, _BUFFER, _CLOCK, _UNAME = range(6)
_OFFSET, _CPUCOUNT, _VERSION = 7, 8, 9
_TIME_SHIFT, _TSC2NSEC = 12, 14
_HEADERS, _FTRACE_FORMATS, _EVENT_FORMATS = 16, 17, 18
_KALLSYMS, _CMDLINES, _BUFFER_TEXT = 19, 21, 22
_BUFFER_SECTION = 3

# The most bytes of each section, of all options together, and of an option that is a text. Real
# traces have a hundredth of these, but 4 to 8 MB of kallsyms.
_MOST = {
    _DONE: 4 << 20,
    _HEADERS: 1 << 16,
    _FTRACE_FORMATS: 16 << 20,
    _EVENT_FORMATS: 16 << 20,
    _KALLSYMS: 64 << 20,
    _CMDLINES: 4 << 20,
}
_MOST_TEXT = 4096
# Of an event's format; an event's number has 16 bits.
_MOST_FORMAT = 1 << 16
_MOST_FORMATS = 1 << 16
_MOST_SYMBOLS = 1 << 21
# The column common_buffer has 8 bits.
_MOST_BUFFERS = 127
# Of the counters in one option.
_MOST_COUNTERS = 32
_MOST_NS = 1 << 62
_COUNTER = re.compile(r"^([a-z ]+): +([0-9]{1,18}(?:\.[0-9]{1,18})?)$", re.MULTILINE)


@dataclass(frozen=True)
class CpuData:
    """The place of one CPU's pages in the file."""

    cpu: int
    # Bytes; `size` excludes the headers of chunks and padding
    offset: int
    size: int


@dataclass
class Buffer:
    """One ring buffer: the top one, or a named instance."""

    # Empty for the top buffer
    name: str
    # As in ``trace_clock`` of tracefs, such as ``mono``
    clock: str
    # Bytes of a sub-buffer; 0 in version 6, whose page header has them
    page_size: int
    # Whether the pages are compressed in chunks
    compressed: bool
    cpus: list[CpuData]


@dataclass
class Container:
    """A trace.dat without its events."""

    path: Path
    version: int
    # ``none``, ``zlib`` or ``zstd``
    compression: str
    # The text of ``events/header_page`` in tracefs
    header_page: str = ""
    # System and format text of each event type
    formats: list[tuple[str, str]] = field(default_factory=list)
    # Returns the kernel's /proc/kallsyms; empty if it was not recorded. Raises `TraceError` if the
    # section is damaged.
    kallsyms: Callable[[], bytes] = bytes
    # Lines of pid and task name
    cmdlines: str = ""
    # The top buffer first
    buffers: list[Buffer] = field(default_factory=list)
    # The kernel's counters (``per_cpu/cpuN/stats`` in tracefs) by buffer and CPU
    cpustats: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)
    # ``uname`` of the recorded machine, version of ``trace-cmd``
    options: dict[str, str] = field(default_factory=dict)
    cpu_count: int = 0
    # As in `tracedat._decode.Clock`
    offset_ns: int = 0
    tsc: tuple[int, int] | None = None
    # The text of ``trace_clock`` in tracefs, the chosen clock in brackets
    clock_list: str = ""


def read_container(file: TraceFile) -> Container:
    """Read a trace.dat without its events."""
    cursor = Cursor.of_file(file)
    if file.size == 0:
        raise TraceError(file.path, "is empty")
    head = cursor.take(min(len(MAGIC), file.size))
    if head != MAGIC:
        raise TraceError(file.path, "is not a trace.dat: the magic bytes are missing", 0)
    at = cursor.position
    version = cursor.string()
    if version not in {"6", "7"}:
        raise cursor.error(f"unsupported file version {version!r}: tracedat reads 6 and 7", at)
    order = cursor.u8()
    if order == 1:
        raise cursor.error("unsupported byte order big endian: tracedat reads little endian", at)
    if order != 0:
        raise cursor.error(f"byte order {order} is neither little (0) nor big (1) endian", at)
    long_size = cursor.u8()
    if long_size not in {4, 8}:
        raise cursor.error(f"a long of {long_size} bytes is impossible")
    page_size = cursor.u32()
    container = Container(file.path, int(version), "none")
    if version == "6":
        _read_v6(container, file, cursor)
    else:
        _read_v7(container, file, cursor, page_size)
    if not container.header_page:
        raise TraceError(file.path, "the section 'headers' is missing")
    if not container.buffers:
        raise TraceError(file.path, "the file describes no ring buffer")
    if sum(cpu.size for buffer in container.buffers for cpu in buffer.cpus) > file.size:
        raise TooLargeError(file.path, "CPUs share pages: together they claim more than the file")
    if abs(container.offset_ns) > _MOST_NS:
        raise TraceError(file.path, "the clock's offset is impossible")
    return container


def _read_v6(container: Container, file: TraceFile, cursor: Cursor) -> None:
    _headers(container, cursor)
    _ftrace_formats(container, cursor)
    _event_formats(container, cursor)
    kallsyms = _kallsyms(cursor)
    container.kallsyms = lambda: kallsyms
    cursor.skip(cursor.u32())  # printk formats
    _command_lines(container, cursor)
    container.cpu_count = _cpu_count(cursor)
    instances: list[tuple[str, int]] = []
    name = ""
    if cursor.peek(10) == b"options  \0":
        cursor.skip(10)
        begin = cursor.position
        while (option := cursor.u16()) != _DONE:
            at = cursor.position
            data = cursor.take(cursor.u32(), _MOST[_DONE])
            cursor.bound(cursor.position - begin, _MOST[_DONE], "bytes of options")
            inner = Cursor.of_bytes(file.path, data, f"option {option} at {at:#x}")
            if option == _BUFFER:
                offset = inner.u64()
                instances.append((inner.string(), offset))
                cursor.bound(container.cpu_count * len(instances), _MAX_CPUS, "CPUs")
                cursor.bound(len(instances), _MOST_BUFFERS, "buffers")
            else:
                name = _option(container, option, data, inner, name)
    top = _v6_buffer(container, cursor, "")
    buffers = [top]
    for instance, offset in instances:
        place = Cursor.of_file(file, 0)
        place.skip(offset)
        if place.peek(10) == b"options  \0":
            raise place.error(f"instance {instance!r} has options of its own: not supported")
        buffers.append(_v6_buffer(container, place, instance))
    container.buffers = buffers


def _v6_buffer(container: Container, cursor: Cursor, name: str) -> Buffer:
    if cursor.peek(10) == b"latency  \0":
        raise cursor.error("a latency trace holds text instead of events")
    cursor.expect(b"flyrecord\0")
    cpus = []
    for cpu in range(container.cpu_count):
        at = cursor.position
        offset, size = cursor.u64(), cursor.u64()
        if offset + size > cursor.end:
            raise cursor.error(f"truncated: the pages of CPU {cpu} end beyond the file", at)
        cpus.append(CpuData(cpu, offset, size))
    # Version 6 takes the size of a page from the page header.
    return Buffer(name, _chosen_clock(container.clock_list), 0, False, cpus)


def _read_v7(container: Container, file: TraceFile, cursor: Cursor, page_size: int) -> None:
    at = cursor.position
    container.compression = cursor.string()
    if container.compression not in _COMPRESSIONS:
        names = ", ".join(_COMPRESSIONS)
        problem = f"unsupported compression {container.compression!r}: tracedat reads {names}"
        raise cursor.error(problem, at)
    cursor.string()  # version of the compression library
    sections: dict[int, int] = {}
    seen: set[int] = set()
    following = cursor.u64()
    name = ""
    size = cpus = 0
    while following:
        if following in seen:
            raise TraceError(file.path, "the option sections form a cycle", following)
        seen.add(following)
        options = _section(container, file, following, _DONE, "options")()
        following = 0
        size += options.left
        options.bound(size, _MOST[_DONE], "bytes of options")
        while options.left:
            option = options.u16()
            at = options.position
            data = options.take(options.u32())
            inner = Cursor.of_bytes(file.path, data, f"option {option} at byte {at} of 'options'")
            if option == _DONE:
                following = inner.u64()
                break
            if option in {_HEADERS, _FTRACE_FORMATS, _EVENT_FORMATS, _KALLSYMS, _CMDLINES}:
                sections[option] = inner.u64()
            elif option == _BUFFER:
                container.buffers.append(_v7_buffer(container, file, inner, page_size))
                cpus += len(container.buffers[-1].cpus)
                inner.bound(cpus, _MAX_CPUS, "CPUs")
                inner.bound(len(container.buffers), _MOST_BUFFERS, "buffers")
            elif option == _BUFFER_TEXT:
                raise inner.error("a latency trace holds text instead of events")
            else:
                name = _option(container, option, data, inner, name)
        else:
            raise options.error("the final option is missing")
    _read_sections(container, file, sections)
    container.buffers.sort(key=lambda b: b.name != "")


def _read_sections(container: Container, file: TraceFile, sections: dict[int, int]) -> None:
    readers = (
        (_HEADERS, "headers", _headers),
        (_FTRACE_FORMATS, "ftrace events", _ftrace_formats),
        (_EVENT_FORMATS, "event formats", _event_formats),
        (_CMDLINES, "command lines", _command_lines),
    )
    for section, title, reader in readers:
        if section in sections:
            reader(container, _section(container, file, sections[section], section, title)())
    if _KALLSYMS in sections:
        # Most traces are read without a look at it, and it takes as long as all else here.
        unpack = _section(container, file, sections[_KALLSYMS], _KALLSYMS, "kallsyms")
        container.kallsyms = lambda: _kallsyms(unpack())


def _section(
    container: Container, file: TraceFile, offset: int, expected: int, title: str
) -> Callable[[], Cursor]:
    """Read a section; return a function that decompresses it and returns a cursor over it."""
    cursor = Cursor.of_file(file, 0)
    cursor.skip(offset)
    number, flags = cursor.u16(), cursor.u16()
    if number != expected:
        problem = f"section {title!r} is missing: section {number} is in its place"
        raise TraceError(file.path, problem, offset)
    cursor.u32()  # the section's title, in the strings section
    size = cursor.u64()
    if flags & _COMPRESSED and container.compression == "none":
        problem = f"section {title!r} is compressed, but the file names no compression"
        raise TraceError(file.path, problem, offset)
    if not flags & _COMPRESSED:
        contents = cursor.take(size, _MOST[expected])
        return lambda: Cursor.of_bytes(file.path, contents, f"{title} at {offset:#x}")
    packed, plain = cursor.u32(), cursor.u32()
    # Both compressions add less than a 64th to what cannot be compressed.
    if plain > _MOST[expected] or packed > plain + (plain >> 6) + 1024:
        problem = f"section {title!r} claims {plain} bytes in {packed}"
        problem += f", a trace has at most {_MOST[expected]}"
        raise TooLargeError(file.path, problem, offset)
    if packed + 8 != size:
        problem = f"section {title!r}: its sizes {size} and {packed} contradict each other"
        raise TraceError(file.path, problem, offset)
    at = cursor.position
    subject = f"section {title!r}"
    compressed = cursor.take(packed)

    def unpack() -> Cursor:
        data = decompress(
            file.path, container.compression, compressed, plain, offset=at, subject=subject
        )
        return Cursor.of_bytes(file.path, data, f"{title} at {offset:#x}")

    return unpack


def _v7_buffer(container: Container, file: TraceFile, inner: Cursor, page_size: int) -> Buffer:
    offset = inner.u64()
    name, clock = inner.string(), inner.string()
    page_size = inner.u32() or page_size
    count = _cpu_count(inner)
    cpus = [CpuData(inner.u32(), inner.u64(), inner.u64()) for _ in range(count)]
    section = Cursor.of_file(file, 0)
    section.skip(offset)
    number, flags = section.u16(), section.u16()
    if number != _BUFFER_SECTION:
        problem = f"the events of buffer {name!r} are missing: section {number} is in their place"
        raise TraceError(file.path, problem, offset)
    if flags & _COMPRESSED and container.compression == "none":
        problem = f"buffer {name!r} is compressed, but the file names no compression"
        raise TraceError(file.path, problem, offset)
    for cpu in cpus:
        if cpu.offset + cpu.size > file.size:
            problem = f"truncated: the pages of CPU {cpu.cpu} end beyond the file"
            raise TraceError(file.path, problem, cpu.offset)
        if cpu.cpu >= _MAX_CPUS:
            raise inner.error(f"impossible CPU number {cpu.cpu}")
    return Buffer(name, clock, page_size, bool(flags & _COMPRESSED), cpus)


def _headers(container: Container, cursor: Cursor) -> None:
    cursor.expect(b"header_page\0")
    data = cursor.take(cursor.u64(), _MOST[_HEADERS])
    container.header_page = data.decode(errors="backslashreplace")
    cursor.expect(b"header_event\0")
    cursor.skip(cursor.u64())


def _ftrace_formats(container: Container, cursor: Cursor) -> None:
    _formats_of(container, cursor, "ftrace", cursor.position)


def _event_formats(container: Container, cursor: Cursor) -> None:
    begin = cursor.position
    systems = cursor.u32()
    cursor.bound(systems, _MOST_FORMATS, "systems of events")
    for _ in range(systems):
        _formats_of(container, cursor, cursor.string(), begin)


def _formats_of(container: Container, cursor: Cursor, system: str, begin: int) -> None:
    for _ in range(cursor.u32()):
        data = cursor.take(cursor.u64(), _MOST_FORMAT)
        container.formats.append((system, data.decode(errors="backslashreplace")))
        cursor.bound(len(container.formats), _MOST_FORMATS, "events")
        cursor.bound(cursor.position - begin, _MOST[_EVENT_FORMATS], "bytes of formats")


def _kallsyms(cursor: Cursor) -> bytes:
    data = cursor.take(cursor.u32(), _MOST[_KALLSYMS])
    cursor.bound(data.count(b"\n"), _MOST_SYMBOLS, "symbols")
    return data


def _command_lines(container: Container, cursor: Cursor) -> None:
    data = cursor.take(cursor.u64(), _MOST[_CMDLINES])
    container.cmdlines = data.decode(errors="backslashreplace")


def _cpu_count(cursor: Cursor) -> int:
    count = cursor.u32()
    if count > _MAX_CPUS:
        raise cursor.error(f"impossible number of CPUs: {count}")
    return count


def _option(container: Container, option: int, data: bytes, inner: Cursor, name: str) -> str:
    """Store one option; return the name of the buffer that the next CPU counters belong to."""
    text = data[:_MOST_TEXT].split(b"\0", 1)[0].decode(errors="backslashreplace").strip()
    if option == _CPUSTAT:
        if match := re.fullmatch(r"Buffer: (.+)", text):
            return match[1]
        _cpustat(container, text, name)
        inner.bound(len(container.cpustats), _MAX_CPUS, "CPUs")
    elif option == _DATE:
        container.offset_ns += _number(text, inner) * 1000
    elif option == _OFFSET:
        container.offset_ns += _number(text, inner)
    elif option == _CLOCK:
        container.clock_list = text
    elif option == _UNAME:
        container.options["uname"] = text
    elif option == _VERSION:
        container.options["trace-cmd"] = text
    elif option == _CPUCOUNT:
        container.cpu_count = _cpu_count(inner)
    elif option == _TSC2NSEC:
        container.tsc = (inner.u32(), inner.u32())
        if container.tsc[1] > 63:
            raise inner.error(f"impossible clock shift of {container.tsc[1]} bits")
    elif option == _TIME_SHIFT:
        raise inner.error("the file synchronizes the clocks of host and guest: not supported")
    return name


def _number(text: str, inner: Cursor) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise inner.error(f"{text!r} is not a number") from None


def _cpustat(container: Container, text: str, name: str) -> None:
    values: dict[str, float] = {}
    for found in islice(_COUNTER.finditer(text), _MOST_COUNTERS):
        values[found[1]] = float(found[2])
    if cpu := re.search(r"^CPU: ([0-9]{1,5})$", text, re.MULTILINE):
        container.cpustats[name, int(cpu[1])] = values


def _chosen_clock(text: str) -> str:
    clock = re.search(r"\[([^]]*)\]", text)
    return clock[1] if clock else "local"
