# SPDX-License-Identifier: MIT
"""What ``iolab plan`` says, beside what a sweep would really plan."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import pytest

from iolab.blocks import Block
from iolab.cli import main
from iolab.design import blocks_of
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.base import Profile
from iolab.pathology.factors import Condition
from iolab.sweeps.preview import (
    PathologyPreview,
    Took,
    forecast,
    in_order,
    measured_here,
    note_duration,
    preview_sweep,
)
from iolab.sweeps.request import Request, requested_profile
from iolab_agent.plan import Cell, Job
from iolab_base.errors import UserError
from iolab_base.files import cache_dir


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty cache, and mirrors that do not exist."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("IOLAB_MIRROR_DEBIAN", "file:/nonexistent/debian")
    monkeypatch.setenv("IOLAB_MIRROR_UBUNTU", "file:/nonexistent/ubuntu")
    return tmp_path / "cache"


def preview(root: Path, **asked: object) -> PathologyPreview:
    given = {"profile": "smoke", "pathologies": ["dio_kworker"], "root": root, **asked}
    (one,) = preview_sweep(Request(**given))  # type: ignore[arg-type]
    return one


@pytest.mark.parametrize("name", PATHOLOGIES)
@pytest.mark.parametrize("profile", ["smoke", "quick", "study", "full", "near"])
def test_a_preview_counts_what_the_design_makes(name: str, profile: str, tmp_path: Path) -> None:
    request = Request(profile=profile, pathologies=[name], kernels=["6.1"], root=tmp_path)
    pathology = get_pathology(name)
    blocks = blocks_of(
        pathology, requested_profile(request, pathology), kernel="6.1", clock="virtual"
    )
    cells = [cell for one in blocks for cell in one.cells]
    (shown,) = preview_sweep(request)
    (kernel,) = shown.kernels
    assert (kernel.blocks, kernel.cells) == (len(blocks), len(cells))
    assert kernel.recorded == sum(cell.recorded for cell in cells)
    for factor, levels in shown.factors.items():
        assert set(levels) == {cell.condition[factor] for cell in cells}
    assert shown.factors[pathology.treatment][0] is None
    assert set(shown.undecided) == {c.name for c in pathology.claims if c.requires}


def test_levels_kernels_and_traces_of_the_users_own(tmp_path: Path) -> None:
    shown = preview(
        tmp_path, kernels=["6.1", "5.10"], settings=["weight=200"], recorded=["weight=200"]
    )
    assert shown.factors["weight"] == [None, 200]
    # In each of two boots: a treated and an A/A pair, and the treated pair once more, traced.
    assert [(k.kernel, k.blocks, k.cells, k.recorded) for k in shown.kernels] == [
        ("6.1", 2, 12, 4),
        ("5.10", 2, 12, 4),
    ]
    assert shown.folder == str(
        tmp_path / "dio_kworker" / "smoke-weight200-record-weight200-6.1+5.10"
    )


def test_of_alternative_kernels_the_first_is_counted(tmp_path: Path) -> None:
    shown = preview(tmp_path)
    first, second = get_pathology("dio_kworker").profiles["smoke"].kernels
    assert [(k.kernel, *k.alternatives) for k in shown.kernels] == [first, second]
    assert {k.state for k in shown.kernels} == {"to fetch"}


def test_a_preview_writes_and_fetches_nothing(tmp_path: Path, cache: Path) -> None:
    preview(tmp_path / "runs")
    assert not cache.exists()
    assert not (tmp_path / "runs").exists()


def test_a_kernel_that_is_damaged_in_the_cache_cannot_run_here(tmp_path: Path, cache: Path) -> None:
    folder = cache / "iolab" / "kernels" / "mine"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text("{}")
    shown = preview(tmp_path, kernels=["mine"])
    assert shown.unavailable == {"mine": "damaged in the cache: add it again"}
    assert (shown.kernels, shown.duration.seconds) == ([], 0)


def test_a_kernel_is_not_its_own_control(tmp_path: Path) -> None:
    path = tmp_path / "two_kernels.py"
    path.write_text(
        "import iolab\n"
        "one = iolab.question(fio='rw=randread bs=4k', treatment={'kernel': '6.12'}, name='two')\n"
    )
    shown = preview(tmp_path, pathologies=[str(path)], kernels=["6.1", "6.12"])
    assert [kernel.kernel for kernel in shown.kernels] == ["6.1"]
    assert shown.unavailable == {
        "6.12": "6.12 is the treatment: it needs another kernel as its control"
    }


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"profile": "quik"}, "unknown profile 'quik'; did you mean quick"),
        ({"kernels": ["2.4"]}, "unknown kernel '2.4'"),
        ({"settings": ["weight=0"]}, "weight must be 1-10000"),
        ({"pathologies": ["dio"]}, "unknown pathology 'dio'"),
    ],
)
def test_a_preview_refuses_what_a_sweep_refuses(
    asked: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        preview(tmp_path, **asked)


def test_the_command_prints_a_table_or_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ("plan", "bfq_idling", "--profile", "smoke", "--kernel", "6.1", "--root", str(tmp_path))

    def output(*words: str) -> str:
        monkeypatch.setattr("sys.argv", ["iolab", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        return capsys.readouterr().out

    ((kernel,),) = [one["kernels"] for one in json.loads(output(*plan, "--json"))]
    table = output(*plan)
    assert f"    6.1              2  {kernel['cells']:5}  {kernel['recorded']:8}  to fetch" in table
    assert "io_scheduler   control, bfq, bfq-throughput (treatment)" in table
    assert "s for a cell, assumed: no block was measured on this machine yet" in table


def test_the_command_names_a_mistake_in_one_line(
    in_process: Callable[..., tuple[int, str]],
) -> None:
    code, error = in_process("plan", "bfq")
    (line,) = error.splitlines()
    assert (code, "unknown pathology 'bfq'" in line) == (2, True)


def test_a_cell_that_the_agent_would_refuse_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = get_pathology("fsnotify_contention")

    def cell(condition: Condition, profile: Profile, rng: Random) -> Cell:
        made = right.cell(condition, profile, rng)
        assert isinstance(made.job, Job)
        return replace(made, job=replace(made.job, engine="libaoi"))

    monkeypatch.setitem(PATHOLOGIES, right.name, replace(right, cell=cell))
    with pytest.raises(UserError, match="unknown ioengine 'libaoi'"):
        preview(tmp_path, pathologies=[right.name])


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


def test_all_blocks_of_a_machine_are_measured_while_its_snapshot_is_there() -> None:
    blocks = _planned("dio_kworker", "6.1", "6.12")
    several = {f"{one} {key}": block for one in "abc" for key, block in blocks.items()}
    alike = next(iter(blocks.values()))
    boots = [replace(alike, plan=replace(alike.plan, draw=draw)) for draw in range(8)]
    # Two boots of three reports take turns: each machine boots once, and none waits for another.
    ordered = in_order(several, several, [])
    assert [key.split()[0] for key in ordered] == [one for one in "abc" for _ in blocks]
    # Beyond half of what the cache keeps, the next machines wait.
    many = {f"{one}{n}": block for one in "ab" for n, block in enumerate(boots)}
    first = [f"{one}{n}" for one in "ab" for n in range(6)]
    assert list(in_order(many, many, [])) == [*first, "a6", "a7", "b6", "b7"]


def test_blocks_of_one_machine_keep_their_order() -> None:
    blocks = _planned("dio_kworker", "6.1")
    assert list(in_order(blocks, blocks, [])) == list(blocks)


def test_what_is_measured_already_takes_no_turn() -> None:
    blocks = _planned("dio_kworker", "6.1", "6.12")
    left = ["6.1 1 2", "6.12 1 0", "6.12 1 1", "6.12 1 2"]
    # The first boot, which records, takes longest.
    assert list(in_order(left, blocks, [])) == ["6.12 1 0", "6.1 1 2", "6.12 1 1", "6.12 1 2"]


def test_a_boot_option_makes_another_machine() -> None:
    one = next(iter(_planned("dio_kworker", "6.1").values()))
    other = replace(one, plan=replace(one.plan, boot_options=["nohz=off"]))
    blocks = {"one": one, "other": other, "one again": one, "other again": other}
    assert list(in_order(blocks, blocks, [])) == ["one", "other", "one again", "other again"]
    blocks["other"], blocks["other again"] = one, one
    assert list(in_order(blocks, blocks, [])) == list(blocks)


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
    assert in_order([], blocks, history) == {}
