# SPDX-License-Identifier: MIT
"""Which cgroups this machine's own kernel has; in virtual machines it is v2 alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from iolab.agent import cgroup
from iolab.agent.cgroup import make_cgroup, mount_point
from iolab.agent.journal import Journal, restore
from iolab.agent.plan import Group
from iolab.errors import CannotRunError


@pytest.mark.parametrize(("controller", "old"), [("cpu", "cpu"), ("io", "blkio")])
def test_a_hybrid_machine_is_told_from_one_without_the_controller(
    tmp_path: Path, controller: str, old: str
) -> None:
    root = mount_point()
    if root is None or not (Path("/sys/fs/cgroup") / old / "cgroup.procs").exists():
        pytest.skip("this machine is not hybrid")
    before = sorted(p.name for p in root.iterdir())
    journal = Journal(tmp_path / "journal")
    with pytest.raises(
        CannotRunError, match=rf"v1 and v2 are both mounted, and v1 has the {controller}"
    ):
        make_cgroup(journal, "iolab-test", Group(controller, 100))
    journal.close()
    assert restore(tmp_path / "journal") == []
    assert sorted(p.name for p in root.iterdir()) == before


@pytest.mark.parametrize(
    ("mounts", "sentence"),
    [
        ({"cgroup": ["rw", "cpu", "cpuacct"]}, "only cgroup v1 is mounted, and v1 has the cpu"),
        ({"cgroup": ["rw", "memory"]}, "no cgroup v2 is mounted"),
        ({}, "no cgroup v2 is mounted"),
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
    monkeypatch.setattr(cgroup, "_mounts", of_kind)
    journal = Journal(tmp_path / "journal")
    with pytest.raises(CannotRunError, match=sentence):
        make_cgroup(journal, "iolab-test", Group("cpu", 100))
    journal.close()
