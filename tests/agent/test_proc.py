# SPDX-License-Identifier: MIT
"""What /proc of this machine says, beside what other programs make of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from iolab_agent import proc
from iolab_agent.proc import (
    available_memory,
    in_guest,
    is_kernel_thread,
    mounts,
    pinned_to,
    processes,
    stat_of,
    text_of,
    user_of,
)
from iolab_base.errors import CannotRunError
from iolab_base.process import kill_group, start
from tests.support.needs import needs
from tests.support.processes import wait_until
from tests.support.second_user import MALLORY

_CPU = min(os.sched_getaffinity(0))


@pytest.fixture
def comm() -> Iterator[Path]:
    """The file of this thread's name, which it gets back."""
    path = Path("/proc/self/comm")
    before = path.read_bytes()
    yield path
    path.write_bytes(before)


def _told(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def _ended() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_file_is_read_without_its_blanks_and_whatever_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b" 5 \xff\n\n")
    assert text_of(path) == "5 \N{REPLACEMENT CHARACTER}"


def test_what_cannot_be_read_has_no_text(tmp_path: Path) -> None:
    assert text_of(tmp_path / "absent") is None
    assert text_of(tmp_path) is None


def test_available_memory_is_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = _told("sed", "-nE", r"s/^Mem(Total|Available): *([0-9]+) kB$/\2/p", "/proc/meminfo")
    total, available = (int(line) * 1024 for line in told.split())
    # Other programs take some of it meanwhile.
    assert available_memory() == pytest.approx(available, abs=total // 4)
    monkeypatch.setattr(proc, "text_of", lambda path: "MemTotal: 5 kB\nMemAvailable: 3 kB\nX: 9")
    assert available_memory() == 3072
    monkeypatch.setattr(proc, "text_of", lambda path: None)
    assert available_memory() == 0


def test_mounts_of_a_kind_are_where_they_are() -> None:
    found = dict(mounts("proc"))
    assert Path("/proc") in found
    assert {"rw", "ro"} & set(found[Path("/proc")])
    assert all(os.path.ismount(path) for path in found)
    assert mounts("no_such_kind") == []


def test_a_name_with_parentheses_does_not_move_the_fields(comm: Path) -> None:
    for name in (b"a) R 1 1 (b", b"x (", b"\xff) Z 0"):
        comm.write_bytes(name)
        found, fields = stat_of(os.getpid())
        assert found == name.decode(errors="replace")
        # proc(5): parent, process group and session are the fields 4, 5 and 6.
        assert [int(x) for x in fields[1:4]] == [os.getppid(), os.getpgrp(), os.getsid(0)]


def test_a_process_that_has_ended_is_none() -> None:
    ended = _ended()
    assert user_of(ended) is None
    assert ended not in processes()
    with pytest.raises(FileNotFoundError):
        stat_of(ended)


def test_all_processes_are_listed_once() -> None:
    found = processes()
    assert {1, os.getpid(), os.getppid()} <= set(found)
    assert len(set(found)) == len(found)


def test_the_kernels_threads_are_told_by_their_flag(comm: Path) -> None:
    # PF_KTHREAD among other flags, and those flags without it (PF_FORKNOEXEC, PF_NO_SETAFFINITY).
    assert is_kernel_thread(["S", "2", "0", "0", "0", "-1", str(0x04208040)])
    assert not is_kernel_thread(["S", "2", "0", "0", "0", "-1", str(0x04008040)])
    comm.write_bytes(b"kworker/0:1")
    assert not is_kernel_thread(stat_of(os.getpid())[1])


@needs("root")
def test_the_user_is_the_one_who_runs_it_not_the_one_it_acts_for() -> None:
    assert user_of(os.getpid()) == os.getuid()
    argv = ["setpriv", "--ruid", str(MALLORY), "sleep", "1000"]
    process = start(argv)
    try:
        status = Path(f"/proc/{process.pid}/status")
        wait_until(lambda: "Name:\tsleep" in status.read_text())
        assert Path(f"/proc/{process.pid}").stat().st_uid == 0
        assert user_of(process.pid) == MALLORY
    finally:
        kill_group(process)


@pytest.mark.parametrize(
    ("command", "guest"),
    [
        (b"/usr/bin/python3\0-S\0/icountvm/guest_init.py\0", True),
        (b"/icountvm/guest_init.py\0", True),
        (b"/sbin/init\0", False),
        (b"vi\0/root/icountvm/guest_init.py\0", False),
        (b"vi\0/icountvm/guest_init.py.old\0", False),
        (b"", False),
    ],
)
def test_a_guest_is_known_by_its_init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: bytes, guest: bool
) -> None:
    assert not in_guest()
    (tmp_path / "1").mkdir()
    (tmp_path / "1/cmdline").write_bytes(command)
    monkeypatch.setattr(proc, "_PROC", tmp_path)
    assert in_guest() is guest


def test_what_is_started_on_a_core_has_no_other() -> None:
    before = os.sched_getaffinity(0)
    with pinned_to([_CPU]):
        assert _told("nproc") == "1\n"
        assert os.sched_getaffinity(0) == {_CPU}
    assert os.sched_getaffinity(0) == before


def test_the_cores_come_back_after_an_error_and_a_core_that_is_missing() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(KeyError), pinned_to([_CPU]):
        raise KeyError
    with pytest.raises(CannotRunError, match="4094, 4095"), pinned_to([4095, 4094]):
        pytest.fail("it began nevertheless")
    assert os.sched_getaffinity(0) == before
