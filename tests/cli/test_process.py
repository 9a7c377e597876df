# SPDX-License-Identifier: MIT
"""Standard streams that are closed, full or without a reader, and signals that end a command."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iolab.cli.process import CLOSED_PIPE, ending_signals
from iolab.paths import REFERENCE
from tests.support import reports, synthetic
from tests.support.command import ARGV, Told
from tests.support.commands import every_command
from tests.support.processes import PATIENCE_S, child_environment, processes_naming, run_python

_TRACE = str(REFERENCE / "traces" / "small_v7_mono.dat")
# What writes much, little, by lines, at once, and as JSON.
_PRINTING = [
    *("verdicts DATA", "--version"),
    *(
        pytest.param(words, marks=pytest.mark.nightly)
        for words in (
            *("export DATA", "mail DATA", f"trace {_TRACE} --json", "plan dio_kworker"),
            "sweep --help",
        )
    ),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("data") / "data"
    return str(synthetic.write(reports.report("dio_kworker", kernels=["6.1"]), folder))


def redirected(redirection: str, *words: str, **environment: str) -> Told:
    """Run a command with a redirection of the shell."""
    return Told(
        subprocess.run(
            ["sh", "-c", f'"$@" {redirection}', "sh", *ARGV, *words],
            env=child_environment(**environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    )


@pytest.mark.parametrize("words", _PRINTING)
@pytest.mark.parametrize("redirection", ["<&- >&-", ">/dev/full"])
def test_an_output_that_cannot_be_written_is_one_sentence(
    data: str, words: str, redirection: str
) -> None:
    told = redirected(redirection, *words.replace("DATA", data).split())
    assert told.code == 1
    assert "standard output" in told.one_line()


def test_every_command_says_so() -> None:
    for name, _ in every_command():
        told = redirected(">&-", *name.split(), "--help")
        assert told.code == 1, name
        assert "standard output" in told.one_line(), name


@pytest.mark.parametrize("words", _PRINTING)
def test_a_pipe_that_nobody_reads_is_silent(data: str, words: str, tmp_path: Path) -> None:
    # The reader has ended before anything is written.
    pipe = tmp_path / "pipe"
    program = 'mkfifo "$0"; true < "$0" & exec 3> "$0"; wait; "$@" >&3'
    done = subprocess.run(
        ["sh", "-c", program, pipe, *ARGV, *words.replace("DATA", data).split()],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (CLOSED_PIPE, "")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "<&-", "<&- 2>&-"])
def test_a_command_does_without_errors_and_input(data: str, redirection: str) -> None:
    told = redirected(redirection, "verdicts", data)
    assert (told.code, told.error) == (0, "")
    assert told.out.startswith("pathology")
    told = redirected(redirection, "verdicts", "/nonexistent")
    assert (told.code, told.out) == (2, "")


def test_a_verdict_that_cannot_be_told_is_none() -> None:
    # `git bisect run` takes 1 for a bad commit.
    for redirection in (">&-", ">/dev/full"):
        told = redirected(redirection, "judge", "nonsense", "--kernel", "6.1")
        assert told.code == 128


def test_no_file_takes_the_place_of_a_closed_stream(data: str, tmp_path: Path) -> None:
    output = tmp_path / "mail"
    told = redirected("<&- >&- 2>&-", "mail", data, "-o", str(output))
    assert told.code == 0
    assert output.read_text().startswith("Subject: ")
    told = redirected("<&- >&- 2>&-", "trace", _TRACE, "--parquet", str(tmp_path / "tables"))
    assert told.code == 1
    assert (tmp_path / "tables" / "losses.parquet").read_bytes().startswith(b"PAR1")


def test_what_an_encoding_lacks_is_escaped(data: str, tmp_path: Path) -> None:
    named = tmp_path / "ä.py"
    named.write_text("raise ValueError('\N{SNOWMAN}')")
    told = redirected("", "plan", str(named), PYTHONIOENCODING="ascii")
    assert told.code == 2
    assert "\\u2603" in told.one_line()
    assert redirected("", "mail", data, PYTHONIOENCODING="ascii").code == 0


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
    argv = [sys.executable, "-c", program]
    done = subprocess.run(
        argv, env=child_environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "iolab: interrupted\n")


def _program(before: str, inside: str) -> str:
    return (
        "import os, signal, sys\n"
        "from iolab.cli.process import ending_signals\n"
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
    argv = [sys.executable, "-c", _program(before, inside)]
    assert subprocess.run(argv, env=child_environment(), check=False).returncode == code


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
