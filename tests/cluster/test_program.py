# SPDX-License-Identifier: MIT
"""The program of a worker: what it measures, and what it refuses before it measures."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iolab.store.raw import block_key
from iolab.targets import real_target
from iolab_cluster.program import OTHER_MACHINE, difference, main
from tests.support.results import TARGET, block

Run = Callable[[Any], tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run the program on a task; return its exit code and its error."""
    before = signal.getsignal(signal.SIGTERM)

    def call(task: Any) -> tuple[int, str]:
        path = tmp_path / "task.json"
        path.write_text(json.dumps(task))
        code = main([str(path), str(tmp_path / "results")])
        return code, json.loads(capsys.readouterr().out)["error"]

    yield call
    signal.signal(signal.SIGTERM, before)


def test_identities_differ_in_the_parts_that_are_named() -> None:
    here = {"qemu": "10", "image": "a", "cpus": 1}
    assert difference(here, dict(here)) == ""
    assert difference(here, {"qemu": "11", "image": "a", "kernel": "6.1"}) == "cpus, kernel, qemu"


def test_another_machine_than_the_clients_is_refused_by_its_parts(run: Run, tmp_path: Path) -> None:
    made = replace(block(), target="local", clock="host")
    identity = real_target("local").identity()
    asked = {**identity, "agent": "0" * 64}
    key = block_key(made, asked)
    code, error = run({"block": made.document(), "key": key, "identity": asked})
    assert code == OTHER_MACHINE
    assert "agent" in error
    assert "machine differs" not in error
    assert not (tmp_path / "results").exists()


def test_a_damaged_block_is_a_users_error(run: Run, tmp_path: Path) -> None:
    code, error = run({"block": {"format": "iolab-block/0"}, "key": "", "identity": TARGET})
    assert (code, "iolab-block/0" in error) == (2, True)
    assert not (tmp_path / "results").exists()


def test_a_task_that_is_not_there_is_named(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "gone.json"), str(tmp_path / "results")]) == 1
    assert "gone.json" in json.loads(capsys.readouterr().out)["error"]
