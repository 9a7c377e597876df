# SPDX-License-Identifier: MIT
"""What a cluster's worker does with parts, without a cluster."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from iolab_base.files import cache_dir
from iolab_cluster.parts import Part, part_of, write_tar
from iolab_cluster.worker import _cells, _packed, add_chunk, has_parts, own_facts, take_part

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Part, bytes]:
    """A part of a client, and its tar."""
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "client"))
        folder = cache_dir("kernels", "mine")
        folder.mkdir(parents=True)
        (folder / "vmlinuz").write_bytes(b"kernel" * 1000)
        stream = io.BytesIO()
        write_tar(folder, stream)
        return part_of("kernels/mine"), stream.getvalue()


def test_a_part_that_comes_in_pieces_is_taken_in_and_then_there(
    packed: tuple[Part, bytes],
) -> None:
    part, data = packed
    assert has_parts((part,)) == ("", (part,), "")
    for at in range(0, len(data), 4000):
        assert add_chunk(part, "one", at, data[at : at + 4000]) == ""
    assert take_part(part, "one") == ""
    root, missing, error = has_parts((part,))
    assert (missing, error) == ((), "")
    assert (Path(root) / "iolab/kernels/mine/vmlinuz").read_bytes() == b"kernel" * 1000
    assert not list(cache_dir("cluster", "incoming").iterdir())


def test_a_damaged_part_is_refused_and_forgotten(packed: tuple[Part, bytes]) -> None:
    part, data = packed
    assert add_chunk(part, "one", 0, data[:-512]) == ""
    assert "kernels/mine" in take_part(part, "one")
    assert not list(cache_dir("cluster", "incoming").iterdir())
    assert take_part(part, "nobody") != ""
    assert has_parts((part,)) == ("", (part,), "")


def test_two_senders_of_a_part_do_not_mix(packed: tuple[Part, bytes]) -> None:
    part, data = packed
    add_chunk(part, "one", 0, data)
    add_chunk(part, "two", 0, b"something else")
    assert take_part(part, "one") == ""
    assert [path.name for path in cache_dir("cluster", "incoming").iterdir()] == [
        f"{part.digest}.two"
    ]


def test_a_piece_that_cannot_be_written_is_an_answer() -> None:
    part = Part("kernels/mine", "0" * 64, 1)
    cache_dir("cluster").mkdir(parents=True)
    cache_dir("cluster", "incoming").touch()
    assert "incoming" in add_chunk(part, "one", 0, b"x")
    assert take_part(part, "one") != ""


def test_a_part_larger_than_the_disk_is_refused() -> None:
    part = Part("kernels/mine", "0" * 64, 1 << 60)
    root, missing, error = has_parts((part,))
    assert (root, missing) == ("", ())
    assert str((2 << 60) >> 20)[:6] in error


def test_results_are_packed_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "out" / "cells").mkdir(parents=True)
    (tmp_path / "out" / "run.json").write_text("{}")
    (tmp_path / "out" / "cells" / "c000.json").write_text("1")
    with tarfile.open(fileobj=io.BytesIO(_packed(tmp_path / "out"))) as tar:
        assert tar.getnames() == ["cells/c000.json", "run.json"]
        assert {(m.mode, m.mtime, m.uid) for m in tar} == {(0o644, 0, 0)}


@pytest.mark.parametrize(("text", "cells"), [("7\n", 7), ("", 0), ("many", 0), (None, 0)])
def test_progress_that_cannot_be_read_is_none(text: str | None, cells: int, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "progress").write_text(text)
    assert _cells(tmp_path / "progress") == cells


def test_a_worker_tells_which_boot_of_which_host_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOLAB_QEMU", "/opt/qemu")
    facts = own_facts()
    assert facts["host_boot"] == BOOT_ID.read_text().strip()
    assert facts["host"] == os.uname().nodename
    assert facts["qemu"] == "/opt/qemu"
    assert facts["memory"] > 1 << 20


def test_a_worker_forgets_what_was_not_sent_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    incoming = cache_dir("cluster", "incoming")
    incoming.mkdir(parents=True)
    for name in ("abandoned", "coming"):
        (incoming / name).touch()
    os.utime(incoming / "abandoned", (0, 0))
    has_parts(())
    assert [path.name for path in incoming.iterdir()] == ["coming"]
