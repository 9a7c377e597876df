# SPDX-License-Identifier: MIT
"""Watching a machine: what counts as silence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from icountvm.qemu import _waited_s
from tests.support.processes import wait_until

_BUSY = "import os; os.sched_setaffinity(0, {int(__import__('sys').argv[1])})\nwhile True: pass"


@contextmanager
def running(*argv: str) -> Iterator[int]:
    with subprocess.Popen(argv) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_the_time_in_which_others_have_the_processor_is_known() -> None:
    cpu = str(min(os.sched_getaffinity(0)))
    with ExitStack() as stack:
        sleeper = stack.enter_context(running("sleep", "1000"))
        one, other = (
            stack.enter_context(running(sys.executable, "-c", _BUSY, cpu)) for _ in range(2)
        )
        # Two that never sleep share one processor: both must wait, and the sleeper need not.
        wait_until(lambda: min(_waited_s(one), _waited_s(other)) > 1.0)
        assert _waited_s(sleeper) < 0.5


def test_a_process_that_is_gone_does_not_wait() -> None:
    with running("sleep", "1000") as pid:
        assert Path(f"/proc/{pid}").exists()
    assert _waited_s(pid) == 0.0
