# SPDX-License-Identifier: MIT
"""A small writer of trace.dat files with known content."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import zstandard

MAGIC = b"\x17\x08\x44tracing"

_COMMON = (
    ("unsigned short", "common_type", "", 2, 0),
    ("unsigned char", "common_flags", "", 1, 0),
    ("unsigned char", "common_preempt_count", "", 1, 0),
    ("int", "common_pid", "", 4, 1),
)
_SIZES = {"char": 1, "u8": 1, "short": 2, "int": 4, "unsigned int": 4, "long": 8, "u64": 8}
_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}


@dataclass(frozen=True)
class Event:
    """An event type: fields as (type, name, array), laid out as the kernel's compiler would."""

    system: str
    name: str
    number: int
    fields: tuple[tuple[str, str, str], ...]
    print_format: str = '""'
    layout: list[tuple[str, str, str, int, int]] = field(default_factory=list, compare=False)
    size: int = 0

    def text(self) -> str:
        lines = [f"name: {self.name}", f"ID: {self.number}", "format:"]
        at = 0
        for kind, name, array, size, signed in _COMMON:
            place = f"offset:{at};\tsize:{size};\tsigned:{signed};"
            lines.append(f"\tfield:{kind} {name}{array};\t{place}")
            at += size
        lines.append("")
        for kind, name, array, offset, size in self.layout:
            signed = int(kind in {"int", "long", "short"})
            declared = f"{kind} {name}{array}" if array != "loc" else f"__data_loc char[] {name}"
            place = f"offset:{offset};\tsize:{size};\tsigned:{signed};"
            lines.append(f"\tfield:{declared};\t{place}")
        return "\n".join(lines) + f"\n\nprint fmt: {self.print_format}\n"


