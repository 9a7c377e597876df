# SPDX-License-Identifier: MIT
from __future__ import annotations

import gzip
import io
import json
import mmap
import os
import struct
import sys
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from icountvm import guest_init
from icountvm.channel import (
    CHANNEL_BYTES,
    ChannelError,
    make_channel,
    put_plan,
    unpack_channel,
)
from tests.base.test_files import small_disk

MOST = dict.fromkeys(("a", "agent.json", "cells/c000.json", "status.json"), 1 << 20)


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    path = tmp_path / "channel"
    make_channel(path)
    return path


@contextmanager
def _as_the_guest_sees(path: Path) -> Iterator[mmap.mmap]:
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:
        yield memory


def _hand_over(path: Path, payload: bytes, *, magic: bytes = b"IOLABRES") -> None:
    # As the guest does: eight bytes of magic, the length, the CRC-32, the payload.
    with path.open("r+b") as stream:
        stream.write(magic + struct.pack("<QI", len(payload), zlib.crc32(payload)))
        stream.write(payload)


def _tar(*members: tarfile.TarInfo, data: bytes = b"") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:") as archive:
        for member in members:
            member.size = len(data) if member.isfile() else 0
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def test_what_the_guest_packs_is_unpacked(
    channel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "guest"
    (results / "cells").mkdir(parents=True)
    random = os.urandom(300_000)
    (results / "cells" / "c000.json").write_bytes(random)
    (results / "status.json").write_text("{}")
    (results / "cells" / ".c001.json").write_text("{")
    monkeypatch.setattr(guest_init, "_RESULTS", str(results))
    with _as_the_guest_sees(channel) as memory:
        guest_init.hand_over(memory, {"exit": 3, "stderr": "ä"})
    unpack_channel(channel, MOST, tmp_path / "host")
    found = {p.relative_to(tmp_path / "host").as_posix() for p in (tmp_path / "host").rglob("*")}
    assert found == {"agent.json", "cells", "cells/c000.json", "status.json"}
    assert (tmp_path / "host" / "cells" / "c000.json").read_bytes() == random
    ending = json.loads((tmp_path / "host" / "agent.json").read_text())
    assert ending == {"exit": 3, "stderr": "ä"}


def test_the_guest_finds_the_plan_and_leaves_results_over_it(
    channel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_init, "_RESULTS", str(tmp_path / "guest"))
    plan = os.urandom(100_000)
    put_plan(channel, plan)
    with pytest.raises(ChannelError, match="the guest left no results"):
        unpack_channel(channel, MOST, tmp_path / "host")
    with _as_the_guest_sees(channel) as memory:
        assert guest_init.take_plan(memory) == plan
        guest_init.hand_over(memory, {"exit": 0, "stderr": ""})
        with pytest.raises(SystemExit, match="has no plan"):
            guest_init.take_plan(memory)
    unpack_channel(channel, MOST, tmp_path / "host")
    assert json.loads((tmp_path / "host" / "agent.json").read_text())["exit"] == 0


def test_a_damaged_plan_is_not_taken(channel: Path) -> None:
    put_plan(channel, b'{"cells": []}')
    with channel.open("r+b") as stream:
        stream.seek(25)
        stream.write(b"X")
    with (
        _as_the_guest_sees(channel) as memory,
        pytest.raises(SystemExit, match="has no plan"),
    ):
        guest_init.take_plan(memory)


def test_results_that_are_too_large_are_said(
    channel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guest").mkdir()
    with (tmp_path / "guest" / "large").open("wb") as stream:
        stream.truncate(CHANNEL_BYTES)
    monkeypatch.setattr(guest_init, "_RESULTS", str(tmp_path / "guest"))
    with (
        _as_the_guest_sees(channel) as memory,
        pytest.raises(SystemExit, match=f"the results need more than {CHANNEL_BYTES}"),
    ):
        guest_init.hand_over(memory, {"exit": 0, "stderr": ""})
    with pytest.raises(ChannelError, match="the guest left no results"):
        unpack_channel(channel, MOST, tmp_path / "host")


@pytest.mark.parametrize(("code", "errors"), [(0, ""), (3, "no such disk\n")])
def test_work_ends_with_its_code_and_its_errors(code: int, errors: str) -> None:
    def work(plan: bytes, results: Path) -> int:
        assert (plan, results) == (b"a plan", Path(guest_init._RESULTS))
        sys.__stderr__.write(errors)  # type: ignore[union-attr]
        return code

    assert guest_init.run_work(work, b"a plan") == {"exit": code, "stderr": errors}


def test_without_a_plan_no_work_is_done() -> None:
    def work(plan: bytes, results: Path) -> int:
        raise AssertionError("the work was called")

    assert guest_init.run_work(work, b"")["exit"] == 0


def test_work_that_breaks_leaves_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(plan: bytes, results: Path) -> int:
        raise ValueError("broken")

    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    ending = guest_init.run_work(work, b"a plan")
    assert ending["exit"] == 1
    assert "ValueError: broken" in str(ending["stderr"])


def test_the_channel_is_made_of_blocks_that_are_there(channel: Path) -> None:
    assert channel.stat().st_size == CHANNEL_BYTES
    assert channel.stat().st_blocks * 512 >= CHANNEL_BYTES
    assert CHANNEL_BYTES & (CHANNEL_BYTES - 1) == 0


def test_a_disk_without_room_is_said_before_the_boot(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", "1m") as disk,
        pytest.raises(ChannelError, match=r"no room for a guest's results: .*No space left"),
    ):
        make_channel(disk / "channel")


def test_no_results_and_damaged_ones_are_told_apart(channel: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    with pytest.raises(ChannelError, match="the guest left no results"):
        unpack_channel(channel, MOST, into)
    payload = _tar(_member("a"), data=b"text")
    _hand_over(channel, payload, magic=b"IOLABRE\0")
    with pytest.raises(ChannelError, match="the guest left no results"):
        unpack_channel(channel, MOST, into)
    _hand_over(channel, payload)
    whole = channel.read_bytes()[: 20 + len(payload)]
    for at in range(8, len(whole), 7):
        with channel.open("r+b") as stream:
            stream.write(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ChannelError, match="damaged"):
            unpack_channel(channel, MOST, into)
    assert not into.exists()
    with channel.open("r+b") as stream:
        stream.write(b"IOLABRES" + struct.pack("<Q", 2**63))
    with pytest.raises(ChannelError, match="impossible length"):
        unpack_channel(channel, MOST, into)
    channel.write_bytes(b"IOLAB")
    with pytest.raises(ChannelError, match="the guest left no results"):
        unpack_channel(channel, MOST, into)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"no archive",
        gzip.compress(b"no tar"),
        _tar(_member("a"), data=b"x" * 999)[:900],
    ],
    ids=["empty", "text", "no tar", "truncated"],
)
def test_what_is_no_archive_is_refused(channel: Path, tmp_path: Path, payload: bytes) -> None:
    _hand_over(channel, payload)
    with pytest.raises(ChannelError, match="damaged"):
        unpack_channel(channel, MOST, tmp_path / "into")


@pytest.mark.parametrize(
    "member",
    [
        _member("../outside"),
        _member("cells/../../outside"),
        _member("/outside"),
        _member("link", tarfile.SYMTYPE, "/etc/passwd"),
        _member("link", tarfile.SYMTYPE, "inside"),
        _member("link", tarfile.LNKTYPE, "../outside"),
        _member("device", tarfile.CHRTYPE),
        _member("device", tarfile.BLKTYPE),
        _member("fifo", tarfile.FIFOTYPE),
    ],
    ids=lambda member: f"{member.name}-{member.type.decode()}",
)
def test_members_that_are_no_plain_files_inside_are_refused(
    channel: Path, tmp_path: Path, member: tarfile.TarInfo
) -> None:
    into = tmp_path / "into"
    _hand_over(channel, _tar(member, data=b"text"))
    with pytest.raises(ChannelError, match=r"does not accept|plain file"):
        unpack_channel(channel, MOST, into)
    assert {p.name for p in tmp_path.iterdir()} <= {"channel", "into"}
    assert not into.exists() or not list(into.iterdir())
