# SPDX-License-Identifier: MIT
"""Debian packages, read without dpkg."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from icountvm.archives import DamagedPackageError
from icountvm.deb import control_fields, unpack
from tests.icountvm.conftest import make_deb, refused
from tests.support.packages import content, deb, tar


def test_an_ar_archive_has_few_members(tmp_path: Path) -> None:
    one = f"{'x':16}{0:<12}{0:<6}{0:<6}{100644:<8}{0:<10}`\n".encode()
    whole = deb(tmp_path / "a.deb", tar({"control": b"Package: linux\n"}), tar({})).read_bytes()
    for many in (one * 1000, one.replace(b"0         `", b"-1        `"), one[:30]):
        (tmp_path / "a.deb").write_bytes(whole[:8] + many + whole[8:])
        refused(tmp_path / "a.deb", tmp_path / "root")


def test_a_deb_is_unpacked_as_dpkg_does(tmp_path: Path) -> None:
    files = {"usr/bin/tool": b"#!/bin/sh\n", "usr/share/a file": b"x" * 70000, "etc/conf": b""}
    made = make_deb(tmp_path, "tool", files)
    root = tmp_path / "tool.root"
    (root / "usr/bin/tool").chmod(0o755)
    (root / "usr/bin/alias").symlink_to("tool")
    (root / "usr/bin/second").hardlink_to(root / "usr/bin/tool")
    argv = ["dpkg-deb", "--root-owner-group", "--build", str(root), str(made)]
    subprocess.run(argv, check=True, capture_output=True)
    unpack(made, tmp_path / "ours")
    subprocess.run(["dpkg-deb", "--extract", made, tmp_path / "theirs"], check=True)

    def described(base: Path) -> dict[str, object]:
        return {
            path.relative_to(base).as_posix(): (path.lstat().st_mode, path.lstat().st_nlink)
            for path in base.rglob("*")
        }

    assert described(tmp_path / "ours") == described(tmp_path / "theirs")
    assert content(tmp_path / "ours") == content(tmp_path / "theirs")
    assert control_fields(made)["Maintainer"] == "Nobody <nobody@example.org>"


def test_what_is_no_ar_archive_is_no_deb(tmp_path: Path) -> None:
    path = tmp_path / "x.deb"
    thin = make_deb(tmp_path, "x", {}).read_bytes().replace(b"!<arch>", b"!<thin>", 1)
    for data in (thin, b"", b"!<arch>\n", b"!<arch>\n" + b"9" * 60, b"PK\x03\x04" * 100):
        path.write_bytes(data)
        with pytest.raises(DamagedPackageError):
            control_fields(path)
        with pytest.raises(DamagedPackageError):
            unpack(path, tmp_path / "root")


def test_fields_are_those_that_dpkg_tells(tmp_path: Path) -> None:
    made = make_deb(tmp_path, "tool", {}, version="1:2.0-3", depends="libc6 (>= 2.36), xz-utils")
    argv = ["dpkg-deb", "--field", str(made)]
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    theirs = dict(line.split(": ", 1) for line in told.splitlines())
    assert control_fields(made) == theirs
    assert theirs["Version"] == "1:2.0-3"


def test_a_line_that_goes_on_is_no_field_of_its_own(tmp_path: Path) -> None:
    control = b"Package: tool\nDescription: short\n Homepage: none\n .\nSize:  7 \n"
    made = deb(tmp_path / "a.deb", tar({"./md5sums": b"", "./control": control}), tar({}))
    assert control_fields(made) == {"Package": "tool", "Description": "short", "Size": "7"}


def test_a_package_without_control_or_data_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DamagedPackageError, match="control"):
        control_fields(deb(tmp_path / "a.deb", tar({"other": b""}), tar({})))
    whole = deb(tmp_path / "b.deb", tar({"control": b"Package: b\n"}), tar({})).read_bytes()
    (tmp_path / "b.deb").write_bytes(whole.replace(b"data.tar", b"note.tar"))
    assert control_fields(tmp_path / "b.deb") == {"Package": "b"}
    with pytest.raises(DamagedPackageError, match=r"data\.tar"):
        unpack(tmp_path / "b.deb", tmp_path / "root")
