# SPDX-License-Identifier: MIT
"""A real machine behind ssh, for real: a booted Debian with systemd, sshd and two disks."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iolab.errors import CannotRunError
from iolab.target import ssh
from iolab.target.ssh import SshTarget
from tests.target.faults import every_change
from tests.target.server import SPARE_DISK, Server

_HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(os.geteuid() != 0, reason="Debian's packages are set up as root"),
    pytest.mark.skipif(not shutil.which("ssh"), reason="no ssh here"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    try:
        found = Server(tmp_path_factory.mktemp("server"))
    except CannotRunError as error:
        pytest.skip(f"no server here: {error}")
    try:
        send(found, "machine_state.py", (_HERE / "machine_state.py").read_bytes())
        yield found
    finally:
        found.stop()


@pytest.fixture
def target(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshTarget]:
    monkeypatch.setattr(ssh, "_POLL_S", 1.0)
    found = SshTarget(server.address, config=server.config)
    try:
        yield found
    finally:
        found.close()


def send(server: Server, name: str, data: bytes) -> None:
    """Put a file into root's home there."""
    assert server.ssh("cat > /root/" + name, stdin=data.decode("latin-1")).returncode == 0


def state(server: Server, *disks: str) -> dict[str, Any]:
    """Return what a run could have left changed there."""
    told = server.ssh(f"python3 /root/machine_state.py {' '.join(disks)}")
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def states(results: Path) -> dict[str, str]:
    """Return how each cell ended, with its reason."""
    cells = [json.loads(p.read_text()) for p in (results / "cells").iterdir()]
    return {cell["id"]: cell.get("reason", cell["state"]) for cell in cells}


def test_every_kind_of_cell_is_measured_and_all_is_as_before(
    server: Server, target: SshTarget, tmp_path: Path
) -> None:
    server.ssh("mkdir -p /srv/data")
    before = state(server, SPARE_DISK)
    target.run(every_change("/srv/data", SPARE_DISK), tmp_path / "results")
    assert set(states(tmp_path / "results").values()) == {"done"}
    after = state(server)
    assert {k: [before.get(k), v] for k, v in after.items() if before.get(k) != v} == {}
    assert before.keys() - after.keys() == {f"start of {SPARE_DISK}"}
