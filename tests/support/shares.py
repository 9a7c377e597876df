# SPDX-License-Identifier: MIT
"""How two or more workers share the tests: ``pytest -n 2``.

A module is one worker's, from its first test to its last: what it boots or starts for all its tests
exists once. The tests of the machine itself are one worker's, too: it has one /run/iolab, one
tracefs and one set of loop devices and modules. Long shares go out first, so that no worker ends
alone.

pytest-xdist's own groups (``--dist loadgroup``) do nothing under pytest 9.2: pytest-xdist #1386.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler.loadscope import LoadScopeScheduling
from xdist.workermanage import WorkerController

__all__ = ["IN_GUESTS", "LONG", "MACHINE", "Shares", "share_of"]

MACHINE: Final = "the machine"
_OF_THE_MACHINE: Final = (
    *("tests/agent/", "tests/targets/", "tests/tracedat/test_report.py"),
    *("tests/cli/test_foreign_text.py", "tests/sweeps/test_two_sweeps.py"),
)
# Modules beside those whose tests all run in virtual machines of their own.
IN_GUESTS: Final = (
    "tests/targets/test_conditions.py",
    "tests/targets/test_copies.py",
    "tests/targets/test_dio_kworker.py",
    "tests/targets/test_made_devices.py",
    "tests/targets/test_open_job.py",
    "tests/targets/test_programs.py",
    "tests/targets/test_recording.py",
    "tests/targets/test_reproducer.py",
    "tests/targets/test_server.py",
    "tests/targets/test_vm.py",
    "tests/targets/test_writeback.py",
)
# What boots, or runs many programs, roughly the longest first. Nothing but the order depends on it.
LONG: Final = (
    MACHINE,
    "tests/targets/test_server.py",
    "tests/targets/test_vm.py",
    "tests/targets/test_reproducer.py",
    "tests/sweeps/test_verifying.py",
    "tests/sweeps/test_why.py",
    "tests/sweeps/test_sweep.py",
    "tests/test_docs_samples.py",
    "tests/test_notebooks.py",
    "tests/experiment/test_question.py",
    "tests/experiment/test_compare.py",
    "tests/pathology/test_own.py",
    "tests/test_wheel.py",
    "tests/targets/test_recording.py",
    "tests/targets/test_made_devices.py",
    "tests/targets/test_conditions.py",
    "tests/targets/test_programs.py",
    "tests/targets/test_dio_kworker.py",
    "tests/targets/test_writeback.py",
    "tests/targets/test_copies.py",
    "tests/targets/test_open_job.py",
    "tests/vm/test_fio_check.py",
    "tests/cli/test_sweep.py",
    "tests/cli/test_signals.py",
)


def share_of(nodeid: str) -> str:
    """Return what a test belongs to: its module, or the machine."""
    module = nodeid.partition("::")[0]
    if module.startswith(_OF_THE_MACHINE) and module not in IN_GUESTS:
        return MACHINE
    return module


class Shares(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each worker whole shares, long ones first."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        for share in LONG:
            if share in self.workqueue:
                self.workqueue.move_to_end(share, last=False)
                break
        super()._assign_work_unit(node)
