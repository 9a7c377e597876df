# SPDX-License-Identifier: MIT
"""Memory for columns, also on a kernel without huge pages."""

from __future__ import annotations

import errno
import mmap
from pathlib import Path

import pytest

from tracedat import read
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
