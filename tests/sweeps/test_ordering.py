# SPDX-License-Identifier: MIT
"""Blocks are measured in turns of their machines."""

from __future__ import annotations

from dataclasses import replace

from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.pathology import get_pathology
from iolab.sweeps.history import Took
from iolab.sweeps.ordering import in_turns, longest_first


def _planned(pathology: str, *kernels: str) -> dict[str, Block]:
    found = get_pathology(pathology)
    return {
        f"{kernel} {block.machine.cpus} {block.boot}": block
        for kernel in kernels
        for block in blocks_of(found, found.profiles["quick"], kernel=kernel, clock="virtual")
    }


def test_the_first_block_of_each_machine_comes_before_the_second_of_any() -> None:
    blocks = _planned("writeback_kworker", "6.1", "6.12")
    ordered = in_turns(blocks, blocks)
    assert ordered[:5] == ["6.1 1 0", "6.1 2 0", "6.12 1 0", "6.12 2 0", "6.1 1 1"]
    assert sorted(ordered) == sorted(blocks)


def test_blocks_of_one_machine_keep_their_order() -> None:
    blocks = _planned("dio_kworker", "6.1")
    assert in_turns(blocks, blocks) == list(blocks)


def test_what_is_measured_already_takes_no_turn() -> None:
    blocks = _planned("dio_kworker", "6.1", "6.12")
    left = ["6.1 1 2", "6.12 1 0", "6.12 1 1", "6.12 1 2"]
    assert in_turns(left, blocks) == ["6.1 1 2", "6.12 1 0", "6.12 1 1", "6.12 1 2"]


def test_a_boot_option_makes_another_machine() -> None:
    blocks = _planned("dio_kworker", "6.1")
    first = next(iter(blocks))
    plan = replace(blocks[first].plan, boot_options=["nohz=off"])
    blocks[first] = replace(blocks[first], plan=plan)
    assert in_turns([*list(blocks)[1:], first], blocks) == ["6.1 1 1", first, "6.1 1 2"]


def test_the_report_with_the_longest_blocks_is_measured_first() -> None:
    groups = [
        list(_planned(name, "6.1").values())
        for name in ("dio_kworker", "bfq_idling", "dio_kworker")
    ]
    # As measured: a block of bfq_idling has the most cells, and takes the least time.
    took = [
        Took("dio_kworker", "6.1", "virtual", 4, 24.0, 17.0, 1.0, 2, "here"),
        Took("bfq_idling", "6.1", "virtual", 4, 24.0, 13.0, 1.0, 2, "here"),
    ]
    assert longest_first(groups, took) == [0, 2, 1]
    assert longest_first([[], groups[1]], took) == [1, 0]
    assert longest_first([], took) == []
