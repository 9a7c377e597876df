# SPDX-License-Identifier: MIT
"""Parts of a virtual machine: named by their bytes, and linked where a machine has them."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from iolab_base.errors import IolabError
from iolab_base.files import cache_dir
from iolab_cluster.parts import Part, part_of, receive, settle, write_tar


def test_parts_travel_by_their_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "client"))
    folder = cache_dir("kernels", "mine")
    (folder / "lib").mkdir(parents=True)
    (folder / "vmlinuz").write_bytes(b"kernel")
    (folder / "vmlinuz").chmod(0o755)
    (folder / "lib" / "link").symlink_to("/vmlinuz")
    (folder / "facts.json").write_text("what a boot reported")
    cache_dir("programs").mkdir()
    cache_dir("programs", "abc").write_bytes(b"a program")
    parts = (part_of("kernels/mine"), part_of("programs/abc"))
    for part in parts:
        with (tmp_path / f"{part.digest}.tar").open("wb") as sink:
            write_tar(cache_dir(part.place), sink)
    (folder / "facts.json").unlink()
    assert part_of("kernels/mine") == parts[0]
    # Whoever has them uses its own.
    assert (Path(settle(parts).root) / "iolab/kernels/mine").resolve() == folder

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "worker"))
    other = cache_dir("kernels", "mine")
    other.mkdir(parents=True)
    (other / "vmlinuz").write_bytes(b"another kernel")
    assert settle(parts).missing == parts
    with pytest.raises(IolabError, match="kernels/mine arrived damaged"):
        receive(parts[0], tmp_path / f"{parts[1].digest}.tar")
    for part in parts:
        receive(part, tmp_path / f"{part.digest}.tar")
    root = Path(settle(parts).root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(root))
    assert part_of("kernels/mine") == parts[0]
    assert cache_dir("programs", "abc").read_bytes() == b"a program"
    assert (other / "vmlinuz").read_bytes() == b"another kernel"


def test_gnu_tar_reads_what_is_sent(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "run").write_bytes(b"#!/bin/sh\n")
    (folder / "lib" / "run").chmod(0o700)
    (folder / "link").symlink_to("lib/run")
    (folder / "facts.json").write_text("of one boot")
    with (tmp_path / "sent.tar").open("wb") as sink:
        write_tar(folder, sink)
    listed = subprocess.run(
        ["tar", "--list", "--verbose", "--numeric-owner", "--file", tmp_path / "sent.tar"],
        check=True,
        capture_output=True,
        text=True,
        env={"TZ": "UTC", "LC_ALL": "C", "PATH": "/usr/bin:/bin"},
    ).stdout.splitlines()
    assert [" ".join(line.split()) for line in listed] == [
        "drwxr-xr-x 0/0 0 1970-01-01 00:00 lib/",
        "-rwxr-xr-x 0/0 10 1970-01-01 00:00 lib/run",
        "lrwxr-xr-x 0/0 0 1970-01-01 00:00 link -> lib/run",
    ]


@pytest.mark.parametrize("name", ["/etc/evil", "../evil", "lib/../../evil"])
def test_a_file_outside_of_the_part_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = tmp_path / "sent.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    data = archive.read_bytes()
    part = Part("kernels/mine", hashlib.sha256(data).hexdigest(), len(data))
    with pytest.raises(IolabError, match="evil"):
        receive(part, archive)
    assert settle([part]).missing == (part,)
    assert list(tmp_path.rglob("evil")) == []
