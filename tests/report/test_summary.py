# SPDX-License-Identifier: MIT
"""Archives of pyperf from the reference data, read back by its API and by its own commands."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pyperf import BenchmarkSuite

from iolab.pathology import PATHOLOGIES
from iolab.paths import REFERENCE
from iolab.report.summary import write_archives
from iolab.store.dataset import Dataset, load
from iolab_base.errors import UserError
from tests.support import synthetic
from tests.support.processes import PATIENCE_S

# Of the reference data's main condition, in the control and in every level of the treatment.
_MAIN = "seconds_per_io iodepth=272 numjobs=1 batch_min=1"


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load(REFERENCE / "dio_kworker")


@pytest.fixture(scope="module")
def archives(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    written = write_archives(data, tmp_path_factory.mktemp("archives") / "new")
    return {archive.path.stem: archive.path for archive in written}


def pyperf(*arguments: object) -> str:
    """Return what a command of pyperf says."""
    argv = [sys.executable, "-m", "pyperf", *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stderr == ""
    return done.stdout


def expected(
    cells: pd.DataFrame, weight: int | None, kernel: str = "6.1"
) -> dict[str, list[float]]:
    """Return 1/IOPS of each boot's cells of the main condition, straight from the table."""
    here = cells[(cells["kernel"] == kernel) & (cells["engine"] == "libaio")]
    here = here[(here["workers"] == "default") & (here["batch_min"] == 1)]
    here = here[(here["iodepth"] == 272) & (here["numjobs"] == 1)]
    here = here[here["valid"] & ~here["recorded"]]
    here = here[here["weight"].isna() if weight is None else here["weight"] == weight]
    return {
        str(block): sorted(1 / group["iops"]) for block, group in here.groupby("block", sort=False)
    }


@pytest.mark.parametrize(("archive", "weight"), [("6.1-control", None), ("6.1-weight-1000", 1000)])
def test_a_run_is_a_boot_with_the_seconds_of_its_cells(
    data: Dataset, archives: dict[str, Path], archive: str, weight: int | None
) -> None:
    benchmark = BenchmarkSuite.load(str(archives[archive])).get_benchmark(_MAIN)
    found = {run.get_metadata()["block"]: sorted(run.values) for run in benchmark.get_runs()}
    wanted = expected(data.cells, weight)
    assert found.keys() == wanted.keys()
    assert len(wanted) == 7
    for block, values in wanted.items():
        assert found[block] == pytest.approx(values, rel=1e-12)
    boots = [run.get_metadata()["boot"] for run in benchmark.get_runs()]
    assert boots == sorted(boots)


def test_metadata_say_what_was_measured_and_nothing_of_the_machine_that_writes(
    archives: dict[str, Path],
) -> None:
    suite = BenchmarkSuite.load(str(archives["6.12-weight-1000"]))
    common = suite.get_metadata()
    assert common["kernel"] == "6.12"
    assert common["kernel_release"] == "6.12.95+deb12-amd64"
    assert (common["scheduler"], common["clock"], common["target"]) == ("EEVDF", "virtual", "vm")
    assert (common["pathology"], common["unit"]) == ("dio_kworker", "second")
    assert not {"hostname", "python_version", "cpu_model_name", "date"} & common.keys()
    treated = suite.get_benchmark(_MAIN)
    assert treated.get_metadata()["weight"] == 1000
    # What the name leaves out.
    assert treated.get_metadata()["engine"] == "libaio"
    # A value is the mean of the I/Os of half a second.
    assert treated.get_loops() * treated.mean() == pytest.approx(0.5, rel=0.02)


def test_a_condition_and_its_control_have_one_short_name_on_every_kernel(
    data: Dataset, archives: dict[str, Path]
) -> None:
    factors = ["iodepth", "numjobs", "engine", "workers", "batch_min"]
    conditions = len(data.cells[factors].drop_duplicates())
    kernels = ("5.10", "6.1", "6.8", "6.12", "7.2")
    sides = ("control", "weight-400", "weight-1000", "weight-9600")
    assert list(archives) == [f"{kernel}-{side}" for kernel in kernels for side in sides]
    names = {
        stem: BenchmarkSuite.load(str(path)).get_benchmark_names()
        for stem, path in archives.items()
    }
    for kernel in kernels:
        control = names[f"{kernel}-control"]
        assert control == names["5.10-control"]
        assert len(control) == len(set(control)) == conditions
        for side in sides[1:]:
            assert set(names[f"{kernel}-{side}"]) <= set(control)
    assert max(len(name) for found in names.values() for name in found) < 80


