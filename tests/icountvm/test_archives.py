# SPDX-License-Identifier: MIT
"""Packages that attack whoever unpacks them."""

from __future__ import annotations

import io
import lzma
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from icountvm import archives
from icountvm.archives import unpack_cpio, unpack_tar
from icountvm.packages import unpack_package
from iolab_base.errors import IolabError, UserError
from tests.icountvm.conftest import refused
from tests.support.bombs import BOMB, bomb, little_memory
from tests.support.packages import cpio, deb, tar

__all__ = ["little_memory"]

CONTROL = tar({"control": b"Package: linux\nArchitecture: amd64\n"})
SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}


def member(name: str, data: bytes = b"x", **fields: object) -> bytes:
    """Return a tar of one member."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def header(kind: bytes, size: int, name: str = "x") -> bytes:
    """Return a tar's header alone."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("way", ["gzip", "xz", "zstd"])
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_of_half_a_gigabyte_is_not_read(kind: bytes, way: str, tmp_path: Path) -> None:
    large = bomb(way, BOMB, header(kind, BOMB), member("control"))
    refused(deb(tmp_path / "a.deb", large, tar({})), tmp_path / "root")
    refused(deb(tmp_path / "b.deb", CONTROL, large), tmp_path / "root")
    assert not any((tmp_path / "root").glob("*"))


@pytest.mark.usefixtures("little_memory")
def test_headers_without_end_are_refused(tmp_path: Path) -> None:
    names = (header(b"L", 60000) + bytes(60416)) * 100
    data = zstandard.compress(names) * 50
    refused(deb(tmp_path / "a.deb", CONTROL, data), tmp_path / "root", "headers")


@pytest.mark.parametrize(
    "data",
    [
        member("x", b"3\n0\n0\n0\n", pax_headers=SPARSE),
        member("x", pax_headers={"GNU.sparse.map": "0,1"}),
        member("x", pax_headers={"size": "-5"}),
        member("x", pax_headers={"size": "9" * 30}),
        member("x", pax_headers={"size": "9" * 5000}),
        member("x", pax_headers={"path": "../outside"}),
        member("x", pax_headers={"path": "/".join("a" * 65)}),
        member("x", pax_headers={"path": "a" * 1025}),
        member("x", pax_headers={"path": "a" * 300}),
        member("x", b"", type=tarfile.SYMTYPE, pax_headers={"linkpath": "a\0b"}),
        member("x", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
        header(b"S", 0) + bytes(1024),
        header(b"Z", 0) + bytes(1024),
        header(b"0", -1) + bytes(1024),
        header(b"0", -(1 << 40)) + bytes(1024),
        header(b"0", 1 << 62) + bytes(1024),
        header(b"0", 7 << 30) + bytes(1024),
        header(b"x", 8) + b"5 a=".ljust(512, b"\0") + bytes(1024),
        header(b"x", 512) + bytes(2048),
        tar({"a": "a", "a/x": b"x"}),
        tar({"a": "b", "b": "a", "a/x": b"x"}),
        tar({"a": b"x", "a/b": b"x"}),
    ],
)
def test_members_that_no_package_has_are_refused(data: bytes, tmp_path: Path) -> None:
    refused(deb(tmp_path / "a.deb", CONTROL, data), tmp_path / "root")
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize("write", [tar, cpio])
def test_folders_behind_links_are_no_deeper(write: Callable[..., bytes], tmp_path: Path) -> None:
    """Deeper ones could not be removed: Python descends by recursion."""
    files: dict[str, bytes | str] = {}
    for n in range(40):
        files[f"l{n}/{'d/' * 50}x"] = b""
        files[f"l{n + 1}"] = f"l{n}/{'d/' * 50}"
    unpack = unpack_tar if write is tar else unpack_cpio
    try:
        with pytest.raises(ValueError, match="deeper"):
            unpack(io.BytesIO(write(files)), tmp_path / "root")
        shutil.rmtree(tmp_path / "root")
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "root"], check=True)


