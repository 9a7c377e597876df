# SPDX-License-Identifier: MIT
"""Standard streams that are closed, full, or without a reader."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from iolab.cli.streams import CLOSED_PIPE
from iolab.paths import REFERENCE
from tests.support import reports, synthetic
from tests.support.command import ARGV, Told
from tests.support.commands import every_command
from tests.support.processes import PATIENCE_S, child_environment

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
