# SPDX-License-Identifier: MIT
"""QEMU's monitor, with a QEMU that has no machine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from icountvm.monitor import Monitor, MonitorError, monitor_options
from icountvm.toolbox import ensure_toolbox
from iolab_base.files import short_dir
from iolab_base.process import kill_group, start
from tests.support.needs import wants

pytestmark = pytest.mark.vm


@pytest.fixture
def socket() -> Iterator[Path]:
    with short_dir() as folder:
        yield folder / "a,b"


@pytest.fixture
def qemu(socket: Path) -> Iterator[subprocess.Popen[bytes]]:
    with wants("QEMU"):
        toolbox = ensure_toolbox()
    options = ["-M", "none", "-nodefaults", "-display", "none", "-S", *monitor_options(socket)]
    process = start([*toolbox.qemu_argv(), *options])
    yield process
    kill_group(process)


def _alive(process: subprocess.Popen[bytes]) -> Callable[[], None]:
    def check() -> None:
        if process.poll() is not None:
            raise MonitorError(f"it ended with {process.returncode}")

    return check


def test_a_command_is_answered_and_an_event_is_awaited(
    qemu: subprocess.Popen[bytes], socket: Path
) -> None:
    with Monitor(socket, _alive(qemu)) as monitor:
        assert monitor.do("query-status")["running"] is False
        monitor.do("cont")
        monitor.wait_for("RESUME")
        assert monitor.do("query-status")["running"] is True
    # QEMU goes on, and listens again.
    with Monitor(socket, _alive(qemu)) as monitor:
        assert monitor.do("query-status")["running"] is True


def test_qemu_ends_when_it_is_told_to(qemu: subprocess.Popen[bytes], socket: Path) -> None:
    with Monitor(socket, _alive(qemu)) as monitor:
        monitor.end()
        # QEMU may drop what it has not read when its caller hangs up.
        assert qemu.wait(30) == 0


def test_what_qemu_refuses_is_said(qemu: subprocess.Popen[bytes], socket: Path) -> None:
    with (
        Monitor(socket, _alive(qemu)) as monitor,
        pytest.raises(MonitorError, match=r"QEMU cannot no-such-thing: .*not been found"),
    ):
        monitor.do("no-such-thing")


def test_a_qemu_that_ends_is_noticed(qemu: subprocess.Popen[bytes], socket: Path) -> None:
    with Monitor(socket, _alive(qemu)) as monitor:
        qemu.kill()
        with pytest.raises(MonitorError, match="it ended with -9"):
            monitor.wait_for("STOP")
    with pytest.raises(MonitorError, match="it ended with -9"):
        Monitor(socket, _alive(qemu))
