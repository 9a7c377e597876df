# SPDX-License-Identifier: MIT
"""Which tests run when, and how workers share them: ``./nox -s tests`` and ``./nox -s nightly``.

A test that boots a virtual machine is nightly, but for those of `MACHINES`. Any other test is
nightly if its mark says so.

A module is one worker's, from its first test to its last: what it boots or starts for all its tests
exists once. The tests of this machine itself are one worker's, too: it has one /run/iolab, one
tracefs and one set of loop devices and modules.
"""

from __future__ import annotations

from typing import Final

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

# What boots on every commit: modules, whose own marks may leave some tests for the night, or tests.
MACHINES: Final = (
    "tests/targets/test_vm.py",
    "tests/targets/test_open_job.py",
    "tests/sweeps/test_sweep.py",
    # These boot no kernel.
    "tests/cli/test_sweep.py::test_a_qemu_of_the_users_that_will_not_do",
    "tests/icountvm/test_guest_programs.py",
    "tests/icountvm/test_monitor.py",
)
SHARES_OF_THIS_MACHINE: Final = (
    *("tests/agent/", "tests/targets/test_liar.py", "tests/targets/test_local"),
    *("tests/targets/test_ssh.py", "tests/tracedat/test_report.py"),
    *("tests/cli/test_foreign_text.py", "tests/sweeps/test_two_sweeps.py"),
)


def sort_into_tiers(items: list[pytest.Item]) -> None:
    """Mark what is nightly, and put first what boots: it takes long."""
    for item in items:
        if item.get_closest_marker("vm") and not item.nodeid.startswith(MACHINES):
            item.add_marker("nightly")
    items.sort(key=lambda item: item.get_closest_marker("vm") is None)


class Shares(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each worker whole shares, in the order of the tests.

    pytest-xdist's own groups (``--dist loadgroup``) do nothing under pytest 9.2: pytest-xdist
    #1386.
    """

    def _split_scope(self, nodeid: str) -> str:
        module: str = nodeid.partition("::")[0]
        return "this machine" if module.startswith(SHARES_OF_THIS_MACHINE) else module
