# SPDX-License-Identifier: MIT
"""Which cgroups this machine's own kernel has; in virtual machines it is v2 alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from iolab_agent import cgroup
from iolab_agent.cgroup import make_cgroup, mount_point, root_of, shares_of, values_of
from iolab_agent.journal import Journal, restore
from iolab_agent.plan import Group
from iolab_base.errors import CannotRunError
from iolab_base.process import start
from tests.support.needs import lack


def test_io_of_a_hybrid_machine_is_told_from_one_without_the_controller(tmp_path: Path) -> None:
    root = mount_point()
    if root is None or root_of("blkio") is None:
        lack("cgroup v1 beside v2")
    before = sorted(p.name for p in root.iterdir())
    journal = Journal(tmp_path / "journal")
    with pytest.raises(CannotRunError, match=r"both mounted, and v1 has the io .*buffered writes"):
        make_cgroup(journal, "iolab-test", Group({"io.weight": 100}))
    journal.close()
    assert restore(tmp_path / "journal") == []
    assert sorted(p.name for p in root.iterdir()) == before


@pytest.mark.parametrize(
    ("weight", "shares"), [(1, 10), (5, 51), (100, 1024), (1000, 10240), (10000, 102400)]
)
def test_shares_are_the_weight_that_the_kernel_makes_of_them(weight: int, shares: int) -> None:
    assert shares_of(weight) == shares


def test_a_job_of_a_v1_machine_has_its_weight(tmp_path: Path) -> None:
    root = root_of("cpu")
    if root is None:
        lack("cgroup v1")
    journal = Journal(tmp_path / "journal")
    group = make_cgroup(journal, "iolab-test", Group({"cpu.weight": 1000}))
    journal.close()
    assert values_of(group)[f"{root}/iolab-test/cpu.shares"] == "10240"
    sleeper = start(["sleep", "1000"], cgroup=group)
    try:
        assert (group / "cgroup.procs").read_text().split() == [str(sleeper.pid)]
        # Whoever is left in the group ends with it.
        assert restore(tmp_path / "journal") == []
    finally:
        sleeper.kill()
        sleeper.wait()
    assert not group.exists()


def test_v1_refuses_what_it_does_not_carry_over(tmp_path: Path) -> None:
    if root_of("cpu") is None:
        lack("cgroup v1")
    journal = Journal(tmp_path / "journal")
    with pytest.raises(CannotRunError, match=r"sets cpu.weight and not cpu.max: boot with"):
        make_cgroup(journal, "iolab-test", Group({"cpu.weight": 5, "cpu.max": "5000"}))
    with pytest.raises(CannotRunError, match=r"v1 has the cpuset controller, which is in a hier"):
        make_cgroup(journal, "iolab-test", Group({"cpu.weight": 5, "cpuset.cpus": "0"}))
    journal.close()
    assert (tmp_path / "journal").read_text() == ""


def test_the_root_of_a_container_is_not_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a namespace shows as the root is any other group: without release_agent.
    monkeypatch.setattr(cgroup, "mounts", lambda kind: [(tmp_path, ["rw", "cpu"])])
    assert root_of("cpu") is None
    (tmp_path / "release_agent").touch()
    assert root_of("cpu") == tmp_path


@pytest.mark.parametrize(
    ("mounts", "sentence"),
    [
        ({"cgroup": ["rw", "cpu", "cpuacct"]}, "only cgroup v1 is mounted, and v1 has the cpu"),
        ({"cgroup": ["rw", "memory"]}, "cgroup v2 is not mounted"),
        ({}, "cgroup v2 is not mounted"),
    ],
)
def test_a_machine_without_cgroup_v2_is_told_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mounts: dict[str, list[str]],
    sentence: str,
) -> None:
    def of_kind(kind: str) -> list[tuple[Path, list[str]]]:
        return [(Path("/sys/fs/cgroup"), mounts[kind])] if kind in mounts else []

    # No kernel here boots with cgroup v1 alone.
    for module in (cgroup, cgroup):
        monkeypatch.setattr(module, "mounts", of_kind)
    journal = Journal(tmp_path / "journal")
    with pytest.raises(CannotRunError, match=sentence):
        make_cgroup(journal, "iolab-test", Group({"cpu.weight": 100}))
    journal.close()
