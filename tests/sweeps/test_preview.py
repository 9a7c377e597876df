# SPDX-License-Identifier: MIT
"""What ``iolab plan`` says, beside what a sweep would really plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from iolab.cli import main
from iolab.design import blocks_of
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.base import Profile
from iolab.pathology.factors import Condition
from iolab.sweeps.preview import PathologyPreview, preview_sweep
from iolab.sweeps.request import Request, requested_profile
from iolab_agent.plan import Cell, Job
from iolab_base.errors import UserError


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
@pytest.mark.parametrize("profile", ["smoke", "quick", "study", "full", "survey"])
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
