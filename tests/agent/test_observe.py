# SPDX-License-Identifier: MIT
# What `sample` counts is tested in a virtual machine (tests/targets/test_vm.py), where the work is
# known; here: what it makes of this machine's own programs.

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iolab_agent import observe
from iolab_agent.observe import (
    Cost,
    Others,
    _tasks,
    core_running,
    core_time_file,
    realtime_priority,
    sample,
)
from iolab_agent.proc import is_kernel_thread, processes, stat_of
from iolab_base.errors import CannotRunError
from iolab_base.process import kill_group, start
from tests.support.needs import lack, wants
from tests.support.processes import wait_until

_NAMED = "import ctypes, time; ctypes.CDLL(None).prctl(15, {!r}, 0, 0, 0); print(flush=True); "
_NAMED += "time.sleep(1000)"


@pytest.fixture
def program() -> Iterator[Callable[[list[str]], subprocess.Popen[bytes]]]:
    """Start a program that tells a line; it ends with the test."""
    started = []

    def begin(argv: list[str]) -> subprocess.Popen[bytes]:
        started.append(start(argv, stdout=subprocess.PIPE))
        return started[-1]

    yield begin
    for process in started:
        kill_group(process)
        assert process.stdout is not None
        process.stdout.close()


def _task(pid: int, *, job: int) -> dict[str, Any] | None:
    found = _tasks(pid, *stat_of(pid), job=job, antagonist=None, threads=False)
    task: dict[str, Any] | None = found.get(str(pid))
    return task


def _line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip().decode()


def test_a_job_and_its_child_are_told_from_others(
    program: Callable[[list[str]], subprocess.Popen[bytes]],
) -> None:
    job = program(["sh", "-c", "while :; do :; done & echo $!; wait"])
    child = int(_line(job))
    mine, its = _task(job.pid, job=job.pid), _task(child, job=job.pid)
    assert mine is not None
    assert its is not None
    assert (mine["comm"], mine["job"], its["comm"], its["job"]) == ("sh", True, "sh", True)
    assert _task(os.getpid(), job=job.pid) is None
    assert _task(child, job=os.getpid()) is None
    before = its["ran_ns"]

    def ran() -> bool:
        later = _task(child, job=job.pid)
        assert later is not None
        assert all(later[k] >= v for k, v in its.items() if k not in ("comm", "job"))
        return bool(later["ran_ns"] > before + 50_000_000)

    wait_until(ran)


@pytest.mark.parametrize("name", [b"a) R 1 (b", b"\xff\xfe", b"kworker/0:1"])
def test_any_name_can_be_read(
    program: Callable[[list[str]], subprocess.Popen[bytes]], name: bytes
) -> None:
    process = program([sys.executable, "-c", _NAMED.format(name)])
    _line(process)
    found = _task(process.pid, job=os.getpid())
    assert found is not None
    assert (found["comm"], found["job"]) == (name.decode(errors="replace"), True)
    assert {"ran_ns", "waited_ns", "nice", "voluntary_ctxt_switches"} <= found.keys()
    # A program that calls itself a kworker is none.
    assert _task(process.pid, job=process.pid + 1) is None


def test_the_kernels_own_workers_are_sampled() -> None:
    workers = [
        pid
        for pid in processes()
        if stat_of(pid)[0].startswith("kworker/") and is_kernel_thread(stat_of(pid)[1])
    ]
    if not workers:
        lack("kernel threads in /proc")
    found = _task(workers[0], job=os.getpid())
    assert found is not None
    assert not found["job"]
    assert {"ran_ns", "waited_ns", "nice"} <= found.keys()
    assert "voluntary_ctxt_switches" not in found


def test_a_whole_sample_of_this_machine() -> None:
    disk = sorted(p.name for p in Path("/sys/block").iterdir())[0]
    first = sample(cpu=0, device=disk, job=os.getpid())
    last = sample(cpu=0, device=disk, job=os.getpid())
    assert last["at_ns"] > first["at_ns"]
    assert last["context_switches"] >= first["context_switches"]
    assert last["ios"] >= first["ios"]
    assert last["tasks"][str(os.getpid())]["job"]
    if core_time_file() is None:
        assert "CONFIG_SCHEDSTATS" in first["cpu"]["lacks"]
        return
    with pytest.raises(CannotRunError, match=r"(of|for) cpu4095"):
        sample(cpu=4095, device=disk, job=os.getpid())


