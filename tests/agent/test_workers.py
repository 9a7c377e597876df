# SPDX-License-Identifier: MIT
# That a real kernel's workers get it and give it back is tested in a virtual machine
# (tests/targets/test_dio_kworker.py); here: whose nice value is changed, on processes of our own.
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iolab.agent import workers
from iolab.agent.journal import Journal, restore
from iolab.agent.workers import renice_workers
from iolab.process import kill_group, start

_NAMED = "import ctypes, time; ctypes.CDLL(None).prctl(15, {!r}, 0, 0, 0); print(flush=True); "
_NAMED += "time.sleep(1000)"
_CPU = 4001


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], int]]:
    """Start a process of a name; the only ones there are, as far as the module sees."""
    started: list[subprocess.Popen[bytes]] = []
    shown = tmp_path / "proc"
    shown.mkdir()
    monkeypatch.setattr(workers, "_PROC", shown)

    def begin(name: bytes) -> int:
        started.append(start([sys.executable, "-c", _NAMED.format(name)], stdout=subprocess.PIPE))
        pid, stdout = started[-1].pid, started[-1].stdout
        assert stdout is not None
        stdout.readline()
        (shown / str(pid)).symlink_to(f"/proc/{pid}")
        return pid

    yield begin
    for process in started:
        kill_group(process)
        assert process.stdout is not None
        process.stdout.close()


def _nice(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


def test_only_the_ordinary_workers_of_the_core_change_and_all_come_back(
    named: Callable[[bytes], int], tmp_path: Path
) -> None:
    names = [b"kworker/4001:0", b"kworker/4001:12", b"kworker/4001:1H", b"kworker/400:1"]
    names += [b"kworker/u4001:1", b"fio kworker/4001", b"kworker/4001:3"]
    pids = [named(name) for name in names]
    before = [_nice(pid) for pid in pids]
    journal = Journal(tmp_path / "journal")
    # Nobody may give these back a better value but root: so a worse one.
    assert renice_workers(journal, cpu=_CPU, nice=before[0] + 3) == 3
    assert renice_workers(journal, cpu=_CPU, nice=before[0] + 3) == 0
    journal.close()
    after = [_nice(pid) - old for pid, old in zip(pids, before, strict=True)]
    assert after == [3, 3, 0, 0, 0, 0, 3]
    if os.geteuid() == 0:
        assert restore(tmp_path / "journal") == []
        assert [_nice(pid) for pid in pids] == before


def test_who_got_the_number_of_a_worker_is_left_alone(
    named: Callable[[bytes], int], tmp_path: Path
) -> None:
    pid = named(b"kworker/4001:0")
    journal = Journal(tmp_path / "journal")
    renice_workers(journal, cpu=_CPU, nice=5)
    journal.close()
    _, line = map(json.loads, (tmp_path / "journal").read_text().splitlines())
    old, began = line["value"].split()
    line["value"] = f"{old} {int(began) + 1}"
    (tmp_path / "journal").write_text(json.dumps(line) + "\n")
    assert restore(tmp_path / "journal") == []
    assert _nice(pid) == 5
    line["path"] = "/proc/4194305"
    (tmp_path / "journal").write_text(json.dumps(line) + "\n")
    assert restore(tmp_path / "journal") == []
