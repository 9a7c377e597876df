# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from iolab_base.cached import make_folder
from tests.icountvm.conftest import child_environment
from tests.support.processes import PATIENCE_S


def test_a_failed_attempt_leaves_nothing_and_the_old_folder_whole(tmp_path: Path) -> None:
    final = tmp_path / "thing"

    def fill(folder: Path) -> None:
        (folder / "file").write_text("old")

    def fail(folder: Path) -> None:
        (folder / "file").write_text("half")
        raise RuntimeError("broke")

    make_folder(final, fill)
    with pytest.raises(RuntimeError, match="broke"):
        make_folder(final, fail, good=lambda _: False)
    assert (final / "file").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"thing", ".thing.lock"}


def test_nobody_else_can_write_what_was_made_with_a_careless_umask(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "bin").mkdir(mode=0o777)
        (folder / "bin" / "qemu").touch(mode=0o777)
        (folder / "link").symlink_to("bin")

    before = os.umask(0)
    try:
        final = make_folder(tmp_path / "thing", fill)
    finally:
        os.umask(before)
    for path in (final, final / "bin", final / "bin" / "qemu"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".thing.making" / ".work.1" / "new").mkdir(parents=True)
    make_folder(tmp_path / "thing", lambda folder: (folder / "file").touch())
    assert {path.name for path in tmp_path.iterdir()} == {"thing", ".thing.lock"}


def test_of_two_processes_one_makes_it_and_the_other_waits(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from iolab_base.cached import make_folder\n"
        "def make(folder):\n    print('made'); time.sleep(0.5); (folder / 'file').touch()\n"
        "assert (make_folder(Path(sys.argv[1]), make) / 'file').exists()\n"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "thing")]
    both = [
        subprocess.Popen(argv, env=child_environment(), stdout=subprocess.PIPE) for _ in range(2)
    ]
    told = [process.communicate(timeout=PATIENCE_S)[0] for process in both]
    assert sorted(told) == [b"", b"made\n"]
    assert [process.returncode for process in both] == [0, 0]
