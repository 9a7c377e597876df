# SPDX-License-Identifier: MIT
"""Tables of a profile, from call trees made here."""

from __future__ import annotations

import pandas as pd
import pytest

from guestprof.profile import CostProfile, per_io, subsystem_of
from iolab_base.errors import UserError

_NODES = [
    # parent, task, function, instructions, calls
    (-1, "fio", "entry_SYSCALL_64", 3, 2),
    (0, "fio", "__x64_sys_io_submit", 10, 2),
    (1, "fio", "kmem_cache_alloc", 20, 4),
    (1, "fio", "schedule", 5, 1),
    (3, "fio", "__schedule", 30, 1),
    (4, "fio", "psi_task_switch", 7, 1),
    (4, "fio", "schedule", 2, 1),
    (-1, "fio", "[user]", 100, 0),
    (-1, "kworker/0:1", "[callers not known]", 0, 0),
    (8, "kworker/0:1", "worker_thread", 50, 0),
]


@pytest.fixture
def profile() -> CostProfile:
    nodes = pd.DataFrame(_NODES, columns=["parent", "task", "function", "instructions", "calls"])
    nodes = nodes.assign(pid=nodes["task"].map({"fio": 9, "kworker/0:1": 4}), cpu=0, module="")
    totals = {"instructions": int(nodes["instructions"].sum()), "opened_ns": 5, "closed_ns": 300}
    return CostProfile(nodes.astype({"parent": "int32"}), totals)


def test_functions_sum_to_the_whole_and_name_their_callers(profile: CostProfile) -> None:
    frame = profile.functions()
    assert frame["instructions"].sum() == profile.totals["instructions"]
    alloc = frame[frame["function"] == "kmem_cache_alloc"].iloc[0]
    assert (alloc["caller"], alloc["calls"], alloc["instructions"]) == (
        "__x64_sys_io_submit",
        4,
        20,
    )
    assert frame.loc[frame["function"] == "[user]", "caller"].tolist() == [""]


def test_a_flat_profile_has_functions_and_nothing_that_needs_callers(profile: CostProfile) -> None:
    flat = CostProfile(profile.nodes.assign(parent=-1), {**profile.totals, "flat": 1})
    whole = flat.functions().set_index(["task", "function"])["instructions"]
    assert whole["fio", "schedule"] == 7
    assert flat.complete == 0
    with pytest.raises(UserError, match="a flat profile has no subsystems"):
        flat.subsystems()
    with pytest.raises(UserError, match="a flat profile has no inclusive costs"):
        flat.inclusive()


def test_a_function_is_counted_once_however_often_it_is_on_a_stack(profile: CostProfile) -> None:
    whole = profile.inclusive().set_index(["task", "function"])["instructions"]
    assert whole["fio", "schedule"] == 5 + 30 + 7 + 2
    assert whole["fio", "entry_SYSCALL_64"] == 77
    assert whole["kworker/0:1", "worker_thread"] == 50


def test_subsystems_are_those_of_the_innermost_function_that_begins_one(
    profile: CostProfile,
) -> None:
    found = profile.subsystems().set_index(["task", "subsystem"])["instructions"].to_dict()
    assert found == {
        ("fio", "user"): 100,
        ("fio", "schedule"): 37,
        ("fio", "memory"): 20,
        ("fio", "submit"): 10,
        ("fio", "cgroup"): 7,
        ("fio", "other"): 3,
        ("kworker/0:1", "other"): 50,
    }
    assert subsystem_of("try_to_wake_up") == "wake"
    assert subsystem_of("xfs_file_write_iter") is None


def test_stacks_begin_with_the_outermost_function(profile: CostProfile) -> None:
    stacks = profile.stacks()
    assert stacks["instructions"].sum() == profile.totals["instructions"]
    assert stacks["stack"].iloc[2] == (
        "entry_SYSCALL_64",
        "__x64_sys_io_submit",
        "kmem_cache_alloc",
    )


def test_the_share_under_known_stacks_is_told(profile: CostProfile) -> None:
    assert profile.complete == pytest.approx(177 / 227)


def test_a_part_of_the_tasks_is_a_profile_again(profile: CostProfile) -> None:
    worker = profile.of_tasks("kworker/.*")
    assert worker.totals["instructions"] == 50
    assert worker.stacks()["stack"].tolist() == [("[callers not known]", "worker_thread")]


def test_counts_per_io(profile: CostProfile) -> None:
    frame = per_io(profile.functions(), 10)
    assert frame["instructions"].sum() == pytest.approx(22.7)
    assert frame["calls"].max() == pytest.approx(0.4)
