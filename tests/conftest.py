# SPDX-License-Identifier: MIT
"""What every test may rely on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator

import pytest
from xdist.remote import Producer

from iolab.cli import main
from iolab.errors import CannotRunError
from iolab.pathology import registry
from iolab.targets.vm import VmTarget, prepare
from tests.support.host_fio import host_fio
from tests.support.shares import Shares

__all__ = ["host_fio"]

# A shell starts what runs in its background with this ignored, and children would inherit that:
# those of tests that interrupt them would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Shares:
    """Share the tests between workers as they must be, whatever ``--dist`` says."""
    return Shares(config, log)


@pytest.fixture(autouse=True, scope="module")
def _forget() -> Iterator[None]:
    """Forget at a module's end the pathologies that its tests registered."""
    before = dict(registry._registered)
    yield
    registry._registered.clear()
    registry._registered.update(before)


@pytest.fixture
def in_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run the command line in this process, which is quick; return its code and its errors."""

    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["iolab", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().err

    return call


@pytest.fixture(scope="session")
def target() -> VmTarget:
    """Kernel 6.1 out of this user's own cache, so that it is fetched once."""
    try:
        return prepare("6.1", "virtual", cpus=1, memory_mib=1024)
    except CannotRunError as error:
        pytest.skip(f"no virtual machine here: {error}")
