# SPDX-License-Identifier: MIT
"""Packages of distributions: unpacked without their tools, and to no place but the folder."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from icountvm.packages import is_package, unpack_package
from iolab_base.errors import UserError
from tests.support.packages import content, pacman, rpm, tar

Compress = Callable[[bytes], bytes]
FILES: dict[str, bytes | str] = {
    "usr/lib/modules/6.1/vmlinuz": b"kernel" * 10000,
    "boot/vmlinuz-6.1": "../usr/lib/modules/6.1/vmlinuz",
    "empty": b"",
}


def _lzma_alone(data: bytes) -> bytes:
    return lzma.compress(data, format=lzma.FORMAT_ALONE)


def _frames(data: bytes) -> bytes:
    """As a zstd with several threads: a frame for each part."""
    half = len(data) // 2
    return zstandard.compress(data[:half]) + zstandard.compress(data[half:])


COMPRESSIONS: list[Compress] = [
    *(bytes, gzip.compress, bz2.compress, lzma.compress, _lzma_alone),
    *(zstandard.compress, _frames),
]


@pytest.mark.parametrize("compress", COMPRESSIONS)
@pytest.mark.parametrize("kind", ["rpm", "pacman", "deb"])
def test_every_compression_is_unpacked(kind: str, compress: Compress, tmp_path: Path) -> None:
    if kind == "rpm":
        package = rpm(tmp_path / "kernel.rpm", FILES, compress)
    elif kind == "pacman":
        package = pacman(tmp_path / "linux.pkg.tar.zst", FILES, compress)
    else:
        control = tar({"./control": b"Package: linux\nArchitecture: amd64\n"})
        members = [("debian-binary", b"2.0\n"), ("control.tar", compress(control))]
        package = tmp_path / "linux.deb"
        package.write_bytes(b"!<arch>\n")
        with package.open("ab") as stream:
            for name, data in [*members, ("data.tar.x", compress(tar(FILES)))]:
                stream.write(f"{name:16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode())
                stream.write(data + b"\n" * (len(data) % 2))
    assert is_package(package)
    unpack_package(package, tmp_path / "root")
    unpacked = content(tmp_path / "root")
    unpacked.pop(".PKGINFO", None)
    assert unpacked == FILES


@pytest.mark.parametrize(
    "files",
    [
        {"../outside": b"x"},
        {"a/../../outside": b"x"},
        {"way": "..", "way/outside": b"x"},
        {"way": "/tmp", "way/outside": b"x"},
    ],
)
@pytest.mark.parametrize("write", [rpm, pacman])
def test_nothing_is_written_outside(
    files: dict[str, bytes | str], write: Callable[..., Path], tmp_path: Path
) -> None:
    name = "evil.rpm" if write is rpm else "evil.pkg.tar"
    (tmp_path / "in").mkdir()
    package = write(tmp_path / "in" / name, files, bytes)
    with pytest.raises(UserError, match="leads out of the folder"):
        unpack_package(package, tmp_path / "in" / "root")
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, zstandard.compress])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.99])
def test_a_truncated_package_is_refused(share: float, compress: Compress, tmp_path: Path) -> None:
    noise = bytes(range(256)) * 400
    for made in (
        rpm(tmp_path / "a.rpm", {"a": noise}, compress),
        pacman(tmp_path / "a.pkg.tar.zst", {"a": noise}, compress),
    ):
        whole = made.read_bytes()
        cut = int(share * len(whole))
        if not any(whole[cut:]):
            continue  # the zeros behind a plain archive's end
        made.write_bytes(whole[:cut])
        with pytest.raises(UserError, match="is not a"):
            unpack_package(made, tmp_path / "root")


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    for made in (
        rpm(tmp_path / "a.rpm", FILES, gzip.compress, architecture="aarch64"),
        pacman(tmp_path / "a.pkg.tar.zst", FILES, gzip.compress, architecture="aarch64"),
    ):
        with pytest.raises(UserError, match="is for aarch64: the virtual machines are amd64"):
            unpack_package(made, tmp_path / "root")


def test_a_description_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("arch = secret\n")
    package = tmp_path / "a.pkg.tar"
    package.write_bytes(tar({".PKGINFO": str(tmp_path / "secret")}))
    with pytest.raises(UserError, match=r"\.PKGINFO .*link"):
        unpack_package(package, tmp_path / "root")
