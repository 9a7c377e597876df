# SPDX-License-Identifier: MIT
"""An antagonist is started once, must be seen at work, and is ended with the measured work."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iolab_agent.antagonist import RunningAntagonist
from iolab_agent.fio import job_files, lay_out
from iolab_agent.plan import Job, Program
from iolab_agent.program import pause
from iolab_agent.workplace import Workplace
from tests.support.needs import needs, wants
from tests.support.plans import job
from tests.support.processes import alive, wait_until

_Make = Callable[..., RunningAntagonist]
_SLEEPS = Program(["/bin/sleep", "1000"])


def _seen(pid: int | None) -> dict[str, Any]:
    """Return what a sample has of an antagonist."""
    return {"tasks": {str(pid): {"antagonist": True}, "1": {"job": True}}}


def test_it_is_not_there_before_it_is_started_and_not_after(antagonist: _Make) -> None:
    made = antagonist(program=_SLEEPS, start_ms=-250)
    assert (made.pid, made.outputs, made.starts_s, made.group) == (None, [], -0.25, None)
    made.start()
    assert made.pid is not None
    assert alive(made.pid)
    assert len(made.outputs) == 1
    result, gates = made.stop([_seen(made.pid), _seen(made.pid)])
    assert not alive(made.pid)
    assert gates == []
    assert result["program"]["exit"] == -signal.SIGTERM
    assert result["began_ns"] < result["ended_ns"] < time.monotonic_ns()


def test_a_program_that_ended_before_the_work_is_no_antagonist(antagonist: _Make) -> None:
    made = antagonist(program=Program(["/bin/sh", "-c", "echo why; exit 3"]))
    made.start()
    wait_until(lambda: made.pid is not None and not alive(made.pid))
    result, gates = made.stop([_seen(made.pid)])
    assert result["program"]["exit"] == 3
    (gate,) = gates
    assert gate.startswith("antagonist:")
    assert "3" in gate
    assert gate.endswith("why")


@pytest.mark.parametrize("missing", [0, 1])
def test_it_must_be_seen_at_both_ends_of_the_steady_part(antagonist: _Make, missing: int) -> None:
    made = antagonist(program=_SLEEPS)
    made.start()
    samples = [_seen(made.pid), _seen(made.pid)]
    samples[missing] = {"tasks": {"1": {"job": True}}}
    (gate,) = made.stop(samples)[1]
    assert "start_ms" in gate


def test_one_that_was_never_started_is_a_gate(antagonist: _Make) -> None:
    result, gates = antagonist(job=Job(**job())).stop([])
    assert (len(gates), result["began_ns"]) == (1, 0)
    assert {"program", "fio"} & set(result) == set()


def test_a_killed_one_is_gone_and_one_that_was_never_started_needs_no_kill(
    antagonist: _Make,
) -> None:
    made = antagonist(program=_SLEEPS)
    made.kill()
    made.start()
    made.kill()
    made.kill()
    assert made.pid is not None
    assert not alive(made.pid)


@pytest.fixture
def fio_place(place: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """A file of 1 MiB for a job, whose report is in the test's folder."""
    monkeypatch.setattr("iolab_agent.fio.RUN", tmp_path)
    made = _job()
    folder = tmp_path / "work"
    folder.mkdir()
    with wants("a file system with direct I/O", OSError):
        lay_out(made, folder)
    return Workplace(job_files(made, folder), folder, None, place.cpu, None)


def _job() -> Job:
    course = {"engine": "psync", "iodepth": 1, "batch": 1, "direct": False, "size_mib": 1}
    return Job(**job(**course, ramp_ms=0, runtime_ms=60_000))


def _child(pid: int) -> int | None:
    """Return fio's job, which does the I/O; fio itself starts long before."""
    words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(words[0]) if words else None


@needs("fio")
def test_fio_is_ended_with_its_report_once_its_job_was_seen(
    antagonist: _Make, fio_place: Workplace
) -> None:
    made = antagonist(fio_place, job=_job())
    made.start()
    assert made.pid is not None
    main = made.pid
    written = fio_place.files[0]
    before = written.stat().st_mtime_ns
    wait_until(lambda: written.stat().st_mtime_ns > before)
    result, gates = made.stop([_seen(_child(main))])
    assert gates == []
    assert result["fio"]["jobs"][0]["write"]["total_ios"] > 0
    assert not alive(main)


@needs("fio")
def test_fio_itself_is_not_its_job_and_a_killed_one_has_no_report(
    antagonist: _Make, fio_place: Workplace
) -> None:
    made = antagonist(fio_place, job=_job())
    made.start()
    assert made.pid is not None
    main = made.pid
    made.kill()
    result, gates = made.stop([_seen(main)])
    assert "fio" not in result
    assert "start_ms" in gates[0]
    assert len([gate for gate in gates if gate.startswith("antagonist:")]) >= 2


def test_outputs_are_read_while_the_work_runs(antagonist: _Make) -> None:
    made = antagonist(program=Program(["/bin/sh", "-c", "echo begun; sleep 1000"]))
    made.start()
    (output,) = made.outputs
    wait_until(lambda: pause(time.monotonic() + 0.01, made.outputs) or output._kept)
    result, _ = made.stop([_seen(made.pid)])
    assert result["program"]["output"] == "begun\n"
