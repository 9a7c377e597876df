# SPDX-License-Identifier: MIT
from __future__ import annotations

import time

from iolab.agent.cost import Cost


def _work(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_sleep_costs_nothing_and_work_what_it_costs() -> None:
    cost = Cost()
    for _ in range(2):
        with cost.sampling():
            _work(0.02)
        time.sleep(0.02)
    spent = cost.spent()
    assert spent["window_ns"] >= 20_000_000
    assert spent["cpu_ns"] < 10_000_000
    assert spent["with_looks_cpu_ns"] >= 40_000_000
    assert spent["with_looks_ns"] >= spent["window_ns"] + spent["with_looks_cpu_ns"] * 0.9


def test_work_between_the_looks_counts() -> None:
    cost = Cost()
    with cost.sampling():
        pass
    _work(0.02)
    with cost.sampling():
        pass
    assert cost.spent()["cpu_ns"] >= 20_000_000
