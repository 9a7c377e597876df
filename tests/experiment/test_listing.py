# SPDX-License-Identifier: MIT
"""What is available: tables of names, and what is read by name or path."""

from __future__ import annotations

from pathlib import Path

import pytest

import iolab
from iolab.pathology import PATHOLOGIES
from iolab.paths import REFERENCE
from iolab_base.errors import IolabError, UserError
from tests.support.turns import turning


def test_pathologies_are_a_row_each() -> None:
    table = iolab.pathologies().set_index("pathology")
    assert set(table.index) >= set(PATHOLOGIES)
    row = table.loc["dio_kworker"]
    assert row["treatment"] == "weight"
    assert "weight" in str(row["factors"]).split(", ")
    assert {"quick", "study"} <= set(str(row["profiles"]).split(", "))


def test_kernels_are_those_of_the_catalogue_in_an_empty_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table = iolab.kernels()
    assert table["kernel"].tolist() == ["5.10", "6.1", "6.8", "6.12", "7.2"]
    assert set(table["state"]) <= {"fetchable", "unreachable"}
    assert set(table["scheduler"]) == {""}
    assert list(table) == ["kernel", "state", "release", "source", "scheduler", "reason"]


def test_reference_data_have_a_name_that_a_folder_here_goes_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    by_name = iolab.load("bfq_idling").cells
    assert by_name.equals(iolab.load(REFERENCE / "bfq_idling").cells)
    (tmp_path / "bfq_idling").mkdir()
    with pytest.raises(UserError):
        iolab.load("bfq_idling")
    with pytest.raises(UserError, match="dio_kworker"):
        iolab.load("dio_kworkr")


@pytest.mark.parametrize("nothing", [[], {}, {"6.1": []}])
def test_no_file_is_refused(nothing: list[str] | dict[str, list[str]]) -> None:
    with pytest.raises(UserError, match="file"):
        iolab.load(nothing)


def test_a_trace_is_read_and_damage_is_the_users(tmp_path: Path) -> None:
    turning(tmp_path, 9)
    assert iolab.read_trace(tmp_path / "turns.dat").events["sched_switch"] == 18
    whole = (tmp_path / "turns.dat").read_bytes()
    (tmp_path / "cut.dat").write_bytes(whole[:100])
    for name in ("cut.dat", "absent.dat"):
        with pytest.raises(UserError, match=name):
            iolab.read_trace(tmp_path / name)


def test_lines_that_are_no_events_are_warned_of(tmp_path: Path) -> None:
    text = tmp_path / "report.txt"
    line = "fio-10 [000] {}: sched_waking: comm=fio pid=10 prio=120 target_cpu=000\n"
    text.write_text("cpus=1\n" + line.format("1.000001") + "nonsense\n" + line.format("1.000002"))
    with pytest.warns(UserWarning, match="1 lines"):
        assert iolab.read_trace(text).events["sched_waking"] == 2


def test_a_cell_that_was_not_observed_has_no_profile(tmp_path: Path) -> None:
    with pytest.raises(IolabError, match="c003"):
        iolab.profile("3f2a9c0d1e4b5a67-c003", tmp_path)


def test_a_long_name_is_one_sentence() -> None:
    for name in ("x" * 300, Path("x" * 300), f"runs/{'x' * 300}"):
        with pytest.raises(UserError):
            iolab.load(name)
