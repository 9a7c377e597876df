# SPDX-License-Identifier: MIT
"""What runs in the background of a script, and what ends it."""

from __future__ import annotations

import pytest

from fiojobs.language import read_job
from iolab_base.errors import UserError


def test_a_call_in_the_background_may_not_end_where_another_begins() -> None:
    calls = "fio --name=a & \nfio --name=b\n{}fio --name=c\n"
    with pytest.raises(UserError, match="background"):
        read_job(calls.format(""))
    for end in ("wait\n", "kill %1\n"):
        found = read_job(calls.format(end))
        assert ["stonewall" in section.options for section in found] == [False, False, True]


@pytest.mark.parametrize(
    ("ends", "both"),
    [
        ("wait $P", False),
        ("wait -n", False),
        ("wait -n $P $Q", False),
        ("kill -0 $P; kill -USR1 $Q", False),
        ("while kill -0 $Q 2>/dev/null; do sleep 1; done", False),
        ("while pgrep fio; do sleep 1; done", False),
        ("tail --pid=$P -f /dev/null", False),
        ("iostat 1 & I=$!; kill $I; kill $P", False),
        ("sudo pkill -9 fio", True),
        ("kill -9 $P; wait $P", False),
        ("wait $P; wait $Q", True),
        ("wait $P $Q", True),
        ("wait -n; wait -n", True),
        ('A="$P $Q"; wait $A', True),
        ("for each in $P $Q; do wait $each; done", True),
        ("wait", True),
    ],
)
def test_one_of_two_in_the_background_may_go_on(ends: str, both: bool) -> None:
    text = f"fio --name=a & P=$!\nfio --name=b &\nQ=$!\n{ends}\nfio --name=c\n"
    if both:
        assert ["stonewall" in s.options for s in read_job(text)] == [False, False, True]
    else:
        with pytest.raises(UserError, match="background"):
            read_job(text)


def test_a_call_behind_one_that_was_killed_begins_after_it() -> None:
    found = read_job("fio --name=a & P=$!; sleep 600; kill -INT $P\nfio --name=b")
    assert ["stonewall" in section.options for section in found] == [False, True]
    # Another program in the background is no call.
    found = read_job("fio --name=a\niostat 1 | tee log &\nfio --name=b; kill $!")
    assert ["stonewall" in section.options for section in found] == [False, True]
    # One that only sleeps between them does not wait.
    found = read_job("fio --name=a | tail & sleep 5\nfio --name=b; wait")
    assert ["stonewall" in section.options for section in found] == [False, False]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("fio --name=a --runtime=60 & iostat 1 & sleep 60; pkill iostat", True),
        ("T=1m; fio --name=a --runtime=$T --ramp_time 5s & sleep 65", True),
        ("fio --name=a --runtime=60 & fio --name=b --runtime=30 & sleep 30; sleep 30", True),
        ("fio --name=a --runtime=60 & wait $!; fio --name=b --runtime=5 & sleep 5", True),
        ("fio --name=a --runtime=60 & sleep 10", False),
        ("fio --name=a --ramp_time=5 --size=1g & sleep 60", False),
        ("fio --name=a --size=1g & sleep 600", False),
        ("fio --name=a --runtime=60 & fio --name=b & sleep 60", False),
    ],
)
def test_a_call_ends_while_the_script_sleeps_for_as_long(before: str, after: bool) -> None:
    *_, last = read_job(f"{before}\nfio --name=c")
    assert ("stonewall" in last.options) is after