def event(system: str, name: str, number: int, *fields: str, print_format: str = '""') -> Event:
    """Return an event type from declarations: ``int pid``, ``char comm[16]``, ``loc name``."""
    made: list[tuple[str, str, str, int, int]] = []
    at = 8
    split = []
    for declaration in fields:
        kind, name_ = declaration.rsplit(" ", 1)
        array = ""
        if "[" in name_:
            name_, array = name_.split("[")
            array = "[" + array
        if kind == "loc":
            kind, array, width, size = "char", "loc", 4, 4
        else:
            width = _SIZES[kind]
            size = width * int(array[1:-1] or 0) if array else width
        at = -(-at // width) * width
        made.append((kind, name_, array, at, size))
        split.append((kind, name_, array))
        at += size
    return Event(system, name, number, tuple(split), print_format, made, at)


def encode(
    of: Event, pid: int, values: Mapping[str, int | str | bytes], *, flags: int = 0
) -> bytes:
    """Return a record's data."""
    data = bytearray(of.size)
    struct.pack_into("<HBBi", data, 0, of.number, flags, 0, pid)
    for _, name, array, offset, size in of.layout:
        value = values.get(name, 0)
        if array == "loc":
            assert isinstance(value, str)
            text = value.encode() + b"\0"
            struct.pack_into("<I", data, offset, len(data) | len(text) << 16)
            data += text
        elif array:
            assert not isinstance(value, int)
            text = value.encode() if isinstance(value, str) else value
            if size:
                data[offset : offset + size] = text[:size].ljust(size, b"\0")
            else:
                data += text + b"\0"
        else:
            assert isinstance(value, int)
            mask = (1 << 8 * size) - 1
            struct.pack_into("<" + _CODES[size].upper(), data, offset, value & mask)
    return bytes(data)


class Page:
    """One ring-buffer page."""

    def __init__(self, time: int, *, size: int = 4096, lost: int | None = None) -> None:
        self.time = time
        self.size = size
        self.lost = lost
        self.data = bytearray()

    def room(self, size: int) -> bool:
        return 16 + len(self.data) + size + 8 + 8 <= self.size

    def event(self, delta: int, data: bytes, *, long: bool = False) -> Page:
        padded = data.ljust(-(-len(data) // 4) * 4, b"\0")
        if long or len(padded) > 28 * 4:
            self.data += struct.pack("<II", delta << 5, len(padded) + 4) + padded
        else:
            self.data += struct.pack("<I", delta << 5 | len(padded) // 4) + padded
        return self

    def extend(self, delta: int) -> Page:
        self.data += struct.pack("<II", (delta & (1 << 27) - 1) << 5 | 30, delta >> 27)
        return self

    def stamp(self, time: int) -> Page:
        time &= (1 << 59) - 1
        self.data += struct.pack("<II", (time & (1 << 27) - 1) << 5 | 31, time >> 27)
        return self

    def discarded(self, delta: int, length: int) -> Page:
        assert delta > 0
        assert length % 4 == 0
        self.data += struct.pack("<II", delta << 5 | 29, length) + bytes(length - 4)
        return self

    def unused(self) -> Page:
        self.data += struct.pack("<II", 29, 0xFFFFFFFC)
        return self

    def bytes(self) -> bytes:
        commit = len(self.data)
        after = b""
        if self.lost is not None:
            commit |= 1 << 31
            if self.lost > 0:
                commit |= 1 << 30
                after = struct.pack("<Q", self.lost)
        page = struct.pack("<QQ", self.time, commit) + self.data + after
        assert len(page) <= self.size
        return page.ljust(self.size, b"\0")


def _header_page(size: int) -> bytes:
    return (
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
        "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
        "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
        f"\tfield: char data;\toffset:16;\tsize:{size - 16};\tsigned:0;\n"
    ).encode()


def _headers(size: int) -> bytes:
    page = _header_page(size)
    return (
        b"header_page\0" + struct.pack("<Q", len(page)) + page
        + b"header_event\0" + struct.pack("<Q", 0)
    )  # fmt: skip


def _formats(events: Sequence[Event]) -> bytes:
    systems: dict[str, list[bytes]] = {}
    for one in events:
        systems.setdefault(one.system, []).append(one.text().encode())
    data = struct.pack("<I", len(systems))
    for name, texts in systems.items():
        data += name.encode() + b"\0" + struct.pack("<I", len(texts))
        for text in texts:
            data += struct.pack("<Q", len(text)) + text
    return data


def _option(number: int, data: bytes) -> bytes:
    return struct.pack("<HI", number, len(data)) + data


def _stats(stats: Mapping[int, Mapping[str, int]]) -> bytes:
    return b"".join(
        _option(
            2, (f"CPU: {cpu}\n" + "".join(f"{k}: {v}\n" for k, v in s.items())).encode() + b"\0"
        )
        for cpu, s in stats.items()
    )


def trace_v6(
    events: Sequence[Event],
    cpus: Sequence[Sequence[Page]],
    *,
    comms: Mapping[int, str] | None = None,
    kallsyms: bytes = b"",
    options: bytes = b"",
    page_size: int = 4096,
) -> bytes:
    """Return a file of version 6; `cpus` are each CPU's pages."""
    lines = "".join(f"{pid} {comm}\n" for pid, comm in (comms or {}).items()).encode()
    head = MAGIC + b"6\0" + struct.pack("<BBI", 0, 8, page_size) + _headers(page_size)
    head += struct.pack("<I", 0) + _formats(events)
    head += struct.pack("<I", len(kallsyms)) + kallsyms + struct.pack("<I", 0)
    head += struct.pack("<Q", len(lines)) + lines + struct.pack("<I", len(cpus))
    head += b"options  \0" + _option(4, b"local [mono] boot\0") + options
    head += struct.pack("<H", 0) + b"flyrecord\0"
    at = -(-(len(head) + 16 * len(cpus)) // page_size) * page_size
    table = body = b""
    for pages in cpus:
        data = b"".join(page.bytes() for page in pages)
        table += struct.pack("<QQ", at + len(body), len(data))
        body += data
    return (head + table).ljust(at, b"\0") + body


def trace_v7(
    events: Sequence[Event],
    cpus: Sequence[Sequence[Page]] | Mapping[str, Sequence[Sequence[Page]]],
    *,
    compression: str = "none",
    comms: Mapping[int, str] | None = None,
    stats: Mapping[int, Mapping[str, int]] | None = None,
    kallsyms: bytes = b"",
    options: bytes = b"",
    page_size: int = 4096,
    chunk_pages: int = 2,
) -> bytes:
    """Return a file of version 7; several buffers when `cpus` is a mapping by buffer name."""

    def packed(data: bytes) -> bytes:
        if compression == "zstd":
            data_ = zstandard.ZstdCompressor().compress(data)
        else:
            data_ = zlib.compress(data)
        return struct.pack("<II", len(data_), len(data)) + data_

    def section(number: int, data: bytes) -> bytes:
        flags = int(compression != "none" and number != 0)
        data = packed(data) if flags else data
        return struct.pack("<HHIQ", number, flags, 0, len(data)) + data

    buffers = cpus if isinstance(cpus, Mapping) else {"": cpus}
    lines = "".join(f"{pid} {comm}\n" for pid, comm in (comms or {}).items()).encode()
    head = MAGIC + b"7\0" + struct.pack("<BBI", 0, 8, page_size)
    head += compression.encode() + b"\0" + b"1.0\0"
    file = bytearray(head + bytes(8))
    opts = _option(4, b"local [mono] boot\0") + _stats(stats or {}) + options
    for number, data in (
        (16, _headers(page_size)),
        (18, _formats(events)),
        (19, struct.pack("<I", len(kallsyms)) + kallsyms),
        (21, struct.pack("<Q", len(lines)) + lines),
    ):
        opts += _option(number, struct.pack("<Q", len(file)))
        file += section(number, data)
    for name, per_cpu in buffers.items():
        start = len(file)
        table = b""
        body = bytearray()
        for cpu, pages in enumerate(per_cpu):
            at = start + 16 + len(body)
            if compression == "none":
                data = b"".join(page.bytes() for page in pages)
                size = len(data)
            else:
                groups = [pages[i : i + chunk_pages] for i in range(0, len(pages), chunk_pages)]
                chunks = b"".join(packed(b"".join(p.bytes() for p in g)) for g in groups)
                data = struct.pack("<I", len(groups)) + chunks
                size = len(chunks)
            table += struct.pack("<IQQ", cpu, at, size)
            body += data
        flags = int(compression != "none")
        file += struct.pack("<HHIQ", 3, flags, 0, len(body)) + body
        data = struct.pack("<Q", start) + name.encode() + b"\0mono\0"
        opts += _option(3, data + struct.pack("<II", page_size, len(per_cpu)) + table)
    opts += _option(0, struct.pack("<Q", 0))
    file[len(head) : len(head) + 8] = struct.pack("<Q", len(file))
    return bytes(file + section(0, opts))


_WAKE = ("char comm[16]", "int pid", "int prio", "int target_cpu")

EVENTS = {
    one.name: one
    for one in (
        event(
            "sched",
            "sched_switch",
            300,
            "char prev_comm[16]",
            "int prev_pid",
            "int prev_prio",
            "long prev_state",
            "char next_comm[16]",
            "int next_pid",
            "int next_prio",
            print_format='"%s%s", "", REC->prev_state & (((0x0 | 0x7f) + 1) << 1) ? "+" : ""',
        ),
        event(
            "sched", "sched_waking", 301, "char comm[16]", "int pid", "int prio", "int target_cpu"
        ),
        event(
            "sched", "sched_wakeup", 302, "char comm[16]", "int pid", "int prio", "int target_cpu"
        ),
        event(
            "sched",
            "sched_migrate_task",
            303,
            "char comm[16]",
            "int pid",
            "int prio",
            "int orig_cpu",
            "int dest_cpu",
        ),
        event(
            "workqueue",
            "workqueue_queue_work",
            310,
            "u64 work",
            "u64 function",
            "loc workqueue",
            "int req_cpu",
            "int cpu",
        ),
        event(
            "workqueue",
            "workqueue_execute_start",
            311,
            "u64 work",
            "u64 function",
            print_format='"work struct %p: function %ps", REC->work, REC->function',
        ),
        event("workqueue", "workqueue_execute_end", 312, "u64 work", "u64 function"),
        *(
            event(
                "block",
                name,
                number,
                "unsigned int dev",
                "u64 sector",
                "unsigned int nr_sector",
                *(("int error",) if name == "block_rq_complete" else ("unsigned int bytes",)),
                "char rwbs[10]",
                "char comm[16]",
                "loc cmd",
            )
            for name, number in (
                ("block_rq_issue", 320),
                ("block_rq_complete", 321),
                ("block_io_start", 322),
                ("block_io_done", 323),
                ("block_rq_insert", 324),
            )
        ),
        event("writeback", "writeback_start", 340, "char name[32]", "u64 nr_pages"),
        event("writeback", "writeback_written", 341, "char name[32]", "u64 nr_pages"),
        event("filemap", "mm_filemap_add_to_page_cache", 350, "u64 index", "u8 order"),
        event("demo", "wide", 330, "u64 args[3]", "u8 raw[6]", "short odd", "char tail[]"),
    )
}
