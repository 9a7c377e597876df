# SPDX-License-Identifier: MIT
"""The main job itself, as a user runs it: killed, continued, and compared by hash."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from iolab.store.dataset import load
from tests.support.command import ARGV
from tests.support.processes import processes_naming, wait_until

_SWEEP = ("sweep", "--profile", "smoke", "--kernel", "6.1", "--set", "weight=10000")
_FOLDER = Path("dio_kworker/smoke-weight10000-6.1")


def iolab(*arguments: str) -> list[str]:
    return [*ARGV, *arguments]


def machines_of(root: Path) -> list[str]:
    """Return the command lines of the virtual machines that work below `root`."""
    return processes_naming("qemu-system", str(root))


@pytest.mark.vm
@pytest.mark.usefixtures("target")
def test_a_killed_sweep_goes_on_and_gives_the_same_bytes(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    sweep = subprocess.Popen(
        iolab(*_SWEEP, "--jobs", "1", "--root", str(killed)), stdout=subprocess.DEVNULL
    )
    # One block is stored, the other is being measured: now pull the plug.
    while not (stored := list(killed.glob("raw/[0-9a-f]*"))) or not machines_of(killed):
        assert sweep.poll() is None
        time.sleep(0.1)
    assert len(stored) == 1
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    wait_until(lambda: not machines_of(killed))
    assert not (killed / _FOLDER / "cells.parquet").exists()

    again = subprocess.run(
        iolab(*_SWEEP, "--root", str(killed)), check=True, capture_output=True, text=True
    )
    assert "1 of 2 blocks are in the store already" in again.stderr
    data = load(killed / _FOLDER)
    assert len(data.cells) == 8
    assert data.cells["valid"].all()
    assert (killed / _FOLDER / "dio_kworker.html").exists()
    results = json.loads((killed / "results.json").read_text())
    assert results["dio_kworker"]["cells"]["valid"] == 8

    # Beside other work, too, the bytes are the same: targets/test_vm.py.
    subprocess.run(iolab("verify", str(killed / _FOLDER), "--blocks", "1"), check=True)
