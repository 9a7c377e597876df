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


@pytest.mark.parametrize(
    ("controller", "limit", "usage"),
    [("", "max", "current"), ("memory", "limit_in_bytes", "usage_in_bytes")],
)
def test_a_cgroups_limit_counts(
    controller: str, limit: str, usage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / controller
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.split(":")[1] == controller:
            group /= line.partition(":/")[2]
    group.mkdir(parents=True, exist_ok=True)
    for name, text in ((limit, "4096"), (usage, "3000"), ("stat", "inactive_file 1000\n")):
        (group / f"memory.{name}").write_text(text)
    monkeypatch.setattr(_memory, "_CGROUPS", tmp_path)
    if controller in Path("/proc/self/cgroup").read_text():
        assert free_bytes() == 2096
