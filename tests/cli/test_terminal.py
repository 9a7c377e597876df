# SPDX-License-Identifier: MIT
"""Streams that are closed, full or without a reader; tables in a pipe and on a terminal; JSON."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from iolab.cli.terminal import CLOSED_PIPE, print_json, print_table, records
from iolab.paths import REFERENCE
from tests.support import reports, synthetic
from tests.support.command import ARGV, Told
from tests.support.commands import every_command
from tests.support.processes import PATIENCE_S, child_environment

_ROWS = [
    {"name": "one", "reason": "short"},
    {"name": "two", "reason": "a longer reason,\nin two lines \x1b[31m and red"},
]


def on_a_terminal(columns: int, *arguments: str) -> list[str]:
    """Return what a command writes to a terminal of that width."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*ARGV, *arguments],
        env=child_environment(COLUMNS=str(columns), TERM="dumb"),
        stdin=subprocess.DEVNULL,
        stdout=slave,
    ) as process:
        os.close(slave)
        output = b""
        while True:
            try:
                chunk = os.read(master, 4096)
            except OSError:  # EIO: the other end is closed
                break
            output += chunk
    os.close(master)
    assert process.returncode == 0
    return output.decode().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()


def test_a_row_is_a_line_and_controls_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(_ROWS, ("name",))
    assert capsys.readouterr().out.splitlines() == [
        "name  reason",
        "one   short",
        "two   a longer reason, in two lines ?[31m and red",
    ]


def test_nothing_is_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([], ("name",))
    assert capsys.readouterr().out == ""


def test_claims_are_readable_on_80_columns(tmp_path: Path) -> None:
    folder = str(synthetic.write(synthetic.dataset(boots=2), tmp_path / "data"))
    lines = on_a_terminal(80, "verdicts", "--claims", folder)
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.startswith("dio_kworker")] == [
        "dio_kworker 6.1",
        "dio_kworker 6.12",
        "dio_kworker 6.8",
    ]
    at = lines.index("  IOPS lost")
    words = " ".join(line.strip() for line in lines[at : at + 8])
    assert "kind: magnitude" in words
    assert "verdict: not measured" in words
    assert "rule: iops, treated / control: below" in words
    assert "result: its condition was not measured" in words
    # The same on a terminal that has room is a table.
    lines = on_a_terminal(500, "verdicts", "--claims", folder)
    assert lines[0].split()[:3] == ["pathology", "kernel", "claim"]


def test_a_document_has_plain_values_only(capsys: pytest.CaptureFixture[str]) -> None:
    @dataclass
    class Part:
        path: Path
        length_ns: float

    table = pd.DataFrame({"secondary claims": ["yes", None], "n": pd.array([1, None], "Int64")})
    print_json([Part(Path("/a"), float("nan")), {"n": np.int64(3)}, *records(table), "\x1b[31m"])
    out = capsys.readouterr().out
    assert json.loads(out) == [
        {"path": "/a", "length_ns": None},
        {"n": 3},
        {"secondary_claims": "yes", "n": 1},
        {"secondary_claims": None, "n": None},
        "\x1b[31m",
    ]
    assert "\x1b" not in out


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
