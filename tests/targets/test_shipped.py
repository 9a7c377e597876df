# SPDX-License-Identifier: MIT
"""The agent, and programs of this machine, taken along with their libraries."""

from __future__ import annotations

import ast
import hashlib
import io
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from iolab.blocks import encode_plan
from iolab.targets import shipped as ships
from iolab.targets.shipped import (
    Shipped,
    agent_archive,
    agent_digest,
    fio_program,
    program,
    program_entries,
    ship,
)
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import CannotRunError, UserError
from iolab_base.process import run
from tests.support.needs import wants
from tests.support.plans import null_blk_cell, plan, program_cell


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ships, "cache_dir", lambda *below: tmp_path.joinpath("cache", *below))


def _unpacked(shipped: Shipped, cache: Path, guest: Path) -> list[str]:
    """Put the files of a program where they are in a guest; return its command line there."""
    for path, digest in shipped.files.items():
        where = guest / path.lstrip("/")
        where.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(cache / "programs" / digest, where)
        where.chmod(0o755)
    return [f"{guest}{word}" if word.startswith("/iolab") else word for word in shipped.argv]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("sleep", ["0"], ""),
        ("/bin/echo", ["a b", "$HOME"], "a b $HOME\n"),
        (str(Path(sys.executable).resolve()), ["-S", "-c", "print(3.0)"], "3.0\n"),
    ],
)
def test_a_program_runs_with_what_was_taken_along(
    name: str, arguments: list[str], said: str, tmp_path: Path
) -> None:
    argv = _unpacked(ship(name), tmp_path / "cache", tmp_path / "guest")
    assert run([*argv, *arguments], timeout_s=60).stdout == said


def test_no_file_of_this_machine_takes_part(tmp_path: Path) -> None:
    shipped = ship("sleep")
    argv = _unpacked(shipped, tmp_path / "cache", tmp_path / "guest")
    process = subprocess.Popen([*argv, "1000"])
    try:
        maps = Path(f"/proc/{process.pid}/maps")
        while "libc.so" not in maps.read_text():
            assert process.poll() is None
        mapped = {line.split()[-1] for line in maps.read_text().splitlines() if ".so" in line}
        # The kernel names a task after the file that it executed.
        assert Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n"
    finally:
        process.kill()
        process.wait()
    assert mapped
    assert all(path.startswith(str(tmp_path / "guest")) for path in mapped)


@pytest.mark.nightly
def test_debians_newest_fio_runs_with_its_own_libraries(tmp_path: Path) -> None:
    with wants("a mirror that has the newest fio"):
        newest = fio_program("newest")
    argv = _unpacked(Shipped(tuple(newest.argv), newest.files), tmp_path / "cache", tmp_path / "g")
    # Without a library of this machine: the name of each has the guest's folder.
    (number,) = re.findall(r"^fio-3\.(\d+)$", run([*argv, "--version"], timeout_s=60).stdout)
    assert int(number) > 33
    assert any(path.endswith("/libc.so.6") for path in newest.files)


def test_the_libraries_are_those_that_the_loader_finds() -> None:
    tool = Path(sys.executable).resolve()
    listed = run(["ldd", tool], timeout_s=60).stdout
    wanted = {line.split()[0] for line in listed.splitlines() if "=> /" in line}
    found = {Path(path).name for path in ship(tool).files if "/lib/" in path}
    assert wanted
    assert found - {"libgcc_s.so.1"} == wanted - {"libgcc_s.so.1"}


def test_the_same_program_is_the_same_plan_and_another_is_another(tmp_path: Path) -> None:
    first, again = ship("sleep"), ship("sleep")
    assert first == again
    other = tmp_path / "sleep"
    shutil.copyfile(shutil.which("sleep") or "", other)
    with other.open("ab") as stream:
        stream.write(b"\0")
    other.chmod(0o755)
    changed = ship(other)
    assert not set(changed.argv) & set(first.argv) - {"--library-path"}
    for path, digest in changed.files.items():
        kept = tmp_path / "cache" / "programs" / digest
        assert hashlib.sha256(kept.read_bytes()).hexdigest() == digest, path


def _script(folder: Path, first: str) -> Path:
    path = folder / "script"
    path.write_text(f"{first}\necho yes\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("first", "argv"),
    [
        ("#!/bin/sh", ("/bin/sh",)),
        ("#!/bin/dash -e", ("/bin/sh", "-e")),
        ("#!/usr/bin/python3 -u", ("/usr/bin/python3", "-u")),
        ("#!/usr/bin/env python3", ("/usr/bin/python3",)),
        ("#!/usr/bin/env -S python3 -u", ("/usr/bin/python3", "-u")),
    ],
)
def test_a_script_runs_with_the_guests_interpreter(
    first: str, argv: tuple[str, ...], tmp_path: Path
) -> None:
    shipped = ship(_script(tmp_path, first))
    assert shipped.argv == (*argv, *shipped.files)
    assert list(shipped.files) == [path for path in shipped.files if path.endswith("/bin/script")]