@pytest.mark.parametrize("name", PATHOLOGIES)
def test_every_reference_is_exported_whole(name: str, tmp_path: Path) -> None:
    data = load(REFERENCE / name)
    kept = data.cells[data.cells["valid"] & ~data.cells["recorded"]]
    treatment = kept[PATHOLOGIES[name].treatment]
    archives = write_archives(data, tmp_path)
    assert {archive.kernel for archive in archives} == set(kept["kernel"])
    for archive in archives:
        suite = BenchmarkSuite.load(str(archive.path))
        values = sum(benchmark.get_nvalue() for benchmark in suite)
        side = treatment.isna() if archive.level == "control" else treatment == archive.level
        assert values == ((kept["kernel"] == archive.kernel) & side).sum() > 0


def test_invalid_and_traced_cells_are_left_out(tmp_path: Path) -> None:
    data = synthetic.dataset(kernels=["6.1", "6.12"], iodepths=[192], boots=2)
    cells = data.cells.copy()
    cells.loc[cells["kernel"] == "6.12", "valid"] = False
    traced = cells.index[cells["valid"]][0]
    cells.loc[traced, "recorded"] = True
    archives = write_archives(replace(data, cells=cells), tmp_path)
    assert {archive.kernel for archive in archives} == {"6.1"}
    suites = [BenchmarkSuite.load(str(archive.path)) for archive in archives]
    values = [v for suite in suites for b in suite for v in b.get_values()]
    left = cells[cells["valid"] & ~cells["recorded"]]
    assert sorted(values) == pytest.approx(sorted(1 / left["iops"]))
    assert len(values) == 20 - 2


def test_the_same_data_give_the_same_bytes(data: Dataset, archives: dict[str, Path]) -> None:
    for cells in synthetic.shuffled(data.cells, seeds=[5]):
        folder = archives["6.1-control"].parent.parent / "shuffled"
        again = write_archives(replace(data, cells=cells), folder)
        assert [archive.path.stem for archive in again] == list(archives)
        for archive in again:
            assert archive.path.read_bytes() == archives[archive.path.stem].read_bytes()


def test_what_has_no_time_per_io_is_a_users_mistake(data: Dataset, tmp_path: Path) -> None:
    nothing = replace(data, cells=data.cells.assign(valid=False, gate="no I/O was done"))
    with pytest.raises(UserError, match="there is no valid cell: no I/O was done"):
        write_archives(nothing, tmp_path)
    for wrong in (0.0, float("inf")):
        with pytest.raises(UserError, match=r"the valid cell .* has no seconds per I/O above 0"):
            write_archives(replace(data, cells=data.cells.assign(seconds_per_io=wrong)), tmp_path)
    elsewhere = replace(data, cells=data.cells.assign(kernel="../6.1"))
    with pytest.raises(UserError, match=r"more than one|several values"):
        write_archives(elsewhere, tmp_path)
    one = data.cells[data.cells["kernel"] == "6.1"].assign(kernel="../6.1")
    with pytest.raises(UserError, match=r"cannot be named '../6.1'"):
        write_archives(replace(data, cells=one), tmp_path / "inner")
    assert list(tmp_path.rglob("*")) == []


def test_pyperf_itself_shows_them(archives: dict[str, Path]) -> None:
    told = pyperf("stats", "-b", _MAIN, archives["6.1-weight-1000"])
    assert "Number of run with values: 7" in told
    assert "21.0 us" in told
    assert "WARNING" not in told
    told = pyperf("hist", "-b", _MAIN, archives["6.1-control"])
    assert "15.1 us" in told
    assert "###" in told


def _mean_us(boots: dict[str, list[float]]) -> float:
    values = [value for run in boots.values() for value in run]
    return 1e6 * sum(values) / len(values)


def test_pyperf_itself_sets_the_treatment_against_the_control(
    data: Dataset, archives: dict[str, Path]
) -> None:
    told = pyperf("compare_to", archives["6.1-control"], archives["6.1-weight-9600"], "--table")
    rows = [line for line in told.splitlines() if line.startswith("| seconds_per_io")]
    # Every condition that has both sides is compared.
    names = [BenchmarkSuite.load(str(archives["6.1-weight-9600"])).get_benchmark_names()]
    assert sorted(row.split("|")[1].strip() for row in rows) == sorted(*names)
    (main,) = [row for row in rows if f"| {_MAIN} " in row]
    means = [_mean_us(expected(data.cells, weight)) for weight in (None, 9600)]
    assert f"{means[0]:.1f} us" in main
    assert f"{means[1]:.1f} us: {means[1] / means[0]:.2f}x slower" in main


def test_pyperf_itself_sets_kernels_against_each_other(
    data: Dataset, archives: dict[str, Path]
) -> None:
    told = pyperf(
        "compare_to", archives["6.1-weight-1000"], archives["6.12-weight-1000"], "--table"
    )
    (row,) = [line for line in told.splitlines() if line.startswith(f"| {_MAIN}")]
    old, new = (_mean_us(expected(data.cells, 1000, kernel)) for kernel in ("6.1", "6.12"))
    assert f"{old:.1f} us" in row
    assert f"{new:.1f} us: {old / new:.2f}x faster" in row
