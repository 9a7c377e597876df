# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from iolab_agent.copies import (
    CopyError,
    copies_gates,
    copy_files,
    dd_argv,
    parse_output,
    run_copies,
)
from iolab_agent.plan import Copies
from iolab_base.process import start
from tests.support import plans

_WORDS = (
    "4+0 records in\n4+0 records out\n2048 bytes (2.0 kB, 2.0 KiB) copied, 0.0025 s, 819 kB/s\n"
)


def _copies(**different: Any) -> Copies:
    return Copies(**plans.copies(**different))


def _core() -> int:
    return min(os.sched_getaffinity(0))


def test_the_command_is_the_reports(tmp_path: Path) -> None:
    assert dd_argv(_copies(), tmp_path / "x") == [
        *("dd", "if=/dev/zero", f"of={tmp_path}/x", "bs=512", "count=4"),
        *("conv=notrunc", "oflag=dsync"),
    ]
    assert "oflag=dsync" not in dd_argv(_copies(dsync=False), tmp_path)
    assert copy_files(_copies(), tmp_path) == [tmp_path / f"iolab.{n}" for n in range(3)]


@pytest.mark.parametrize(
    ("text", "writes", "seconds"),
    [
        (_WORDS, 4, 0.0025),
        ("1+0 records in\n1+0 records out\n512 bytes copied, 8e-05 s, 6.4 MB/s\n", 1, 8e-05),
        (_WORDS.replace("0.0025 s", "12.5 s"), 4, 12.5),
    ],
)
def test_the_time_is_dds_own(text: str, writes: int, seconds: float) -> None:
    assert parse_output(text, _copies(writes=writes)) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dd: something else\n",
        _WORDS.replace("4+0 records out", "3+1 records out"),
        _WORDS.replace("2048 bytes", "2047 bytes"),
        _WORDS.replace("4+0 records out\n", ""),
        _WORDS.replace(", 0.0025 s", ""),
    ],
)
def test_words_of_other_writes_are_refused(text: str) -> None:
    with pytest.raises(CopyError, match="dd did not make its writes: "):
        parse_output(text, _copies())


def test_each_process_writes_its_file_after_the_one_before(tmp_path: Path) -> None:
    asked = _copies()
    files = copy_files(asked, tmp_path)
    done = run_copies(asked, files, cpu=_core(), group=None)
    assert [path.read_bytes() for path in files] == [bytes(2048)] * 3
    assert [(d["writes"], d["bytes"]) for d in done] == [(4, 2048)] * 3
    edges = [edge for d in done for edge in (d["began_ns"], d["ended_ns"])]
    assert edges == sorted(edges)
    for one in done:
        assert 0 < one["seconds"] * 1e9 <= one["ended_ns"] - one["began_ns"]
        assert one["ran_ns"] > 0
        assert one["voluntary_ctxt_switches"] >= 0


def test_each_process_is_on_the_core_and_speaks_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    real = shutil.which("dd")
    around = tmp_path / "bin" / "dd"
    around.parent.mkdir()
    around.write_text(
        f"#!/bin/sh\ngrep Cpus_allowed_list /proc/self/status >> {seen}\n"
        f'echo "$LC_ALL" >> {seen}\nexec {real} "$@"\n'
    )
    around.chmod(0o755)
    monkeypatch.setenv("PATH", f"{around.parent}:{os.environ['PATH']}")
    before = os.sched_getaffinity(0)
    core = max(before)
    run_copies(_copies(processes=1), [tmp_path / "x"], cpu=core, group=None)
    assert seen.read_text().split() == ["Cpus_allowed_list:", str(core), "C"]
    assert os.sched_getaffinity(0) == before


def test_a_dd_that_fails_is_quoted(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    for path, reason in (
        (tmp_path / "absent" / "x", "No such file or directory"),
        (Path("/dev/full"), "No space left on device"),
    ):
        with pytest.raises(CopyError, match=f"dd ended with 1: .*{reason}"):
            run_copies(_copies(dsync=False), [path], cpu=_core(), group=None)
    assert os.sched_getaffinity(0) == before


def test_a_dd_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iolab_agent.copies._START_S", 0.2)
    started: list[int] = []

    def watched(*arguments: Any, **options: Any) -> Any:
        process = start(*arguments, **options)
        started.append(process.pid)
        return process

    monkeypatch.setattr("iolab_agent.copies.start", watched)
    # Opening it waits for a reader, who never comes.
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CopyError, match="dd did not end in time"):
        run_copies(_copies(), [tmp_path / "pipe"], cpu=_core(), group=None)
    assert len(started) == 1
    assert not Path(f"/proc/{started[0]}").exists()


def test_writes_that_were_not_synchronous_are_a_gate() -> None:
    assert copies_gates(_copies(), completed=12) == []
    assert copies_gates(_copies(), completed=11) == [
        "the device completed 11 I/Os for 12 synchronous writes"
    ]
    assert copies_gates(_copies(dsync=False), completed=0) == []
