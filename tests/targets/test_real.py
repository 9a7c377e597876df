# SPDX-License-Identifier: MIT
"""Bounds on what a machine sends: bytes, time, time for so many bytes, and lines without end."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iolab.targets import real, ssh
from iolab.targets.real import RealTarget
from iolab.targets.ssh import LostError, SshTarget
from iolab_agent.journal import _busy
from iolab_base.errors import BusyError, IolabError
from iolab_base.process import kill_group, start
from tests.support.plans import null_blk_cell, plan


def read(script: str, into: Path | None = None, most: int = 1 << 22) -> tuple[bytes, bytes]:
    """Read what a script says as if it came through ssh."""
    target = object.__new__(SshTarget)
    target.where = "a liar"
    pipe = subprocess.PIPE
    process = start(["sh", "-c", script], stdout=pipe, stderr=pipe)
    try:
        return target._read(process, into, most)
    finally:
        kill_group(process)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def test_both_streams_are_read(tmp_path: Path) -> None:
    assert read("echo out; echo err >&2") == (b"out\n", b"err\n")
    said = read("head -c 3000000 /dev/zero; echo err >&2", tmp_path / "file")
    assert said == (b"", b"err\n")
    assert (tmp_path / "file").stat().st_size == 3_000_000


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_words_without_end_are_cut_off(stream: str) -> None:
    with pytest.raises(IolabError, match="a liar sent too much"):
        read(f"exec cat /dev/zero{stream}")


def test_a_file_without_end_is_cut_off(tmp_path: Path) -> None:
    with pytest.raises(IolabError, match="a liar sent too much"):
        read("exec cat /dev/zero", tmp_path / "file", 1 << 20)
    assert (tmp_path / "file").stat().st_size <= 1 << 20


def test_a_file_that_drips_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "_SILENT_S", 0.3)
    with pytest.raises(LostError, match="a liar does not answer"):
        read("while :; do echo x; sleep 0.02; done", tmp_path / "file")


def test_an_answer_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "_ANSWER_S", 0.3)
    with pytest.raises(IolabError, match="a liar did not finish"):
        read("while :; do echo x; sleep 0.02; done")


class Busy(RealTarget):
    """A machine where a run is at work for a while."""

    where = "a machine"

    def __init__(self, busy: int) -> None:
        self.busy = busy
        self.asked: list[tuple[str, ...]] = []

    def agent(self, folder: str, *words: str) -> str:
        """Refuse as `iolab_agent.journal` does, and then answer."""
        self.asked.append(words)
        if len(self.asked) <= self.busy:
            raise BusyError(busy_words())
        return "sysctl vm.dirty_bytes\n"

    def _nothing(self, *words: Any) -> Any:
        """Do nothing."""

    send: Any = _nothing
    remove: Any = _nothing
    look: Any = _nothing
    fetch: Any = _nothing
    rest: Any = _nothing


def busy_words() -> str:
    """Return what the agent itself says of the holder of the machine's lock: this process."""
    with tempfile.TemporaryFile() as lock:
        lock.write(b"4194304999\n")
        lock.flush()
        return _busy(lock.fileno())


def test_a_restore_says_who_is_at_work_or_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(real, "_WAIT_S", 0.0)
    with pytest.raises(BusyError, match=r"process 4194304999, for 0 s.*kill 4194304999"):
        Busy(1).restore(show=False)
    machine = Busy(3)
    assert machine.restore(show=False, wait=True) == ["sysctl vm.dirty_bytes"]
    assert caplog.messages == [f"waiting: {busy_words()}"]
    assert machine.asked == [("restore", "--show")] * 4 + [("restore",)]


def test_a_restore_that_fails_is_not_waited_for() -> None:
    class Broken(Busy):
        def agent(self, folder: str, *words: str) -> str:
            raise IolabError("cannot put back vm.dirty_bytes")

    with pytest.raises(IolabError, match="cannot put back"):
        Broken(0).restore(show=False, wait=True)


class Liar(RealTarget):
    """A machine whose run says what it is told to; the other methods are not called."""

    where = "a liar"
    poll_s = 0.0

    def __init__(self, *looks: tuple[str, bytes]) -> None:
        self.looks = list(looks)

    def look(self, folder: str, offset: int) -> tuple[str, bytes]:
        """Return the next answer, the last one for ever."""
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def _never(self, *words: Any) -> Any:
        raise AssertionError(words)

    send: Any = _never
    agent: Any = _never
    fetch: Any = _never
    remove: Any = _never


def follow(liar: Liar) -> list[str]:
    said: list[str] = []
    liar._follow("folder", plan(null_blk_cell("one"), null_blk_cell("two")), said.append)
    return said


def test_a_run_is_followed_to_its_end() -> None:
    looks = (("alive", b"iolab: cell 1/2 one do"), ("alive", b"ne\nmore\n"), ("ended", b""))
    assert follow(Liar(*looks)) == ["iolab: cell 1/2 one done", "more"]


def test_a_line_without_end_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "CONSOLE_BYTES", 1 << 30)
    looks: list[tuple[str, bytes]] = [("alive", b"x" * (1 << 20))] * 20
    (line,) = follow(Liar(*looks, ("alive", b"\n"), ("ended", b"")))
    assert line == "x" * (len(line) - 1) + "…"


def test_a_run_that_ends_and_talks_on_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "CONSOLE_BYTES", 1 << 16)
    with pytest.raises(IolabError, match="a liar sent too much"):
        follow(Liar(("ended", b"x\n" * (1 << 11))))


@pytest.mark.parametrize(
    "words", [b"", b"still at work\n", b"iolab: cell 0/2\n", b"iolab: cell 9/2 x\n"]
)
def test_a_run_of_which_no_cell_ends_is_given_up(
    words: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "_CELL_S", 0.1)
    monkeypatch.setattr(real, "_RUNTIMES", 0)
    with pytest.raises(IolabError, match="no cell has ended on a liar for"):
        follow(Liar(("alive", words)))


def test_each_cell_that_ends_gives_the_next_one_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 40))
    monkeypatch.setattr(
        real, "time", SimpleNamespace(monotonic=lambda: float(next(clock)), sleep=lambda _: None)
    )
    monkeypatch.setattr(real, "_CELL_S", 100.0)
    looks: list[Any] = [("alive", b"iolab: cell 1/2 one\n"), ("alive", b"iolab: cell 2/2 two\n")]
    assert len(follow(Liar(*looks, ("ended", b"")))) == 2
