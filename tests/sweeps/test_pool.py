# SPDX-License-Identifier: MIT
"""What runs side by side, and the time left on made-up jobs whose lengths are known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import IO, Any

import pytest

from iolab.sweeps import pool
from iolab.sweeps.pool import (
    BlockJob,
    Failure,
    LocalPlace,
    PoolProgress,
    default_jobs,
    end_all,
    error_said,
    open_log,
    run_jobs_in,
    usable_cores,
)
from iolab.sweeps.request import Request, check_request
from iolab_base.errors import UserError
from iolab_base.process import start
from tests.support.processes import child_environment, processes_naming, wait_until


@dataclass(frozen=True)
class MadeUpJob:
    """A job that takes so many seconds for so many cells."""

    seconds: float
    cells: int
    expected_s: float
    name: str = ""


@dataclass
class MadeUpPlace:
    """Runs one job at a time, on a clock of its own."""

    now: float = 0.0
    running_job: MadeUpJob | None = None
    began: float = 0.0
    told: list[tuple[float, float | None]] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def fits(self, job: MadeUpJob) -> bool:
        return self.running_job is None

    def start(self, job: MadeUpJob) -> None:
        self.running_job, self.began = job, self.now

    def ended(self) -> list[tuple[Any, Failure | None]]:
        job = self.running_job
        if job is None or self.now - self.began < job.seconds:
            return []
        self.running_job = None
        return [(job, None)]

    def running(self) -> int:
        return int(self.running_job is not None)

    def cells_done(self) -> list[tuple[Any, int]]:
        job = self.running_job
        if job is None:
            return []
        return [(job, int(job.cells * (self.now - self.began) / job.seconds))]

    def stop(self) -> None:
        assert self.running_job is None

    def look(self, state: PoolProgress) -> None:
        self.told.append((self.now, state.seconds_left))


def told(monkeypatch: pytest.MonkeyPatch, jobs: list[MadeUpJob]) -> list[tuple[float, float]]:
    """Return what was said to be left, by the time of saying it."""
    place = MadeUpPlace()
    monkeypatch.setattr(pool, "time", place)
    assert run_jobs_in(place, jobs, on_progress=place.look) == {}
    return [(now, left) for now, left in place.told if left is not None]


def test_the_time_left_follows_the_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    # A cell of the first takes a hundred times as long as one of the others.
    jobs = [MadeUpJob(300, 30, 100.0), *(MadeUpJob(6, 60, 2.0) for _ in range(10))]
    found = told(monkeypatch, jobs)
    # The machine is three times as slow as forecast, which the first cells show. Nobody knows how
    # much of a running cell is done.
    late = [(now, left) for now, left in found if now > 60]
    assert all(left == pytest.approx(360 - now, abs=60) for now, left in late)
    assert found[-1][1] == pytest.approx(0, abs=1e-6)


def test_without_a_forecast_a_cell_is_as_long_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [MadeUpJob(100, 10, 0.0), MadeUpJob(100, 10, 5.0)]
    found = told(monkeypatch, jobs)
    late = [(now, left) for now, left in found if now > 60]
    assert all(left == pytest.approx(200 - now, abs=40) for now, left in late)


class SmallJob(BlockJob):
    """A job whose program is the Python of its ``plan``."""

    @property
    def argv(self) -> list[str | Path]:
        return [sys.executable, "-c", self.plan.read_text(), self.plan]


def small(folder: Path, name: str, program: str, memory_bytes: int = 0) -> SmallJob:
    plan = folder / f"{name}.json"
    plan.write_text(program)
    return SmallJob(name, plan, folder, 2, memory_bytes)


def test_programs_run_side_by_side_and_one_may_fail(tmp_path: Path) -> None:
    jobs = [
        small(tmp_path, "good", "print('words')"),
        small(tmp_path, "bad", "import json, sys; print(json.dumps({'error': 'no'})); sys.exit(2)"),
        small(tmp_path, "killed", "import os; os.kill(os.getpid(), 9)"),
    ]
    told: list[PoolProgress] = []
    ended: list[tuple[str, Failure | None]] = []
    timed: list[str] = []
    errors = run_jobs_in(
        LocalPlace(2, on_time=lambda job, seconds, beside: timed.append(job.name)),
        jobs,
        on_progress=lambda state: told.append(PoolProgress(**vars(state))),
        on_end=lambda job, error: ended.append((job.name, error)),
    )
    assert errors == {"bad": Failure("no"), "killed": Failure("was ended by SIGKILL")}
    assert dict(ended) == {**errors, "good": None}
    assert timed == ["good"]
    assert [state.jobs_done for state in told] == sorted(state.jobs_done for state in told)
    assert (told[-1].jobs_done, told[-1].cells_done, told[-1].seconds_left) == (3, 6, 0.0)
    assert run_jobs_in(LocalPlace(1), []) == {}


def _sizes_at_work(
    folder: Path, sizes: dict[str, int], memory: Callable[[], int]
) -> list[set[str]]:
    """Run programs that take so much memory each; return which of them ran, at each look."""
    program = (
        "import sys, time; from pathlib import Path; at_work = Path(sys.argv[1] + '.at-work')\n"
        "at_work.touch(); time.sleep(1.5); at_work.unlink()"
    )
    jobs = [small(folder, name, program, size) for name, size in sizes.items()]
    at_work: list[set[str]] = []

    def look(progress: PoolProgress) -> None:
        at_work.append({n for n in sizes if (folder / f"{n}.json.at-work").exists()})

    assert run_jobs_in(LocalPlace(3, memory), jobs, on_progress=look) == {}
    return at_work


def test_programs_wait_for_room_but_a_large_one_runs_alone(tmp_path: Path) -> None:
    sizes = {"p0": 3, "p1": 3, "p2": 9}
    at_work = _sizes_at_work(tmp_path, sizes, lambda: 6)
    assert {"p0", "p1"} in at_work
    assert max(sum(sizes[name] for name in names) for names in at_work) == 9
    assert all(names == {"p2"} for names in at_work if "p2" in names)


def test_on_a_machine_that_loses_memory_fewer_run_side_by_side(tmp_path: Path) -> None:
    left = chain([6], repeat(2))
    at_work = _sizes_at_work(tmp_path, {"p0": 3, "p1": 3}, lambda: next(left))
    assert {"p0"} in at_work
    assert {"p1"} in at_work
    assert {"p0", "p1"} not in at_work


def written(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def own(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "own"
    path.write_text(text)
    return path


def test_the_tightest_cgroup_above_counts(tmp_path: Path) -> None:
    groups, mine = tmp_path / "cgroup", own(tmp_path, "0::/pod/container\n")
    written(groups, cpu__stat="usage_usec 1")
    written(groups / "pod", cpu__max="100000 100000")
    written(groups / "pod/container", cpu__max="max 100000")
    assert usable_cores(groups, mine) == 1


def test_a_path_of_the_host_in_a_container_leaves_the_mount(tmp_path: Path) -> None:
    groups, mine = tmp_path / "cgroup", own(tmp_path, "0::/../../kubepods/pod1\n")
    written(groups, cpu__max="100000 100000")
    assert usable_cores(groups, mine) == 1


def test_version_1(tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    mine = own(tmp_path, "12:pids:/x\n4:memory:/a\n3:cpuacct,cpu:/a\n0::/\n")
    written(groups / "cpu/a", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    # Half a core is one machine that runs at half the speed.
    assert usable_cores(groups, mine) == 1
    written(groups / "cpu/a", cpu__cfs_quota_us="-1")
    assert usable_cores(groups, mine) == len(os.sched_getaffinity(0))


def test_no_limits_are_those_of_the_machine(tmp_path: Path) -> None:
    groups, mine = tmp_path / "cgroup", own(tmp_path, "0::/\n")
    written(groups, cpu__max="max 100000")
    assert usable_cores(groups, mine) == len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path / "none", tmp_path / "none") == len(os.sched_getaffinity(0))


def test_the_host_clock_is_for_one_block_at_a_time() -> None:
    assert default_jobs("host") == 1
    check_request(Request("smoke", clock="host"))
    with pytest.raises(UserError, match="omit --jobs"):
        check_request(Request("smoke", clock="host", jobs=2))


_PROGRAM = """\
import signal, sys
from iolab_base.errors import UserError
from iolab.sweeps.pool import run_saying

