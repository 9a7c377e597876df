# SPDX-License-Identifier: MIT
"""``iolab verify``: what it refuses, what it draws, and its exit codes; nothing boots."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from iolab.cli import main
from iolab.paths import REFERENCE
from iolab.store.hashes import HASHES
from iolab.targets.vm import own_identity
from tests.support import synthetic
from tests.support.results import TARGET
from tests.support.sealed import made_up


class Call:
    """Runs the command in this process; returns its code, output and errors."""

    def __init__(self, patch: pytest.MonkeyPatch, told: pytest.CaptureFixture[str]) -> None:
        self._patch = patch
        self._told = told

    def __call__(self, *words: object) -> tuple[int, str, str]:
        self._patch.setattr(sys, "argv", ["iolab", "verify", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        told = self._told.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, told.out, told.err.removesuffix("\n")


@pytest.fixture
def verify(
    alone: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Without a cache and a mirror."""
    for name, value in alone.items():
        monkeypatch.setenv(name, value)
    return Call(monkeypatch, capsys)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Results of this very agent on three kernels."""
    for kernel in ("5.10", "6.1", "6.12"):
        made_up(tmp_path / "made" / kernel, own_identity(), kernel)
        (tmp_path / "made" / kernel / "out").rename(tmp_path / f"results-{kernel}")
    folder = tmp_path / "results"
    folder.mkdir()
    for kernel in ("5.10", "6.1", "6.12"):
        (tmp_path / f"results-{kernel}").rename(folder / kernel)
    return folder


def test_results_without_hashes_are_one_sentence(verify: Call, tmp_path: Path) -> None:
    folder = synthetic.write(synthetic.dataset(boots=2), tmp_path / "old")
    code, out, error = verify(folder)
    assert (code, out) == (4, "")
    assert error.startswith(f"iolab: {folder} carries no hashes ({HASHES})")


def test_the_reference_data_are_verified_by_default(verify: Call) -> None:
    # Whether this agent measured them depends on the day: without --anyway another one's are named.
    code, out, _ = verify("--dry-run", "--anyway")
    assert code == 0
    assert str(REFERENCE) in out


def test_folders_without_hashes_beside_others_are_named(
    verify: Call, mine: Path, tmp_path: Path
) -> None:
    bare = synthetic.write(synthetic.dataset(boots=2), tmp_path / "old")
    code, out, error = verify(mine, bare, "--dry-run", "--json")
    assert (code, len(json.loads(out)["blocks"])) == (0, 2)
    assert error.startswith(f"{bare} carries no hashes")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--blocks", "0"], "--blocks must be at least 1, not 0"),
        (["--blocks", "-3"], "--blocks must be at least 1, not -3"),
        (["--blocks", "two"], "'two' is not a valid integer"),
        (["--seed", "x"], "'x' is not a valid integer"),
        (["--kernel", "6.11"], "unknown kernel '6.11'; did you mean 6.1? (known: 5.10, 6.1, 6.12)"),
        (["no-such-folder"], "no-such-folder is not a folder of results"),
    ],
)
def test_a_users_mistake_is_one_sentence(
    verify: Call, mine: Path, arguments: list[str], sentence: str
) -> None:
    code, out, error = verify(mine, *arguments)
    assert (code, out) == (2, "")
    assert sentence in error
    assert len(error.splitlines()) == 1


def test_another_agent_is_refused_and_named(verify: Call, tmp_path: Path) -> None:
    folder = made_up(tmp_path / "made", {**own_identity(), "agent": "a" * 64})
    code, out, error = verify(folder)
    here = own_identity()["agent"][:12]
    assert (code, out) == (4, "")
    assert error.startswith("iolab: dio_kworker on 6.1: measured by iolab 0.0.9 (this is ")
    assert f"with another agent (aaaaaaaaaaaa; here {here}), so the bytes" in error
    assert "--anyway" in error
    assert len(error.splitlines()) == 1
    # Whoever wants it measured all the same sees what differs.
    code, out, error = verify(folder, "--anyway", "--dry-run", "--json")
    (drawn,) = json.loads(out)["blocks"]
    assert (code, error) == (0, "")
    assert drawn["differs"] == {"agent": {"stored": "a" * 12, "here": here}}


def test_only_virtual_time_is_verified(verify: Call, tmp_path: Path) -> None:
    folder = made_up(tmp_path / "made", {**own_identity(), "target": "local"})
    code, _, error = verify(folder, "--anyway")
    assert code == 4
    assert error == (
        "iolab: dio_kworker on 6.1: not measured in virtual time: only that repeats the same bytes"
    )


def test_a_machine_that_cannot_be_made_is_one_sentence(verify: Call, mine: Path) -> None:
    code, out, error = verify(mine)
    assert (code, out) == (3, "")
    assert [line for line in error.splitlines() if line.startswith("iolab: ")] == [
        error.splitlines()[-1]
    ]
    assert error.splitlines()[-1].startswith("iolab: QEMU cannot be fetched: ")


def test_the_seed_draws_the_same_blocks(verify: Call, mine: Path) -> None:
    def drawn(*words: str) -> list[str]:
        code, out, error = verify(mine, "--dry-run", "--json", *words)
        assert (code, error) == (0, "")
        return [block["kernel"] for block in json.loads(out)["blocks"]]

    assert drawn("--seed", "5") == drawn("--seed", "5")
    assert {tuple(drawn("--seed", str(seed))) for seed in range(16)} == {
        (a, b) for a in ("5.10", "6.1", "6.12") for b in ("5.10", "6.1", "6.12") if a != b
    }
    assert sorted(drawn("--blocks", "9")) == ["5.10", "6.1", "6.12"]
    assert drawn("--kernel", "6.12") == ["6.12"]
    assert sorted(drawn("--kernel", "6.12", "--kernel", "6.1")) == ["6.1", "6.12"]


def test_a_dry_run_shows_what_is_drawn(verify: Call, mine: Path) -> None:
    code, out, error = verify(mine / "6.1", "--dry-run", "--seed", "5")
    assert (code, error) == (0, "")
    head, row, last = out.splitlines()
    assert head.split() == ["pathology", "kernel", "boot", "cells", "folder"]
    assert row.split() == ["dio_kworker", "6.1", "0", "4", str(mine / "6.1")]
    assert last == "about 1 min, with --seed 5"


def test_a_damaged_file_is_the_users_to_replace(verify: Call, mine: Path) -> None:
    path = mine / "6.1" / HASHES
    path.write_bytes(path.read_bytes()[:-20])
    code, out, error = verify(mine)
    assert (code, out) == (2, "")
    assert error.startswith(f"iolab: {path}: not a whole file of hashes")
    assert len(error.splitlines()) == 1


def test_what_a_file_says_cannot_control_the_terminal(verify: Call, tmp_path: Path) -> None:
    evil = {**own_identity(), "agent": "\x1b[2J" + "x" * 500}
    code, _, error = verify(made_up(tmp_path / "made", {**TARGET, **evil}))
    assert code == 4
    assert error.isprintable()
    assert len(error) < 500
