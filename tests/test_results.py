# SPDX-License-Identifier: MIT
"""Counters between two samples, whose kworkers they are, and how large results may be."""

from __future__ import annotations

from typing import Any

from iolab.results import cell_bytes, growth, kworkers_of, pages_bytes, result_bytes
from iolab_agent.plan import Recording
from tests.support import plans
from tests.support.results import result

_MIB = 1 << 20


def test_a_counter_grows_from_the_first_sample_or_from_nothing() -> None:
    first, last = result()["first"], result()["last"]
    grown = {pid: growth(first, pid, task, "ran_ns") for pid, task in last["tasks"].items()}
    assert grown == {
        "10": 0,
        "11": 200_000_000,
        "20": 100_000_000,
        "21": 900_000_000,
        "22": 900_000_000,
    }
    # Kernels without `sched` files do not count migrations.
    assert growth(first, "10", last["tasks"]["10"], "migrations") == 0


def test_a_kworker_is_one_of_its_core_alone() -> None:
    sample = result()["last"]
    assert set(kworkers_of(sample, [0])) == {"20"}
    assert set(kworkers_of(sample, ["0", 10])) == {"20", "21"}
    assert kworkers_of(sample, [1]) == {}


def test_a_job_that_is_called_like_a_kworker_is_none() -> None:
    sample = result()["last"]
    sample["tasks"]["20"]["job"] = True
    sample["tasks"]["21"]["antagonist"] = True
    assert kworkers_of(sample, [0, 10]) == {}


def test_each_process_of_fio_adds_to_the_size_of_a_result() -> None:
    def most(**work: Any) -> int:
        (cell,) = plans.plan(plans.null_blk_cell("a", **work)).cells
        return cell_bytes(cell)

    # 4 MiB, and 32 KiB for each process.
    assert most() == 4 * _MIB + 32 * 1024
    assert most(job=plans.job(numjobs=8)) == 4 * _MIB + 8 * 32 * 1024
    # One reader and writer, and two that write a log.
    assert most(job=plans.open_job()) == 4 * _MIB + 3 * 32 * 1024
    (program,) = plans.plan(plans.program_cell("a", "/bin/true")).cells
    assert cell_bytes(program) == 4 * _MIB


def test_pages_have_a_limit_whatever_the_machine_says() -> None:
    small = Recording(["sched:sched_switch"], buffer_kib=1024)
    assert pages_bytes(small, 2) == 4 * _MIB
    assert pages_bytes(small, 8192) == 128 * _MIB


def test_a_plan_has_only_files_of_its_own_cells() -> None:
    recorded = plans.null_blk_cell(
        "b", recording=plans.recording_of("dio_kworker", buffer_kib=16384)
    )
    most = result_bytes(plans.plan(plans.null_blk_cell("a"), recorded), 1)
    assert most.keys() == {
        *("agent.json", "console.txt", "facts.json", "status.json"),
        *("cells/a.json", "cells/b.json", "traces/b.dat"),
    }
    # The pages of one buffer twice, and what stands before them.
    assert most["traces/b.dat"] == (2 * 16 + 32) * _MIB
    assert min(most.values()) > 0
