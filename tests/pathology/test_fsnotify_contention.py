# SPDX-License-Identifier: MIT
"""What is made of the calls of a read, with known answers, and which watch a cell has."""

from __future__ import annotations

from random import Random

import pytest

from iolab.pathology import get_pathology
from tests.support.results import result

_PATHOLOGY = get_pathology("fsnotify_contention")


def test_calls_are_those_of_one_read() -> None:
    cell = result()
    # 2000 reads.
    cell["first"]["calls"] = {"dget_parent": 5, "__fsnotify_parent": 100}
    cell["last"]["calls"] = {"dget_parent": 2005, "__fsnotify_parent": 4100}
    assert _PATHOLOGY.from_counters(cell) == pytest.approx(
        {"dget_parent_per_io": 1, "__fsnotify_parent_per_io": 2}
    )


@pytest.mark.parametrize(
    ("watch", "event"), [("directory", "close_write"), ("directory-delete", "delete")]
)
def test_a_control_has_no_watch_and_the_same_reads(watch: str, event: str) -> None:
    profile = _PATHOLOGY.profiles["quick"]
    levels = {"engine": "libaio", "intervention": "none"}
    treated = _PATHOLOGY.cell({**levels, "watch": watch}, profile, Random(1))
    control = _PATHOLOGY.cell({**levels, "watch": None}, profile, Random(1))
    assert control.watch is None
    assert treated.watch is not None
    assert (treated.watch.on, treated.watch.event) == ("directory", event)
    assert treated.job == control.job
