# SPDX-License-Identifier: MIT
from __future__ import annotations

import io
import subprocess
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from iolab_base.tars import TarError, members, tar_bytes, unpack

MOST = {"status.json": 1000, "cells/c000.json": 4_000_000, "a.dat": 1 << 40}
SPARSE_1_0 = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}


def member(name: str, data: bytes = b"{}", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tar(*found: tuple[tarfile.TarInfo, bytes], fmt: int = tarfile.PAX_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=fmt) as archive:
        for info, data in found:
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def written(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


@pytest.mark.parametrize("fmt", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_known_plain_files_are_unpacked_with_modes_of_our_own(fmt: int, tmp_path: Path) -> None:
    data = tar(
        member("cells/c000.json", b"x" * 3_000_000, mode=0o4777, uid=7, mtime=1.5),
        member("status.json"),
        fmt=fmt,
    )
    unpack(io.BytesIO(data), MOST, tmp_path)
    assert written(tmp_path) == ["cells/c000.json", "status.json"]
    assert (tmp_path / "cells/c000.json").read_bytes() == b"x" * 3_000_000
    assert (tmp_path / "cells/c000.json").stat().st_mode & 0o7111 == 0


@pytest.mark.parametrize("fmt", ["gnu", "posix", "ustar", "v7"])
def test_what_tar_itself_writes_is_read(fmt: str, tmp_path: Path) -> None:
    (tmp_path / "status.json").write_bytes(b"{}")
    (tmp_path / "a.dat").write_bytes(b"y" * 1500)
    argv = ["tar", f"--format={fmt}", "-C", str(tmp_path), "-cf", "-", "status.json", "a.dat"]
    made = subprocess.run(argv, check=True, capture_output=True).stdout
    assert list(read_all(made)) == [("status.json", b"{}"), ("a.dat", b"y" * 1500)]


def read_all(data: bytes) -> list[tuple[str, bytes]]:
    stream = io.BytesIO(data)
    return [(name, stream.read(size)) for name, size in members(stream)]


@pytest.mark.parametrize(
    "bad",
    [
        member("../escaped"),
        member("cells/../../escaped"),
        member("/tmp/iolab-escaped"),
        member("./status.json"),
        member("other.json"),
        member("a\nb\x1b[31m"),
        member("cells/c000.json", type=tarfile.SYMTYPE, linkname="/etc/passwd", size=0),
        member("cells/c000.json", type=tarfile.LNKTYPE, linkname="/etc/passwd", size=0),
        member("cells/c000.json", type=tarfile.CHRTYPE, size=0),
        member("cells/c000.json", type=tarfile.BLKTYPE, size=0),
        member("cells/c000.json", type=tarfile.FIFOTYPE, size=0),
        member("cells/c000.json", type=tarfile.CONTTYPE),
        member("status.json", b"x" * 1001),
        member("cells/c000.json", b"x" * 4_000_001),
        member("other", pax_headers={"path": "status.json"}),
        member("other", pax_headers=SPARSE_1_0),
    ],
)
def test_all_else_is_refused(bad: tuple[tarfile.TarInfo, bytes], tmp_path: Path) -> None:
    data = tar(member("a.dat", b"whole"), bad)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(TarError):
        unpack(io.BytesIO(data), MOST, out)
    assert written(tmp_path) == ["out/a.dat"]


@pytest.mark.parametrize(
    "lie",
    [{"size": "-5"}, {"size": "5"}, {"size": "99999999999"}, {"path": "/etc/x"}, SPARSE_1_0],
)
def test_an_extended_header_changes_nothing(lie: dict[str, str], tmp_path: Path) -> None:
    unpack(io.BytesIO(tar(member("status.json", pax_headers=lie))), MOST, tmp_path)
    assert (tmp_path / "status.json").read_bytes() == b"{}"
    assert written(tmp_path) == ["status.json"]


@pytest.mark.parametrize(
    "kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE]
)
@pytest.mark.parametrize("size", [1 << 21, (8 << 30) - 1])
def test_no_header_is_allocated(kind: bytes, size: int) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    endless = io.BytesIO(info.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    tracemalloc.start()
    try:
        with pytest.raises(TarError):
            read_all(endless.getvalue())
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_small_headers_without_end_are_refused() -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 512
    with pytest.raises(TarError):
        read_all((info.tobuf(tarfile.GNU_FORMAT) + bytes(512)) * 5000)


@pytest.mark.parametrize("size", [-1, -5, -(1 << 40), 8 << 30, 1 << 62])
def test_a_size_beyond_the_octal_ones_is_refused(size: int) -> None:
    info = tarfile.TarInfo("a.dat")
    info.size = size
    with pytest.raises(TarError):
        read_all(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))


def test_a_link_that_stands_there_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/status.json").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        unpack(io.BytesIO(tar(member("status.json"))), MOST, tmp_path / "out")
    assert not (tmp_path / "target").exists()


def test_a_file_that_is_cut_is_said(tmp_path: Path) -> None:
    whole = tar(member("a.dat", b"x" * 3_000_000))
    with pytest.raises(TarError, match="cut short"):
        unpack(io.BytesIO(whole[:2_000_000]), MOST, tmp_path)


def test_the_largest_archive_of_the_files_is_known() -> None:
    most = {f"cells/c{n:03}.json": 0 for n in range(300)}
    for fmt in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        made = tar(*(member(name, b"", mtime=1.5) for name in most), fmt=fmt)
        assert len(made) <= tar_bytes(most)


def test_every_cut_and_every_changed_byte_of_a_header_is_said() -> None:
    whole = tar(member("a.dat", b"x" * 700), fmt=tarfile.USTAR_FORMAT)
    for end in (0, 100, 512, 600, 1211, 1300, 1535):
        with pytest.raises(TarError):
            read_all(whole[:end])
    for at in range(345):
        with pytest.raises(TarError):
            read_all(whole[:at] + bytes([whole[at] ^ 0x81]) + whole[at + 1 :])
