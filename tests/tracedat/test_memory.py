# SPDX-License-Identifier: MIT
"""Memory for columns, also on a kernel without huge pages."""

from __future__ import annotations

import errno
import mmap
from pathlib import Path

import pytest

from tracedat import _memory, free_bytes, read
from tracedat._memory import reserve

TRACE = Path(__file__).parents[2] / "data" / "reference" / "traces" / "small_v7_mono.dat"


class SmallPages(mmap.mmap):
    """Memory of a kernel that was built without CONFIG_TRANSPARENT_HUGEPAGE."""

    def madvise(self, option: int, *span: int) -> None:
        if option == mmap.MADV_HUGEPAGE:
            raise OSError(errno.EINVAL, "Invalid argument")
        super().madvise(option, *span)


def test_a_kernel_without_huge_pages_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    switches = read(TRACE).frame("sched_switch")
    monkeypatch.setattr(mmap, "mmap", SmallPages)
    assert isinstance(reserve(1 << 21), SmallPages)
    assert read(TRACE).frame("sched_switch").equals(switches)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(OSError, match="Cannot allocate memory"):
        reserve(1 << 60)


def test_free_memory_is_what_the_kernel_says() -> None:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    assert 0 < free_bytes() <= int(fields["MemTotal"].split()[0]) * 1024


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as of cgroups; the file own beside it lists this process's."""
    monkeypatch.setattr(_memory, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(_memory, "_OWN", tmp_path / "own")
    return tmp_path / "cgroup"


def written(group: Path, **files: object) -> None:
    group.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (group / f"memory.{name}").write_text(f"{text}\n")


def test_the_tightest_cgroup_above_counts(groups: Path) -> None:
    (groups.parent / "own").write_text("0::/pod/container\n")
    stat = "anon 900000\ninactive_file 30000\nactive_file 20000"
    written(groups, stat="anon 5")
    written(groups / "pod", max=400000, current=0)
    one = {"max": 1000000, "high": "max", "current": 950000, "stat": stat}
    written(groups / "pod" / "container", **one)
    assert free_bytes() == 100000
    written(groups / "pod" / "container", high=970000)
    assert free_bytes() == 70000
    written(groups / "pod" / "container", current=2000000)
    assert free_bytes() == 0


def test_a_path_of_the_host_in_a_container_leaves_the_mount(groups: Path) -> None:
    (groups.parent / "own").write_text("0::/../../kubepods/pod1\n")
    written(groups, max=3000, current=1000)
    assert free_bytes() == 2000


def test_version_1(groups: Path) -> None:
    (groups.parent / "own").write_text("12:pids:/x\n4:memory:/a\n0::/\n")
    stat = "inactive_file 5\ntotal_inactive_file 1000\ntotal_active_file 0"
    written(groups / "memory" / "a", limit_in_bytes=4096, usage_in_bytes=3000, stat=stat)
    assert free_bytes() == 2096
    written(groups / "memory" / "a", limit_in_bytes=(1 << 63) - 4096)
    assert free_bytes() > 1 << 20


def test_no_limits_are_those_of_the_machine(groups: Path) -> None:
    (groups.parent / "own").write_text("0::/\n")
    written(groups, max="max", current=5)
    assert free_bytes() > 1 << 20