def work():
    print("a line before")
    {work}

sys.exit(run_saying(work))
"""


@pytest.fixture
def log() -> Iterator[IO[bytes]]:
    with open_log() as opened:
        yield opened


def ran(work: str, log: IO[bytes]) -> int:
    program = [sys.executable, "-c", _PROGRAM.format(work=work)]
    # Python's own buffers, whatever the environment of the tests says of them.
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(program, stdout=log, stderr=log, env=environment, check=False)
    return done.returncode


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        ("raise UserError('a weight of 0')", 2, "a weight of 0"),
        ("raise ValueError('a bug')", 1, "ends with a traceback"),
        ("print('x', file=open('/dev/full', 'w'), flush=True)", 1, "No space left on device"),
        ("open('/nonexistent')", 1, "No such file or directory: /nonexistent"),
        ("print('x' * (2 << 20)); raise UserError('the last')", 2, "the last"),
        ("print('{\"error\": 1}', end='')", 0, "1"),
    ],
)
def test_what_a_program_says_is_read(work: str, code: int, said: str, log: IO[bytes]) -> None:
    assert ran(work, log) == code
    found = error_said(log, code)
    if said == "ends with a traceback":
        assert found.reason.startswith("ended with 1: ")
        assert found.reason.endswith("ValueError: a bug")
    else:
        assert found == Failure(said)


def test_how_a_kernel_died_is_handed_on(tmp_path: Path, log: IO[bytes]) -> None:
    (tmp_path / "console").write_text("[0] before\n[1] kernel BUG at core.c:8441!\n[2] y\n")
    work = "\n    ".join(
        [
            "from pathlib import Path",
            "from icountvm.qemu import GuestError",
            f"raise GuestError('the guest left no results', Path({str(tmp_path / 'console')!r}))",
        ]
    )
    found = error_said(log, ran(work, log))
    assert found.reason == "the guest left no results"
    assert found.console[-2:] == ("[1] kernel BUG at core.c:8441!", "[2] y")
    assert found.line == "the guest left no results: [1] kernel BUG at core.c:8441!"
    assert "its last lines" in str(found)
    assert Failure("fio failed", ("[1] x",)).line == "fio failed"


def test_sigterm_ends_a_program_in_order(log: IO[bytes]) -> None:
    work = "\n    ".join(
        ["try:", "    signal.raise_signal(signal.SIGTERM)", "finally:", "    print('put away')"]
    )
    assert ran(work, log) == 128 + signal.SIGTERM
    assert error_said(log, 143) == Failure("was ended by SIGTERM")
    assert log.seek(0) == 0
    assert log.read() == b"a line before\nput away\n"


def test_a_signal_while_a_string_is_executed_is_named(tmp_path: Path) -> None:
    # Run by -m as a sweep runs its programs: Python would end itself with SIGINT.
    work = "exec('signal.raise_signal(signal.SIGTERM)')"
    (tmp_path / "program.py").write_text(_PROGRAM.format(work=work))
    done = subprocess.run(
        [sys.executable, "-m", "program"], cwd=tmp_path, env=child_environment(), check=False
    )
    assert done.returncode == 128 + signal.SIGTERM


def test_a_killed_program_is_said_to_be(log: IO[bytes]) -> None:
    code = ran("import os; os.kill(os.getpid(), signal.SIGKILL)", log)
    assert error_said(log, code) == Failure("was ended by SIGKILL")


# As a block's program does: its virtual machine is in a session of its own.
_BELOW = """
import signal, subprocess, sys, time
{first}
if int(sys.argv[2]):
    argv = [*sys.argv[:2], str(int(sys.argv[2]) - 1)]
    subprocess.Popen([sys.executable, *argv], start_new_session=True)
open(f"{{sys.argv[1]}}{{sys.argv[2]}}", "w").close()
time.sleep(10000)
"""


@pytest.mark.parametrize("first", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_all_that_was_started_ends(tmp_path: Path, first: str) -> None:
    program, mark = tmp_path / "page.py", tmp_path / "mark"
    program.write_text(_BELOW.format(first=first))
    process = start([sys.executable, program, mark, "2"])
    wait_until(lambda: all(Path(f"{mark}{number}").exists() for number in range(3)))
    assert len(processes_naming(str(mark))) == 3
    end_all([process], grace_s=0.5)
    assert processes_naming(str(mark)) == []
    end_all([process], grace_s=0.5)
