# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icountvm import cpio
from icountvm.cpio import CpioEntry, write_cpio
from iolab_base import files
from iolab_base.errors import IolabError
from tests.icountvm.conftest import read_cpio
from tests.support.needs import needs


def test_an_archive_lists_each_directory_before_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "a.cpio"
    (tmp_path / "data").write_bytes(b"from a file")
    write_cpio(
        path,
        [
            CpioEntry.file("usr/bin/tool", tmp_path / "data", executable=True),
            CpioEntry.file("usr-local/x", b"1"),
            CpioEntry.symlink("bin", "usr/bin"),
            CpioEntry.directory("tmp", 0o1777),
            CpioEntry.char_device("dev/console", 5, 1),
        ],
    )
    found = {member.name: member for member in read_cpio(path.read_bytes())}
    assert list(found) == [
        *("bin", "dev", "dev/console", "tmp", "usr", "usr/bin", "usr/bin/tool"),
        *("usr-local", "usr-local/x"),
    ]
    assert found["usr/bin/tool"].data == b"from a file"
    assert stat.filemode(found["usr/bin/tool"].mode) == "-rwxr-xr-x"
    assert stat.filemode(found["usr-local/x"].mode) == "-rw-r--r--"
    assert stat.filemode(found["bin"].mode) == "lrwxrwxrwx"
    assert found["bin"].data == b"usr/bin"
    assert stat.filemode(found["tmp"].mode) == "drwxrwxrwt"
    assert stat.filemode(found["dev/console"].mode) == "crw-------"
    assert found["dev/console"].device == (5, 1)
    assert [member.inode for member in found.values()] == list(range(1, 10))


@settings(deadline=None)
@given(st.permutations([CpioEntry.file(f"a/{n}", bytes([n] * n)) for n in range(5)]))
def test_the_order_of_the_entries_does_not_matter(entries: list[CpioEntry]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write_cpio(Path(folder) / "a", entries)
        write_cpio(Path(folder) / "b", sorted(entries, key=lambda entry: entry.name))
        assert (Path(folder) / "a").read_bytes() == (Path(folder) / "b").read_bytes()


def test_two_things_of_one_name_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two different entries for init"):
        write_cpio(
            tmp_path / "a.cpio", [CpioEntry.file("init", b"1"), CpioEntry.file("init", b"2")]
        )
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_leaves_is_found_again(tmp_path: Path) -> None:
    left: list[Path] = []

    def looking() -> Iterator[CpioEntry]:
        left.extend(tmp_path.iterdir())
        yield CpioEntry.file("a", b"1")

    write_cpio(tmp_path / "a.cpio", looking())
    assert left
    assert all(path.name.startswith(files._SCRATCH) for path in left)
    assert [path.name for path in tmp_path.iterdir()] == ["a.cpio"]


@needs("cpio")
def test_gnu_cpio_reads_it(tmp_path: Path) -> None:
    write_cpio(
        tmp_path / "a.cpio", [CpioEntry.file("a/b", b"12345"), CpioEntry.symlink("a/c", "b")]
    )
    out = tmp_path / "out"
    out.mkdir()
    with (tmp_path / "a.cpio").open("rb") as stream:
        subprocess.run(["cpio", "-i", "--quiet"], stdin=stream, cwd=out, check=True)
    assert (out / "a" / "b").read_bytes() == b"12345"
    assert os.fspath((out / "a" / "c").readlink()) == "b"


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a.cpio"
    entries = [
        CpioEntry.file("a/b", b"12345", executable=True),
        CpioEntry.symlink("a/c", "b"),
        CpioEntry.char_device("dev/console", 5, 1),
    ]
    write_cpio(path, entries)
    found = list(cpio.read_cpio(path))
    assert [entry.name for entry in found] == ["a", "a/b", "a/c", "dev", "dev/console"]
    assert [entry for entry in found if entry in entries] == entries
    members = read_cpio(path.read_bytes())
    assert [(e.name, e.mode, e.data) for e in found] == [(m.name, m.mode, m.data) for m in members]


def test_a_damaged_archive_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.cpio"
    write_cpio(path, [CpioEntry.file("a", b"1" * 600)])
    whole = path.read_bytes()
    for data in (b"", whole[:200], b"070702" + whole[6:], whole[:30] + b"xx" + whole[32:]):
        path.write_bytes(data)
        with pytest.raises(IolabError, match=r"a\.cpio"):
            list(cpio.read_cpio(path))
    with pytest.raises(IolabError, match="cannot read"):
        list(cpio.read_cpio(tmp_path / "absent"))
