# SPDX-License-Identifier: MIT
"""This machine as the target while another local user attacks the run (as root)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from iolab.targets import local
from iolab.targets.local import LocalTarget
from iolab.targets.place import Place
from iolab_agent.plan import Plan
from iolab_base.errors import UserError
from tests.support.loops import digest, loop_device
from tests.support.needs import lack, needs
from tests.support.plans import copies_cell, plan

pytestmark = needs("root", "fio", "losetup", "mkfs.ext4")

_NOBODY = 65534
# Waits for the folder of a cell, renames it away, and leads the names in it to another file.
_ATTACKER = """
import os, sys
folder, victim = sys.argv[1:]
os.setgid(65534)
os.setuid(65534)
print("ready", flush=True)
taken = set()
while True:
    for name in os.listdir(folder):
        if not name.startswith("iolab-") or name in taken:
            continue
        path = f"{folder}/{name}"
        try:
            os.rename(path, f"{folder}/away-{name}")
            os.mkdir(path, 0o777)
            for file in ("data.img", "iolab.0", "iolab.1", "iolab.2"):
                os.symlink(victim, f"{path}/{file}")
        except OSError:
            pass
        taken |= {name, f"away-{name}"}
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody owns, where nobody can reach it."""
    folder = tmp_path / "home"
    folder.mkdir()
    os.chown(folder, _NOBODY, _NOBODY)
    before = {path: path.stat().st_mode for path in (tmp_path, *tmp_path.parents)}
    try:
        for path in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
            path.chmod(0o755)
        yield folder
    finally:
        for path, mode in before.items():
            path.chmod(mode & 0o7777)


@contextmanager
def attacked(folder: Path, victim: Path) -> Iterator[None]:
    """Let nobody attack what is made in a folder, to have root overwrite another file."""
    argv = [sys.executable, "-S", "-c", _ATTACKER, str(folder), str(victim)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as attacker:
        assert attacker.stdout is not None
        try:
            assert attacker.stdout.readline() == b"ready\n"
            yield
        finally:
            attacker.kill()


def block_in(folder: Path, make: str | None = None) -> Plan:
    """Return a plan of twelve short cells in a folder, or on a loop device's file there."""
    cells = [copies_cell(f"copies{number}", group=None) for number in range(12)]
    for cell in cells:
        cell["devices"][0].update(scheduler="none", tunables={})
        if make is None:
            cell["filesystem"] = {"kind": "ext4", "device": "data"}
    made = Place(directory=str(folder), make=make).put(plan(*cells, block=f"attack-{os.getpid()}"))
    small = [replace(c, devices=[replace(d, size_mib=16) for d in c.devices]) for c in made.cells]
    return replace(made, cells=small)


def refused_by(target: LocalTarget, made: Plan, results: Path) -> str:
    with pytest.raises(UserError) as refused:
        target.run(made, results)
    return str(refused.value)


@pytest.mark.parametrize("make", [None, "loop"])
def test_nobody_has_root_overwrite_a_file(home: Path, tmp_path: Path, make: str | None) -> None:
    target = LocalTarget()
    if target.facts["lacks"] or (make or "loop") not in target.facts["kinds"]:
        lack("loop devices", target.facts["lacks"])
    victim = tmp_path / "victim"
    victim.write_text("root's own\n" * 100)
    victim.chmod(0o600)
    with attacked(home, victim):
        sentence = refused_by(target, block_in(home, make), tmp_path / "results")
    assert victim.read_text() == "root's own\n" * 100
    assert f"{home} is refused, because another user could make root write elsewhere" in sentence
    assert list(home.iterdir()) == []


def test_what_is_refused_is_so_before_anything_starts(
    home: Path, tmp_path: Path, in_process: Callable[..., tuple[int, str]]
) -> None:
    if lacks := LocalTarget().facts["lacks"]:
        lack("a machine that can be measured", lacks)
    root = tmp_path / "runs"
    sweep = ("sweep", "--target", "local", "--pathology", "dio_kworker", "--root", str(root))
    link = tmp_path / "link"
    link.symlink_to(home)
    told = [
        in_process(*sweep, "--directory", str(home)),
        in_process(*sweep, "--directory", str(link), "--make", "loop"),
        in_process(*sweep, "--directory", str(tmp_path / "absent")),
        in_process(*sweep, "--destroy", "/dev/null"),
    ]
    with loop_device(tmp_path / "image", 512) as disk:
        subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True)
        before = digest(disk)
        told.append(in_process(*sweep, "--destroy", str(disk)))
        assert digest(disk) == before
    belongs = f"{home} belongs to user {_NOBODY}; name one that belongs to root"
    words = [belongs, belongs, "absent cannot be used: No such file", "null is not a block device"]
    for (code, error), sentence in zip(told, [*words, "holds a signature (ext4)"], strict=True):
        (line,) = error.splitlines()
        assert sentence in line
        assert code == 2
    assert not root.exists()


def test_a_check_passes_what_a_run_takes(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    target = LocalTarget()
    target.check(block_in(work))
    with loop_device(tmp_path / "image", 16) as disk:
        before = digest(disk)
        target.check(Place(disk=str(disk)).put(plan(copies_cell("copies"))))
        assert digest(disk) == before
    assert list(work.iterdir()) == []


def test_what_the_agent_leaves_is_roots_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "iolab" / "runs"
    target = LocalTarget()
    before = os.umask(0)
    try:
        target.send(f"{runs}/run", "plan.json", b"{}")
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (runs.parent, runs, runs / "run")]
    assert modes == [0o700] * 3
    monkeypatch.setattr(local, "RUNS", str(runs))
    LocalTarget()
    for path in (runs, runs.parent):
        path.chmod(0o777)
        with pytest.raises(UserError, match=f"{path.name} can be written by other users, so"):
            LocalTarget()
        with pytest.raises(UserError, match=f"{path.name} can be written by other users, so"):
            target.send(f"{runs}/run", "plan.json", b"{}")
