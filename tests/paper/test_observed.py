# SPDX-License-Identifier: MIT
"""What the observer counted: known answers, and what the pages say about them."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pandas as pd
import pytest

from guestprof.profile import CostProfile
from iolab.paths import REFERENCE
from paper.make.cells import CALLS, Cell, Pair
from paper.make.documents import REPORTS, observed
from paper.make.observed import observed as numbers
from paper.make.observed import read_observed, switch_table


@cache
def _numbers() -> dict[str, Any]:
    return numbers(read_observed(REFERENCE))


def _cell(role: str, boot: int, *, switches: int, **costs: int) -> Cell:
    """A cell of ten I/Os, whose functions cost so many instructions per I/O, each called once."""
    weight = 9600 if role == "treatment" else None
    rows = [(n - 1, "fio", name, cost * 10, 10) for n, (name, cost) in enumerate(costs.items())]
    rows.append((-1, "python3", "agent", 1000, 0))
    nodes = pd.DataFrame(rows, columns=["parent", "task", "function", "instructions", "calls"])
    nodes = nodes.assign(pid=1, cpu=0, module="").astype({"parent": "int32"})
    totals = {"instructions": int(nodes["instructions"].sum()), "ios": 10, "idle_ns": 0}
    row: dict[str, Any] = {"kernel": "6.1", "boot": boot, "weight": weight, "intervention": "none"}
    row |= {"ios": 10, "switches_per_io": switches / 10}
    chain = pd.DataFrame(columns=["cell", "task", "does", "other", "count", "wait_ns"])
    return Cell(row, CostProfile(nodes, totals), chain)


def _pair(boot: int, more: int, *, switches: int = 20) -> Pair:
    scheduler = {"__schedule": 50, "try_to_wake_up": 30, "psi_task_switch": 20}
    control = _cell("control", boot, switches=10, submit_bio=100, **scheduler)
    scheduler["__schedule"] += more
    return Pair(_cell("treatment", boot, switches=switches, submit_bio=100, **scheduler), control)


def _switches(*pairs: Pair) -> dict[str, str]:
    """Return the only column of the table of switches by the names of its rows."""
    found: dict[str, list[Pair]] = {"cgroup": [], "switch": [*pairs]}
    head, *rows = switch_table(found)
    assert head[1:] == ("6.1",)
    return {row[0]: row[1] for row in rows}


def test_a_switch_costs_what_is_more_for_each_additional_switch() -> None:
    table = _switches(*(_pair(boot, more) for boot, more in enumerate((40, 50, 60))))
    assert table["switches per I/O, no cgroup"] == "1.000"
    assert table["switches per I/O, 9600"] == "2.000"
    assert table["instructions per I/O, no cgroup"] == "200"
    # One more switch for each I/O; t(0.975, 2) = 4.303 standard errors of 10 / sqrt(3).
    half = f"{4.302653 * 10 / math.sqrt(3):.0f}"
    assert table["instructions for each additional switch"] == f"50 ± {half}"
    assert table["of these `schedule`, `wake` and `cgroup`"] == f"50 ± {half}"
    assert table["of these `submit`"] == "0"
    # The functions are a chain: each has called the next.
    assert table["a call of `__schedule` at 9600, with all that it calls"] == f"150 ± {half}"


def test_without_additional_switches_no_switch_has_a_cost() -> None:
    table = _switches(_pair(0, 5, switches=10))
    assert table["instructions for each additional switch"] == "-"
    assert table["instructions per I/O, 9600"] == "205"


def test_a_switch_on_6_1_and_a_read_with_the_watch_cost_what_they_did_before() -> None:
    (of_61,) = (row for row in _numbers()["switch"] if row["kernel"] == "6.1")
    assert of_61["each"] == pytest.approx(5225, rel=0.01)
    assert _numbers()["uring"]["with"] == pytest.approx(9422, rel=0.01)
    assert _numbers()["uring"]["without"] == pytest.approx(8300, rel=0.01)


def test_only_io_uring_takes_a_reference_for_each_read() -> None:
    for pair in read_observed(REFERENCE)["fsnotify"]:
        calls = [round(cell.calls["dget_parent"] * cell.ios) for cell in pair]
        uring = pair.treated.row["engine"] == "io_uring"
        reads = pair.treated.ios if uring else 0
        assert reads <= calls[0] <= reads + 2
        assert calls[1] <= 2


def test_outside_the_cgroup_interrupts_call_for_the_worker_and_inside_it_wakes_fio() -> None:
    for pair in read_observed(REFERENCE)["switch"]:
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


def test_the_sentences_of_the_reports_say_what_was_counted() -> None:
    def page(name: str) -> str:
        return " ".join((REPORTS / f"{name}.md").read_text(encoding="utf-8").split())

    found = _numbers()
    chain, text = found["chain"], page("dio_kworker")
    assert f"instead of {found['cgroup']['getevents_batch']}." in text
    assert f"{chain['wait_us']} µs after the worker woke it" in text
    assert f"wakes it once in some {chain['wakes_once_in']} I/Os" in text
    assert chain["preempts"] == pytest.approx(1, abs=0.001)
    first, *_, last = [row for row in found["switch"] if row["each"] is not None]
    assert 1.25 < last["each"] / first["each"] < 1.35
    assert last["scheduler"] / first["scheduler"] < 1.1
    for row, digits in zip(found["writeback"], (0, 1), strict=True):
        times = f"{row['ext4'] / row['xfs']:.{digits}f}"
        assert f"{row['kernel']}: {times} times as much" in page("writeback_kworker")
