# SPDX-License-Identifier: MIT
"""What a short run shows little or nothing of."""

from __future__ import annotations

import pytest

from tests.support.translated import of_job, rows_of


@pytest.mark.parametrize("option", ["latency_window=5s", "latency_window=700000", "thinktime=1s"])
def test_a_time_that_outlasts_the_run_is_a_row(option: str) -> None:
    name, _, asked = option.partition("=")
    job = f"rw=read runtime=60 {option}"
    assert rows_of(of_job(job))[name] == (asked, asked)
    assert name not in rows_of(of_job(job, as_asked=True))
    assert name not in rows_of(of_job(f"rw=read {name}=1ms"))


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ("rate_iops=6", "3 I/Os"),
        ("rate_iops=5,10", "6 I/Os"),
        ("rate=4k bs=4k", "0 I/Os"),
        ("rate=,8k bs=4k,8k", "1 I/Os"),
        ("rate_iops=100", ""),
        ("rate=1m bs=4k", ""),
    ],
)
def test_a_rate_of_a_few_blocks_is_a_row(options: str, most: str) -> None:
    found = of_job(f"rw=randrw runtime=60 {options}")
    said = [row.why for row in found.rows if row.option.startswith("rate")]
    assert [most in why for why in said] == [True] * bool(most)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("thinktime=100ms", "6 I/Os"),
        ("thinktime=100ms thinktime_blocks=8", ""),
        ("thinktime=1ms thinktime_iotime=2", "longer than the run"),
        ("thinktime=1ms thinktime_iotime=20ms", ""),
        ("ioengine=io_uring hipri", "no queue to poll"),
        ("ioengine=io_uring hipri=0", ""),
        ("mem=mmaphuge", "huge pages"),
        ("exec_prerun=sync", "in the virtual machine"),
        ("trigger=sync", "in the virtual machine"),
        ("iodepth=32", "one I/O at a time"),
        ("iodepth=32 ioengine=pvsync2", "one I/O at a time"),
        ("iodepth=32 ioengine=libaio", ""),
        ("iodepth=32 io_submit_mode=offload", ""),
        ("bssplit=4k:60,64k:40", "behind a slash"),
        ("bssplit=4k/60:64k/40", ""),
    ],
)
def test_what_a_run_shows_little_of_is_a_row(options: str, said: str) -> None:
    whys = [row.why for row in of_job(f"rw=randread size=8m {options}").rows]
    assert any(said in why for why in whys)
    assert any("as asked" in why for why in whys) is bool(said)


def test_what_fio_does_when_the_job_ends_is_a_row() -> None:
    for option in ("end_fsync", "fsync_on_close"):
        job = f"rw=write size=8m {option}=1"
        assert rows_of(of_job(job))[option] == ("1", "not measured")
        assert option not in rows_of(of_job(job, as_asked=True))
        assert option not in rows_of(of_job(f"rw=read {option}=1"))
    # It closes one of many files after another.
    assert "fsync_on_close" not in rows_of(of_job("rw=write nrfiles=8 fsync_on_close=1"))


def test_atomic_writes_are_direct_ones() -> None:
    assert rows_of(of_job("rw=write atomic=1"))["atomic"] == ("1", "direct I/O")
    assert "invalidate" not in rows_of(of_job("rw=read atomic=1"))
