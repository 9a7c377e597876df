# SPDX-License-Identifier: MIT
"""Packages of distributions: unpacked without their tools, and to no place but the folder."""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from icountvm import deb
from icountvm.archives import DamagedPackageError
from icountvm.packages import is_package, unpack_package
from iolab_base.errors import UserError
from tests.icountvm.conftest import make_deb
from tests.support.packages import pacman, rpm, tar

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


def content(root: Path) -> dict[str, bytes | str]:
    return {
        path.relative_to(root).as_posix(): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


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


def test_a_deb_is_unpacked_as_dpkg_does(tmp_path: Path) -> None:
    files = {"usr/bin/tool": b"#!/bin/sh\n", "usr/share/a file": b"x" * 70000, "etc/conf": b""}
    made = make_deb(tmp_path, "tool", files)
    root = tmp_path / "tool.root"
    (root / "usr/bin/tool").chmod(0o755)
    (root / "usr/bin/alias").symlink_to("tool")
    (root / "usr/bin/second").hardlink_to(root / "usr/bin/tool")
    argv = ["dpkg-deb", "--root-owner-group", "--build", str(root), str(made)]
    subprocess.run(argv, check=True, capture_output=True)
    deb.unpack(made, tmp_path / "ours")
    subprocess.run(["dpkg-deb", "--extract", made, tmp_path / "theirs"], check=True)

    def described(base: Path) -> dict[str, object]:
        return {
            path.relative_to(base).as_posix(): (path.lstat().st_mode, path.lstat().st_nlink)
            for path in base.rglob("*")
        }

    assert described(tmp_path / "ours") == described(tmp_path / "theirs")
    assert content(tmp_path / "ours") == content(tmp_path / "theirs")
    assert deb.control_fields(made)["Maintainer"] == "Nobody <nobody@example.org>"


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


def test_an_absolute_name_is_below_the_folder(tmp_path: Path) -> None:
    unpack_package(rpm(tmp_path / "a.rpm", {"/etc/x": b"1"}, bytes), tmp_path / "root")
    assert content(tmp_path / "root") == {"etc/x": b"1"}


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
    stripped = rpm(tmp_path / "b.rpm", FILES, gzip.compress, payload="drpm")
    with pytest.raises(UserError, match="holds a 'drpm' payload"):
        unpack_package(stripped, tmp_path / "root")


def test_a_description_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("arch = secret\n")
    package = tmp_path / "a.pkg.tar"
    package.write_bytes(tar({".PKGINFO": str(tmp_path / "secret")}))
    with pytest.raises(UserError, match=r"\.PKGINFO .*link"):
        unpack_package(package, tmp_path / "root")


def test_what_is_no_ar_archive_is_no_deb(tmp_path: Path) -> None:
    path = tmp_path / "x.deb"
    for data in (b"", b"!<arch>\n", b"!<arch>\n" + b"9" * 60, b"PK\x03\x04" * 100):
        path.write_bytes(data)
        with pytest.raises(DamagedPackageError):
            deb.control_fields(path)
        with pytest.raises(DamagedPackageError):
            deb.unpack(path, tmp_path / "root")
