# SPDX-License-Identifier: MIT
"""This machine as the target while another local user attacks the run (as root)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from iolab.agent.plan import Plan
from iolab.errors import IolabError, UserError
from iolab.targets.local import LocalTarget
from iolab.targets.place import Place
from tests.plans import copies_cell, plan

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a real target needs root")

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


@pytest.mark.parametrize("make", [None, "loop"])
def test_nobody_has_root_overwrite_a_file(home: Path, tmp_path: Path, make: str | None) -> None:
    victim = tmp_path / "victim"
    victim.write_text("root's own\n" * 100)
    victim.chmod(0o600)
    target = LocalTarget()
    with attacked(home, victim):
        try:
            target.run(block_in(home, make), tmp_path / "results")
        except IolabError as error:
            refused = error
    assert victim.read_text() == "root's own\n" * 100
    assert isinstance(refused, UserError)