def test_the_observer_alone_is_not_delayed() -> None:
    before = os.sched_getscheduler(0)
    with wants("real-time priorities"), realtime_priority():
        assert os.sched_getscheduler(0) == os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        asked = "import os; print(os.sched_getscheduler(0))"
        child = subprocess.run([sys.executable, "-c", asked], capture_output=True, check=True)
        assert int(child.stdout) == os.SCHED_OTHER
    assert os.sched_getscheduler(0) == before


def test_an_observer_that_may_not_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with (
        pytest.raises(CannotRunError, match="may not run as a real-time task"),
        realtime_priority(),
    ):
        pytest.fail("it began nevertheless")


def test_threads_and_what_left_the_family_are_sampled_by_their_session(
    program: Callable[[list[str]], subprocess.Popen[bytes]],
) -> None:
    waiting = "import threading as t; t.Thread(target=t.Event().wait).start(); print(1, flush=True)"
    # The shell ends: its child becomes init's and stays in the session.
    grandchild = f"({sys.executable} -c '{waiting}' &); exec sleep 1000"
    job = program(["sh", "-c", grandchild])
    _line(job)
    disk = sorted(p.name for p in Path("/sys/block").iterdir())[0]
    look = sample(cpu=0, device=disk, job=None, antagonist=job.pid, threads=True)
    beside = [task for task in look["tasks"].values() if task.get("antagonist")]
    assert len(beside) == 3
    assert not any(task["job"] for task in beside)
    assert {"waited_ns", "voluntary_ctxt_switches"} <= beside[0].keys()
    # The first process of fio has a thread that does no I/O.
    without = sample(cpu=0, device=None, job=None, antagonist=job.pid)
    assert len([t for t in without["tasks"].values() if t.get("antagonist")]) == 3
    assert (without["ios"], without["written_bytes"]) == (0, 0)


def test_an_antagonist_that_has_ended_is_not_seen_and_a_job_still_is(
    program: Callable[[list[str]], subprocess.Popen[bytes]],
) -> None:
    ended = program(["true"])
    stat = Path(f"/proc/{ended.pid}/stat")
    wait_until(lambda: ") Z " in stat.read_text())
    beside = sample(cpu=0, device=None, job=None, antagonist=ended.pid)
    assert str(ended.pid) not in beside["tasks"]
    measured = sample(cpu=0, device=None, job=ended.pid)
    assert measured["tasks"][str(ended.pid)]["job"]
    assert measured["tasks"][str(ended.pid)]["ran_ns"] > 0


def _work(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_sleep_costs_nothing_and_work_what_it_costs() -> None:
    cost = Cost()
    for _ in range(2):
        with cost.sampling():
            _work(0.02)
        time.sleep(0.02)
    spent = cost.spent()
    assert spent["window_ns"] >= 20_000_000
    assert spent["cpu_ns"] < 10_000_000
    assert spent["with_looks_cpu_ns"] >= 40_000_000
    assert spent["with_looks_ns"] >= spent["window_ns"] + spent["with_looks_cpu_ns"] * 0.9


def test_work_between_the_looks_counts() -> None:
    cost = Cost()
    with cost.sampling():
        pass
    _work(0.02)
    with cost.sampling():
        pass
    assert cost.spent()["cpu_ns"] >= 20_000_000


def test_the_busiest_other_process_is_named(
    program: Callable[[list[str]], subprocess.Popen[bytes]],
) -> None:
    others = Others()
    hog = program(["sh", "-c", "while :; do :; done"])

    def saw() -> None:
        for pid in (hog.pid, os.getpid()):
            others.saw(pid, *stat_of(pid))

    saw()
    assert others.busiest() == {}

    def found() -> bool:
        saw()
        busiest = others.busiest()
        return bool(busiest) and busiest["comm"] == "sh" and busiest["ran_ns"] >= 50_000_000

    wait_until(found)


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
    monkeypatch.setattr(observe, "_SCHEDSTAT", tmp_path / "schedstat")
    monkeypatch.setattr(observe, "root_of", lambda controller: None)
    assert core_time_file() is None
    assert "CONFIG_SCHEDSTATS" in core_running(0)["lacks"]


def test_schedstat_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "schedstat"
    path.write_text(f"version 15\ncpu0 0 0 0 0 0 0 {os.getpid()} 2 3\ndomain0 3 1 1\n")
    monkeypatch.setattr(observe, "_SCHEDSTAT", path)
    assert core_time_file() == path
    assert core_running(0) == {"running_ns": os.getpid(), "waiting_ns": 2, "switched_in": 3}
