# SPDX-License-Identifier: MIT
"""Processes end with everything that they started, and with no moment in between."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from iolab.process import start
from iolab.sweeps.ending import end_all
from tests.support.processes import child_environment, processes_naming, wait_until

# As a page does: its kernel is in a session of its own, and starts a virtual machine in another.
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
        "from iolab.cli.signals import ending_signals\n"
        "from iolab.sweeps.ending import signals_held\n"
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
