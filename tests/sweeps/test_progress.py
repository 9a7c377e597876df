# SPDX-License-Identifier: MIT
from __future__ import annotations

import logging
import subprocess
import sys
import time

import pytest

from iolab.sweeps import progress
from iolab.sweeps.pool import PoolProgress
from tests.support.processes import PATIENCE_S, child_environment
from tests.support.terminal import OnTerminal

_SWEEP = """
from iolab.sweeps.progress import SweepProgress
from iolab.sweeps.pool import PoolProgress
with SweepProgress() as progress:
    progress.log("fetching kernel 6.1")
    progress.update(PoolProgress(4, 40))
    progress.update(PoolProgress(4, 40, 1, 9, 62.0))
    progress.log("block \\x1b[31m [bold]6.1[/bold]: measured")
    progress.update(PoolProgress(4, 40, 1, 12, 61.0))
print("at the end")
"""
_ARGV = [sys.executable, "-c", _SWEEP]


def test_a_terminal_shows_counts_and_the_time_left_below_the_lines() -> None:
    said = OnTerminal(_ARGV, child_environment()).end(PATIENCE_S)
    assert said.code == 0
    for shown in ("0/4 blocks, 0/40 cells, time left: not known", "1/4 blocks, 9/40 cells"):
        assert shown in said.text
    assert "about 1:01 left" in said.text
    assert said.harmless()
    assert said.words.splitlines() == [
        *("fetching kernel 6.1", "block ?[31m [bold]6.1[/bold]: measured", "at the end")
    ]


def test_a_file_gets_lines() -> None:
    done = subprocess.run(
        _ARGV, env=child_environment(), capture_output=True, text=True, check=True
    )
    lines = done.stderr.splitlines()
    assert [line.partition(" ")[0] for line in lines] == [
        *("fetching", "0/4", "1/4", "block", "1/4")
    ]
    assert "about 1:02 left" in lines[2]


def test_what_was_fetched_is_not_said_of_the_cells_after_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_DELAY_S", 0)
    with progress.progress_bar(shown=True) as update:
        logging.getLogger("icountvm").info("unpacking a kernel")
        assert "unpacking a kernel" in capsys.readouterr().err
        # tqdm draws ten times a second at most.
        time.sleep(0.2)
        update(PoolProgress(jobs=1, cells=4, cells_done=1))
        said = capsys.readouterr().err
    assert "1/4" in said
    assert "unpacking" not in said
