# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from iolab.paths import REFERENCE
from iolab.report.tables import traced_measures
from iolab.store.counters import ADDED_COLUMNS, column_types
from iolab.store.dataset import (
    KernelBuild,
    build_of,
    gate_other_regimes,
    load,
    merge_builds,
    read_builds,
)
from iolab_base.errors import UserError
from tests.support import synthetic
from tests.support.reports import report


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return synthetic.write(synthetic.dataset(kernels=["6.1"], boots=2), tmp_path / "data")


def test_what_was_written_is_read(folder: Path) -> None:
    data, made = load(folder), synthetic.dataset(kernels=["6.1"], boots=2)
    pd.testing.assert_frame_equal(data.cells, made.cells)
    pd.testing.assert_frame_equal(data.latency, made.latency)
    pd.testing.assert_frame_equal(data.unavailable, made.unavailable)


def test_a_folder_whose_name_is_not_utf8_is_read(folder: Path) -> None:
    odd = folder.rename(folder.with_name(os.fsdecode(b"caf\xe9\n'\"")))
    assert not load(odd).cells.empty


def test_a_column_of_an_older_version_is_left_out(folder: Path) -> None:
    expected = load(folder).cells
    path = folder / "cells.parquet"
    pd.read_parquet(path).assign(placement="outside").to_parquet(path)
    pd.testing.assert_frame_equal(load(folder).cells, expected)


def test_a_table_from_before_columns_were_added_is_read(folder: Path) -> None:
    path = folder / "cells.parquet"
    pd.read_parquet(path).drop(columns=list(ADDED_COLUMNS)).to_parquet(path)
    cells = load(folder).cells
    assert list(cells.columns) == list(column_types("dio_kworker"))
    added = cells[list(ADDED_COLUMNS)]
    assert added.drop(columns="busiest_task").isna().all(axis=None)
    assert (added["busiest_task"] == "").all()


def test_no_absent_kernel_is_an_empty_table(folder: Path) -> None:
    (folder / "unavailable.json").write_text("[]")
    assert list(load(str(folder)).unavailable.columns) == ["kernel", "reason"]


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _metadata(said: bytes) -> Callable[[Path], None]:
    """Return what makes a table say this of its columns in pandas."""

    def change(path: Path) -> None:
        pq.write_table(pq.read_table(path).replace_schema_metadata({b"pandas": said}), path)

    return change


def _drop_column(path: Path) -> None:
    pd.read_parquet(path).drop(columns=["iops"]).to_parquet(path)


def _spoil_column(path: Path) -> None:
    pd.read_parquet(path).assign(iops="fast").to_parquet(path)


def _double(path: Path) -> None:
    table = pd.read_parquet(path)
    pd.concat([table, table]).to_parquet(path)


def _foreign_cell(path: Path) -> None:
    pd.read_parquet(path).assign(cell="elsewhere").to_parquet(path)


@pytest.mark.parametrize("said", [b"\xff", b"[]", b"5", b'{"index_columns": ["nothing"]}'])
def test_what_a_table_says_of_pandas_is_not_believed(folder: Path, said: bytes) -> None:
    expected = load(folder)
    for name in ("cells", "latency", "mechanism"):
        _metadata(said)(folder / f"{name}.parquet")
    pd.testing.assert_frame_equal(load(folder).cells, expected.cells)
    pd.testing.assert_frame_equal(load(folder).latency, expected.latency)