def test_the_guests_own_interpreters_need_no_files() -> None:
    assert ship("python3") == Shipped(("/usr/bin/python3",), {})
    assert ship("sh") == Shipped(("/bin/sh",), {})


def _other_machine(path: Path) -> None:
    data = bytearray(path.read_bytes())
    # e_machine of AArch64 (elf.h).
    data[18:20] = (183).to_bytes(2, "little")
    path.write_bytes(data)


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _lacking(path: Path) -> None:
    data = path.read_bytes()
    assert data.count(b"libc.so.6\0") == 1
    path.write_bytes(data.replace(b"libc.so.6\0", b"libc.so.7\0"))


def _loaderless(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b"/lib64/ld-linux-x86-64.so.2", b"/lib64/ld-linux-x86-64.so.9"))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_other_machine, "is built for AARCH64, 64 bits, the guest is x86-64"),
        (_truncated, "is a damaged program"),
        (_lacking, "needs the library libc.so.7 (by tool), which is missing here"),
        (_loaderless, "needs the loader /lib64/ld-linux-x86-64.so.9, which is missing here"),
    ],
)
def test_what_cannot_run_there_is_one_sentence(spoil: Any, reason: str, tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    shutil.copy(shutil.which("sleep") or "", tool)
    spoil(tool)
    with pytest.raises(UserError) as caught:
        ship(tool)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no-such-program", "there is no program 'no-such-program' here: apt-get install"),
        ("/no/such/program", "there is no program '/no/such/program' here"),
        ("/etc/passwd", "there is no program '/etc/passwd' here"),
        ("", "there is no program '' here"),
    ],
)
def test_what_is_no_program_is_one_sentence(name: str, reason: str) -> None:
    with pytest.raises(UserError) as caught:
        ship(name)
    assert reason in str(caught.value)


@pytest.mark.parametrize("first", ["#!/bin/bash", "#!/usr/bin/env perl", "echo"])
def test_a_script_of_another_language_is_one_sentence(first: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the guest has python3 and sh"):
        ship(_script(tmp_path, first))


def test_a_plan_holds_the_digests_and_its_files_come_from_the_cache(tmp_path: Path) -> None:
    burn = program(["sleep", "100"], cpus=[0])
    assert burn.argv[-1] == "100"
    cell = program_cell("alone", *burn.argv, files=burn.files)
    beside = {"program": {"argv": burn.argv, "files": burn.files}}
    planned = plan(cell, null_blk_cell("beside", antagonist=beside))
    assert parse_plan(encode_plan(planned)) == planned
    entries = {entry.name: entry for entry in program_entries(planned)}
    assert set(entries) == {path.lstrip("/") for path in burn.files}
    assert all(entry.mode & 0o111 for entry in entries.values())
    kept = tmp_path / "cache" / "programs" / next(iter(burn.files.values()))
    kept.chmod(0o644)
    kept.write_bytes(b"")
    with pytest.raises(CannotRunError, match="is missing or damaged"):
        list(program_entries(planned))


@pytest.mark.parametrize("argv", [[], "sleep 5"])
def test_a_command_line_is_a_list(argv: Any) -> None:
    with pytest.raises(UserError, match="must be a list"):
        program(argv)


def test_a_corrected_word_leaves_the_agent_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = agent_digest()
    for name, folder in (("_AGENT", ships._AGENT), ("_BASE", ships._BASE)):
        copies = tmp_path / name
        copies.mkdir()
        for path in folder.glob("*.py"):
            words = path.read_text().replace('"""', '"""Truly: ', 1) + "\n\n# One more word.\n"
            (copies / path.name).write_text(words)
        monkeypatch.setattr(ships, name, copies)
    assert ships.agent_archive.__wrapped__() == agent_archive()
    (ships._AGENT / "work.py").write_text(words + "\nX = 1\n")
    assert ships.agent_archive.__wrapped__() != agent_archive()
    assert agent_digest() == before


def test_a_kept_archive_that_is_damaged_is_made_again(tmp_path: Path) -> None:
    made = ships.agent_archive.__wrapped__()
    (kept,) = (tmp_path / "cache/agents").iterdir()
    for damaged in (kept.read_bytes()[:-1], b"", kept.read_bytes().replace(b"def ", b"del ", 1)):
        kept.write_bytes(damaged)
        assert ships.agent_archive.__wrapped__() == made == agent_archive()
    kept.unlink()
    kept.mkdir()
    assert ships.agent_archive.__wrapped__() == made


def test_the_archive_holds_no_word() -> None:
    with zipfile.ZipFile(io.BytesIO(agent_archive())) as archive:
        for name in archive.namelist():
            tree = ast.parse(archive.read(name))
            assert ast.get_docstring(tree) is None, name
