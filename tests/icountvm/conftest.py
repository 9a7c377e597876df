# SPDX-License-Identifier: MIT
"""Small archives, packages and kernels, made where a test needs them; nothing is fetched."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from icountvm import mirror
from icountvm.channel import make_channel
from icountvm.mirror import Archive
from icountvm.packages import unpack_package
from icountvm.parts import LOCK_VARIABLE, LockedPart, lock_text
from icountvm.toolbox import Toolbox
from iolab_base.errors import UserError

# What a guest may hand over.
MOST = dict.fromkeys(("a", "agent.json", "cells/c000.json", "status.json"), 1 << 20)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "iolab"


def make_deb(
    folder: Path,
    name: str,
    files: Mapping[str, bytes],
    *,
    version: str = "1.0-1",
    architecture: str = "amd64",
    depends: str = "",
) -> Path:
    """Make a Debian package with these files."""
    root = folder / f"{name}.root"
    (root / "DEBIAN").mkdir(parents=True)
    control = (
        f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n"
        "Maintainer: Nobody <nobody@example.org>\nDescription: for a test\n"
    )
    if depends:
        control += f"Depends: {depends}\n"
    (root / "DEBIAN" / "control").write_text(control)
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    deb = folder / f"{name}_{version}_{architecture}.deb"
    subprocess.run(
        ["dpkg-deb", "-Znone", "--root-owner-group", "--build", root, deb],
        check=True,
        capture_output=True,
    )
    return deb


@dataclass
class Repository:
    """An archive in a folder, which is the only source of the machine's apt, and a lock of it."""

    folder: Path
    lock: Path

    def publish(self, groups: Mapping[str, list[Path]], archive: Archive = "debian") -> None:
        """Put packages into the archive, and lock them."""
        (self.folder / "pool").mkdir(exist_ok=True)
        for deb in (deb for debs in groups.values() for deb in debs):
            shutil.copy(deb, self.folder / "pool")
        self.publish_lock(groups, archive)

    def publish_lock(self, groups: Mapping[str, list[Path]], archive: Archive = "debian") -> None:
        """Lock packages, whether the archive has them or not."""
        locked = {group: [_locked(deb, archive) for deb in debs] for group, debs in groups.items()}
        self.lock.write_text(lock_text(locked))


def _locked(deb: Path, archive: Archive) -> LockedPart:
    name, version, _ = deb.name.split("_")
    data = deb.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return LockedPart(archive, name, version, f"pool/{deb.name}", digest, len(data))


@pytest.fixture
def repository(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """An empty archive, as apt names it, and a lock that is in use."""
    made = Repository(tmp_path / "mirror" / "debian", tmp_path / "parts.lock")
    made.folder.mkdir(parents=True)
    made.publish({})
    sources = tmp_path / "machine"
    sources.mkdir()
    (sources / "machine.list").write_text(f"deb file:{made.folder} bookworm main\n")
    configuration = tmp_path / "apt.conf"
    configuration.write_text(
        f'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "{sources}";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(configuration))
    monkeypatch.setenv(LOCK_VARIABLE, str(made.lock))
    for archive in ("DEBIAN", "UBUNTU"):
        monkeypatch.delenv(f"IOLAB_MIRROR_{archive}", raising=False)
        monkeypatch.delenv(f"IOLAB_SNAPSHOT_{archive}", raising=False)
    mirror._apts_sources.cache_clear()
    mirror._apts_options.cache_clear()
    return made


def vmlinuz(release: str) -> bytes:
    """The first bytes of a kernel image of this release, as far as anybody looks at them."""
    image = bytearray(0x1000)
    image[0x202:0x206] = b"HdrS"
    image[0x20E:0x210] = struct.pack("<H", 0x300)
    text = f"{release} (builder@example.org) #1 SMP".encode() + b"\0"
    image[0x500 : 0x500 + len(text)] = text
    return bytes(image)


def module(depends: str = "") -> bytes:
    """A kernel module: an ELF file with nothing but its ".modinfo"."""
    names = b"\0.modinfo\0.shstrtab\0"
    info = b"license=GPL\0depends=" + depends.encode() + b"\0"
    sections = struct.pack("<IIQQQQIIQQ", *[0] * 10)
    sections += struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0, 64, len(info), 0, 0, 1, 0)
    at = 64 + len(info)
    sections += struct.pack("<IIQQQQIIQQ", 10, 3, 0, 0, at, len(names), 0, 0, 1, 0)
    header = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    header += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, at + len(names), 0, 64, 0, 0, 64, 3, 2)
    return header + info + names + sections


class FakeToolbox(Toolbox):
    """A toolbox whose depmod lists what it finds, and whose zstd only copies."""

    def command(self, name: str) -> list[str]:
        return [sys.executable, str(self.root / f"{name}.py")]


@pytest.fixture
def toolbox(tmp_path: Path) -> FakeToolbox:
    root = tmp_path / "toolbox"
    root.mkdir()
    (root / "depmod.py").write_text(
        "import pathlib, sys\n"
        "base = pathlib.Path(sys.argv[2]) / 'lib/modules' / sys.argv[3]\n"
        "found = sorted(p.relative_to(base).as_posix() for p in base.rglob('*.ko'))\n"
        "(base / 'modules.dep').write_text(''.join(f'{name}:\\n' for name in found))\n"
    )
    return FakeToolbox(root)


def child_environment() -> dict[str, str]:
    """The environment for another process of this test's."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


class Member(NamedTuple):
    """One member of an archive, as a reader sees it."""

    name: str
    inode: int
    mode: int
    device: tuple[int, int]
    data: bytes


def read_cpio(archive: bytes) -> Iterator[Member]:
    """Read a newc archive, by its specification and by nothing of the writer's."""
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        numbers = [int(archive[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        inode, mode, uid, gid, _, mtime, size, _, _, major, minor, name_size, _ = numbers
        name = archive[at + 110 : at + 110 + name_size - 1].decode()
        assert archive[at + 110 + name_size - 1] == 0
        assert (uid, gid, mtime) == (0, 0, 0)
        data_at = (at + 110 + name_size + 3) & ~3
        if name == "TRAILER!!!":
            assert not archive[data_at:].strip(b"\0")
            return
        yield Member(name, inode, mode, (major, minor), archive[data_at : data_at + size])
        at = (data_at + size + 3) & ~3


def elf_with_note(name: bytes, kind: int, behind: bytes = b"") -> bytes:
    """Return an ELF file whose only segment is one note; what is behind it is not loaded."""
    note = struct.pack("<III", len(name) + 1, 4, kind) + (name + b"\0").ljust(4, b"\0") + b"\0" * 4
    header = b"\x7fELF\2\1\1".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 4, 4, 120, 0, 0, len(note), len(note), 4)
    return header + segment + note + behind


def refused(package: Path, into: Path, words: str = "") -> None:
    """Assert that a package is refused in one short sentence."""
    with pytest.raises(UserError, match=f"is not a whole package.*{words}") as caught:
        unpack_package(package, into)
    assert len(str(caught.value)) < 1000
    assert "\n" not in str(caught.value)


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    """The memory that a guest shares with the host."""
    path = tmp_path / "channel"
    make_channel(path)
    return path
