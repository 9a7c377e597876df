# SPDX-License-Identifier: MIT
from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zlib
from pathlib import Path

import pytest

from icountvm.channel import (
    CHANNEL_BYTES,
    ChannelError,
    make_channel,
    unpack_channel,
)
from tests.base.test_files import small_disk
from tests.icountvm.conftest import MOST


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
