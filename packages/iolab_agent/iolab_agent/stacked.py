# SPDX-License-Identifier: MIT
"""Devices over other devices of a cell: device-mapper tables, md arrays without metadata."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from iolab_agent.journal import Journal
from iolab_agent.named import number_of
from iolab_agent.plan import Device
from iolab_agent.settings import load_module
from iolab_base.errors import CannotRunError
from iolab_base.process import CommandError, run

_SYS_BLOCK = Path("/sys/block")
# linear and striped are dm-mod's own (drivers/md/Makefile).
_MODULES = {
    "crypt": "dm-crypt",
    "delay": "dm-delay",
    "thin": "dm-thin-pool",
    "thin-pool": "dm-thin-pool",
    "verity": "dm-verity",
}
_BLOCK = 4096
_CHUNK = 1 << 20


def make_stacked(journal: Journal, device: Device, nodes: Mapping[str, Path]) -> Path:
    """Make a device over others, whose nodes are given by name, and return its node.

    Raises CannotRunError if this kernel lacks the target or level, or dmsetup is missing.
    """
    if device.kind == "md":
        return _array(journal, device, [nodes[name] for name in device.members])
    return _mapped(journal, device, nodes)


def _mapped(journal: Journal, device: Device, nodes: Mapping[str, Path]) -> Path:
    if shutil.which("dmsetup") is None:
        raise CannotRunError("the measured machine has no dmsetup")
    targets = [line.split()[2] for line in device.table.splitlines()]
    for module in dict.fromkeys(("dm-mod", *(_MODULES.get(t, "dm-mod") for t in targets))):
        load_module(journal, module)
    lines = []
    table = device.table
    for name, node in nodes.items():
        table = table.replace(f"{{{name}}}", str(node))
    for line in table.splitlines():
        words = line.split()
        if words[2] == "verity":
            words[11] = _verity_root(words)
        elif words[2] == "thin":
            _make_thin(Path(words[3]), int(words[4]))
        lines.append(" ".join(words))
    # Ours by an identifier that nobody else has, whatever its name and number become.
    name, uuid = f"iolab-{device.name}", f"IOLAB-{os.urandom(16).hex()}"
    journal.note_new("dm", Path("/dev/mapper") / name, uuid)
    argv = ["dmsetup", "create", name, "--uuid", uuid]
    # dm-verity's device is read-only (verity_ctr() of drivers/md/dm-verity-target.c).
    argv += ["--readonly"] if "verity" in targets else []
    try:
        run(argv, timeout_s=60, stdin="\n".join(lines) + "\n")
    except CommandError as error:
        raise CannotRunError(f"this kernel refuses the table of {device.name}: {error}") from error
    return Path("/dev") / next(p.name for p in _SYS_BLOCK.glob("dm-*") if _uuid(p) == uuid)


def _uuid(disk: Path) -> str:
    return (disk / "dm/uuid").read_text().strip()


def _make_thin(pool: Path, number: int) -> None:
    name = (_SYS_BLOCK / pool.name / "dm/name").read_text().strip()
    run(["dmsetup", "message", name, "0", f"create_thin {number}"], timeout_s=60)


def _verity_root(words: list[str]) -> str:
    """Write the tree that a verity target checks its data by, and return its root digest."""
    data, tree = Path(words[4]), Path(words[5])
    salt = b"" if words[12] == "-" else bytes.fromhex(words[12])
    return write_verity_tree(data, tree, blocks=int(words[8]), start=int(words[9]), salt=salt)


def write_verity_tree(data: Path, tree: Path, *, blocks: int, start: int, salt: bytes) -> str:
    """Write dm-verity's tree of SHA-256 digests, and return the root's in hexadecimal.

    `blocks` (of 4 KiB) of `data` are covered; the tree begins at block `start` of `tree`. The
    format is that of Documentation/admin-guide/device-mapper/verity.rst, version 1.
    """

    def digests(content: bytes) -> bytes:
        parts = (content[at : at + _BLOCK] for at in range(0, len(content), _BLOCK))
        return b"".join(hashlib.sha256(salt + part).digest() for part in parts)

    zeros = bytes(_CHUNK)
    of_zeros = digests(zeros)
    level = b""
    with data.open("rb") as stream:
        left = blocks * _BLOCK
        while left:
            chunk = stream.read(min(left, _CHUNK))
            if not chunk:
                raise CannotRunError(f"{data} is smaller than the {blocks} blocks of its table")
            # A fresh device is all zeros: hashing them one by one takes minutes in virtual time.
            level += of_zeros if chunk == zeros else digests(chunk)
            left -= len(chunk)
    levels = []
    while len(level) > hashlib.sha256().digest_size:
        levels.append(level.ljust(-(-len(level) // _BLOCK) * _BLOCK, b"\0"))
        level = digests(levels[-1])
    handle = os.open(tree, os.O_WRONLY)
    try:
        os.pwrite(handle, b"".join(reversed(levels)), start * _BLOCK)
        os.fsync(handle)
    finally:
        os.close(handle)
    return level.hex()


_NEW_ARRAY = Path("/sys/module/md_mod/parameters/new_array")


def _array(journal: Journal, device: Device, members: list[Path]) -> Path:
    load_module(journal, device.level)
    if not _NEW_ARRAY.exists():
        raise CannotRunError("this kernel's md makes no arrays by name (md_mod has no new_array)")
    # add_named_array() of drivers/md/md.c: the name must begin so.
    disk = _SYS_BLOCK / f"md_iolab-{device.name}"
    journal.note_new("md", disk)
    try:
        _NEW_ARRAY.write_text(disk.name)
        _assemble(disk / "md", device, members)
    except OSError as error:
        raise CannotRunError(
            f"this kernel refuses the array {device.name}: {error.strerror} ({error.filename})"
        ) from error
    return Path("/dev") / disk.name


def _assemble(folder: Path, device: Device, members: list[Path]) -> None:
    """Describe an array in sysfs (Documentation/admin-guide/md.rst), and start it."""

    def write(name: str, value: object) -> None:
        (folder / name).write_text(str(value))

    # No metadata: members keep their whole size, and nothing is written to them.
    write("metadata_version", "none")
    write("level", device.level)
    write("raid_disks", len(members))
    if device.level == "raid0":
        write("chunk_size", device.chunk_kib << 10)
    sizes_kib = []
    for slot, node in enumerate(members):
        number = number_of(node)
        write("new_dev", f"{os.major(number)}:{os.minor(number)}")
        sizes_kib.append(int((_SYS_BLOCK / node.name / "size").read_text()) // 2)
        write(f"dev-{node.name}/slot", slot)
        write(f"dev-{node.name}/size", sizes_kib[-1])
    if device.level == "raid1":
        write("component_size", min(sizes_kib))
        # All members are zeros: there is nothing to synchronise beside the measured work.
        write("resync_start", "none")
    write("array_state", "active")