@pytest.mark.parametrize("name", ["cells.parquet", "unavailable.json", "kernels.json", "traces"])
def test_no_link_of_a_folder_is_followed(folder: Path, name: str) -> None:
    path, elsewhere = folder / name, folder.with_name("elsewhere")
    if name == "traces":
        path.mkdir(exist_ok=True)
    elif not path.exists():
        path.write_text("{}")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.raises(UserError, match=name):
        load(folder)
    # The folder itself is named by the user.
    path.unlink()
    elsewhere.rename(path)
    folder.with_name("link").symlink_to(folder)
    assert not load(folder.with_name("link")).cells.empty


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("cells.parquet", Path.unlink, "no such file"),
        ("cells.parquet", _truncate, "not a whole Parquet file"),
        ("cells.parquet", _drop_column, "has no column iops"),
        ("cells.parquet", _spoil_column, "unexpected values"),
        ("cells.parquet", _double, "occurs twice"),
        ("latency.parquet", Path.unlink, "no such file"),
        ("latency.parquet", _foreign_cell, "cells.parquet lacks"),
        ("unavailable.json", Path.unlink, "no such file"),
        ("unavailable.json", lambda path: path.write_text("[{"), "not a whole JSON file"),
        ("unavailable.json", lambda path: path.write_text("{}"), "not a list of kernels"),
        ("unavailable.json", lambda path: path.write_text(json.dumps([{"a": 1}])), "has no column"),
    ],
)
def test_a_spoiled_folder_is_named_in_one_sentence(
    folder: Path, name: str, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(folder / name)
    with pytest.raises(UserError, match=message) as caught:
        load(folder)
    assert str(folder / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_results_from_before_a_factor_have_the_level_that_it_names(tmp_path: Path) -> None:
    synthetic.write(report("aio_migration"), tmp_path)
    path = tmp_path / "cells.parquet"
    table = pd.read_parquet(path)
    table.drop(columns=["rw", "intervention"]).to_parquet(path)
    assert load(tmp_path).cells[["rw", "intervention"]].drop_duplicates().to_dict("records") == [
        {"rw": "randwrite", "intervention": "none"}
    ]
    table.drop(columns="size").to_parquet(path)
    with pytest.raises(UserError, match="has no column size"):
        load(tmp_path)


def _traced(
    untraced: tuple[float, float], traced: tuple[float, float], **different: Any
) -> pd.DataFrame:
    """Return a cell and its traced twin, each with its switches per I/O and its IOPS."""
    cell = synthetic.dataset(kernels=["6.1"], boots=1, invalid=False).cells.iloc[[0]]
    names = ("switches_per_io", "steady_iops")
    twin = cell.assign(**dict(zip(names, untraced, strict=True)))
    other = cell.assign(**dict(zip(names, traced, strict=True)), cell="t", recorded=True)
    other = other.assign(twin=twin["cell"].iloc[0], **different)
    return pd.concat([twin, other], ignore_index=True)


@pytest.mark.parametrize(
    ("untraced", "traced"),
    [
        ((0.015, 1000), (2.009, 557)),
        # Either alone.
        ((0.015, 1000), (2.009, 900)),
        ((2.009, 1000), (0.015, 900)),
        ((2.0, 1000), (2.0, 600)),
        ((2.0, 600), (2.0, 1000)),
        ((0.0, 1000), (0.6, 1000)),
        # Less than half a switch, and many times as many.
        ((0.03, 1000), (0.36, 1000)),
        ((0.36, 1000), (0.03, 1000)),
    ],
)
def test_another_regime_is_gated(
    untraced: tuple[float, float], traced: tuple[float, float]
) -> None:
    cells = _traced(untraced, traced)
    found = gate_other_regimes(cells)
    assert found["valid"].tolist() == [True, False]
    assert found["gate"].iloc[1].startswith("tracing changed its regime: ")
    assert cells["valid"].all()


@pytest.mark.parametrize(
    ("untraced", "traced"),
    [
        # Tracing costs IOPS.
        ((2.0, 1000), (2.0, 700)),
        # A small factor, and less than half a switch; more than half a switch, and no factor.
        ((0.2, 1000), (0.54, 990)),
        # A factor, and hardly a switch.
        ((0.01, 1000), (0.04, 990)),
        ((2.0, 1000), (2.9, 990)),
        ((math.nan, 1000), (2.0, 990)),
        ((2.0, math.nan), (2.0, 990)),
    ],
)
def test_the_same_regime_is_not(untraced: tuple[float, float], traced: tuple[float, float]) -> None:
    cells = _traced(untraced, traced)
    assert gate_other_regimes(cells) is cells


def test_a_gate_of_its_own_stays() -> None:
    cells = _traced((0.015, 1000), (2.0, 500), valid=False, gate="the recording lost events")
    assert gate_other_regimes(cells)["gate"].iloc[1] == "the recording lost events"
    twin = _traced((0.015, 1000), (2.0, 500))
    twin.loc[0, "valid"] = False
    assert gate_other_regimes(twin)["valid"].tolist() == [False, True]


def test_the_traces_that_tipped_the_balance_are_gated() -> None:
    data = load(REFERENCE / "dio_kworker")
    hit = data.cells[data.cells["gate"].str.startswith("tracing changed its regime")]
    assert hit["kernel"].tolist() == ["5.10", "5.10", "6.8", "6.8"]
    assert set(hit["role"]) == {"treatment"}
    assert "2.01 switches per I/O, 0.015 without tracing" in hit["gate"].iloc[0]
    traced = traced_measures(data)
    # What is left of 5.10 and 6.8 are the controls.
    assert traced.loc[traced["kernel"] == "5.10", "weight"].isna().all()
    assert traced.loc[traced["kernel"] == "6.8", "weight"].isna().all()
    assert traced.loc[traced["kernel"] == "6.1", "weight"].notna().any()


_VOLUNTARY = {"PREEMPT_VOLUNTARY": "y", "PREEMPT_DYNAMIC": "y"}


@pytest.mark.parametrize(
    ("tunables", "options", "preemption", "hz"),
    [
        # As 6.1 and 7.2 show it; the latter was configured to be lazy.
        ({"preempt": "none (voluntary) full"}, {"HZ": "250", **_VOLUNTARY}, "voluntary", 250),
        ({"preempt": "full (lazy)"}, {"PREEMPT_LAZY": "y", "HZ": "1000"}, "lazy", 1000),
        # What the kernel reports is what it was booted with, whatever was configured.
        ({"preempt": "none voluntary (full)"}, _VOLUNTARY, "full", None),
        # Without PREEMPT_DYNAMIC, such as 5.10, only the configuration tells.
        ({}, {**_VOLUNTARY, "HZ": "250"}, "voluntary", 250),
        ({}, {"PREEMPT": "y", "PREEMPT_RT": "y"}, "rt", None),
        ({}, {"PREEMPT_BUILD": "y"}, "", None),
        ({}, {"HZ": "1e9"}, "", None),
        ({}, {}, "", None),
    ],
)
def test_a_build_is_what_the_kernel_reports_and_its_configuration(
    tunables: dict[str, str], options: dict[str, str], preemption: str, hz: int | None
) -> None:
    facts = {
        "kernel_version": "#1 SMP PREEMPT_DYNAMIC made up",
        "kernel_options": options,
        "scheduler_tunables": tunables,
    }
    build = build_of(facts)
    assert (build.preemption, build.hz) == (preemption, hz)
    assert build.version == "#1 SMP PREEMPT_DYNAMIC made up"


def test_boots_that_differ_say_so() -> None:
    builds = [
        KernelBuild("#1", "full", 250, {"features": "DELAY_DEQUEUE", "base_slice_ns": "700000"}),
        KernelBuild("#1", "lazy", 250, {"features": "NO_DELAY_DEQUEUE", "base_slice_ns": "700000"}),
    ]
    expected = KernelBuild("#1", "full, lazy", 250, {"base_slice_ns": "700000"})
    assert merge_builds(builds) == expected
    assert merge_builds([*builds, KernelBuild(hz=1000)]).hz is None


def test_the_reference_data_know_their_kernels() -> None:
    builds = load(REFERENCE / "dio_kworker").kernels
    assert {kernel: build.hz for kernel, build in builds.items()} == dict.fromkeys(
        ("5.10", "6.1", "6.8", "6.12", "7.2"), 250
    )
    assert {kernel: build.preemption for kernel, build in builds.items()} == {
        **dict.fromkeys(("5.10", "6.1", "6.8", "6.12"), "voluntary"),
        "7.2": "lazy",
    }
    assert "DELAY_DEQUEUE" in builds["6.12"].tunables["features"].split()


@pytest.mark.parametrize(
    "text", ["[", "[]", '{"6.1": {}}', '{"6.1": {"hz": "fast"}}', '{"6.1": 3}']
)
def test_damaged_builds_are_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kernels.json"
    assert read_builds(path) == {}
    path.write_text(text)
    with pytest.raises(UserError, match=r"kernels\.json") as caught:
        read_builds(path)
    assert "\n" not in str(caught.value)


def test_a_build_is_read_as_it_was_written(tmp_path: Path) -> None:
    build = KernelBuild("#1 SMP", "lazy", 300, {"features": "A NO_B"})
    path = tmp_path / "kernels.json"
    path.write_text(json.dumps({"mine": asdict(build)}))
    assert read_builds(path) == {"mine": build}
    path.write_text(json.dumps({"mine": {**asdict(build), "version": "\x1b[2J", "hz": None}}))
    assert read_builds(path)["mine"].version == "?[2J"
