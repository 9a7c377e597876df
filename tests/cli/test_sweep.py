# SPDX-License-Identifier: MIT
"""``iolab sweep`` and ``iolab plan``: what they refuse and what they print."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from iolab.store.raw import RawStore
from iolab.sweeps.block import measure_block, read_block
from iolab_base.errors import UserError
from tests.support.command import Iolab


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--profile", "quik"], "unknown profile 'quik'; did you mean quick?"),
        (["--pathology", "dio"], "unknown pathology 'dio'"),
        (["--set", "wieght=100"], "unknown factor 'wieght'; did you mean weight?"),
        (["--set", "weight=0"], "weight must be 1-10000, not '0'"),
        (["--set", "weight=20000"], "weight must be 1-10000, not '20000'"),
        (["--set", "weight=1", "--set", "weight=2"], "--set weight is given twice"),
        (["--record", "weight=77"], "--record weight=77 is not measured: weight is 1000"),
        (["--root", ""], "Invalid value for '--root': a path is empty"),
        (["--set", "weight"], "--set wants FACTOR=LEVEL"),
        (["--jobs", "0"], "--jobs must be at least 1, not 0"),
        (["--jobs", "many"], "'many' is not a valid integer"),
        (["--boots", "0"], "--boots must be 1-1000, not 0"),
        (["--boots", "1001"], "--boots must be 1-1000, not 1001"),
        (["--dry-run", "--boots", "-1"], "--boots must be 1-1000, not -1"),
        (["--dry-run", "--target", "local"], "--dry-run needs virtual machines"),
        (["--no-such-option"], "--no-such-option"),
        (["--clock", "sundial"], "unknown clock 'sundial'"),
        (["--kernel", "2.4"], "unknown kernel '2.4'"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_needs_no_network(
    root: Path, in_process: Callable[..., tuple[int, str]], arguments: list[str], sentence: str
) -> None:
    code, error = in_process("sweep", "--root", str(root), *arguments)
    (line,) = error.splitlines()
    assert line.startswith("iolab: ")
    assert sentence in line
    assert code == 2
    assert not root.exists()


def test_no_network_and_an_empty_cache_is_one_sentence(
    iolab: Iolab, root: Path, alone: dict[str, str]
) -> None:
    told = iolab("sweep", "--profile", "smoke", "--root", root, **alone)
    assert told.code == 3
    assert told.sentence().startswith("QEMU cannot be fetched: ")
    assert told.out == ""
    assert not list(root.rglob("*.parquet"))


def _qemu(folder: Path, text: str, mode: int = 0o755) -> str:
    path = folder / "qemu"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.vm
@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("", 0o644, "IOLAB_QEMU is not a program that can be run"),
        ("#!/bin/sh\necho QEMU emulator version 7.2.0\n", 0o755, "is QEMU 7.2.0: before 10.0"),
        ("#!/bin/sh\necho another tool 1.0\n", 0o755, "is not a QEMU system emulator"),
        ("#!/bin/sh\nexit 5\n", 0o755, "cannot be run: "),
        ("no interpreter\n", 0o755, "cannot be run: "),
    ],
)
def test_a_qemu_of_the_users_that_will_not_do(
    iolab: Iolab, root: Path, tmp_path: Path, text: str, mode: int, sentence: str
) -> None:
    own = _qemu(tmp_path, text, mode)
    told = iolab("sweep", "--kernel", "6.1", "--root", root, IOLAB_QEMU=own)
    assert sentence in told.one_line()
    assert own in told.one_line()
    assert told.code == 2


@pytest.mark.parametrize("text", ["", "[]", "5", "{}", '{"format": "iolab-block/9"}'])
def test_a_foreign_plan_is_a_users_mistake(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    for use in (read_block, lambda plan: measure_block(plan, RawStore(tmp_path / "store"))):
        with pytest.raises(UserError, match=str(path)):
            use(path)
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]
    with pytest.raises(UserError, match="holds no block"):
        read_block(tmp_path / "absent")


_SELECTION = ("--profile", "smoke", "--kernel", "6.1", "--set", "weight=200", "--boots", "3")


def test_a_dry_run_is_the_plan(iolab: Iolab, root: Path, alone: dict[str, str]) -> None:
    for as_json in ((), ("--json",)):
        arguments = (*_SELECTION, *as_json, "--root", root)
        dry = iolab("sweep", "--dry-run", "--pathology", "dio_kworker", *arguments, **alone)
        plan = iolab("plan", "dio_kworker", *arguments, **alone)
        assert (dry.code, dry.error, dry.out) == (0, "", plan.out)
    assert not root.exists()
    (document,) = json.loads(dry.out)
    (kernel,) = document["kernels"]
    # Three boots of a treated pair and an A/A pair.
    assert (kernel["blocks"], kernel["cells"]) == (3, 12)
    assert document["folder"].endswith("dio_kworker/smoke-weight200-boots3-6.1")
