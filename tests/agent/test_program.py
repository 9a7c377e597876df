# SPDX-License-Identifier: MIT
"""Programs as the agent runs them, on this machine: their end, output, and what they leave."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from iolab_agent import program as program_module
from iolab_agent.journal import Journal, restore
from iolab_agent.plan import Cell
from iolab_agent.plan_work import Program
from iolab_agent.program import (
    RunningProgram,
    pause,
    printed_value,
    program_gates,
    refuse_outside_a_guest,
)
from iolab_agent.undo import MARK
from iolab_agent.workplace import Workplace
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.process import CommandError, kill_group, start
from tests.support.processes import PATIENCE_S, alive, child_environment, wait_until

_CPU = min(os.sched_getaffinity(0))
# Starts a program with a child in its session and one in a session of its own, and waits.
_AGENT = """
import os, sys, time
from pathlib import Path
from iolab_agent.journal import Journal
from iolab_agent.plan import Cell
from iolab_agent.plan_work import Program
from iolab_agent.program import RunningProgram
from iolab_agent.workplace import Workplace
folder, os.environ["IOLAB_RUN"], cpu = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
place = Workplace([], folder / "program", None, cpu, None)
program = Program(["/bin/sh", "-c", "setsid sleep 1000 & sleep 1000 & wait"])
RunningProgram(Journal(folder / "journal"), program, place=place)
print("running", flush=True)
time.sleep(1000)
"""
_Run = Callable[..., RunningProgram]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[_Run]:
    """Starts programs of a journal, and undoes it in the end."""
    path = tmp_path / "journal"
    journal = Journal(path)
    running: list[RunningProgram] = []

    def begin(*argv: str, **different: Any) -> RunningProgram:
        place = Workplace([], tmp_path / "program", different.pop("device", None), _CPU, None)
        program = Program(list(argv), **different)
        running.append(RunningProgram(journal, program, place=place))
        return running[-1]

    yield begin
    for one in running:
        one.kill()
    journal.close()
    assert restore(path) == []
    assert not (tmp_path / "program").exists()


def _to_its_end(running: RunningProgram) -> dict[str, Any]:
    assert pause(time.monotonic() + PATIENCE_S, [running.output], running.end)
    return running.result()


def test_a_program_runs_to_its_end_where_and_as_it_should(run: _Run, tmp_path: Path) -> None:
    asked = "import os; print(os.getcwd(), os.sched_getaffinity(0), os.environ['LC_ALL'])"
    found = _to_its_end(run(sys.executable, "-c", asked))
    assert found["exit"] == 0
    assert found["output"] == f"{tmp_path / 'program'} {{{_CPU}}} C\n"
    assert (found["whole"], found["output_full"]) == (True, False)
    assert found["seconds"] == pytest.approx((found["ended_ns"] - found["began_ns"]) / 1e9)
    assert found["ran_ns"] > 0
    assert "value" not in found


def test_no_shell_reads_the_arguments(run: _Run) -> None:
    found = _to_its_end(run("/bin/echo", "$HOME; true", "{device}", device=Path("/dev/null")))
    assert found["output"] == "$HOME; true /dev/null\n"


def test_a_cell_without_a_device_has_none_to_name(run: _Run) -> None:
    with pytest.raises(IolabError, match=r"name \{device\}, and the cell has none"):
        run("/bin/echo", "of={device}")


def test_a_fixed_time_ends_with_sigterm(run: _Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine, Python's own end takes a while.
    monkeypatch.setattr(program_module, "_END_S", PATIENCE_S)
    says_bye = "signal.signal(15, lambda *_: sys.exit(os.write(1, b'bye') - 3))"
    waits = f"import os, signal, sys\n{says_bye}\nos.write(1, b'ready ')\nsignal.pause()"
    running = run(sys.executable, "-c", waits, runtime_ms=1)
    # What it prints is there: it has its handler.
    assert select.select([running.output], [], [], 60)[0]
    assert not running.has_ended()
    running.terminate()
    found = running.result()
    assert (found["exit"], found["output"]) == (0, "ready bye")
    assert program_gates(found, running.program, early=False, stopped=True) == []


def test_a_core_that_is_missing_is_a_reason(run: _Run) -> None:
    with pytest.raises(CannotRunError, match="this machine has no CPU 4095"):
        run("/bin/true", cpus=[4095])


def test_a_program_that_is_missing_is_one_sentence(run: _Run) -> None:
    with pytest.raises(CommandError, match="/no/program: no such program"):
        run("/no/program")


def test_much_output_is_read_and_its_end_is_kept(run: _Run) -> None:
    lines = "import sys\nfor n in range(200000): print('line', n)\nprint('took 1.5e3 s')"
    running = run(sys.executable, "-c", lines, value="took ([0-9.e+]+) s")
    found = _to_its_end(running)
    assert len(found["output"]) == 1 << 16
    assert found["output"].endswith("line 199999\ntook 1.5e3 s\n")
    assert found["value"] == 1500.0


def test_a_program_that_never_stops_printing_is_gated(run: _Run) -> None:
    running = run("/usr/bin/yes", runtime_ms=1)

    def printed_too_much() -> bool:
        assert not pause(time.monotonic() + 0.1, [running.output], running.end)
        return running.output.full

    wait_until(printed_too_much)
    running.terminate()
    (gate,) = program_gates(running.result(), running.program, early=False, stopped=True)
    assert "printed so much" in gate


@pytest.mark.parametrize(
    ("code", "early", "fixed", "reason"),
    [
        (0, False, False, ""),
        (3, False, False, "the program ended with 3: what was wrong"),
        (-9, False, False, "the program was killed by signal 9: what was wrong"),
        (-15, False, True, ""),
        (0, True, True, "the program ended with 0 before its time: what was wrong"),
    ],
)
def test_an_end_that_was_not_asked_for_is_a_gate(
    code: int, early: bool, fixed: bool, reason: str
) -> None:
    result = {"exit": code, "seconds": 0.25, "output": "a\nwhat was wrong\n", "output_full": False}
    program = Program(["/bin/true"], runtime_ms=500 if fixed else None)
    gates = program_gates(result, program, early=early, stopped=fixed and not early)
    assert gates == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("pattern", "text", "value"),
    [
        (r"Time: ([0-9.]+)", "Time: 1.5\nTime: 2.5\n", 2.5),
        (r"^ops (\S+)$", "x ops 4\nops -3e2\n", -300.0),
        (r"Time: (\S+)", "Time: soon", None),
        (r"Time: (\S+)", "Time: inf", None),
        (r"Time: (\S+)", "Time: nan", None),
        (r"Time: (\S+)", "", None),
        (r"a|(b)", "a", None),
    ],
)
def test_the_last_number_that_is_printed(pattern: str, text: str, value: float | None) -> None:
    assert printed_value(pattern, text) == value
    result = {"exit": 0, "seconds": 1.0, "output": text, "output_full": False, "value": value}
    gates = program_gates(result, Program(["/bin/true"], value=pattern), early=False, stopped=False)
    assert bool(gates) is (value is None)


def test_what_left_its_session_is_killed_by_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, f"left-{os.getpid()}")
    journal = Journal(tmp_path / "journal")
    place = Workplace([], tmp_path / "program", None, _CPU, None)
    daemon = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
    daemon += "open('pid', 'w').write(str(os.getpid()) + '\\n')\ntime.sleep(1000)"
    running = RunningProgram(journal, Program([sys.executable, "-c", daemon]), place=place)
    pid = tmp_path / "program" / "pid"
    wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"))
    left = int(pid.read_text())
    assert pause(time.monotonic() + PATIENCE_S, [running.output], running.end)
    assert running.result()["exit"] == 0
    assert alive(left)
    journal.close()
    assert restore(tmp_path / "journal") == []
    wait_until(lambda: not alive(left))


def _marked(name: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={name}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_agent_that_is_ended_leaves_what_its_journal_kills(tmp_path: Path, number: int) -> None:
    name = f"killed-{os.getpid()}-{number}"
    agent = start(
        [sys.executable, "-c", _AGENT, tmp_path, name, str(_CPU)],
        env=child_environment(),
        stdout=subprocess.PIPE,
    )
    try:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"running\n"
        wait_until(lambda: len(_marked(name)) == 3)
        agent.send_signal(number)
        agent.wait(PATIENCE_S)
        agent.stdout.close()
        assert restore(tmp_path / "journal") == []
        wait_until(lambda: not _marked(name))
        assert not (tmp_path / "program").exists()
    finally:
        kill_group(agent)


def test_this_machine_is_no_guest() -> None:
    with pytest.raises(CannotRunError, match="a program runs in the virtual machine only"):
        refuse_outside_a_guest(Cell([], None, program=Program(["/bin/true"])))
