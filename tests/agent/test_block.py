# SPDX-License-Identifier: MIT
"""A block on this machine's own kernel, on files of a folder (as root): what it leaves."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from iolab_agent.block import run_block
from iolab_agent.undo import MARK
from iolab_base.errors import CannotRunError
from tests.support.needs import needs
from tests.support.plans import copies, plan, program_cell

pytestmark = needs("root", "fio")


@pytest.fixture
def cell(tmp_path: Path) -> dict[str, Any]:
    """A cell of three dd on files."""
    folder = tmp_path / "work"
    folder.mkdir()
    devices = [{"name": "data", "kind": "directory", "path": str(folder), "size_mib": 32}]
    return {"id": "copied", "copies": copies(), "devices": devices, "filesystem": None}


def document(path: Path) -> Any:
    return json.loads(path.read_text())


def test_a_block_leaves_a_digest_of_each_file_and_nothing_else(
    cell: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run_block(plan(cell, modules=[]), out)
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert names == ["cells/copied.json", "facts.json", "status.json"]
    said = subprocess.run(
        ["sha256sum", *names[:2]], cwd=out, check=True, capture_output=True, text=True
    ).stdout
    digests = {name: digest for digest, name in map(str.split, said.splitlines())}
    assert document(out / "status.json") == {"block": "test-block", "sha256": digests}
    assert document(out / "facts.json")["kernel_release"] == os.uname().release
    found = document(out / "cells/copied.json")
    assert (found["state"], found["gates"]) == ("done", [])
    # Three processes of four writes.
    assert [(one["writes"], one["bytes"]) for one in found["copies"]] == [(4, 4 * 512)] * 3
    assert list((tmp_path / "work").iterdir()) == []
    assert MARK not in os.environ


def test_a_cell_that_is_done_is_kept_and_one_that_cannot_run_ends_nothing(
    cell: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run_block(plan(cell, modules=[]), out)
    before = (out / "cells/copied.json").read_bytes()
    (out / "status.json").unlink()
    # Only a virtual machine may run any program.
    cells = (program_cell("own", "/bin/true"), cell, {**cell, "id": "last"})
    capsys.readouterr()
    run_block(plan(*cells, modules=[]), out)
    assert (out / "cells/copied.json").read_bytes() == before
    states = {name: document(out / f"cells/{name}.json")["state"] for name in ("own", "last")}
    assert states == {"own": "cannot run here", "last": "done"}
    assert len(document(out / "status.json")["sha256"]) == 4
    ends = [line.rpartition(" cell ")[2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert ends == ["1/3 own cannot run here", "2/3 copied was done", "3/3 last done"]


def test_another_boot_than_the_plans_is_refused_and_leaves_no_status(
    cell: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(CannotRunError, match="iolab_absent=1"):
        run_block(plan(cell, modules=[], boot_options=["iolab_absent=1"]), tmp_path / "out")
    assert list((tmp_path / "out").rglob("*.json")) == []
    assert MARK not in os.environ
