# SPDX-License-Identifier: MIT
"""Small archives, packages and kernels, made where a test needs them; nothing is fetched."""

from __future__ import annotations

import functools
import hashlib
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pysequoia
import pytest

from iolab.vm import mirror, suites
from iolab.vm.toolbox import Toolbox


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
    """A Debian archive in a folder, which an apt configuration names, and the key that signs it."""

    folder: Path
    key: pysequoia.Tsk

    def publish(self, suite: str, debs: list[Path], *, sha256: str | None = None) -> None:
        """Write the suite's index; `sha256` is a wrong one, for a broken mirror."""
        stanzas = []
        for deb in debs:
            pool = self.folder / "pool" / deb.name
            pool.parent.mkdir(exist_ok=True)
            pool.write_bytes(deb.read_bytes())
            control = subprocess.run(
                ["dpkg-deb", "--field", deb], check=True, capture_output=True, text=True
            ).stdout
            digest = sha256 or hashlib.sha256(deb.read_bytes()).hexdigest()
            stanzas.append(
                f"{control}Filename: pool/{deb.name}\nSize: {deb.stat().st_size}\n"
                f"SHA256: {digest}\n"
            )
        index = self.folder / "dists" / suite / "main" / "binary-amd64" / "Packages"
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_text("\n".join(stanzas))
        data = index.read_bytes()
        lines = [
            f"Codename: {suite}",
            f"Date: {datetime.now(UTC):%a, %d %b %Y %H:%M:%S} UTC",
            "SHA256:",
            f" {hashlib.sha256(data).hexdigest()} {len(data)} main/binary-amd64/Packages",
        ]
        text, clear = "".join(f"{line}\n" for line in lines), pysequoia.SignatureMode.CLEAR
        signed = pysequoia.sign(self.key.signer(), text.encode(), mode=clear)
        (index.parents[2] / "InRelease").write_bytes(signed)


@functools.cache
def _key() -> pysequoia.Tsk:
    return pysequoia.Tsk.generate("archive@example.org")


@pytest.fixture
def repository(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """The only apt source of the machine; its keys are in ``keyring.gpg``."""
    made = Repository(tmp_path / "mirror" / "debian", _key())
    made.folder.mkdir(parents=True)
    sources = tmp_path / "machine"
    sources.mkdir()
    (sources / "machine.list").write_text(f"deb file:{made.folder} bookworm main\n")
    (tmp_path / "keyring.gpg").write_bytes(bytes(made.key.extract_certificate()))
    configuration = tmp_path / "apt.conf"
    configuration.write_text(
        f'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "{sources}";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(configuration))
    monkeypatch.delenv("IOLAB_MIRROR_DEBIAN", raising=False)
    monkeypatch.delenv("IOLAB_MIRROR_UBUNTU", raising=False)
    mirror._apts_sources.cache_clear()
    mirror._apts_options.cache_clear()
    monkeypatch.setattr(suites, "_failed", {})
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
    (root / "zstd.py").write_text(
        "import shutil, sys\nshutil.copyfile(sys.argv[-3], sys.argv[-1])\n"
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
