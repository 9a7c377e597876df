# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from iolab.agent import lock
from iolab.agent.lock import machine_lock
from iolab_base.errors import BusyError
from tests.support.processes import child_environment

_HOLDER = """
import sys
from pathlib import Path
from iolab.agent import lock
lock._LOCK = Path(sys.argv[1])
with lock.machine_lock():
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The lock file of a machine of our own."""
    monkeypatch.setattr(lock, "_LOCK", tmp_path / "run" / "lock")
    return tmp_path / "run" / "lock"


def _refusal() -> str:
    with pytest.raises(BusyError) as caught, machine_lock():
        pass
    return str(caught.value)


def test_the_lock_is_free_after_its_holder(path: Path) -> None:
    with machine_lock():
        assert path.read_text() == f"{os.getpid()}\n"
        _refusal()
    assert path.read_text() == ""
    with machine_lock():
        pass


def test_a_refusal_names_the_holder_and_how_to_stop_it(path: Path) -> None:
    words = [sys.executable, "-c", _HOLDER, str(path), "two words", "\x1b[31m"]
    holder = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        # As if it had taken the lock four minutes before.
        began = path.stat().st_mtime - 240
        os.utime(path, (began, began))
        sentence = _refusal()
    finally:
        holder.communicate()
    assert re.fullmatch(
        rf"iolab is at work on this machine already \(process {holder.pid}, for 4 min: "
        rf"{re.escape(sys.executable)} -c .*\); "
        rf"wait for its end, or stop it with: kill {holder.pid}",
        sentence,
    )
    assert sentence.isprintable()


def test_a_holder_that_has_not_written_its_number_is_not_named(path: Path) -> None:
    with machine_lock():
        path.write_text("")
        sentence = _refusal()
    assert sentence == "iolab is at work on this machine already; wait for its end"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3000, "50 min"), (3600, "1.0 h"), (90000, "25.0 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert lock._duration(seconds) == text
