# SPDX-License-Identifier: MIT
"""A block that was really measured, measured again: the same bytes, and what was forged."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from iolab.cli import main
from iolab.design import blocks_of
from iolab.pathology import get_pathology
from iolab.paths import REFERENCE
from iolab.store.dataset import Dataset, load
from iolab.store.hashes import has_hashes
from iolab.store.raw import RawStore
from iolab.store.tables import write_tables
from iolab.sweeps.block import measure_block
from iolab.sweeps.verify import (
    LATENCIES,
    CheckedBlock,
    _known,
    block_values,
    choose_blocks,
    compare_block,
    different_values,
    read_sources,
)
from iolab.targets.vm import VmTarget, own_identity
from iolab_base.files import atomic_write, cache_dir, canonical_json
from tests.support.command import ARGV
from tests.support.needs import lack
from tests.support.processes import child_environment, machines_disturbed, processes_naming
from tests.support.sealed import forged, forged_table, made_up, measured_on

_KERNEL = "6.1"
_AGENT = "0" * 64


@dataclass(frozen=True)
class Measured:
    """A small block in a store, and the folder of its tables."""

    root: Path
    key: str
    folder: Path


@pytest.fixture(scope="module")
def measured(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Measure treated pairs with their A/A check, and a traced twin of one pair."""
    # Its cells are a few writes: the shortest of all.
    pathology = get_pathology("bfq_idling")
    profile = replace(pathology.profiles["smoke"], boots=1)
    (block,) = blocks_of(pathology, profile, kernel=_KERNEL, clock="virtual")
    root = tmp_path_factory.mktemp("measured")
    plan = root / "plans" / "block.json"
    atomic_write(plan, canonical_json(block.document()))
    key = measure_block(plan, RawStore(root))
    write_tables(RawStore(root), [key], {}, root / "out")
    return Measured(root, key, root / "out")


def compared(measured: Measured, folder: Path, *, anyway: bool = False) -> CheckedBlock:
    """Compare a folder with the block of the fixture, as if that had been measured again."""
    (one,) = choose_blocks(read_sources([folder]), 2, seed=0, anyway=anyway).chosen
    return compare_block(one, measured.key, RawStore(measured.root))


def _forge_hash(document: dict[str, Any]) -> None:
    hashes = document["cells"]["c001"]["recorded_sha256"]
    document["cells"]["c001"]["recorded_sha256"] = hashes[::-1]


def _forge_trace(document: dict[str, Any]) -> None:
    cells = [cell for cell in document["cells"].values() if cell["trace_sha256"]]
    cells[0]["trace_sha256"], cells[1]["trace_sha256"] = (
        cells[1]["trace_sha256"],
        cells[0]["trace_sha256"],
    )


