# SPDX-License-Identifier: MIT
from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from iolab.targets.unpack import UnpackError, unpack

_SPARSE = {"GNU.sparse.map": "0,2", "GNU.sparse.size": "900"}
_NAMES = frozenset({"results/status.json", "agent.json", "results/cells/c000.json"})


def tar(path: Path, *members: tuple[tarfile.TarInfo, bytes], fmt: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=fmt) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return path


def member(name: str, data: bytes = b"{}", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def written(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def test_known_plain_files_are_unpacked_with_modes_of_our_own(tmp_path: Path) -> None:
    archive = tar(
        tmp_path / "a",
        member("results/cells/c000.json", b"x" * 3_000_000, mode=0o4777, uid=7),
        member("agent.json"),
    )
    out = tmp_path / "out"
    unpack(archive, _NAMES, out)
    assert written(out) == ["agent.json", "results/cells/c000.json"]
    assert (out / "results/cells/c000.json").read_bytes() == b"x" * 3_000_000
    assert (out / "results/cells/c000.json").stat().st_mode & 0o7111 == 0


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (member("../escaped"), "'../escaped', which is refused"),
        (member("results/../../escaped"), "which is refused"),
        (member("/tmp/iolab-escaped"), "which is refused"),
        (member("./agent.json"), "which is refused"),
        (member("results/status.json/"), "which is refused"),
        (member("results/other.json"), "'results/other.json', which is refused"),
        (member("a\nb\x1b[31m"), "which is refused"),
        (member("agent.json", type=tarfile.SYMTYPE, linkname="/etc/passwd", size=0), "no plain"),
        (member("agent.json", type=tarfile.LNKTYPE, linkname="/etc/passwd", size=0), "no plain"),
        (member("agent.json", type=tarfile.CHRTYPE, size=0), "no plain"),
        (member("agent.json", type=tarfile.BLKTYPE, size=0), "no plain"),
        (member("agent.json", type=tarfile.FIFOTYPE, size=0), "no plain"),
        (member("agent.json", type=tarfile.DIRTYPE, size=0), "no plain"),
        (member("agent.json", pax_headers={"path": "../escaped"}), "which is refused"),
        (member("agent.json", pax_headers={"size": "-5"}), "larger than|no whole tar"),
        (member("agent.json", pax_headers=_SPARSE), "no plain"),
        (member("results/status.json"), "'results/status.json', which is refused"),
        (member("agent.json", b"x" * 2000), "larger than 1000 bytes"),
    ],
)
def test_all_else_is_refused(
    tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes], sentence: str
) -> None:
    archive = tar(tmp_path / "a", member("results/status.json"), bad)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(UnpackError, match=sentence):
        unpack(archive, _NAMES, out, most_bytes=1000)
    assert written(tmp_path) == ["a", "out/results/status.json"]


def test_a_link_that_stands_there_is_not_followed(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a", member("agent.json"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/agent.json").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        unpack(archive, _NAMES, tmp_path / "out")
    assert not (tmp_path / "target").exists()


def test_what_is_no_tar_or_is_cut_is_said(tmp_path: Path) -> None:
    whole = tar(tmp_path / "a", member("agent.json", b"x" * 4000)).read_bytes()
    for data in (b"", b"nonsense" * 200, whole[:600], whole[:3000]):
        (tmp_path / "cut").write_bytes(data)
        with pytest.raises(UnpackError, match=r"no whole tar|cut short"):
            unpack(tmp_path / "cut", _NAMES, tmp_path / f"out{len(data)}")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_is_not_read_if_it_is_longer_than_any(tmp_path: Path, kind: bytes) -> None:
    archive = tmp_path / "a"
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 1 << 30
    with archive.open("wb") as stream:
        stream.write(info.tobuf(tarfile.GNU_FORMAT))
        stream.truncate(1 << 31)
    with pytest.raises(UnpackError, match="a header of 1073741824 bytes, which is refused"):
        unpack(archive, _NAMES, tmp_path / "out")


def test_headers_without_end_are_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2
    one = info.tobuf(tarfile.GNU_FORMAT) + b"x\0".ljust(512, b"\0")
    (tmp_path / "a").write_bytes(one * 20_000)
    with pytest.raises(UnpackError, match="headers without end"):
        unpack(tmp_path / "a", _NAMES, tmp_path / "out")


def test_a_result_that_fills_the_memory_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("results/cells/c000.json")
    info.size = 1 << 30
    with (tmp_path / "a").open("wb") as stream:
        stream.write(info.tobuf(tarfile.GNU_FORMAT))
        stream.truncate(info.size + 2048)
    with pytest.raises(UnpackError, match=r"c000\.json of 1073741824 bytes"):
        unpack(tmp_path / "a", _NAMES, tmp_path / "out")
    assert written(tmp_path / "out") == []
