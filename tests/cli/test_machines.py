# SPDX-License-Identifier: MIT
"""``iolab doctor``, ``iolab kernels`` and ``iolab restore``."""

from __future__ import annotations

import json
from pathlib import Path

from icountvm.catalogue import CATALOGUE
from tests.support.command import Iolab


def test_the_doctor_names_what_is_missing(iolab: Iolab, alone: dict[str, str]) -> None:
    told = iolab("doctor", **alone)
    assert told.code == 1
    assert "cannot run here without: " in told.sentence()
    assert "QEMU" in told.sentence()
    assert "guest image" in told.sentence()
    # Progress, a line for each slow step.
    assert "looking for kernels in the cache and the archives" in told.error.splitlines()
    assert "NO   QEMU: " in told.out
    assert "fix: check the network" in told.out


def test_a_kernel_that_is_none_is_one_sentence(
    iolab: Iolab, tmp_path: Path, alone: dict[str, str]
) -> None:
    (tmp_path / "x.deb").write_bytes(b"!<arch>\ncut")
    for arguments in (["a b", "x"], ["mine", tmp_path / "absent"], ["mine", tmp_path / "x.deb"]):
        told = iolab("kernels", "add", *arguments, **alone)
        assert told.sentence()
        assert told.code in (2, 3)


def test_the_doctor_as_json_is_silent_and_complete(iolab: Iolab, alone: dict[str, str]) -> None:
    told = iolab("doctor", "--json", **alone)
    document = json.loads(told.out)
    assert told.code == 1
    assert "cannot run here without: " in told.one_line()
    assert document["can_sweep"] is False
    findings = {finding["what"]: finding for finding in document["findings"]}
    assert findings["QEMU"]["needed"] is True
    assert findings["QEMU"]["good"] is False
    assert findings["QEMU"]["fix"].startswith("check the network")


def test_kernels_as_json(iolab: Iolab, alone: dict[str, str]) -> None:
    told = iolab("kernels", "--json", **alone)
    kernels = json.loads(told.out)
    assert told.code == 0
    assert [kernel["name"] for kernel in kernels] == list(CATALOGUE)
    assert {kernel["state"] for kernel in kernels} == {"unreachable"}
    told = iolab("kernels", "--json", "fetch", "6.1", **alone)
    assert (told.code, told.out) == (2, "")
    assert told.one_line() == "put --json after fetch"


def test_kernels_that_are_not_here_are_not_compared(iolab: Iolab, alone: dict[str, str]) -> None:
    told = iolab("kernels", "--diff", "6.1", "6.12", **alone)
    assert told.code == 2
    assert told.one_line().startswith("kernel 6.1 is not in the cache: run iolab kernels fetch")
    told = iolab("kernels", "--diff", "6.1", "6.12", "fetch", "6.1", **alone)
    assert (told.code, told.one_line()) == (2, "--diff takes no command: omit fetch")
