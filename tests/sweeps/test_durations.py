# SPDX-License-Identifier: MIT
"""Forecasts, from histories of machines whose speed is known, and the order of measuring."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.pathology import get_pathology
from iolab.sweeps.durations import (
    Took,
    forecast,
    in_order,
    measured_here,
    note_duration,
)
from iolab.sweeps.preview import preview_sweep
from iolab.sweeps.request import Request
from iolab_base.files import cache_dir


def blocks(name: str = "dio_kworker", kernel: str = "6.1", profile: str = "smoke") -> list[Block]:
    pathology = get_pathology(name)
    return blocks_of(pathology, pathology.profiles[profile], kernel=kernel, clock="virtual")


def assumed(block: Block) -> float:
    return forecast([block], 1, history=[], cores=1).seconds


def took(block: Block, seconds: float, *, beside: float = 1.0, cores: int = 2) -> Took:
    return Took(
        block.pathology,
        block.kernel,
        block.clock,
        len(block.cells),
        assumed(block),
        seconds,
        beside,
        cores,
        "here",
    )


def true_seconds(block: Block, rng: random.Random) -> float:
    """Return how long a machine takes: 12 s for a boot, 4 s for a cell, 10 % more or less."""
    return (12 + 4 * len(block.cells)) * rng.uniform(0.9, 1.1)


def later_end(seconds: list[float], jobs: int) -> float:
    ends = [0.0] * jobs
    for one in seconds:
        ends.sort()
        ends[0] += one
    return max(ends)


@pytest.mark.parametrize("jobs", [1, 2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_a_forecast_is_right_within_a_quarter(jobs: int, seed: int) -> None:
    rng = random.Random(seed)
    planned = [b for kernel in ("6.1", "6.12", "7.2") for b in blocks(kernel=kernel) * 4]
    rng.shuffle(planned)
    # The history was measured with another number of machines side by side, on two cores.
    beside = rng.choice([1.0, 2.0, 3.0, 4.0])
    slower = max(1.0, beside / 2)
    history = [took(b, true_seconds(b, rng) * slower, beside=beside) for b in planned[:6]]
    missing = planned[6:]
    truth = later_end([true_seconds(b, rng) * max(1.0, jobs / 2) for b in missing], jobs)
    found = forecast(missing, jobs, history=history, cores=2)
    assert found.seconds == pytest.approx(truth, rel=0.25)
    assert "assumed" not in found.basis
    assert found.basis.startswith("measured: ") or "blocks measured: " in found.basis


def test_the_most_alike_blocks_count_then_the_newest_of_them() -> None:
    (wanted, *_), (other, *_) = blocks(), blocks("bfq_idling")
    longer = blocks(profile="quick")[0]
    alike = [took(wanted, 100.0)] * 30 + [took(wanted, 40.0)] * 20
    history = [took(other, 7.0), took(longer, 9000.0), *alike]
    found = forecast([wanted], 1, history=history, cores=2)
    assert math.isclose(found.seconds, 40.0)
    assert found.basis == "measured: 20 such blocks on this machine"
    # Of the same kernel only a longer profile is known: it took twice what is assumed.
    history = [took(other, 7.0), took(longer, 2 * assumed(longer))]
    found = forecast([wanted], 1, history=history, cores=2)
    assert math.isclose(found.seconds, 2 * assumed(wanted))
    assert "1 other blocks of the same pathology and kernel" in found.basis
    (elsewhere, *_) = blocks(kernel="7.2")
    assert "on other kernels" in forecast([elsewhere], 1, history=history, cores=2).basis
    found = forecast([wanted], 1, history=[replace(took(other, 7.0), clock="host")], cores=2)
    assert found.seconds == assumed(wanted)
    assert found.basis.startswith("assumed")
    mixed = forecast([wanted, other], 1, history=[took(wanted, 5.0)], cores=2)
    assert "1 blocks measured: 1 such blocks" in mixed.basis
    assert "1 blocks measured: 1 blocks of other pathologies" in mixed.basis
    assert forecast([], 2, history=[], cores=2).seconds == 0


def test_the_machine_remembers_and_another_machine_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one = blocks()[0]
    assert measured_here() == []
    (tmp_path / "iolab").mkdir()
    note_duration(one, 31.5, 1.25)
    path = cache_dir("durations.jsonl")
    (noted,) = measured_here()
    assert (noted.seconds, noted.beside, noted.kernel) == (31.5, 1.25, "6.1")
    elsewhere = json.dumps({**asdict(noted), "machine": "another"})
    endless = json.dumps(asdict(replace(noted, seconds=float("inf"))))
    damaged = ["{", "[]", "{}", elsewhere, endless, json.dumps({**asdict(noted), "seconds": "x"})]
    with path.open("a") as stream:
        stream.write("".join(f"{line}\n" for line in damaged))
    assert measured_here() == [noted]
    request = Request("smoke", ["dio_kworker"], ["6.1"], root=tmp_path / "runs")
    (preview,) = preview_sweep(request)
    # The second boot records cells: it is another block.
    assert "1 blocks measured: 1 such blocks on this machine" in preview.duration.basis
    later = 31.5 / assumed(one) * assumed(blocks()[1])
    assert preview.duration.seconds == pytest.approx(31.5 + later)
    # It does not grow without end.
    path.write_text("y\n" * (1 << 20))
    note_duration(one, 33.5, 1.0)
    assert [found.seconds for found in measured_here()] == [33.5]
    assert path.stat().st_size < 1 << 16


def test_a_cache_that_cannot_be_written_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "iolab").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    note_duration(blocks()[0], 31.5, 1.0)
    assert measured_here() == []


def _planned(pathology: str, *kernels: str) -> dict[str, Block]:
    found = get_pathology(pathology)
    return {
        f"{kernel} {block.machine.cpus} {block.boot}": block
        for kernel in kernels
        for block in blocks_of(found, found.profiles["quick"], kernel=kernel, clock="virtual")
    }


def test_the_first_block_of_each_machine_comes_before_the_second_of_any() -> None:
    blocks = _planned("writeback_kworker", "6.1", "6.12")
    ordered = in_order(blocks, blocks, [])
    assert ordered[:5] == ["6.1 1 0", "6.1 2 0", "6.12 1 0", "6.12 2 0", "6.1 1 1"]
    assert sorted(ordered) == sorted(blocks)


def test_blocks_of_one_machine_keep_their_order() -> None:
    blocks = _planned("dio_kworker", "6.1")
    assert in_order(blocks, blocks, []) == list(blocks)


def test_what_is_measured_already_takes_no_turn() -> None:
    blocks = _planned("dio_kworker", "6.1", "6.12")
    left = ["6.1 1 2", "6.12 1 0", "6.12 1 1", "6.12 1 2"]
    assert in_order(left, blocks, []) == ["6.1 1 2", "6.12 1 0", "6.12 1 1", "6.12 1 2"]


def test_a_boot_option_makes_another_machine() -> None:
    blocks = _planned("dio_kworker", "6.1")
    first = next(iter(blocks))
    plan = replace(blocks[first].plan, boot_options=["nohz=off"])
    blocks[first] = replace(blocks[first], plan=plan)
    assert in_order([*list(blocks)[1:], first], blocks, []) == ["6.1 1 1", first, "6.1 1 2"]


def test_the_report_with_the_longest_blocks_is_measured_first() -> None:
    blocks = {
        f"{name} {key}": block
        for name in ("bfq_idling", "dio_kworker", "fsnotify_contention")
        for key, block in _planned(name, "6.1").items()
    }
    # As measured: a block of bfq_idling has the most cells, and takes the least time.
    history = [
        Took("dio_kworker", "6.1", "virtual", 4, 24.0, 17.0, 1.0, 2, "here"),
        Took("bfq_idling", "6.1", "virtual", 4, 24.0, 1.0, 1.0, 2, "here"),
        Took("fsnotify_contention", "6.1", "virtual", 4, 24.0, 70.0, 1.0, 2, "here"),
    ]
    names = [key.split()[0] for key in in_order(blocks, blocks, history)]
    assert list(dict.fromkeys(names)) == ["fsnotify_contention", "dio_kworker", "bfq_idling"]
    assert names == sorted(names, key=list(dict.fromkeys(names)).index)
    assert in_order([], blocks, history) == []