@pytest.mark.parametrize("write", [tar, cpio])
def test_a_package_has_so_many_bytes_and_files(
    write: Callable[..., bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack = unpack_tar if write is tar else unpack_cpio
    for limit, value, fits in (("_MOST_MEMBERS", 50, 50), ("MOST_BYTES", 5000, 5)):
        monkeypatch.setattr(archives, limit, value)
        root = tmp_path / limit
        files = {f"f{n}": b"x" * 1000 for n in range(fits)}
        unpack(io.BytesIO(write(files)), root)
        shutil.rmtree(root)
        with pytest.raises(ValueError, match="unpacks to more than"):
            unpack(io.BytesIO(write({**files, "one more": b"x"})), root)
        assert len(list(root.iterdir())) == fits
        monkeypatch.undo()


def test_the_disk_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage(tmp_path).free
    monkeypatch.setattr(archives, "MOST_BYTES", 1 << 60)
    monkeypatch.setattr(archives, "_KEPT_FREE", free - (64 << 20))
    package = deb(tmp_path / "a.deb", CONTROL, header(b"0", 2 << 30) + bytes(1024))
    with pytest.raises(IolabError, match="no space left") as caught:
        unpack_package(package, tmp_path / "root")
    assert not isinstance(caught.value, UserError)
    assert not any((tmp_path / "root").iterdir())


@pytest.mark.parametrize("field", [0, 1, 4, 6, 11])
@pytest.mark.parametrize("text", [b"-0000001", b"+0000001", b"0x000001", b"       1", b"0_000001"])
def test_a_number_of_cpio_is_digits(field: int, text: bytes, tmp_path: Path) -> None:
    archive = bytearray(cpio({"a": b"x"}))
    archive[6 + 8 * field : 14 + 8 * field] = text
    with pytest.raises(ValueError, match="no cpio archive"):
        unpack_cpio(io.BytesIO(bytes(archive)), tmp_path)


def test_a_link_of_cpio_is_no_longer_than_a_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="longer"):
        unpack_cpio(io.BytesIO(cpio({"a": "x" * 5000})), tmp_path)


@pytest.mark.parametrize("fmt", ["gnu", "posix", "ustar", "v7"])
def test_what_tar_writes_is_unpacked_as_tar_does(fmt: str, tmp_path: Path) -> None:
    there = tmp_path / "there"
    long = "d" * 60 if fmt in ("ustar", "v7") else "d" * 150
    (there / long).mkdir(parents=True)
    (there / long / ("f" * 30)).write_bytes(b"y" * 1500)
    (there / "empty").write_bytes(b"")
    (there / "link").symlink_to("t" * (90 if fmt in ("ustar", "v7") else 200))
    os.link(there / "empty", there / "other")
    (there / "tool").write_bytes(b"#!")
    (there / "tool").chmod(0o755)
    os.utime(there / "tool", (1.5, 1.5))
    argv = ["tar", f"--format={fmt}", "-C", str(there), "-cf", "-", "."]
    made = subprocess.run(argv, check=True, capture_output=True).stdout
    unpack_tar(io.BytesIO(made), tmp_path / "ours")

    def described(root: Path) -> dict[str, object]:
        return {
            path.relative_to(root).as_posix(): (
                path.lstat().st_mode,
                path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes(),
            )
            for path in root.rglob("*")
        }

    assert described(tmp_path / "ours") == described(there)
    assert (tmp_path / "ours/empty").samefile(tmp_path / "ours/other")


def test_a_truncated_archive_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = tar({"a": b"x" * 700, "b": "a"})
    for end in (0, 100, 511, 512, 700, 1212, 1535, 1536, 2000):
        with pytest.raises((EOFError, ValueError)):
            unpack_tar(io.BytesIO(whole[:end]), tmp_path / f"{end}")
    packed = lzma.compress(whole)
    refused(deb(tmp_path / "a.deb", CONTROL, packed[:-20]), tmp_path / "root")
