# SPDX-License-Identifier: MIT
"""The functions of a kernel, as the kernel itself names them.

A kernel is booted once without counting, and hands over /proc/kallsyms and its types (BTF). All
measured machines boot with ``nokaslr``, so the addresses are the same in every boot. The plugin
reads a module's functions when the module is loaded.
"""

from __future__ import annotations

import io
import json
import logging
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from guestprof import symbols_work
from guestprof.btf import Btf
from icountvm.channel import CHANNEL_BYTES
from icountvm.guest import Guest, GuestWork
from icountvm.image import Image
from icountvm.kernels import Kernel
from icountvm.layout import LayoutError, member_offsets
from icountvm.qemu import GuestError, QemuMachine
from icountvm.toolbox import Toolbox
from iolab_base.cached import DAMAGED, make_folder
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.files import (
    atomic_write,
    cache_dir,
    canonical_json,
    digest_file,
    digest_of,
    scratch_dir,
)

_log = logging.getLogger(__name__)

# Numbers of functions without a symbol (packages/guestprof/guestprof/plugin/symbols.h).
RESERVED = {1: "[user]", 2: "[no symbol]", 3: "[callers not known]"}
FIRST_SYMBOL = 16
SYMBOL = np.dtype([("start", "<u8"), ("id", "<u4"), ("flags", "<u4")])

_ENTRY, _ERROR, _FAULT, _SWITCH, _OPEN, _MODULE, _EXIT, _DEVICE, EVENT, _STUBS, _START, _NAME = (
    1 << bit for bit in range(12)
)
USER_FLAG = 1 << 12
_INTERRUPT = 1 << 13
# Exceptions for which the processor pushes an error code, and those after which the instruction is
# executed again (the processor's manual, volume 3, chapter 6).
_WITH_ERROR = {
    *("double_fault", "invalid_tss", "segment_not_present", "stack_segment"),
    *("general_protection", "page_fault", "alignment_check", "control_protection"),
}
_FAULTS = _WITH_ERROR - {"double_fault"}
_NAMED = {
    "__switch_to": _SWITCH,
    "__x64_sys_openat": _OPEN,
    "do_init_module": _MODULE,
    "do_exit": _EXIT,
    "__set_task_comm": _NAME,
    "x86_64_start_kernel": _START,
    "start_secondary": _START,
}
_STUB_NAMES = {"irq_entries_start", "spurious_entries_start"}
# Their callees run in an interrupt. handle_softirqs was __do_softirq up to 6.9.
_INTERRUPT_NAMES = re.compile(
    r"asm_(sysvec_.*|common_interrupt|spurious_interrupt)|__do_softirq|handle_softirqs|"
    + "|".join(sorted(_STUB_NAMES))
)
# Functions that access a device's registers in memory: the local interrupt controller, the timer.
_DEVICE_NAMES = re.compile(
    r"_*(native_)?x?apic_|.*send_IPI|_*io_?apic_|(read|write)_hpet|hpet_|.*_hpet_"
)
_LINE = re.compile(r"([0-9a-f]{16}) ([a-zA-Z]) (\S+)(?:\t\[(\S+)\])?")
_PARTS = re.compile(r"\.(cold|part\.\d+\.cold|isra\.\d+\.cold)(\.\d+)?$")
_IGNORED = re.compile(r"__(pfx|cfi)_")
_MEMORY_MIB = 768
_FORMAT = 6


@dataclass(frozen=True)
class KernelSymbols:
    """The functions of a kernel.

    `names` are by number, from `FIRST_SYMBOL` on. `table` has (start, id, flags) by address; a gap
    has the id 0. `offsets` are those of structure members, by the names that the plugin knows.
    """

    names: list[str]
    table: npt.NDArray[np.void]
    offsets: dict[str, int]

    def write(self, path: Path, events: frozenset[str], first_free: int) -> None:
        """Write the plugin's input file.

        Calls of `events` are recorded one by one; `first_free` is the first number for modules.
        """
        table = self.table.copy()
        numbers = [FIRST_SYMBOL + n for n, name in enumerate(self.names) if name in events]
        table["flags"][np.isin(table["id"], numbers)] |= EVENT
        head = np.array(
            [len(table), table["start"][0], table["start"][-1], first_free],
            dtype="<u8",
        )
        atomic_write(path, head.tobytes() + table.tobytes())


def _flags(name: str) -> int:
    return _role(name) | (_INTERRUPT if _INTERRUPT_NAMES.fullmatch(name) else 0)


def _role(name: str) -> int:
    if name in _STUB_NAMES:
        return _ENTRY | _STUBS
    if match := re.fullmatch(r"asm_(exc|sysvec)_(.+)", name):
        flags = _ENTRY
        if match[1] == "exc":
            flags |= _ERROR if match[2] in _WITH_ERROR else 0
            flags |= _FAULT if match[2] in _FAULTS else 0
        return flags
    return _NAMED.get(name, 0) | (_DEVICE if _DEVICE_NAMES.match(name) else 0)


