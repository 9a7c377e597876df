# SPDX-License-Identifier: MIT
"""Places and environments of the tests of commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from iolab.cli import main
from tests.support.command import Iolab, Told


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, str]:
    """An empty cache, and mirrors that are not there."""
    return {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "IOLAB_MIRROR_DEBIAN": "file:/nonexistent/debian",
        "IOLAB_MIRROR_UBUNTU": "file:/nonexistent/ubuntu",
    }


@pytest.fixture
def in_process(
    alone: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    in_process: Callable[..., tuple[int, str]],
) -> Callable[..., tuple[int, str]]:
    """Run the command line in this process, without a cache and a mirror."""
    for name, value in alone.items():
        monkeypatch.setenv(name, value)
    return in_process


@pytest.fixture
def iolab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iolab:
    """Run the command line in this process, which is quick."""

    def call(*words: object, **environment: str) -> Told:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["iolab", *map(str, words)])
            for name, value in environment.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main()
        assert isinstance(ended.value.code, int)
        out, error = capsys.readouterr()
        return Told(subprocess.CompletedProcess([*map(str, words)], ended.value.code, out, error))

    return call
