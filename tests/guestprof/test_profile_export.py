# SPDX-License-Identifier: MIT
"""Profiles as other tools read them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from guestprof.profile import CostProfile
from guestprof.profile_export import write_collapsed, write_pprof
from iolab_base.errors import UserError
from tests.guestprof.test_profile import _NODES, profile

__all__ = ["profile"]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: numbers, and bytes of other messages."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value, at = _varint(data, at)
        if key & 7 == 2:
            yield key >> 3, data[at : at + value]
            at += value
        else:
            yield key >> 3, value


def _numbers(data: bytes) -> list[int]:
    at, found = 0, []
    while at < len(data):
        value, at = _varint(data, at)
        found.append(value)
    return found


def test_collapsed_stacks(profile: CostProfile, tmp_path: Path) -> None:
    write_collapsed(tmp_path / "stacks", profile)
    lines = (tmp_path / "stacks").read_text().splitlines()
    assert "fio;entry_SYSCALL_64;__x64_sys_io_submit;kmem_cache_alloc 20" in lines
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == sum(node[3] for node in _NODES)


def test_collapsed_stacks_of_two_are_scaled_to_the_same_ios(
    profile: CostProfile, tmp_path: Path
) -> None:
    treated = replace(profile, totals={**profile.totals, "ios": 30})
    control = replace(profile, totals={**profile.totals, "ios": 10})
    write_collapsed(tmp_path / "stacks", treated, control)
    lines = (tmp_path / "stacks").read_text().splitlines()
    assert "fio;[user] 300 100" in lines
    with pytest.raises(UserError, match="no cost per I/O"):
        write_collapsed(tmp_path / "none", treated, profile)
    assert not (tmp_path / "none").exists()


def test_pprof(profile: CostProfile, tmp_path: Path) -> None:
    write_pprof(tmp_path / "profile.pb.gz", profile)
    fields = list(_fields(gzip.decompress((tmp_path / "profile.pb.gz").read_bytes())))
    strings = [data.decode() for field, data in fields if field == 6 and isinstance(data, bytes)]
    assert strings[0] == ""
    types = [
        dict(_fields(data)) for field, data in fields if field == 1 and isinstance(data, bytes)
    ]
    assert [strings[int(t[1])] for t in types] == ["instructions", "calls"]
    functions = [dict(_fields(d)) for field, d in fields if field == 5 and isinstance(d, bytes)]
    names = {f[1]: strings[int(f[2])] for f in functions}
    found = {}
    for field, data in fields:
        if field != 2 or not isinstance(data, bytes):
            continue
        sample = dict(_fields(data))
        stack, values = sample[1], sample[2]
        assert isinstance(stack, bytes)
        assert isinstance(values, bytes)
        found[tuple(names[i] for i in _numbers(stack))] = _numbers(values)
    assert found["kmem_cache_alloc", "__x64_sys_io_submit", "entry_SYSCALL_64", "fio"] == [20, 4]
    assert sum(values[0] for values in found.values()) == sum(node[3] for node in _NODES)
