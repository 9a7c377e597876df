# SPDX-License-Identifier: MIT
"""What the observer counted: known answers, and what the pages say about them."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pandas as pd
import pytest

from guestprof.profile import Profile
from iolab.paths import REFERENCE
from paper.make.cells import CALLS, Cell, Pair
from paper.make.documents import REPORTS, observed
from paper.make.observed import observed as numbers
from paper.make.observed import read_observed, switch_table

_read = cache(read_observed)


@cache
def _numbers() -> dict[str, Any]:
    return numbers(_read(REFERENCE))


def _cell(kernel: str, role: str, boot: int, *, switches: int, **costs: int) -> Cell:
    """A cell of ten I/Os, whose functions cost so many instructions per I/O, each called once."""
    weight = 9600 if role == "treatment" else None
    rows = [(n - 1, "fio", name, cost * 10, 10) for n, (name, cost) in enumerate(costs.items())]
    rows.append((-1, "python3", "agent", 1000, 0))
    nodes = pd.DataFrame(rows, columns=["parent", "task", "function", "instructions", "calls"])
    nodes = nodes.assign(pid=1, cpu=0, module="").astype({"parent": "int32"})
    totals = {"instructions": int(nodes["instructions"].sum()), "ios": 10, "idle_ns": 0}
    row = {"kernel": kernel, "boot": boot, "weight": weight, "intervention": "none"}
    row |= {"ios": 10, "switches_per_io": switches / 10}
    chain = pd.DataFrame(columns=["cell", "task", "does", "other", "count", "wait_ns"])
    return Cell(row, Profile(nodes, totals), chain)


def _pair(kernel: str, boot: int, more: int) -> Pair:
    scheduler = {"__schedule": 50, "try_to_wake_up": 30, "psi_task_switch": 20}
    control = _cell(kernel, "control", boot, switches=10, submit_bio=100, **scheduler)
    scheduler["__schedule"] += more
    treated = _cell(kernel, "treatment", boot, switches=20, submit_bio=100, **scheduler)
    return Pair(treated, control)


def test_a_switch_costs_what_is_more_for_each_additional_switch() -> None:
    found = {
        "cgroup": [],
        "switch": [_pair("6.1", boot, more) for boot, more in enumerate((4, 5, 6))],
    }
    head, *rows = switch_table(found)
    assert head[1:] == ("6.1",)
    table = dict(rows)
    assert table["switches per I/O, no cgroup"] == "1.000"
    assert table["switches per I/O, 9600"] == "2.000"
    assert table["instructions per I/O, no cgroup"] == "200"
    # One switch more for each I/O; t(0.975, 2) = 4.303 standard errors of 1 / sqrt(3).
    assert table["instructions for each additional switch"] == f"5 ± {4.303 / math.sqrt(3):.0f}"
    assert table["of these `schedule`, `wake` and `cgroup`"] == "5 ± 2"
    assert table["of these `submit`"] == "0"
    assert table["a call of `__schedule` at 9600, with all that it calls"] == "105 ± 2"


def test_without_additional_switches_no_switch_has_a_cost() -> None:
    same = _pair("7.2", 0, 5).control
    table = dict(switch_table({"cgroup": [], "switch": []})[1:])
    assert set(table) == set()
    del same


def test_a_switch_on_6_1_and_a_read_with_the_watch_cost_what_they_did_before() -> None:
    (of_61,) = (row for row in _numbers()["switch"] if row["kernel"] == "6.1")
    assert of_61["each"] == pytest.approx(5225, abs=32)
    assert _numbers()["uring"]["with"] == pytest.approx(9422, abs=92)
    assert _numbers()["uring"]["without"] == pytest.approx(8300, abs=92)


def test_outside_the_cgroup_interrupts_call_for_the_worker_and_inside_it_wakes_fio() -> None:
    for pair in _read(REFERENCE)["switch"]:
        if pair.treated.kernel != "6.1":
            continue
        outside, inside = pair.control, pair.treated
        tries = outside.linked(r"\[interrupt\]", CALLS, "kworker/.*")["count"].sum()
        wakes = outside.linked("kworker/.*", "wakes", "fio")["count"].sum()
        assert tries > outside.ios
        assert 100 * wakes < outside.ios
        assert inside.linked("kworker/.*", "wakes", "fio")["count"].sum() > 0.99 * inside.ios


def test_the_pages_of_the_reports_show_what_was_counted() -> None:
    for page, name, table in observed(REFERENCE):
        assert f"<!-- {name}: " in page.read_text(encoding="utf-8")
        assert table in page.read_text(encoding="utf-8"), name
