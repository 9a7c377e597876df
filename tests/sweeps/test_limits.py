# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
from pathlib import Path

import pytest

from iolab.sweeps.limits import usable_cores
from iolab.sweeps.pool import default_jobs
from iolab.sweeps.request import Request, check_request
from iolab_base.errors import UserError


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
    written(groups, cpu__stat="usage_usec 1")
    written(groups / "pod", cpu__max="100000 100000")
    written(groups / "pod/container", cpu__max="max 100000")
    assert usable_cores(groups, mine) == 1


def test_a_path_of_the_host_in_a_container_leaves_the_mount(tmp_path: Path) -> None:
    groups, mine = tmp_path / "cgroup", own(tmp_path, "0::/../../kubepods/pod1\n")
    written(groups, cpu__max="100000 100000")
    assert usable_cores(groups, mine) == 1


def test_version_1(tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    mine = own(tmp_path, "12:pids:/x\n4:memory:/a\n3:cpuacct,cpu:/a\n0::/\n")
    written(groups / "cpu/a", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    # Half a core is one machine that runs at half the speed.
    assert usable_cores(groups, mine) == 1
    written(groups / "cpu/a", cpu__cfs_quota_us="-1")
    assert usable_cores(groups, mine) == len(os.sched_getaffinity(0))


def test_no_limits_are_those_of_the_machine(tmp_path: Path) -> None:
    groups, mine = tmp_path / "cgroup", own(tmp_path, "0::/\n")
    written(groups, cpu__max="max 100000")
    assert usable_cores(groups, mine) == len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path / "none", tmp_path / "none") == len(os.sched_getaffinity(0))


def test_the_host_clock_is_for_one_block_at_a_time() -> None:
    assert default_jobs("host") == 1
    check_request(Request("smoke", clock="host"))
    with pytest.raises(UserError, match="one block is measured at a time"):
        check_request(Request("smoke", clock="host", jobs=2))
