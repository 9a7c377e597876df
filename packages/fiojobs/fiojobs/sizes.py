# SPDX-License-Identifier: MIT
"""Sizes of a translated job: kept where there is room, else scaled, keeping their ratios."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from fiojobs.options import NO_FILES, engine_of, files_of, is_direct
from fiojobs.table import Draft
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
_NO_SIZE: Final = re.compile("0+[a-z]*|not named", re.IGNORECASE)
_FEW_ZONES: Final = 8
_ROUNDED: Final = "rounded down to whole MiB, or below one to 4 KiB"
_MOVES = ("offset", "offset_increment")
_SCALED = ("offset", "offset_increment", "io_size", "zonesize", "zonerange", "zoneskip")


def give_bytes(work: Draft, name: str) -> None:
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
            # "512B" is 512 to fio.
            bare = end == "b" and not unit
            other = option in _SIZES and (base == 1000 or digits.startswith("0x") or bare)
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
    """Return whether a section asks for direct I/O of blocks, or at places, not a part of 4096."""
    names = ("bs", "bsrange", "bssplit", "ba", "offset", "offset_increment", "zoneskip")
    places = _BLOCK.findall(",".join(options.get(name, "") for name in names))
    return is_direct(options) and any(bytes_of(text) % 4096 for text in places)


def give_sizes(work: Draft, phases: Sequence[Sequence[str]], *, shared: bool, device: bool) -> int:
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
        if device and "-" in options.get("filesize", ""):
            last = options["filesize"].rpartition("-")[2]
            work.change(name, "filesize", last, "a device has one size")
        sizes[name] = _asked(options, room)
    with_files = [size for n, size in sizes.items() if engine_of(work.options[n]) not in NO_FILES]
    asked = max(with_files or sizes.values())
    usual = (around.size_mib or _USUAL_MIB) * _MIB
    # What uses no file does not make others smaller.
    sizes = {name: min(size, asked or usual) for name, size in sizes.items()}
    asked = asked or max(sizes.values())
    largest = max((size or usual for size in sizes.values()), default=usual)

    def together(phase: Sequence[str]) -> int:
        if shared or device:
            return largest
        return sum(processes_of(work.options[n]) for n in phase) * largest

    def behind(phase: Sequence[str]) -> int:
        """Return how far offsets move the ends of a phase's files."""
        each = [_moved(work.options[n], room) for n in phase]
        if shared or device:
            return max(each)
        return sum(m * processes_of(work.options[n]) for n, m in zip(phase, each, strict=True))

    # Each process gets a file as large as the largest. The device has twice the room, less what the
    # file system takes, and fio may add half of what is left (_check_room in iolab_agent/fio.py).
    needed = max(max(together(p), (together(p) + 2 * behind(p)) * 5 // 8) for p in phases)
    factor = min(1.0, room / needed)
    why = f"room for {around.room_mib} MiB: the same part of each size"
    if asked and around.size_mib is not None:
        factor, why = around.size_mib * _MIB / asked, "size_mib"
    if not asked:
        # Nobody named a size, so offsets alone are scaled, to where it leaves room.
        whole = max(map(together, phases))
        usual = min(usual, max(_MIB, int(usual * room / whole) // _MIB * _MIB))
        moved = max(map(behind, phases))
        factor = min(1.0, max(0.0, room * 1.6 - whole) / (2 * moved)) if moved else 1.0
    size_mib = max(1, int((asked or usual) * (factor if asked else 1)) // _MIB)
    equal = len(set(sizes.values())) == 1
    for name, options in work.options.items():
        text = options.get("size", "not named")
        # To fio, 0 is no size.
        unnamed = "filesize" not in options and _NO_SIZE.fullmatch(text) is not None
        if unnamed:
            options.pop("size", None)
        _give_size(work, name, sizes[name], factor, why, size_mib=size_mib, equal=equal)
        _scale(work, name, factor, why, percent=device and text.endswith("%"))
        if unnamed and engine_of(options) not in NO_FILES:
            work.say(name, "size", text, f"{size_mib} MiB", "size_mib chooses it")
    return size_mib


def _asked(options: Mapping[str, str], room: int) -> int:
    """Return how much a section reads or writes of its files, in bytes; 0 if it does not say."""
    size = options.get("size")
    own = _amount(size, room) or 0
    if not own or str(size).endswith("%"):
        # Zones in bytes tell how large the device is at least.
        own = max(own, zones if (zones := _zones(options)) > _USUAL_MIB * _MIB else 0)
    # Of several sizes, files have any between them.
    of_file = _amount(options.get("filesize", "").rpartition("-")[2], room) or 0
    return own or of_file * files_of(options)


def _zones(options: Mapping[str, str]) -> int:
    """Return the bytes of all zones that a section names, or of a few that are alike."""
    kind, _, listed = options.get("random_distribution", "").partition(":")
    if kind == "zoned_abs":
        return sum(bytes_of(zone) for zone in _ZONES.findall(listed))
    size, whole, skip = (
        bytes_of(options.get(name, "")) for name in ("zonesize", "zonerange", "zoneskip")
    )
    return _FEW_ZONES * (max(size, whole) + skip)


def _moved(options: Mapping[str, str], room: int) -> int:
    """Return how far the offsets of a section move the end of its last process, in bytes."""
    step = _amount(options.get("offset_increment"), room) or 0
    return (_amount(options.get("offset"), room) or 0) + step * (processes_of(options) - 1)


def _give_size(
    work: Draft, name: str, asked: int, factor: float, why: str, *, size_mib: int, equal: bool
) -> None:
    options, room = work.options[name], work.around.room_mib * _MIB
    makes_files = any(option in options for option in ("directory", "filename"))
    # A block has room in a size, if it had before.
    least = max(4096, min(_largest_block(options), asked))
    scaled = int(asked * factor)
    scaled = scaled // _MIB * _MIB if scaled >= _MIB else max(least, scaled // 4096 * 4096)
    told = [option for option in ("size", "filesize") if option in options]
    for option in told:
        text = options[option]
        amount = _amount(text, room)
        if makes_files:
            each = [_amount(part, room) or 0 for part in text.split("-")]
            if 0 not in each and (factor != 1 or text.endswith("%")):
                parts = [int(part * factor) // 4096 * 4096 for part in each]
                kept = [max(4096, part) for part in parts]
                shown = "-".join(map(_shown, kept))
                reason = why if kept == parts else f"{why}, but 4 KiB"
                work.change(name, option, "-".join(map(str, kept)), reason, shown)
            continue
        counts = option == told[0]
        reason = why if factor != 1 else "as asked" if amount == scaled else _ROUNDED
        if scaled == least > asked * factor:
            reason += ", but a block"
        if text.endswith("%"):
            reason = _of_room(work)
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


def _largest_block(options: Mapping[str, str]) -> int:
    blocks = _BLOCK.findall(",".join(options.get(o, "") for o in ("bs", "bsrange", "bssplit")))
    return max(map(bytes_of, blocks), default=0)


def _of_room(work: Draft) -> str:
    return f"of the room for {work.around.room_mib} MiB, as all sizes"


def _shown(size: int) -> str:
    return f"{size / _MIB:g} MiB" if size >= _MIB else f"{size / 1024:g} KiB"


def _scale(work: Draft, name: str, factor: float, why: str, *, percent: bool) -> None:
    """Scale what is a part of a size, in whole blocks if it was; `percent`: also shares of it."""
    if factor >= 1 and not percent:
        return
    block = _largest_block(work.options[name])
    block = 4096 if block % 4096 else max(4096, block)
    for option in _SCALED:
        text = work.options[name].get(option, "")
        share = text.endswith("%")
        amount = bytes_of(text)
        if share and percent and option in _MOVES:
            amount = _amount(text, work.around.room_mib * _MIB) or 0
        if amount > 0:
            # fio itself moves a share to a block.
            beside = 0 if share else amount % block
            # In what is read or written, a block has room.
            least = 0 if option in _MOVES else min(block, amount - beside)
            part = int(amount * factor) // block * block
            kept = max(least, part) + beside
            reason = (_of_room(work) if share else why) + (", but a block" if part < least else "")
            if share or kept != amount:
                work.change(name, option, str(kept), reason, _shown(kept))
    kind, colon, zones = work.options[name].get("random_distribution", "").partition(":")
    if kind == "zoned_abs" and factor < 1:
        scaled = _ZONES.sub(
            lambda z: str(max(block, int(bytes_of(z[0]) * factor) // block * block)), zones
        )
        work.change(name, "random_distribution", kind + colon + scaled, why)
