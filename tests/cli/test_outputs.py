# SPDX-License-Identifier: MIT
"""Outputs that the user names, of every command: files, links, devices, pipes, and inputs."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
import pytest

from guestprof.profile import CostProfile
from guestprof.profile_file import write_events, write_profile
from guestprof.schedule import SWITCH_CALLS
from iolab.paths import REFERENCE
from iolab.store.profiles import ProfileStore
from tests.base.test_files import device, small_disk
from tests.guestprof.test_profile import profile
from tests.guestprof.test_schedule import story
from tests.support import reports, synthetic
from tests.support.command import ARGV, Told
from tests.support.commands import every_command
from tests.support.processes import PATIENCE_S, child_environment

__all__ = ["profile"]

_KEY: Final = "0123456789abcdef0123456789abcdef"
# Each parameter that takes a path, of each command. A file that is written stands below, too.
_READ: Final = {
    *("bisect --tree", "bisect --config", "bisect --patches", "export folder", "fsck folder"),
    *("gc folder", "judge --config", "kernels add files", "kernels build tree"),
    *("kernels build --config", "mail folder", "mail --why", "merge sources", "trace file"),
    *("verdicts folders", "verify folders"),
}
_FOLDERS: Final = {"export --pyperf", "trace --parquet"}
# The lock is read as well, and written by `iolab.sweeps.answers.write_lock`: see its tests.
_KEPT: Final = {"judge --lock"}
# NAME.ipynb and NAME.html, which no command reads.
_PAGES: Final = {"ask --page"}
_FILES: Final = {
    **dict.fromkeys(("mail --output", "mail --reproducer"), "data/cells.parquet"),
    "trace --perfetto": "trace.dat",
    **dict.fromkeys(
        [f"profile --{kind}" for kind in ("flame", "collapsed", "pprof", "perfetto")],
        f"root/profiles/{_KEY}/c000.parquet",
    ),
}
Write = Callable[[Path], Told]


def _paths() -> set[str]:
    return {
        f"{name} {max(parameter.opts, key=len)}"
        for name, command in every_command()
        for parameter in command.params
        if isinstance(parameter.type, click.Path)
    }


def test_every_path_of_a_command_is_known_here() -> None:
    roots = {path for path in _paths() if path.endswith(" --root")}
    assert _paths() == roots | _READ | _FOLDERS | _KEPT | _PAGES | set(_FILES)


@pytest.fixture(params=sorted(_FILES))
def option(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def source(option: str, tmp_path: Path, profile: CostProfile) -> Path:
    """Return a file that the command reads."""
    if option.startswith("mail"):
        synthetic.write(reports.report("dio_kworker", kernels=["6.1"]), tmp_path / "data")
    elif option.startswith("trace"):
        shutil.copy(REFERENCE / "traces" / "small_v7_mono.dat", tmp_path / "trace.dat")
    else:
        store = ProfileStore(tmp_path / "root")
        write_profile(store.path(_KEY, "c000"), profile)
        write_events(store.path(_KEY, "c000.events"), story(), SWITCH_CALLS)
    return tmp_path / _FILES[option]


def _words(option: str, source: Path, output: Path) -> list[str]:
    name, flag = option.split()
    if name == "mail":
        given = [source.parent, "--kernel", "6.1", "--claim", "IOPS lost"]
    elif name == "trace":
        given = [source]
    else:
        given = [f"{_KEY[:16]}-c000", "--root", source.parents[2]]
    return [name, *map(str, given), flag, str(output)]


@pytest.fixture
def write(iolab: Callable[..., Told], option: str, source: Path) -> Write:
    """Run the command with this output."""
    return lambda output: iolab(*_words(option, source, output))


@pytest.fixture
def content(write: Write, tmp_path: Path) -> bytes:
    """Return what the command writes into a file."""
    told = write(tmp_path / "whole")
    assert (told.code, told.error) == (0, "")
    return (tmp_path / "whole").read_bytes()


def test_a_device_stays_a_device(write: Write, tmp_path: Path) -> None:
    nothing = device(tmp_path / "nul", 1, 3)
    before = nothing.stat()
    told = write(nothing)
    assert (told.code, told.error) == (0, "")
    after = nothing.stat()
    assert stat.S_ISCHR(after.st_mode)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    full = device(tmp_path / "full", 1, 7)
    told = write(full)
    assert told.code == 1
    assert "No space left" in told.one_line()
    assert stat.S_ISCHR(full.stat().st_mode)


def test_a_pipe_gets_what_a_file_gets(write: Write, content: bytes, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    # It would wait for ever for a writer that never comes.
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    told = write(pipe)
    assert pipe.is_fifo()
    reader.join(PATIENCE_S)
    assert (told.code, told.error) == (0, "")
    assert got == [content]


def test_the_file_behind_a_link_is_written(write: Write, content: bytes, tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "there" / "file"
    link.symlink_to("there/file")
    for _ in range(2):
        assert write(link).code == 0
        assert link.readlink() == Path("there/file")
        assert file.read_bytes() == content
        file.write_bytes(b"old")


@pytest.mark.parametrize("way", ["itself", "link", "hard link", "another path", "link of a link"])
def test_an_input_is_not_written(write: Write, source: Path, tmp_path: Path, way: str) -> None:
    before, output = source.read_bytes(), tmp_path / "output"
    if way == "itself":
        output = source
    elif way == "hard link":
        output.hardlink_to(source)
    elif way == "another path":
        (tmp_path / "folder").symlink_to(source.parent)
        output = tmp_path / "folder" / ".." / source.parent.name / source.name
    else:
        output.symlink_to(source)
    if way == "link of a link":
        (tmp_path / "more").symlink_to(output)
        output = tmp_path / "more"
    told = write(output)
    assert told.code == 2
    assert str(output) in told.one_line()
    assert source.read_bytes() == before


@pytest.mark.parametrize("name", ["folder", "file/below", "x" * 256, "loop", "folder/loop/below"])
def test_what_can_be_no_file_is_one_sentence(write: Write, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for loop in ("loop", "folder/loop"):
        (tmp_path / loop).symlink_to("loop")
    before = sorted(tmp_path.rglob("*"))
    told = write(tmp_path / name)
    assert told.code == 2
    assert told.one_line().startswith((f"cannot write {tmp_path}", str(tmp_path / "folder")))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", [b"-o", b"\xff\xfe", b"a b\n'\"", b"y" * 255, b"--help"])
def test_any_name_of_a_file_is_written(
    write: Write, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    told = write(Path(os.fsdecode(name)))
    assert (told.code, told.error) == (0, "")
    assert (tmp_path / os.fsdecode(name)).read_bytes() == content


def test_a_full_disk_leaves_the_old_file(write: Write, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4k") as disk:
        (disk / "file").write_bytes(b"old")
        told = write(disk / "file")
        assert told.code == 1
        assert "No space left" in told.one_line()
        assert str(disk) in told.one_line()
        assert [path.name for path in disk.iterdir()] == ["file"]
        assert (disk / "file").read_bytes() == b"old"


def test_two_outputs_are_two_files(
    iolab: Callable[..., Told], profile: CostProfile, tmp_path: Path
) -> None:
    write_profile(ProfileStore(tmp_path / "root").path(_KEY, "c000"), profile)
    (tmp_path / "link").symlink_to("x")
    words = ("profile", f"{_KEY[:16]}-c000", "--root", tmp_path / "root")
    told = iolab(*words, "--flame", tmp_path / "x", "--pprof", tmp_path / "link")
    assert told.code == 2
    assert "two outputs" in told.one_line()
    assert not (tmp_path / "x").exists()
    nothing = device(tmp_path / "nul", 1, 3)
    assert iolab(*words, "--flame", nothing, "--pprof", nothing).code == 0


def test_standard_output_can_be_named(tmp_path: Path) -> None:
    data = synthetic.write(reports.report("dio_kworker", kernels=["6.1"]), tmp_path / "data")
    source = data / "cells.parquet"
    argv = [*ARGV, *_words("mail --output", source, Path("/dev/stdout"))]

    def run(words: str) -> bytes:
        return subprocess.run(
            ["sh", "-c", words, "sh", *argv],
            env=child_environment(),
            capture_output=True,
            check=True,
            timeout=PATIENCE_S,
            cwd=tmp_path,
        ).stdout

    piped = run('"$@"')
    assert piped.startswith(b"Subject: ")
    # What stands in the file stays, and what comes later is behind it.
    run('(echo before; "$@"; echo after) > file')
    assert (tmp_path / "file").read_bytes() == b"before\n" + piped + b"after\n"


def test_a_full_disk_leaves_no_folder(iolab: Callable[..., Told], tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        source = REFERENCE / "traces" / "small_v7_mono.dat"
        told = iolab("trace", source, "--parquet", disk / "tables")
        assert told.code == 1
        assert str(disk / "tables") in told.one_line()
        assert "No space left" in told.one_line()
        assert list(disk.iterdir()) == []


@pytest.mark.parametrize("name", sorted(_FOLDERS))
def test_a_folder_of_outputs_is_no_device(
    iolab: Callable[..., Told], tmp_path: Path, name: str
) -> None:
    source = REFERENCE / "traces" / "small_v7_mono.dat"
    if name.startswith("export"):
        source = synthetic.write(synthetic.dataset(boots=2), tmp_path / "data")
    nothing = device(tmp_path / "nul", 1, 3)
    command, flag = name.split()
    told = iolab(command, source, flag, nothing)
    assert told.code == 2
    assert str(nothing) in told.one_line()
    assert stat.S_ISCHR(nothing.stat().st_mode)
