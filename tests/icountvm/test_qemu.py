# SPDX-License-Identifier: MIT
"""Watching a machine: what counts as silence, and where its threads run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from icountvm.qemu import Threads
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
        wait_until(lambda: min(Threads(one).waited_s(), Threads(other).waited_s()) > 1.0)
        assert Threads(sleeper).waited_s() < 0.5


def test_a_process_that_is_gone_does_not_wait() -> None:
    with running("sleep", "1000") as pid:
        assert Path(f"/proc/{pid}").exists()
    assert Threads(pid).waited_s() == 0.0


def tasks_of(pid: int) -> list[int]:
    return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]


def cores_of(pid: int) -> set[int]:
    return set().union(*map(os.sched_getaffinity, tasks_of(pid)))


def test_threads_share_a_core_until_other_work_wants_it() -> None:
    every = os.sched_getaffinity(0)
    turns = "import threading; threading.Thread(target=lambda: exec('while True: pass')).start()"
    with running(sys.executable, "-c", f"{turns}; import time; time.sleep(1000)") as pid:
        wait_until(lambda: len(tasks_of(pid)) == 2)
        threads = Threads(pid)
        threads.share_one_core()
        (core,) = cores_of(pid)
        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(running(sys.executable, "-c", _BUSY, str(core)))
            waited_s = threads.waited_s()
            wait_until(lambda: threads.waited_s() > waited_s + 1.0)
            threads.keep_together()
            assert cores_of(pid) == every

        def together() -> bool:
            threads.waited_s()
            threads.keep_together()
            return len(cores_of(pid)) == 1

        # Nobody else wants the core now that the scheduler has chosen.
        wait_until(together)
