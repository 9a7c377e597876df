# SPDX-License-Identifier: MIT
from __future__ import annotations

import gzip
import hashlib
import io
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from iolab_base.reading import (
    RefusedFileError,
    digest_regular,
    entries,
    exactly,
    in_root,
    lines_of_gzip,
    open_regular,
    read_gzip,
    read_regular,
)


def test_a_regular_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder/a"
    file.write_bytes(b"x" * 100)
    assert read_regular(file, 100) == b"x" * 100
    assert read_regular(file, 100, below=tmp_path) == b"x" * 100
    with open_regular(file, below=tmp_path / "folder") as stream:
        assert stream.read(3) == b"xxx"


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    for below in (None, tmp_path):
        with pytest.raises(FileNotFoundError):
            read_regular(tmp_path / "a/b", below=below)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


MAKERS: dict[str, Callable[[Path], object]] = {
    "folder": Path.mkdir,
    "fifo": os.mkfifo,
    "socket": _socket,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "link to itself": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_no_regular_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    MAKERS[kind](tmp_path / "a")
    with pytest.raises(RefusedFileError):
        read_regular(tmp_path / "a", below=tmp_path)


def test_a_link_is_followed_only_where_the_user_named_it(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "secret").write_text("key")
    (tmp_path / "store/a").symlink_to(tmp_path / "secret")
    (tmp_path / "store/up").symlink_to(tmp_path)
    assert read_regular(tmp_path / "store/a") == b"key"
    for name in ("a", "up/secret", "../secret"):
        with pytest.raises(RefusedFileError):
            read_regular(tmp_path / "store" / name, below=tmp_path / "store")


@pytest.mark.parametrize(
    ("links", "name", "leads_to"),
    [
        ({}, "a/b", "a/b"),
        ({}, "../../a", "a"),
        ({}, "a/../..", "."),
        ({"a": "b/c"}, "a/d", "b/c/d"),
        ({"a": "/etc"}, "a/passwd", "etc/passwd"),
        ({"a": "../../../../../etc"}, "a/passwd", "etc/passwd"),
        ({"a": "b", "b": "/c", "c": "d"}, "a", "d"),
        ({"lib": "usr/lib", "usr/lib/x": "../share"}, "lib/x/y", "usr/share/y"),
        ({"a": ".."}, "a/a/a/b", "b"),
        ({"a": "/dev/zero"}, "a", "dev/zero"),
        ({"a": "//etc"}, "a", "etc"),
    ],
)
def test_links_in_a_folder_take_it_for_the_root(
    links: dict[str, str], name: str, leads_to: str, tmp_path: Path
) -> None:
    for link, to in links.items():
        (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / link).symlink_to(to)
    assert in_root(tmp_path, Path(name)) == tmp_path / leads_to


@pytest.mark.parametrize("to", ["a", "/a", "b", "a/a"])
def test_a_link_to_itself_is_refused(to: str, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(to)
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(RefusedFileError):
        in_root(tmp_path, Path("a/x"))


def test_a_file_is_no_larger_than_it_may_be(tmp_path: Path) -> None:
    file = tmp_path / "a"
    with file.open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(RefusedFileError, match="1099511627776 bytes"):
        read_regular(file, 1 << 30)
    with pytest.raises(RefusedFileError, match="memory"):
        read_regular(file, 1 << 50)


def test_nothing_stays_open(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from iolab_base.reading import read_regular
root = Path(sys.argv[1])
before = len(os.listdir("/proc/self/fd"))
for name in ("a", "link", "up/a", "missing", "fifo"):
    for below in (None, root):
        try: read_regular(root / name, below=below)
        except OSError: pass
sys.exit(len(os.listdir("/proc/self/fd")) - before)
"""
    (tmp_path / "a").write_text("x")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "up").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


def test_a_stream_that_ends_early_is_said() -> None:
    assert exactly(io.BytesIO(b"abc"), 2) == b"ab"
    with pytest.raises(EOFError):
        exactly(io.BytesIO(b"abc"), 4)


def test_a_digest_is_of_a_file_of_a_bounded_size(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"x" * 3_000_000)
    assert digest_regular(file, 3_000_000) == hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(RefusedFileError, match="3000000 bytes"):
        digest_regular(file, 2_999_999)


def test_what_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(b"ab\n" * 1000))
    assert read_gzip(file, 3000) == b"ab\n" * 1000
    assert list(lines_of_gzip(file, 1 << 20)) == [b"ab\n"] * 1000
    with pytest.raises(RefusedFileError):
        read_gzip(file, 2999)
    # Each line counts, however short; and none is too long.
    with pytest.raises(RefusedFileError):
        list(lines_of_gzip(file, 999 << 10))
    with pytest.raises(RefusedFileError):
        list(lines_of_gzip(file, 1 << 20, longest=2))


def test_a_folders_names_are_what_they_are(tmp_path: Path) -> None:
    for name, make in MAKERS.items():
        make(tmp_path / name)
    found = entries(tmp_path, len(MAKERS), below=tmp_path)
    assert list(found) == sorted(MAKERS)
    assert stat.S_ISLNK(found["link to a device"].st_mode)
    with pytest.raises(RefusedFileError, match="more than"):
        entries(tmp_path, len(MAKERS) - 1, below=tmp_path)
    (tmp_path / "up").symlink_to(tmp_path)
    (tmp_path / "file").write_text("")
    for name in ("up", "file", "fifo"):
        with pytest.raises(RefusedFileError):
            entries(tmp_path / name, 100, below=tmp_path)
