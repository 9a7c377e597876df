# SPDX-License-Identifier: MIT
"""What a trace.dat holds and where: sections, options, the place of each CPU's pages.

Versions 6 and 7 as trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5) describe them. Nothing of the
ring buffer itself is read here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from iolab.trace.compression import decompress
from iolab.trace.cursor import Cursor, TraceError, TraceFile

__all__ = ["Buffer", "Container", "CpuData", "read_container"]

_MAGIC = b"\x17\x08\x44tracing"
_COMPRESSIONS = ("none", "zlib", "zstd")
_COMPRESSED = 1
_MAX_CPUS = 1 << 15

# Options, and in version 7 also sections.
_DONE, _DATE, _CPUSTAT, _BUFFER, _CLOCK, _UNAME = range(6)
_OFFSET, _CPUCOUNT, _VERSION = 7, 8, 9
_TIME_SHIFT, _TSC2NSEC = 12, 14
_HEADERS, _FTRACE_FORMATS, _EVENT_FORMATS = 16, 17, 18
_CMDLINES, _BUFFER_TEXT = 21, 22
_BUFFER_SECTION = 3


@dataclass(frozen=True)
class CpuData:
    """Where one CPU's pages are in the file (`size` counts neither chunk headers nor padding)."""

    cpu: int
    offset: int
    size: int


@dataclass
class Buffer:
    """One ring buffer: the top one (empty name) or a named instance."""

    name: str
    clock: str
    page_size: int
    compressed: bool
    cpus: list[CpuData]


@dataclass
class Container:
    """A trace.dat's contents but for the events.

    ``timestamp = convert(raw) + offset_ns``, where ``tsc`` (multiplier, shift) is None or the
    conversion of a cycle counter. ``cpustats`` are the kernel's own counters by (buffer, CPU).
    """

    path: Path
    version: int
    long_size: int
    compression: str
    header_page: str = ""
    formats: list[tuple[str, str]] = field(default_factory=list)
    cmdlines: str = ""
    buffers: list[Buffer] = field(default_factory=list)
    cpustats: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    cpu_count: int = 0
    offset_ns: int = 0
    tsc: tuple[int, int] | None = None
    clock_list: str = ""


def read_container(file: TraceFile) -> Container:
    """Read everything but the events of a trace.dat.

    Errors: TraceError for a file that is none, for a version, byte order or compression that
    cannot be read, and for every damage, naming the offset or the section.
    """
    cursor = Cursor.of_file(file)
    if file.size == 0:
        raise TraceError(file.path, "is empty")
    head = cursor.take(min(len(_MAGIC), file.size))
    if head != _MAGIC:
        raise TraceError(file.path, "is not a trace.dat: the magic bytes are missing", 0)
    at = cursor.position
    version = cursor.string()
    if version not in {"6", "7"}:
        raise cursor.error(f"file version {version!r} cannot be read; 6 and 7 can", at)
    order = cursor.u8()
    if order == 1:
        raise cursor.error("big endian: traces of such machines cannot be read", at)
    if order != 0:
        raise cursor.error(f"byte order {order} is neither little (0) nor big (1) endian", at)
    long_size = cursor.u8()
    if long_size not in {4, 8}:
        raise cursor.error(f"a long of {long_size} bytes")
    page_size = cursor.u32()
    container = Container(file.path, int(version), long_size, "none")
    if version == "6":
        _read_v6(container, file, cursor)
    else:
        _read_v7(container, file, cursor, page_size)
    if not container.header_page:
        raise TraceError(file.path, "the section 'headers' is missing")
    if not container.buffers:
        raise TraceError(file.path, "the file describes no ring buffer")
    return container


def _read_v6(container: Container, file: TraceFile, cursor: Cursor) -> None:
    _headers(container, cursor)
    _ftrace_formats(container, cursor)
    _event_formats(container, cursor)
    cursor.skip(cursor.u32())  # kallsyms
    cursor.skip(cursor.u32())  # printk formats
    _command_lines(container, cursor)
    container.cpu_count = _cpu_count(cursor)
    instances: list[tuple[str, int]] = []
    name = ""
    if cursor.peek(10) == b"options  \0":
        cursor.skip(10)
        while (option := cursor.u16()) != _DONE:
            at = cursor.position
            data = cursor.take(cursor.u32())
            inner = Cursor.of_bytes(file.path, data, f"option {option} at {at:#x}")
            if option == _BUFFER:
                offset = inner.u64()
                instances.append((inner.string(), offset))
            else:
                name = _option(container, option, data, inner, name)
    top = _v6_buffer(container, cursor, "")
    buffers = [top]
    for instance, offset in instances:
        place = Cursor.of_file(file, 0)
        place.skip(offset)
        if place.peek(10) == b"options  \0":
            raise place.error(f"instance {instance!r} has options of its own, unknown to iolab")
        buffers.append(_v6_buffer(container, place, instance))
    container.buffers = buffers


def _v6_buffer(container: Container, cursor: Cursor, name: str) -> Buffer:
    if cursor.peek(10) == b"latency  \0":
        raise cursor.error("a latency trace holds text, no events")
    cursor.expect(b"flyrecord\0")
    cpus = []
    for cpu in range(container.cpu_count):
        at = cursor.position
        offset, size = cursor.u64(), cursor.u64()
        if offset + size > cursor.end:
            raise cursor.error(f"truncated: the pages of CPU {cpu} end beyond the file", at)
        cpus.append(CpuData(cpu, offset, size))
    # Pages of version 6 are as long as the ring buffer's header says; 0 asks for that.
    return Buffer(name, _chosen_clock(container.clock_list), 0, False, cpus)


