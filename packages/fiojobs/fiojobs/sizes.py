# SPDX-License-Identifier: MIT
"""Sizes of a translated job: kept where there is room, else scaled, keeping their ratios."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from fiojobs.table import Work
from iolab_agent.fio_options import processes_of
from iolab_agent.fio_values import bytes_of
from iolab_base.errors import UserError

_MIB: Final = 1 << 20
# Of files and used parts of a device, if the job names no size.
_USUAL_MIB: Final = 64
# Of bs, bsrange and bssplit; behind a slash stands a share.
_BLOCK: Final = re.compile(r"(?<![\w/])\d+[a-zA-Z]*(?![\w%])")
# A number with fio's unit. "kib" has another base than "k", "kb" and "ki" (get_mult_bytes() of its
# parse.c), and kb_base=1000 swaps them.
_WITH_UNIT: Final = re.compile(r"(?<![\w.])(0x[0-9a-f]+|\d+)([kmgtp]?)(i?b?)(?![\w.%])", re.I)
_SIZES: Final = frozenset(
    (
        *("bs", "bsrange", "bssplit", "ba", "size", "filesize", "offset", "offset_increment"),
        *("offset_align", "io_size", "rate", "rate_min", "iomem_align", "hugepage-size"),
        *("buffer_compress_chunk", "verify_interval", "zonesize", "zonerange", "zoneskip"),
    )
)
_TEXTS: Final = frozenset(("filename", "directory", "filename_format", "opendir", "description"))
_SEVERAL: Final = re.compile(r"\d+[a-z]*(?:[-:]\d+[a-z]*)+", re.IGNORECASE)
_ZONES: Final = re.compile(r"(?<=/)\d+[a-z]*(?![\w%])", re.IGNORECASE)
_ROUNDED: Final = "rounded down to whole MiB, or below one to 4 KiB"
_MOVES = ("offset", "offset_increment", "zoneskip")
_SCALED = ("offset", "offset_increment", "io_size", "zonesize", "zonerange", "zoneskip")


def give_bytes(work: Work, name: str) -> None:
    """Write sizes whose unit has an i, or kb_base or hexadecimal digits, in bytes, as fio does."""
    base = 1024
    for option, value in list(work.options[name].items()):
        if option == "kb_base":
            # It holds for what comes after it.
            base = 1000 if value == "1000" else 1024
        if option in _TEXTS or option.startswith("exec_"):
            continue

        def in_bytes(match: re.Match[str], option: str = option, base: int = base) -> str:
            digits, unit, end = (part.lower() for part in match.groups())
            other = option in _SIZES and (base == 1000 or digits.startswith("0x"))
            if not other and not (unit and "i" in end):
                return match[0]
            power = "kmgtp".index(unit) + 1 if unit else 0
            return str(int(digits, 0) * (2024 - base if end == "ib" else base) ** power)

        why = "in bytes, as fio reads it: Ki is 1024 and KiB is 1000, unless kb_base is 1000"
        work.change(name, option, _WITH_UNIT.sub(in_bytes, value), why)


def _amount(text: str | None, room: int) -> int | None:
    """Return a size in bytes; a percentage is one of the room; None if it is neither."""
    if text is None:
        return None
    if match := re.fullmatch(r"([0-9]{1,3})%", text):
        return room * min(int(match[1]), 100) // 100
    return max(0, bytes_of(text)) or None


def parts_of_sectors(options: Mapping[str, str]) -> bool:
    """Return whether a section asks for direct I/O of blocks that 4096 does not divide."""
    blocks = ",".join(options.get(name, "") for name in ("bs", "bsrange", "bssplit"))
    direct = options.get("direct", "0") != "0" or options.get("buffered") == "0"
    return direct and any(bytes_of(text) % 4096 for text in _BLOCK.findall(blocks))


def give_sizes(work: Work, phases: Sequence[Sequence[str]], *, shared: bool) -> int:
    """Return the size of each file in MiB; give sections the sizes that fit, in their ratios."""
    around = work.around
    if around.size_mib is not None and around.size_mib < 1:
        raise UserError(f"size_mib must be at least 1, not {around.size_mib}")
    room = around.room_mib * _MIB
    sizes: dict[str, int] = {}
    for name, options in work.options.items():
        if _SEVERAL.fullmatch(several := options.get("size", "")):
            last = re.split("[-:]", several)[-1]
            work.change(name, "size", last, "fio takes the last one; filesize takes a range")
        own = _amount(options.get("size"), room)
        # Of several sizes, files have any between them.
        of_file = _amount(options.get("filesize", "").rpartition("-")[2], room)
        files = max(1, bytes_of(options.get("nrfiles", "1")), _folder_names(options))
        sizes[name] = own or (of_file or 0) * files
    asked = max(sizes.values())
    usual = (around.size_mib or _USUAL_MIB) * _MIB
    largest = max((size or usual for size in sizes.values()), default=usual)

    def together(phase: Sequence[str]) -> int:
        if shared:
            return largest
        return sum(processes_of(work.options[n]) for n in phase) * largest

    def behind(phase: Sequence[str]) -> int:
        """Return how far offsets move the ends of a phase's files."""
        each = [_moved(work.options[n], room) for n in phase]
        if shared:
            return max(each)
        return sum(m * processes_of(work.options[n]) for n, m in zip(phase, each, strict=True))

    # Each process gets a file as large as the largest. The device has twice the room, less what the
    # file system takes, and fio may add half of what is left (_check_room in iolab_agent/fio.py).
    needed = max(max(together(p), (together(p) + 2 * behind(p)) * 5 // 8) for p in phases)
    factor = min(1.0, room / needed)
    why = f"room for {around.room_mib} MiB: the same part of each size"
    if asked and around.size_mib is not None:
        factor, why = around.size_mib * _MIB / asked, "size_mib"
    if not asked and factor < 1:
        usual = max(_MIB, int(usual * factor) // _MIB * _MIB)
    size_mib = max(1, int((asked or usual) * (factor if asked else 1)) // _MIB)
    equal = len(set(sizes.values())) == 1
    for name, options in work.options.items():
        _give_size(work, name, sizes[name], factor, why, size_mib=size_mib, equal=equal)
        if factor < 1:
            _scale(work, name, factor, why)
        if not asked and options:
            work.say(name, "size", "not named", f"{size_mib} MiB", "size_mib chooses it")
    return size_mib


def _folder_names(options: Mapping[str, str]) -> int:
    """Return how many files a section names."""
    return options.get("filename", "").count("{folder}")


def _moved(options: Mapping[str, str], room: int) -> int:
    """Return how far the offsets of a section move the end of its last process, in bytes."""
    step = _amount(options.get("offset_increment"), room) or 0
    return (_amount(options.get("offset"), room) or 0) + step * (processes_of(options) - 1)


def _give_size(
    work: Work, name: str, asked: int, factor: float, why: str, *, size_mib: int, equal: bool
) -> None:
    options = work.options[name]
    makes_files = any(option in options for option in ("directory", "filename"))
    scaled = int(asked * factor)
    scaled = scaled // _MIB * _MIB if scaled >= _MIB else max(4096, scaled // 4096 * 4096)
    for option in ("size", "filesize"):
        text = options.get(option)
        if text is None:
            continue
        amount = _amount(text, work.around.room_mib * _MIB)
        if makes_files:
            each = [_amount(part, work.around.room_mib * _MIB) for part in text.split("-")]
            if None not in each and (factor != 1 or text.endswith("%")):
                kept = [max(4096, int((part or 0) * factor) // 4096 * 4096) for part in each]
                shown = "-".join(map(_shown, kept))
                work.change(name, option, "-".join(map(str, kept)), why, shown)
            continue
        counts = option == "size" or "size" not in options
        reason = why if factor != 1 else "as asked" if amount == scaled else _ROUNDED
        if text.endswith("%"):
            reason = f"of the room for {work.around.room_mib} MiB, as all sizes"
        if not counts:
            reason = "the file is as large as what is read or written of it"
        if amount is None:
            raise UserError(f"the fio job's {option} is not a size: {text[:40]!r}")
        same = amount == scaled and not text.endswith("%")
        if same and counts and equal and scaled == size_mib * _MIB:
            del options[option]
        else:
            work.take(name, option, _shown(scaled), reason)
    if asked and not makes_files and (not equal or scaled != size_mib * _MIB):
        options["size"] = str(scaled)


def _shown(size: int) -> str:
    return f"{size / _MIB:g} MiB" if size >= _MIB else f"{size >> 10} KiB"


def _scale(work: Work, name: str, factor: float, why: str) -> None:
    """Scale what is a part of a size."""
    blocks = _BLOCK.findall(",".join(work.options[name].get(o, "") for o in ("bs", "bsrange")))
    for option in _SCALED:
        text = work.options[name].get(option, "")
        amount = 0 if text.endswith("%") else bytes_of(text)
        if amount > 0:
            # In what is read or written, a block has room.
            least = 0 if option in _MOVES else max(4096, *map(bytes_of, blocks), 0)
            part = int(amount * factor) // 4096 * 4096
            kept = max(min(least, amount), part)
            whole = why if kept == part else f"{why}, but a block"
            work.change(name, option, str(kept), whole, _shown(kept))
    kind, colon, zones = work.options[name].get("random_distribution", "").partition(":")
    if kind == "zoned_abs":
        scaled = _ZONES.sub(lambda z: str(int(bytes_of(z[0]) * factor) // 4096 * 4096), zones)
        work.change(name, "random_distribution", kind + colon + scaled, why)
