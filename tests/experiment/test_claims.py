# SPDX-License-Identifier: MIT
"""What judging, deciding and explaining from a notebook refuse before anything boots."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import iolab
from iolab_base.errors import UserError

_WHY: dict[str, Any] = {"kernel": "6.1", "progress": False}


@pytest.fixture(autouse=True)
def _nothing_to_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give an empty cache and no mirror: what asks for a kernel cannot run here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("IOLAB_MIRROR_DEBIAN", "file:/nonexistent/debian")
    monkeypatch.setenv("IOLAB_MIRROR_UBUNTU", "file:/nonexistent/ubuntu")


def judged(question: str, kernel: str | Path = "6.1", **more: Any) -> object:
    return iolab.judge(question, kernel=kernel, progress=False, **more)


@pytest.mark.parametrize(
    ("call", "noun"),
    [
        (lambda root: judged("dio_kworke: IOPS lost", root=root), "dio_kworker"),
        (lambda root: judged("dio_kworker: IOPS lots", root=root), "IOPS lost"),
        (lambda root: judged("dio_kworker: iops ratio", root=root), "iops ratio"),
        (lambda root: judged("dio_kworker: IOPS lost", "6.21", root=root), "6.21"),
        (lambda root: judged("dio_kworker: IOPS lost", root / "gone", root=root), "gone"),
        (lambda root: judged("dio_kworker: IOPS lost", commit="v6.1", root=root), "--commit"),
        (lambda root: judged("dio_kworker: IOPS lost", config="x", root=root), "--config"),
        (lambda root: iolab.decide("dio_kworke", root=root, progress=False), "dio_kworker"),
        (lambda root: iolab.decide("dio_kworker", kernel="6.21", root=root), "6.21"),
        (lambda root: iolab.decide("dio_kworker", seed=-1, root=root), "--seed"),
        (lambda root: iolab.why("dio_kworke", root=root, **_WHY), "dio_kworker"),
        (lambda root: iolab.why("dio_kworker", root=root), "kernel"),
        (lambda root: iolab.why("dio_kworker", kernel=["6.1", "6.12"], root=root), "one kernel"),
        (lambda root: iolab.why("dio_kworker", claim="lots", root=root, **_WHY), "lots"),
        (lambda root: iolab.why("dio_kworker", boots=1, root=root, **_WHY), "boots"),
        (
            lambda root: iolab.why("dio_kworker", kernel="6.1", target="local", root=root),
            "--kernel",
        ),
    ],
)
def test_a_question_that_cannot_be_meant_is_a_users_error(
    call: Callable[[Path], Any], noun: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=noun):
        call(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
