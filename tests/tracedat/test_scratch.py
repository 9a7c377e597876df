# SPDX-License-Identifier: MIT
from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.support.processes import child_environment
from tracedat._scratch import scratch

KILLED = """
import os, signal, sys
from pathlib import Path
from tracedat._scratch import scratch
with scratch(Path(sys.argv[1])) as work:
    (work / "whole").mkdir()
    (work / "whole" / "half.parquet").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_export_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(argv, env=child_environment(), check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.rglob("half.parquet"))) == 1
    with scratch(tmp_path) as work:
        assert list(tmp_path.iterdir()) == [work]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_and_the_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "lock").touch()
    (tmp_path / ".tracedat.link").symlink_to(tmp_path / "other")
    (tmp_path / ".tracedat.notes").mkdir()
    with scratch(tmp_path) as first:
        (first / "file").touch()
        with scratch(tmp_path) as second:
            assert first != second
        assert (first / "file").exists()
    assert (tmp_path / "other" / "lock").exists()
    assert {path.name for path in tmp_path.iterdir()} == {
        *("other", ".tracedat.link", ".tracedat.notes")
    }


def test_what_is_renamed_stays(tmp_path: Path) -> None:
    with scratch(tmp_path) as work:
        (work / "whole").write_text("all")
        (work / "whole").replace(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
