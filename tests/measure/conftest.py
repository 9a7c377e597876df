# SPDX-License-Identifier: MIT
"""A small trace whose states, waits and switches are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.story import PREEMPTED, story, switch, waking
from tracedat import Trace

IDLE, FIO, WORKER = (0, "swapper/0"), (10, "fio"), (20, "kworker/0:1")


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return story(
        tmp_path,
        [
            switch(1000, 0, IDLE, 0, FIO),  # fio runs 1000..1500, sleeps
            switch(1500, 0, FIO, 1, IDLE),
            waking(1700, 0, 0, WORKER, flags=0x08),  # from an interrupt
            switch(1800, 0, IDLE, 0, WORKER),  # waited 100
            waking(2000, 0, 20, FIO),
            switch(2050, 0, WORKER, PREEMPTED, FIO),  # fio waited 50; the worker had run 250
            switch(2300, 0, FIO, 1, WORKER),  # the worker was off for 250
            switch(2600, 0, WORKER, 1, IDLE),
            waking(2700, 0, 0, FIO, flags=0x10),  # never switched in: that wait is left out
            (
                2710,
                0,
                0,
                "sched_migrate_task",
                {"pid": 10, "comm": "fio", "orig_cpu": 0, "dest_cpu": 1},
            ),
            (
                2900,
                1,
                0,
                "sched_migrate_task",
                {"pid": 10, "comm": "fio", "orig_cpu": 1, "dest_cpu": 0},
            ),
        ],
    )