def _rank(kind: str, name: str) -> tuple[int, bool, bool]:
    """Return the rank of one of several names of a function; the greatest wins."""
    return _flags(name), not name.startswith(("__ia32_", "__do_sys_", "__se_sys_")), kind in "TW"


def _text_lines(kallsyms: str) -> Iterator[tuple[int, str, str]]:
    """Yield address, kind and name of the kernel's own functions."""
    for match in _LINE.finditer(kallsyms):
        if match[4] is None and match[2] in "tTwW" and not _IGNORED.match(match[3]):
            yield int(match[1], 16), match[2], match[3]


def parse_symbols(
    kallsyms: str, btf: bytes, built: Mapping[str, int] | None = None
) -> KernelSymbols:
    """Return the functions of a kernel from /proc/kallsyms and /sys/kernel/btf/vmlinux.

    BTF is not needed if offsets are known from the kernel's build (`built`). Raises CannotRunError
    if symbols or types are missing.
    """
    best: dict[int, tuple[str, str]] = {}
    gaps = set()
    for address, kind, name in _text_lines(kallsyms):
        if address < 1 << 47:
            continue
        if name in ("_etext", "_einittext"):
            gaps.add(address)
        elif address not in best or _rank(kind, name) > _rank(*best[address]):
            best[address] = (kind, name)
    known = {name for _, name in best.values()}
    if missing := sorted(({*_NAMED, *_STUB_NAMES, "asm_exc_page_fault"}) - known):
        raise CannotRunError(f"the kernel's symbols lack {', '.join(missing)}")
    names: list[str] = []
    numbers: dict[str, int] = {}
    rows = [(address, 0, 0) for address in gaps - set(best)]
    for address, (_, name) in sorted(best.items()):
        # "f.cold" is the rarely executed part of "f". Static functions may share a name.
        whole = _PARTS.sub("", name)
        if whole == name or whole not in numbers:
            numbers[name] = FIRST_SYMBOL + len(names)
            names.append(name)
        rows.append((address, numbers.get(name, numbers.get(whole, 0)), _flags(name)))
    rows.sort()
    rows.append((rows[-1][0] + 1, 0, 0))
    try:
        offsets = dict(built) if built else member_offsets(Btf(btf).offset)
    except LayoutError as error:
        raise CannotRunError(str(error)) from error
    return KernelSymbols(names, np.array(rows, dtype=SYMBOL), offsets)


def _built_offsets(kernel: Kernel) -> dict[str, int]:
    """Return the offsets that iolab recorded when it built the kernel; {} for any other."""
    try:
        noted = json.loads((kernel.vmlinuz.parent / "kernel.json").read_text())
        return {str(name): int(at) for name, at in noted["built"]["offsets"].items()}
    except (*DAMAGED, AttributeError):
        return {}


def _ask(kernel: Kernel, image: Image, toolbox: Toolbox, folder: Path) -> tuple[str, bytes]:
    """Boot a kernel and return its symbols and types."""
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.write(symbols_work.__file__, "symbols_work.py")
    guest = Guest(kernel, image, toolbox, QemuMachine("tcg", memory_mib=_MEMORY_MIB))
    most = dict.fromkeys(("agent.json", "btf", "kallsyms"), CHANNEL_BYTES)
    results = folder / "results"
    guest.work(GuestWork(code.getvalue(), "symbols_work"), b"-", results, most)
    kallsyms = (results / "kallsyms").read_text(errors="replace")
    return kallsyms, (results / "btf").read_bytes()


def _stored(folder: Path) -> KernelSymbols | None:
    try:
        described: dict[str, Any] = json.loads((folder / "symbols.json").read_text())
        if digest_file(folder / "symbols.npy") != described["table"]:
            return None
        table = np.load(folder / "symbols.npy", allow_pickle=False)
        return KernelSymbols(list(described["names"]), table, dict(described["offsets"]))
    except DAMAGED:
        return None


def kernel_symbols(kernel: Kernel, image: Image, toolbox: Toolbox) -> KernelSymbols:
    """Return the functions of a kernel; boot it to get them if the cache lacks them.

    Raises CannotRunError if the kernel does not boot, or lacks symbols or types.
    """

    def make(folder: Path) -> None:
        _log.info("asking kernel %s for its symbols", kernel.name)
        try:
            with scratch_dir(folder) as work:
                symbols = parse_symbols(*_ask(kernel, image, toolbox, work), _built_offsets(kernel))
        except GuestError as error:
            raise CannotRunError(
                f"kernel {kernel.name} did not report its symbols: {error.reason}"
            ) from error
        np.save(folder / "symbols.npy", symbols.table, allow_pickle=False)
        described = {
            "names": symbols.names,
            "offsets": symbols.offsets,
            "table": digest_file(folder / "symbols.npy"),
        }
        atomic_write(folder / "symbols.json", canonical_json(described))

    key = digest_of({"kernel": kernel.identity, "format": _FORMAT})[:16]
    folder = cache_dir("symbols", key)
    make_folder(folder, make, good=lambda path: _stored(path) is not None)
    if (symbols := _stored(folder)) is None:
        raise IolabError(f"another process removed the symbols in {folder}: try again")
    return symbols
