# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
from pathlib import Path

import pytest

from iolab.agent.proc import available_memory
from iolab.errors import UserError
from iolab.sweeps.limits import usable_cores, usable_memory
from iolab.sweeps.pool import default_jobs
from iolab.sweeps.request import Request, check_request

MIB = 1 << 20


def written(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def own(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "own"
    path.write_text(text)
    return path


def test_the_tightest_cgroup_above_counts(tmp_path: Path) -> None:
    groups, mine = tmp_path / "cgroup", own(tmp_path, "0::/pod/container\n")
    stat = f"anon {900 * MIB}\ninactive_file {50 * MIB}"
    written(groups, memory__stat="anon 5", cpu__stat="usage_usec 1")
    written(
        groups / "pod", cpu__max="100000 100000", memory__max=str(400 * MIB), memory__current="0"
    )
    written(
        groups / "pod/container",
        cpu__max="max 100000",
        memory__max=str(1000 * MIB),
        memory__high="max",
        memory__current=str(950 * MIB),
        memory__stat=stat,
    )
    assert usable_cores(groups, mine) == 1
    assert usable_memory(groups, mine) == 100 * MIB
    (groups / "pod/container/memory.high").write_text(f"{970 * MIB}")
    assert usable_memory(groups, mine) == 70 * MIB
    (groups / "pod/container/memory.current").write_text(f"{2000 * MIB}")
    assert usable_memory(groups, mine) == 0


def test_a_path_of_the_host_in_a_container_leaves_the_mount(tmp_path: Path) -> None:
    groups, mine = tmp_path / "cgroup", own(tmp_path, "0::/../../kubepods/pod1\n")
    written(groups, memory__max=str(300 * MIB), memory__current=str(100 * MIB))
    assert usable_memory(groups, mine) == 200 * MIB


def test_version_1(tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    mine = own(tmp_path, "12:pids:/x\n4:memory:/a\n3:cpuacct,cpu:/a\n0::/\n")
    written(
        groups / "memory/a",
        memory__limit_in_bytes=str(500 * MIB),
        memory__usage_in_bytes=str(450 * MIB),
        memory__stat=f"total_inactive_file {100 * MIB}",
    )
    written(groups / "cpu/a", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    assert usable_memory(groups, mine) == 150 * MIB
    # Half a core is one machine that runs at half the speed.
    assert usable_cores(groups, mine) == 1
    written(groups / "cpu/a", cpu__cfs_quota_us="-1")
    assert usable_cores(groups, mine) == len(os.sched_getaffinity(0))


def test_no_limits_are_those_of_the_machine(tmp_path: Path) -> None:
    groups, mine = tmp_path / "cgroup", own(tmp_path, "0::/\n")
    written(groups, cpu__max="max 100000", memory__max="max", memory__current="5")
    assert usable_cores(groups, mine) == len(os.sched_getaffinity(0))
    assert usable_memory(groups, mine) == pytest.approx(available_memory(), rel=0.2)
    assert usable_cores(tmp_path / "none", tmp_path / "none") == len(os.sched_getaffinity(0))


def test_the_host_clock_is_for_one_block_at_a_time() -> None:
    assert default_jobs("host") == 1
    check_request(Request("smoke", clock="host"))
    with pytest.raises(UserError, match="one block is measured at a time"):
        check_request(Request("smoke", clock="host", jobs=2))