def _read_v7(container: Container, file: TraceFile, cursor: Cursor, page_size: int) -> None:
    at = cursor.position
    container.compression = cursor.string()
    if container.compression not in _COMPRESSIONS:
        names = ", ".join(_COMPRESSIONS)
        what = f"compression {container.compression!r} cannot be read; {names} can"
        raise cursor.error(what, at)
    cursor.string()  # the compressing library's version
    sections: dict[int, int] = {}
    seen: set[int] = set()
    following = cursor.u64()
    name = ""
    while following:
        if following in seen:
            raise TraceError(file.path, "the option sections form a circle", following)
        seen.add(following)
        options = _section(container, file, following, _DONE, "options")
        following = 0
        while options.left:
            option = options.u16()
            at = options.position
            data = options.take(options.u32())
            inner = Cursor.of_bytes(file.path, data, f"option {option} at byte {at} of 'options'")
            if option == _DONE:
                following = inner.u64()
                break
            if option in {_HEADERS, _FTRACE_FORMATS, _EVENT_FORMATS, _CMDLINES}:
                sections[option] = inner.u64()
            elif option == _BUFFER:
                container.buffers.append(_v7_buffer(container, file, inner, page_size))
            elif option == _BUFFER_TEXT:
                raise inner.error("a latency trace holds text, no events")
            else:
                name = _option(container, option, data, inner, name)
        else:
            raise options.error("the options have no end")
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
            reader(container, _section(container, file, sections[section], section, title))


def _section(
    container: Container, file: TraceFile, offset: int, expected: int, title: str
) -> Cursor:
    """Return a cursor over a section's plain contents."""
    cursor = Cursor.of_file(file, 0)
    cursor.skip(offset)
    number, flags = cursor.u16(), cursor.u16()
    if number != expected:
        what = f"the section {title!r} is not there (section {number} is)"
        raise TraceError(file.path, what, offset)
    cursor.u32()  # the section's title, in the strings section
    size = cursor.u64()
    if flags & _COMPRESSED and container.compression == "none":
        raise TraceError(file.path, f"section {title!r} is compressed by nothing", offset)
    if not flags & _COMPRESSED:
        return Cursor.of_bytes(file.path, cursor.take(size), f"{title} at {offset:#x}")
    packed, plain = cursor.u32(), cursor.u32()
    if packed + 8 != size:
        what = f"section {title!r}: its sizes {size} and {packed} contradict each other"
        raise TraceError(file.path, what, offset)
    at = cursor.position
    name = f"section {title!r}"
    packed_data = cursor.take(packed)
    data = decompress(file.path, container.compression, packed_data, plain, offset=at, what=name)
    return Cursor.of_bytes(file.path, data, f"{title} at {offset:#x}")


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
        what = f"the events of buffer {name!r} are not there (section {number} is)"
        raise TraceError(file.path, what, offset)
    if flags & _COMPRESSED and container.compression == "none":
        raise TraceError(file.path, f"buffer {name!r} is compressed by nothing", offset)
    for cpu in cpus:
        if cpu.offset + cpu.size > file.size:
            what = f"truncated: the pages of CPU {cpu.cpu} end beyond the file"
            raise TraceError(file.path, what, cpu.offset)
        if cpu.cpu >= _MAX_CPUS:
            raise inner.error(f"a CPU of number {cpu.cpu}")
    return Buffer(name, clock, page_size, bool(flags & _COMPRESSED), cpus)


def _headers(container: Container, cursor: Cursor) -> None:
    cursor.expect(b"header_page\0")
    container.header_page = cursor.take(cursor.u64()).decode(errors="backslashreplace")
    cursor.expect(b"header_event\0")
    cursor.skip(cursor.u64())


def _ftrace_formats(container: Container, cursor: Cursor) -> None:
    for _ in range(cursor.u32()):
        text = cursor.take(cursor.u64()).decode(errors="backslashreplace")
        container.formats.append(("ftrace", text))


def _event_formats(container: Container, cursor: Cursor) -> None:
    for _ in range(cursor.u32()):
        system = cursor.string()
        for _ in range(cursor.u32()):
            text = cursor.take(cursor.u64()).decode(errors="backslashreplace")
            container.formats.append((system, text))


def _command_lines(container: Container, cursor: Cursor) -> None:
    container.cmdlines = cursor.take(cursor.u64()).decode(errors="backslashreplace")


def _cpu_count(cursor: Cursor) -> int:
    count = cursor.u32()
    if count > _MAX_CPUS:
        raise cursor.error(f"{count} CPUs")
    return count


def _option(container: Container, option: int, data: bytes, inner: Cursor, name: str) -> str:
    """Take one option; return the name of the buffer that the next CPU counters belong to."""
    text = data.split(b"\0", 1)[0].decode(errors="backslashreplace").strip()
    if option == _CPUSTAT:
        if found := re.fullmatch(r"Buffer: (.+)", text):
            return found[1]
        _cpustat(container, text, name)
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
            raise inner.error(f"a clock shift of {container.tsc[1]} bits")
    elif option == _TIME_SHIFT:
        raise inner.error("the clocks of a guest and its host are to be matched: not supported")
    return name


def _number(text: str, inner: Cursor) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise inner.error(f"{text!r} is no number") from None


def _cpustat(container: Container, text: str, name: str) -> None:
    values: dict[str, float] = {}
    for key, value in re.findall(r"^([a-z ]+): +(\d+(?:\.\d+)?)$", text, re.MULTILINE):
        values[key] = float(value)
    if found := re.search(r"^CPU: (\d{1,5})$", text, re.MULTILINE):
        container.cpustats[name, int(found[1])] = values


def _chosen_clock(text: str) -> str:
    found = re.search(r"\[([^]]*)\]", text)
    return found[1] if found else "local"
