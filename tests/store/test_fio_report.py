# SPDX-License-Identifier: MIT
"""fio's own JSON as cells: numbers of a real fio, and reports whose numbers are known."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import iolab
from iolab import figures
from iolab.experiment.comparison import comparison_of
from iolab.store.counters import CELL_COLUMNS
from iolab_base.errors import UserError
from tests.support.needs import program

_JOB = """
[global]
filename={data}
size=1m
ioengine=psync
[base]
rw=randread
bs=4k
[big]
stonewall
rw=read
bs=64k
numjobs=2
[mixed]
stonewall
rw=randrw
bs=4k
"""


def _side(ios: int, ms: int, mean: float, **percentile: float) -> dict[str, Any]:
    named = {f"{name.removeprefix('p')}.000000": value for name, value in percentile.items()}
    clat = {"min": 0, "max": int(2 * mean), "mean": mean, "percentile": named}
    return {"total_ios": ios, "runtime": ms, "clat_ns": clat}


def _job(name: str, group: int, ios: int, ms: int = 1000, **more: Any) -> dict[str, Any]:
    return {
        "jobname": name,
        "groupid": group,
        "error": 0,
        "usr_cpu": 10.0,
        "sys_cpu": 30.0,
        "job_runtime": ms,
        "ctx": 2 * ios,
        "read": _side(ios, ms, 5e5, p50=4e5, p99=9e5),
        "write": _side(0, 0, 0.0),
        **more,
    }


def _report(path: Path, *jobs: dict[str, Any], before: str = "") -> Path:
    path.write_text(before + json.dumps({"fio version": "fio-3.0", "jobs": jobs}))
    return path


_WHOLE = json.dumps({"fio version": "fio-3.0", "jobs": [_job("base", 0, 1000)]})


def test_cells_have_fios_numbers(tmp_path: Path) -> None:
    file = _report(
        tmp_path / "r.json",
        _job("base", 0, 1000),
        _job("base", 0, 500, 500),
        _job("deep", 1, 3000),
        before="\ufefffio: a {warning}\n",
    )
    cells = iolab.load(file).cells
    assert set(CELL_COLUMNS) <= set(cells.columns)
    base, deep = cells.to_dict("records")
    # 1000 in a second and 500 in half of one.
    assert (base["iops"], base["ios"], base["runtime_s"]) == (2000, 1500, 1.0)
    assert base["fio_cpu"] == pytest.approx(0.4 * 1.5)
    assert np.isnan(base["latency_p50_ns"])
    assert base["latency_mean_ns"] == 5e5
    assert (deep["latency_p50_ns"], deep["latency_p99_ns"]) == (4e5, 9e5)
    assert np.isnan([deep["latency_p95_ns"], deep["idle"], deep["switches_per_io"]]).all()
    assert (deep["target"], deep["clock"], deep["kernel"]) == ("file", "host", "unknown")
    pair = comparison_of(iolab.load(file))
    assert pair.ratio[["job", "n"]].to_numpy().tolist() == [["deep", 1]]
    assert pair.ratio["ratio"].tolist() == pytest.approx([1.5])
    assert pair.levels("fio_switches_per_io")["mean"].tolist() == [2.0, 2.0]
    assert pair.verdict().empty
    # The page drops columns of it.
    assert "claim" in pair.verdict()


def test_files_are_replicates_and_kernels_are_named(tmp_path: Path) -> None:
    def files(kernel: str, deep: int) -> list[Path]:
        return [
            _report(
                tmp_path / f"{kernel}-{n}.json", _job("base", 0, 1000 + n), _job("deep", 1, deep)
            )
            for n in range(3)
        ]

    data = iolab.load({"6.12": files("6.12", 500), "6.1": files("6.1", 1000)})
    table = comparison_of(data).ratio
    assert table["kernel"].tolist() == ["6.1", "6.12"]
    assert table["n"].tolist() == [3, 3]
    assert table["ratio"].tolist() == pytest.approx([1, 0.5], rel=0.01)
    figures.by_kernel(data.cells, "iops", "IOPS")
    with pytest.raises(UserError, match="given twice"):
        iolab.load([tmp_path / "6.1-0.json", tmp_path / "6.1-0.json"])


def test_jobs_that_failed_are_invalid_with_their_reason(tmp_path: Path) -> None:
    broken = _job("deep", 1, 0, error=5)
    cells = iolab.load(_report(tmp_path / "r.json", _job("base", 0, 10), broken)).cells
    assert cells["valid"].tolist() == [True, False]
    assert "error 5" in cells["gate"].iloc[1]
    assert "no I/O" in cells["gate"].iloc[1]


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        '{"jobs": [1]}',
        '{"fio version": "fio-3.1", "jobs": []}',
        "[" * 100_000,
        # A sum of latencies in us, from before 3.0.
        json.dumps({"fio version": "fio-2.1", "jobs": [{"read": {"total_ios": 1, "runtime": 1}}]}),
        json.dumps({"fio version": "fio-3.1", "jobs": [_job("a", 0, 1, read={})]}),
        json.dumps({"fio version": "fio-3.1", "jobs": [_job("a", 0, 1, usr_cpu="much")]}),
        json.dumps({"fio version": "fio-3.1", "jobs": [_job("a", 0, 1, usr_cpu=math.inf)]}),
        json.dumps({"fio version": "fio-3.1", "jobs": [_job("a", 0, -1)]}),
        '{"fio version": "fio-3.1", "jobs": [' + "9" * 5000 + "]}",
    ],
)
def test_another_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(UserError, match=r"r\.json: ") as caught:
        iolab.load(tmp_path / "r.json")
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # What --status-interval writes: the first report is of a part of the run.
        (f"{_WHOLE}\n{_WHOLE}", "several reports"),
        (f"{_WHOLE}{_WHOLE}", "several reports"),
        (f"[\n{_WHOLE},\n{_WHOLE}]", "several reports"),
        ('{"fio version": "fio-3.33", "client_stats": []}', "--client"),
        ('{"fio version": "fio-3.33", "jobs": [{"mixed": {}}]}', "unified_rw_reporting"),
        ('{"fio version": "fio-3.33",\n "usr_cpu": -nan}', "in line 2"),
        (_WHOLE[:200], "damaged"),
    ],
)
def test_what_a_report_is_instead_is_said(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(UserError, match=words):
        iolab.load(tmp_path / "r.json")


@pytest.mark.parametrize("ios", [2**63, 2**70])
def test_a_count_beyond_a_column_is_one_sentence(tmp_path: Path, ios: int) -> None:
    with pytest.raises(UserError, match="a job's report makes no sense"):
        iolab.load(_report(tmp_path / "r.json", _job("base", 0, ios, ctx=1)))


def test_switches_beyond_all_numbers_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a job's report makes no sense"):
        iolab.load(_report(tmp_path / "r.json", _job("base", 0, 1000, ctx=10**400)))


def test_an_error_of_many_words_is_a_line(tmp_path: Path) -> None:
    job = _job("base", 0, 1000, error="\x1b[31m" + "x" * 5000)
    (gate,) = iolab.load(_report(tmp_path / "r.json", job)).cells["gate"]
    assert gate.isprintable()
    assert len(gate) < 2000


def test_real_reports_with_bins_and_without_agree(tmp_path: Path) -> None:
    (tmp_path / "job.fio").write_text(_JOB.format(data=tmp_path / "data"))
    found: dict[str, pd.DataFrame] = {}
    for form in ("json", "json+"):
        output = tmp_path / f"{form}.out"
        argv = [str(program("fio")), "job.fio", f"--output-format={form}", f"--output={output}"]
        subprocess.run(argv, cwd=tmp_path, check=True)
        data = iolab.load(output)
        found[form] = data.cells
        assert data.cells["job"].fillna("base").tolist() == ["base", "big", "mixed"]
        assert data.cells["ios"].tolist() == [256, 32, 256]
        (own,) = [j for j in json.loads(output.read_text())["jobs"] if j["jobname"] == "base"]
        first = data.cells.iloc[0]
        assert first["latency_mean_ns"] == own["read"]["clat_ns"]["mean"]
        assert first["latency_p99_ns"] == own["read"]["clat_ns"]["percentile"]["99.000000"]
        assert data.latency.empty == (form == "json")
    assert found["json"]["latency_p99_ns"].isna().tolist() == [False, True, True]
    assert found["json+"]["latency_p99_ns"].notna().all()
