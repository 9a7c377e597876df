# SPDX-License-Identifier: MIT
"""Tables in a pipe and on a terminal, and documents of JSON."""

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

from iolab.cli.terminal import print_json, print_table, records
from tests.support import synthetic
from tests.support.command import ARGV
from tests.support.processes import child_environment

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
