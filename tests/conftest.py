# SPDX-License-Identifier: MIT
"""What every test may rely on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator

import pytest
from xdist.remote import Producer

from iolab.cli import main
from iolab.pathology import registry
from iolab.targets.vm import VmTarget, prepare
from tests.support.command import Iolab, Told
from tests.support.needs import LackError, need, summary, wants
from tests.support.tiers import Shares, sort_into_tiers

_WANT = "for want of"

# A shell starts what runs in its background with this ignored, and children would inherit that:
# those of tests that interrupt them would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Shares:
    """Share the tests between workers as they must be, whatever ``--dist`` says."""
    return Shares(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests into tiers before ``-m`` chooses from them."""
    sort_into_tiers(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look for what a test needs before any fixture of it."""
    for mark in item.iter_markers("needs"):
        need(*mark.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note in a report, which a worker sends, what its test was skipped for want of."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, LackError):
        report.user_properties.append((_WANT, call.excinfo.value.noun))
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None]:
    """Say at the end, in one line, what tests were skipped for want of."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    if lacks := [dict(report.user_properties).get(_WANT, "another reason") for report in skipped]:
        terminalreporter.write_line(summary(lacks))


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


@pytest.fixture(scope="session")
def target() -> VmTarget:
    """Kernel 6.1 out of this user's own cache, so that it is fetched once."""
    with wants("a virtual machine"):
        return prepare("6.1", "virtual", cpus=1, memory_mib=1024)
