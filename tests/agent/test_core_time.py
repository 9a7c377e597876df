# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iolab.agent import core_time
from iolab.agent.core_time import core_running, core_time_file
from tests.support.needs import lack

_TICK_NS = 10_000_000
_SPIN = """
import os, time
os.sched_setaffinity(0, {0})
until = time.process_time() + 0.3
while time.process_time() < until: pass
print(time.process_time_ns())
"""


def test_a_core_runs_at_least_what_one_of_its_tasks_ran() -> None:
    if core_time_file() is None:
        lack("a kernel that counts how long tasks ran on a core")
    before, began_ns = core_running(0), time.monotonic_ns()
    program = subprocess.run([sys.executable, "-c", _SPIN], check=True, capture_output=True)
    # What runs on is counted by the tick only.
    time.sleep(2 * _TICK_NS / 1e9)
    after, ended_ns = core_running(0), time.monotonic_ns()
    ran_ns = after["running_ns"] - before["running_ns"]
    assert int(program.stdout) - _TICK_NS < ran_ns < ended_ns - began_ns + _TICK_NS


def test_where_nothing_counts_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # No kernel here lacks both.
    monkeypatch.setattr(core_time, "_SCHEDSTAT", tmp_path / "schedstat")
    monkeypatch.setattr(core_time, "root_of", lambda controller: None)
    assert core_time_file() is None
    assert "CONFIG_SCHEDSTATS" in core_running(0)["lacks"]


def test_schedstat_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "schedstat"
    path.write_text(f"version 15\ncpu0 0 0 0 0 0 0 {os.getpid()} 2 3\ndomain0 3 1 1\n")
    monkeypatch.setattr(core_time, "_SCHEDSTAT", path)
    assert core_time_file() == path
    assert core_running(0) == {"running_ns": os.getpid(), "waiting_ns": 2, "switched_in": 3}
