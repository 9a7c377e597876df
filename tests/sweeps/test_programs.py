# SPDX-License-Identifier: MIT
"""Programs of a sweep say why they failed, and end with everything that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from iolab.sweeps.programs import Failure, end_all, error_said, open_log
from iolab_base.process import start
from tests.support.processes import child_environment, processes_naming, wait_until

_PROGRAM = """\
import signal, sys
from iolab_base.errors import UserError
from iolab.sweeps.programs import run_saying

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


def test_a_signal_waits_for_the_note_of_what_was_started() -> None:
    program = (
        "import os, signal, sys\n"
        "from iolab.cli.process import ending_signals\n"
        "from iolab.sweeps.programs import signals_held\n"
        "try:\n"
        "    with ending_signals() as ending:\n"
        "        with signals_held():\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "            print('noted', flush=True)\n"
        "        print('not reached')\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(ending.exit_code)\n"
    )
    argv = [sys.executable, "-c", program]
    done = subprocess.run(
        argv, env=child_environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "noted\n", "")
