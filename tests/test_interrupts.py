# SPDX-License-Identifier: MIT
"""Signals that end a command, and interrupts that Python would remember."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iolab.interrupts import ending_signals
from tests.support.command import ARGV
from tests.support.processes import child_environment, processes_naming, run_python


def test_an_interrupt_while_a_string_is_executed_does_not_change_the_exit_code(
    tmp_path: Path,
) -> None:
    (tmp_path / "interrupted.py").write_text(
        "import sys\n"
        "from iolab.interrupts import forget_interrupt\n"
        "try:\n"
        "    exec('raise KeyboardInterrupt')\n"
        "except KeyboardInterrupt:\n"
        "    forget_interrupt()\n"
        "sys.exit(143)\n"
    )
    argv = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(argv, cwd=tmp_path, env=child_environment(), check=False)
    assert done.returncode == 143


_SENTENCE = "iolab: interrupted; measured blocks are kept, and the next sweep measures the rest"
_SWEEP = ("sweep", "--pathology", "dio_kworker", "--profile", "smoke", "--kernel", "6.1")


@pytest.mark.vm
@pytest.mark.usefixtures("target")
def test_a_sweep_that_measures_leaves_nothing_running(tmp_path: Path) -> None:
    sweep = subprocess.Popen(
        [*ARGV, *_SWEEP, "--jobs", "1", "--root", str(tmp_path)],
        env=child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # How long it takes until a machine runs does not matter, but the sweep must go on.
        while not processes_naming("qemu-system", str(tmp_path)):
            assert sweep.poll() is None
            time.sleep(0.1)
        sweep.terminate()
        out, words = sweep.communicate()
    finally:
        sweep.kill()
    # Not a moment later: with the command, all that it started has ended.
    assert processes_naming(str(tmp_path)) == []
    assert (sweep.returncode, out) == (143, "")
    assert words.splitlines()[-1] == _SENTENCE
    assert "Traceback" not in words
    assert not list(tmp_path.rglob("cells.parquet"))


@pytest.mark.parametrize("words", [("fsck", "F"), ("gc", "F"), ("merge", "F"), ("trace", "F")])
def test_a_command_says_of_its_end_what_is_true(words: tuple[str, ...]) -> None:
    # The signal comes before the command does anything.
    name, _ = words
    program = (
        "import os, signal, sys, click\n"
        "from iolab import cli\n"
        f"command = cli.app.commands[{name!r}]\n"
        "command.callback = lambda **_: os.kill(os.getpid(), signal.SIGTERM)\n"
        f"sys.argv = {['iolab', *words]!r}\n"
        "cli.main()\n"
    )
    done = run_python(program, check=False)
    assert (done.returncode, done.stdout) == (143, "")
    assert done.stderr.splitlines()[-1] == "iolab: interrupted"


def test_ctrl_c_counts_while_the_commands_are_loaded() -> None:
    program = (
        "import os, runpy, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'iolab.cli.sweep':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.argv = ['iolab', 'sweep', '--help']\n"
        "runpy.run_module('iolab', run_name='__main__')\n"
    )
    done = run_python(program, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "iolab: interrupted\n")


def _program(before: str, inside: str) -> str:
    return (
        "import os, signal, sys\n"
        "from iolab.interrupts import ending_signals\n"
        f"{before}\n"
        "try:\n"
        "    with ending_signals() as ending:\n"
        f"        {inside}\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(ending.exit_code)\n"
    )


@pytest.mark.parametrize(
    ("before", "inside", "code"),
    [
        ("", "os.kill(os.getpid(), signal.SIGTERM)", 143),
        # Whoever runs the tests may ignore it.
        (
            "signal.signal(signal.SIGHUP, signal.SIG_DFL)",
            "os.kill(os.getpid(), signal.SIGHUP)",
            129,
        ),
        ("", "os.kill(os.getpid(), signal.SIGINT)", 130),
        # As nohup(1) does.
        ("signal.signal(signal.SIGHUP, signal.SIG_IGN)", "os.kill(os.getpid(), signal.SIGHUP)", 0),
    ],
)
def test_the_exit_code_is_of_the_signal(before: str, inside: str, code: int) -> None:
    assert run_python(_program(before, inside), check=False).returncode == code


def test_a_second_signal_does_not_end_the_clean_up() -> None:
    inside = (
        "\n        try:\n            os.kill(os.getpid(), signal.SIGTERM)\n"
        "        finally:\n"
        "            os.kill(os.getpid(), signal.SIGHUP)\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "            print('cleaned up')"
    )
    done = run_python(_program("", inside), check=False)
    assert (done.returncode, done.stdout) == (143, "cleaned up\n")


def test_handlers_are_put_back() -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with ending_signals():
        assert [signal.getsignal(number) for number in numbers] != before
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_signal_waits_for_the_note_of_what_was_started() -> None:
    program = (
        "import os, signal, sys\n"
        "from iolab.interrupts import ending_signals, signals_held\n"
        "try:\n"
        "    with ending_signals() as ending:\n"
        "        with signals_held():\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "            print('noted', flush=True)\n"
        "        print('not reached')\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(ending.exit_code)\n"
    )
    done = run_python(program, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "noted\n", "")