@pytest.mark.vm
def test_a_block_comes_out_again_and_a_forged_hash_does_not(
    measured: Measured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    false = forged(measured.folder, tmp_path / "false", _forge_hash)
    words = ["verify", str(measured.folder), str(false), "--json", "--seed", "3"]
    monkeypatch.setattr(sys, "argv", ["iolab", *words])
    # A busy host wakes QEMU at any moment: what it measures must not show that.
    with (
        machines_disturbed(cache_dir() / "verify") as disturbed,
        pytest.raises(SystemExit) as ended,
    ):
        main()
    assert len(disturbed) == 2
    told = capsys.readouterr()
    document = json.loads(told.out)
    by_folder = {block["folder"]: block for block in document["blocks"]}
    honest, lying = by_folder[str(measured.folder)], by_folder[str(false)]
    assert [cell for cell in honest["cells"] if not cell["same_bytes"] or cell["different"]] == []
    assert [cell["same_trace"] for cell in honest["cells"]].count(True) == 2
    assert (honest["same"], lying["same"]) == (True, False)
    assert [cell["id"] for cell in lying["cells"] if not cell["same_bytes"]] == ["c001"]
    assert all(cell["different"] == {} for cell in lying["cells"])
    assert (document["seed"], document["blocks_same"], document["left_out"]) == (3, 1, [])
    assert (ended.value.code, told.err.splitlines()[-1]) == (
        1,
        "iolab: 1 of 2 blocks differ from what is stored",
    )
    assert "same bytes" in told.err
    assert f"1 of {len(lying['cells'])} cells differ" in told.err
    assert not list((cache_dir() / "verify").glob(f"*/{measured.key}"))


@pytest.mark.vm
def test_an_edited_table_and_a_swapped_trace_are_named(measured: Measured, tmp_path: Path) -> None:
    def lie(cells: pd.DataFrame) -> None:
        cells["iops"] *= [1.01 if cell.endswith("c002") else 1.0 for cell in cells["cell"]]

    checked = compared(measured, forged_table(measured.folder, tmp_path / "table", lie))
    (cell,) = (cell for cell in checked.cells if not cell.same)
    assert (cell.id, cell.same_bytes, list(cell.different)) == ("c002", True, ["iops"])
    assert math.isclose(cell.ratio, 1 / 1.01)
    assert checked.compared
    assert not checked.same

    swapped = forged(measured.folder, tmp_path / "trace", _forge_trace)
    for trace in (swapped / "traces").glob("*.dat"):
        trace.unlink()
    checked = compared(measured, swapped)
    assert [cell.same_trace for cell in checked.cells].count(False) == 2
    assert all(cell.same_bytes and not cell.different for cell in checked.cells)


@pytest.mark.vm
def test_another_agent_is_measured_only_anyway_and_its_values_are_compared(
    measured: Measured, tmp_path: Path
) -> None:
    other = measured_on(measured.root, measured.key, tmp_path, agent=_AGENT, image="1" * 64)
    checked = compared(measured, other, anyway=True)
    assert checked.chosen.differs["agent"] == ("000000000000", own_identity()["agent"][:12])
    assert set(checked.chosen.differs) == {"agent", "image"}
    assert [cell.ratio for cell in checked.cells] == [1.0] * len(checked.cells)
    assert (checked.compared, checked.same) == (False, False)


@pytest.mark.vm
def test_a_kernel_of_another_source_with_the_same_bytes_is_the_same(
    measured: Measured, tmp_path: Path
) -> None:
    other = measured_on(measured.root, measured.key, tmp_path, kernel_source="given by the user")
    assert compared(measured, other).same


@pytest.mark.vm
def test_kernels_that_cannot_be_had_are_left_out_in_a_sentence_each(
    measured: Measured, tmp_path: Path
) -> None:
    made_up(tmp_path / "mine", own_identity(), "my-own")
    made_up(tmp_path / "there", {**own_identity(), "kernel": "1" * 64}, "6.1")
    folders = [tmp_path / "mine" / "out", tmp_path / "there" / "out", measured.folder]
    choice = choose_blocks(read_sources(folders), 3, seed=0)
    assert [one.folder for one in choice.chosen] == [measured.folder]
    unknown, other = sorted(choice.left_out, key=lambda sentence: "my-own" not in sentence)
    assert unknown.startswith("dio_kworker on my-own: kernel my-own is unknown here")
    assert "another kernel (111111111111; here linux-image-6.1" in other


@pytest.mark.vm
def test_ctrl_c_leaves_nothing_running(measured: Measured, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "iolab"
    cache.mkdir(parents=True)
    for path in cache_dir().iterdir():
        if path.name != "verify":
            (cache / path.name).symlink_to(path)
    verify = subprocess.Popen(
        [*ARGV, "verify", str(measured.folder), "--seed", "7"],
        env=child_environment(XDG_CACHE_HOME=str(cache.parent)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # How long it takes until a machine runs does not matter, but the command must go on.
        while not processes_naming("qemu-system", str(cache / "verify")):
            assert verify.poll() is None
            time.sleep(0.1)
        verify.send_signal(signal.SIGINT)
        out, words = verify.communicate()
    finally:
        verify.kill()
    assert processes_naming(str(cache / "verify")) == []
    assert list((cache / "verify").iterdir()) == []
    sentence = "iolab: interrupted: 0 of 1 blocks are verified, nothing is kept"
    assert (verify.returncode, words.splitlines()[-1]) == (130, sentence)
    assert out == "0 of 1 blocks: the same bytes (--seed 7 draws them again)\n"


@pytest.mark.vm
def test_a_block_of_the_reference_data_comes_out_again(
    in_process: Callable[..., tuple[int, str]],
) -> None:
    if not any(has_hashes(folder) for folder in REFERENCE.iterdir()):
        lack("reference data with hashes")
    # A folder is of one release.
    parts = ("agent", "guest_init", "machine", "image", "qemu")
    releases = {
        source.folder: {tuple(block.target.get(part) for part in parts) for block in source.blocks}
        for source in read_sources([REFERENCE])
    }
    assert {folder for folder, found in releases.items() if len(found) > 1} == set()
    own = own_identity()
    if (own["agent"], own["guest_init"], own["machine"]) not in {
        release[:3] for found in releases.values() for release in found
    }:
        lack("reference data that this agent measured")
    # Its blocks are the shortest.
    folder = str(REFERENCE / "controls" / "bfq_idling")
    code, error = in_process("verify", folder, "--kernel", "6.1", "--blocks", "1", "--seed", "0")
    if code in (3, 4):
        lack("the packages of the reference data", error)
    assert code == 0, error


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return load(made_up(tmp_path))


def differences(before: Dataset, now: Dataset) -> dict[str, list[str]]:
    block = before.cells["cell"].iloc[0].partition("-")[0]
    stored, measured = (
        block_values(block, of.cells, of.latency, of.mechanism) for of in (before, now)
    )
    found = {name: list(different_values(stored[name], measured[name])) for name in stored}
    return {name: columns for name, columns in found.items() if columns}


def test_the_same_tables_have_no_differences(data: Dataset) -> None:
    assert differences(data, data) == {}


def test_a_column_that_older_tables_lack_is_no_difference(data: Dataset) -> None:
    cells = data.cells.assign(read_iops=5.0)
    for stored, different in ([math.nan] * len(cells), False), ([1.0] * len(cells), True):
        before = replace(data, cells=cells.assign(read_iops=stored))
        now = replace(data, cells=_known(cells, before.cells, "iops"))
        found = differences(before, now)
        assert all(columns == ["read_iops"] for columns in found.values())
        assert bool(found) is different
    # One value shows that the column existed.
    before = replace(data, cells=cells.assign(read_iops=[1.0, *[math.nan] * (len(cells) - 1)]))
    assert differences(before, replace(data, cells=_known(cells, before.cells, "iops")))
    assert "program_value" in _known(cells, before.cells, "program_value")


def test_the_same_block_by_another_name_is_the_same(data: Dataset) -> None:
    (block,) = data.cells["block"].unique()
    data.cells.loc[0, "twin"] = f"{block}-c003"

    def renamed(table: pd.DataFrame) -> pd.DataFrame:
        texts = [name for name in ("cell", "block", "twin") if name in table]
        return table.assign(**{n: table[n].str.replace(block, "f" * 16) for n in texts})

    tables = map(renamed, (data.cells, data.latency, data.mechanism))
    before = block_values(block, data.cells, data.latency, data.mechanism)
    now = block_values("f" * 16, *tables)
    assert list(now) == list(before) == ["c000", "c001", "c002", "c003"]
    assert [different_values(before[name], now[name]) for name in now] == [{}] * 4


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("iops", 2999.9),
        ("iops", math.nan),
        ("boot", 1),
        ("block", "f" * 16),
        ("twin", "f" * 16 + "-c001"),
        ("weight", None),
        ("valid", False),
        ("gate", "too busy"),
        ("kernel_release", "6.1.1"),
    ],
)
def test_one_edited_value_is_named(data: Dataset, column: str, value: Any) -> None:
    values = data.cells[column].tolist()
    (place,) = data.cells.index[data.cells["weight"].notna()]
    values[place] = value
    edited = data.cells.assign(**{column: values}).astype({column: data.cells[column].dtype})
    found = differences(replace(data, cells=edited), data)
    assert found == {f"c00{place}": [column]}


@pytest.mark.parametrize(
    "edit", [lambda bins: bins.iloc[1:], lambda bins: bins.assign(count=bins["count"] + 1)]
)
def test_an_edited_histogram_is_named(
    data: Dataset, edit: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    found = differences(replace(data, latency=edit(data.latency)), data)
    assert set(found["c000"]) == {LATENCIES}


def test_an_edited_or_invented_measure_is_named(data: Dataset) -> None:
    (block,) = data.cells["block"].unique()
    row = {"cell": f"{block}-c001", "measure": "made_up_per_s", "value": 1.0}
    invented = pd.concat([data.mechanism, pd.DataFrame([row])], ignore_index=True)
    assert differences(replace(data, mechanism=invented), data) == {"c001": ["made_up_per_s"]}


def test_the_last_digits_of_a_sum_are_no_difference() -> None:
    assert different_values({"iops": 1.0}, {"iops": 1.0 + 1e-12}) == {}
    assert different_values({"iops": 1.0}, {"iops": 1.0 + 1e-6}) != {}
