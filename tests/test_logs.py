# SPDX-License-Identifier: MIT
"""What iolab logs is shown by those who ask for it, and printed by nobody else."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import iolab
from iolab import logs
from iolab.logs import lines_shown
from iolab.sweeps import progress
from tests.support.processes import child_environment

_ROOT = Path(iolab.__file__).parents[1]
_LOG = logging.getLogger("icountvm.kernels")


def test_lines_are_shown_during_the_block_alone(caplog: pytest.LogCaptureFixture) -> None:
    # As Python leaves the root logger.
    caplog.set_level(logging.WARNING)
    said: list[str] = []
    _LOG.info("before")
    with lines_shown(said.append):
        _LOG.info("downloading %s", "6.1")
        _LOG.debug("a detail")
        logging.getLogger("another").info("another's")
    _LOG.info("after")
    assert said == ["downloading 6.1"]
    assert not _LOG.isEnabledFor(logging.INFO)


def test_every_package_that_logs_is_shown() -> None:
    packages = [path.parent for path in _ROOT.glob("packages/*/*/__init__.py")]
    logging_ones = {
        package.name
        for package in (_ROOT / "iolab", *packages)
        if any("logging.getLogger(__name__)" in path.read_text() for path in package.rglob("*.py"))
    }
    assert set(logs._PACKAGES) == logging_ones


def test_what_fails_while_a_line_is_shown_reaches_who_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # As Python leaves the root logger.
    caplog.set_level(logging.WARNING)

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt(line)

    with pytest.raises(KeyboardInterrupt, match="downloading"), lines_shown(interrupt):
        _LOG.info("downloading")
    assert not _LOG.isEnabledFor(logging.INFO)


def test_the_bar_shows_the_last_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_DELAY_S", 0)
    with progress.progress_bar(shown=True):
        _LOG.info("downloading 6.1")
    assert "downloading 6.1" in capsys.readouterr().err
    with progress.progress_bar(shown=False):
        _LOG.info("downloading 6.1")
    assert capsys.readouterr().err == ""


def test_nothing_is_printed_without_a_handler() -> None:
    code = "import logging, iolab; logging.getLogger('icountvm.kernels').info('downloading')"
    argv = [sys.executable, "-c", code]
    said = subprocess.run(argv, env=child_environment(), capture_output=True, check=True)
    assert said.stdout + said.stderr == b""
